"""`decode evaluate`: runs in, decoded scores out, through the same evaluator, clips and statistics as every diagnostic.

OUT/decoded/scores.parquet  OUT/decoded/parts/  OUT/decoded/decoder.json
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ..corpus.simulated import PLAN
from ..decoded import FOLDER
from ..diagnostics.diagnostic import Role
from ..diagnostics.evaluation import Evaluated, Instruments, Progress, entries_of, evaluate, refuse_foreign
from ..diagnostics.evaluator import Evaluator
from ..diagnostics.settings import EvaluateSettings
from ..diagnostics.several import SideBySide
from ..errors import RenderingError
from ..scores import DiagnosticInfo
from ..storage import write_text
from ..teacher.street_detector import StreetDetector
from .decoder import load_decoder, refuse_other_latents
from .diagnostics import (
    DecodedAgents,
    DecodedDiagnostic,
    DecodedFlow,
    DecodedL1,
    DecodedLpips,
    DecodedPsnr,
    DecodedSsim,
)
from .drawn import Studio
from .failing import RULE, DecodedFailures
from .metrics.detection import AgentDetector, OnnxAgents
from .metrics.lpips import Lpips

DECODED: tuple[type[DecodedDiagnostic], ...] = (
    DecodedPsnr, DecodedSsim, DecodedLpips, DecodedFlow, DecodedAgents, DecodedL1, DecodedFailures,
)  # fmt: skip
CONTRACT = "decoder.json"
LOOKED_AT: tuple[Role, ...] = ("measure",)  # the clips of which pictures are drawn; nothing is fitted
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Looking:
    """Which decoder draws, and which frozen networks look at its pictures. None: what comes with the package."""

    decoder: Path | None = None
    lpips: Path | None = None
    detector: Path | None = None  # ONNX

    def studio(self, arch: str, data: Path, device: torch.device) -> Studio:
        """Opened once for all runs of a backbone. The shipped detector knows simulated streets only."""
        stored = load_decoder(self.decoder, arch, device)
        lpips = Lpips.load(self.lpips, device=device) if self.lpips else None
        detector: AgentDetector | None = None
        if self.detector is not None:
            detector = OnnxAgents(self.detector)
        elif (data / PLAN).is_file():
            detector = StreetDetector.load(device=device)
        return Studio(stored, lpips, detector)


def evaluate_decoded(
    runs: Sequence[Path],
    out: Path,
    looking: Looking,
    settings: EvaluateSettings,
    device: torch.device,
    data: Path | None = None,
    targets: Path | None = None,
    progress: Progress | None = None,
    side_by_side: int = 1,
) -> Evaluated:
    """Scores of decoded futures into OUT/decoded. One backbone at a time: a decoder belongs to one.

    Weights of LPIPS or a detector given later add their scores to finished ones; futures are drawn again for that, and
    nothing else is measured.
    """
    refuse_foreign(out)
    arch, corpus = _backbone_and_corpus(runs, data, targets)
    studio = looking.studio(arch, corpus, device)
    ahead = SideBySide(side_by_side, settings, device, _Instruments(looking, arch, corpus, str(device)))
    made = evaluate(
        runs, out / FOLDER, settings, device, data, targets, progress, instruments(studio, looking), ahead
    )  # fmt: skip
    about = {"digest": studio.stored.digest, **studio.stored.contract}
    write_text(out / FOLDER / CONTRACT, json.dumps(about, indent=1) + "\n")
    return made


def open_studio(
    runs: Sequence[Path], looking: Looking, device: torch.device, data: Path | None, targets: Path | None
) -> Studio:
    """Of the backbone that all runs share."""
    arch, corpus = _backbone_and_corpus(runs, data, targets)
    return looking.studio(arch, corpus, device)


@dataclass(frozen=True)
class _Instruments:
    """Every decoded diagnostic, as another process can be told to make them."""

    looking: Looking
    arch: str
    data: Path
    device: str

    def __call__(self) -> Instruments:
        return instruments(self.looking.studio(self.arch, self.data, torch.device(self.device)), self.looking)


def _backbone_and_corpus(runs: Sequence[Path], data: Path | None, targets: Path | None) -> tuple[str, Path]:
    entries, broken = entries_of(runs, data, targets)
    if not entries:
        raise RenderingError("\n".join(broken.values()) or "there are no runs to render")
    arches = sorted({entry.conditions.arch for entry in entries})
    if len(arches) > 1:
        raise RenderingError(f"a decoder belongs to one backbone, these runs to {', '.join(arches)}: render them apart")
    return arches[0], Path(entries[0].conditions.data)


def check_fits(studio: Studio, looking: Looking, evaluator: Evaluator) -> None:
    """Tokens of another encoder are refused; of windows it has not met a decoder draws, but not as well."""
    named = str(looking.decoder or "the packaged decoder")
    refuse_other_latents(studio.stored, named, evaluator.conditions.arch, evaluator.reference.digest())
    if strange := studio.stored.never_met(evaluator.conditions.window, evaluator.conditions.context):
        log.warning(
            "%s was not trained on %s: its pictures, the oracle's too, will be poorer; train a decoder for these runs "
            "with `factorjepa decode train`",
            studio.stored.name,
            strange,
        )


def instruments(studio: Studio, looking: Looking) -> Instruments:
    """Every decoded diagnostic over one studio."""
    infos: dict[str, DiagnosticInfo] = {one.info.name: one.info for one in DECODED}

    identity = {
        **studio.identity(), "agent matching": DecodedAgents.rule.model_dump_json(), "failures": RULE.model_dump_json(),
    }  # fmt: skip
    return Instruments(
        infos,
        lambda evaluator: [one(evaluator.settings, studio) for one in DECODED],
        identity,
        partial(check_fits, studio, looking),
        {one.info.name: one.needs for one in DECODED if one.needs},
        LOOKED_AT,
    )
