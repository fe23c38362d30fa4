"""Frozen-encoder scorecard (Table "Frozen encoders collapse"): what probes read from encoders that nobody adapted.

The diagnostics and probes are those of `evaluate`, as far as they need no predictor. The difference is what they read:
the encoder's tokens of the context, where a method gives its prediction of the future. So its scores are tables of
their own, and do not join with a method's.

OUT/scores.parquet                 every encoder that agrees with the others
OUT/parts/<encoder>.parquet        one encoder; finished parts are not made again
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from .. import __version__, commands
from ..backbones.frozen import FrozenEncoder, open_encoder
from ..corpus.access import ClipSet, Corpus
from ..corpus.windows import WindowSpec
from ..errors import DiagnosticsError, ScoresError
from ..scores import CHANCE, ENCODER, DiagnosticInfo, RunInfo, Scores
from ..storage import only_writer, remove_partials
from .action import ActionTop1
from .correspondence import CycleBack, KendallTau
from .diagnostic import Diagnostic, Found, Part, Role
from .evaluation import PARTS, earlier_parts, refuse_foreign, warn_of_lost
from .evaluator import Scenes
from .looking import STEP, Looked, Looker, chances_of, correspondence
from .motion_cosine import MotionCosine
from .parts import batches, clip_sets, digest_of, labels_of, text_of
from .reference import Precision
from .scene import Known
from .settings import EvaluateSettings
from .taxonomy_f1 import TaxonomyF1
from .transformations import ArrowOfTime, PlaybackPace, TemporalOrder

log = logging.getLogger(__name__)

BACKBONE = "frozen encoders"  # one name for all: they are compared with each other
PROBED: tuple[type[Diagnostic], ...] = (MotionCosine, ActionTop1, TaxonomyF1, ArrowOfTime, TemporalOrder, PlaybackPace)
_PAIR = (
    "the left and the right two thirds of the picture, each shown as a clip of its own; matched are mean tokens less "
    "the clip's"
)

Progress = Callable[[int, int, str], object]


def infos() -> dict[str, DiagnosticInfo]:
    """What the scores of a scorecard mean."""
    probed = [
        dataclasses.replace(
            one.info,
            formula=one.info.formula.replace("Y_hat", "f(context)"),
            provenance=f"reads a frozen encoder's tokens of the context; {one.info.provenance}",
        )
        for one in PROBED
    ]
    matched = [
        dataclasses.replace(one.info, formula=formula, provenance=_PAIR)
        for one, formula in (
            (
                CycleBack,
                "mean over n steps i of the left view of |i - back(match(i))|, matches in the right view; chance: "
                "(n^2 - 1) / (6 n - 3)",
            ),
            (KendallTau, "(concordant - discordant) / pairs of steps, by the times of their matches; chance: 0"),
        )
    ]
    return {info.name: info for info in (*probed, *matched)}


@dataclass
class Scorecard:
    """What was made."""

    scores: Scores
    path: Path
    size: int  # pixels at which clips were read
    again: list[str] = field(default_factory=list)  # encoders whose finished part was kept


def scorecard(
    data: Path,
    encoders: Sequence[tuple[str, Path | None]],
    out: Path,
    settings: EvaluateSettings,
    device: torch.device,
    window: WindowSpec,
    context: int = 12,
    progress: Progress | None = None,
) -> Scorecard:
    """Score encoders, each an architecture and its weights (None: those at hand), one after the other."""
    _check(encoders, window, context)
    refuse_foreign(out)
    sets = clip_sets(Corpus.open(data), settings)
    precision = Precision(
        device, device.type == "cuda" if settings.precision == "auto" else settings.precision == "bf16"
    )
    shared = {
        "version": __version__,
        "features": f"frozen encoders, steps of {STEP} frames",
        "window": text_of({**window.model_dump(), "context": context, "replication": settings.replication}),
        "split": settings.split,
        **{f"{role} clips": digest_of(clips) for role, clips in sets.items()},
        **{name: text_of(getattr(settings, name)) for name in ("motion", "probes", "actions", "pace")},
        "labels": labels_of(list(sets.values())),
        "precision": "bf16" if precision.bf16 else "fp32",
    }
    made = Scorecard(Scores.of_rows([], infos(), shared, []), out / "scores.parquet", window.size)
    parts: list[Scores] = []
    total = sum(map(len, sets.values()))
    with only_writer(out, "scoring"):
        remove_partials(out)
        looker: Looker | None = None
        scenes: list[Scenes] = []
        for number, (arch, weights) in enumerate(encoders):
            encoder = open_encoder(arch, weights, device=device, dtype=torch.float32)
            if looker is None:
                looker = Looker(encoder, context, precision)
                scenes = [_scenes(role, clips, window, looker, settings) for role, clips in sets.items()]
            looker.use(encoder)
            identity = {**shared, f"{ENCODER}{arch}": looker.digest()}
            path = out / PARTS / f"{arch}.parquet"
            part = _finished(path, identity)
            if part is not None:
                made.again.append(arch)
            else:

                def told(clips: int, start: int = number * total, note: str = arch) -> None:
                    if progress is not None:
                        progress(start + clips, total * len(encoders), note)

                part = _measure(encoder, looker, scenes, settings, identity, told, str(data))
                part.write(path)
            parts.append(part)
        parts += earlier_parts(out / PARTS, {arch for arch, _ in encoders}, parts[0])
        made.scores = Scores.joined(parts)
        warn_of_lost(out, made.scores.scored(), lambda run: run[1].removeprefix("frozen:"))
        made.scores.write(made.path)
    return made


def _check(encoders: Sequence[tuple[str, Path | None]], window: WindowSpec, context: int) -> None:
    names = [arch for arch, _ in encoders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DiagnosticsError(f"{twice[0]} is named twice: a scorecard has one row for each architecture")
    if context % STEP or not STEP <= context < window.frames or window.frames < 4 * STEP:
        raise DiagnosticsError(
            f"a context of {context} of {window.frames} frames: it must be whole steps of {STEP} frames and leave a "
            f"future, and the window must have at least {4 * STEP} frames"
        )


def _scenes(role: Role, clips: ClipSet, window: WindowSpec, looker: Looker, settings: EvaluateSettings) -> Scenes:
    part = Part(role, packets=False, truth=False)
    return Scenes(part, clips, lambda: batches(clips, window, settings), lambda batch: Known(), looker, settings)


def _measure(
    encoder: FrozenEncoder, looker: Looker, parts: Sequence[Scenes], settings: EvaluateSettings,
    identity: dict[str, str], told: Callable[[int], object], data: str,
) -> Scores:  # fmt: skip
    """One pass over the clips; what several diagnostics ask is looked at once."""
    probed = [one(settings) for one in PROBED]
    found: dict[str, list[Found]] = {CycleBack.info.name: [], KendallTau.info.name: []}
    seen = 0
    for scenes in parts:
        asks = [ask for one in probed for ask in one.asks(scenes.part)]
        for scene in scenes:
            answers = Looked(looker, scene, asks)
            for one in probed:
                one.see(scenes.part, scene, answers)
            if scenes.part.role == "measure":
                matched, chances = correspondence(looker, scene), chances_of(scene)
                for listed, values_B, chance in zip(found.values(), matched, chances, strict=True):
                    for clip, value in zip(scene.clips, values_B.tolist(), strict=True):
                        listed += [Found(clip, "pooled", value), Found(clip, CHANCE, chance)]
            seen += len(scene)
            told(seen)
    for one in probed:
        one.finish()
        found[one.info.name] = one.found
    method = f"frozen:{encoder.name}"
    rows = [
        {
            "backbone": BACKBONE, "method": method, "seed": 0, "city": one.clip.city, "source": one.clip.source,
            "clip_id": one.clip.clip_id, "diagnostic": name, "variant": one.variant, "value": one.value,
        }
        for name, of_name in found.items() for one in of_name
    ]  # fmt: skip
    run = RunInfo(
        BACKBONE, method, 0, encoder.name, "frozen", trainable=0, run=encoder.origin, config="", step=0,
        evaluated_by=commands.command(), missing=tuple(lack for one in probed for lack in one.missing),
        measured_on=data,
    )  # fmt: skip
    return Scores.of_rows(rows, infos(), identity, [run])


def _finished(path: Path, identity: dict[str, str]) -> Scores | None:
    """An encoder's part, if it is of these weights, clips and settings."""
    try:
        part = Scores.read(path)
    except ScoresError:
        return None
    return part if part.evaluator == identity and part.diagnostics == infos() else None
