"""`decode render`: the future of a few clips, drawn from the truth, from every method, and with a channel left out.

Clips are chosen by rank of the latent error of FactorJEPA (or whoever comes first), from the hardest to the easiest.

Shapes: B clips, T future frames, H x W pixels, t future tokens, D width.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..decoded import ABOUT, CHANNELS, FOLDER, TEACHER, TRUTH, DecodedExample, Failure, drawn_by, write_decoded
from ..diagnostics.asks import PLAIN, Predicted, Subject
from ..diagnostics.evaluator import Evaluator, Scenes
from ..diagnostics.examples import first_runs, ranked, subjects_of
from ..diagnostics.scene import Scene
from ..diagnostics.settings import EvaluateSettings
from ..diagnostics.truth import agent_masks
from ..errors import RenderingError
from ..predictors import PerFactor
from ..storage import only_writer, remove_partials
from ..teacher.views import agent_support
from ..words import counted
from .diagnostics import moving_pixels
from .drawn import Drawn, Studio, as_bytes, drawn_of, future_grid, observed, oracle
from .evaluation import LOOKED_AT, Looking, check_fits, open_studio
from .failing import failures_of, nearest_of
from .gallery import column_order, write_gallery
from .metrics.motion import to_bytes
from .panels import common_box
from .where import errors_by_region

OURS = "factorjepa"
_BESIDE = ".pictures"  # where new ones wait in OUT/decoded
EPSILON = 1e-8  # of an influence map

Progress = Callable[[int, int], object]


def render(
    runs: Sequence[Path],
    out: Path,
    looking: Looking,
    settings: EvaluateSettings,
    device: torch.device,
    count: int,
    data: Path | None = None,
    targets: Path | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """`count` clips into OUT/decoded, with pictures of all of them, in place of those drawn before.

    Those of another decoder or split are not replaced unless `overwrite` says so: they belong to other scores.
    """
    studio = open_studio(runs, looking, device, data, targets)
    if not overwrite:
        _refuse_others(out, studio, settings)
    first = first_runs(runs, data, targets)
    conditions = next(iter(first.values())).conditions
    with only_writer(out, "rendering"), only_writer(out / FOLDER, "rendering"):  # the second: who measures writes there
        remove_partials(out / FOLDER)
        evaluator = Evaluator(conditions, settings, device, LOOKED_AT)
        check_fits(studio, looking, evaluator)
        subjects = subjects_of(first, evaluator, device)
        made = examples_of(subjects, evaluator, studio, count, progress)
        return _replace_pictures(out / FOLDER, {f"{number:02d}": example for number, example in enumerate(made)})


def _replace_pictures(folder: Path, examples: Mapping[str, DecodedExample]) -> list[Path]:
    """Written beside the earlier ones, which go when all are there: a full disk or a kill leaves those as they were."""
    beside = folder / _BESIDE
    shutil.rmtree(beside, ignore_errors=True)  # of a killed rendering
    try:
        for name, example in examples.items():
            write_decoded(beside / name, example)
        write_gallery(beside, examples)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    for old in folder.glob(f"*/{ABOUT}"):
        shutil.rmtree(old.parent)
    for new in sorted(beside.iterdir()):
        new.replace(folder / new.name)
    beside.rmdir()
    return [folder / name for name in examples]


def _refuse_others(out: Path, studio: Studio, settings: EvaluateSettings) -> None:
    mine = (studio.identity()["decoder"], settings.split)
    others = [one for one in drawn_by(out) if one != mine]
    if others:
        decoder, split = others[0]
        raise RenderingError(
            f"{out / FOLDER}: holds pictures of {counted(len(others), 'clip')} of the {split} split by {decoder}; "
            f"these would be of the {mine[1]} split by {mine[0]}. Choose another --out, or replace them: --overwrite"
        )


def examples_of(
    subjects: Mapping[str, Subject],
    evaluator: Evaluator,
    studio: Studio,
    count: int,
    progress: Progress | None = None,
) -> list[DecodedExample]:
    """The first subject ranks the clips; all are drawn on each."""
    ranking = next(iter(subjects))
    measured = next(scenes for scenes in evaluator.parts if scenes.part.role == "measure")
    seen = 0

    def told(clips: int) -> None:
        nonlocal seen
        seen += clips
        if progress is not None:
            progress(seen, 2 * len(measured))

    order, chosen = ranked(_errors(subjects[ranking], measured, told), count)
    titles = {name: subject.model.method.title for name, subject in subjects.items()}
    found: dict[str, DecodedExample] = {}
    for scene in measured:
        wanted = [b for b, clip in enumerate(scene.clips) if clip.clip_id in chosen]
        if wanted:
            drawn = {name: _drawn(subjects[name], scene, studio) for name in column_order(subjects)}
            for b in wanted:
                clip_id = scene.clips[b].clip_id
                note = (
                    f"Number {chosen[clip_id] + 1} of {len(order)} clips by the latent error (future-frame L1) of "
                    f"{titles[ranking]}, hardest first."
                )
                found[clip_id] = _example(scene, b, measured, studio, drawn, titles, note)
        told(len(scene))
    return [found[clip_id] for clip_id in order if clip_id in found]


def without_channel(predicted: Predicted, factor: str) -> Tensor:
    """eq. Y_hat - Y_hat_k, `[B, t, D]`."""
    if predicted.channels is None:
        raise RenderingError("this method has no channels that could be left out")
    channel: Tensor = getattr(predicted.channels, CHANNELS[factor])
    return predicted.tokens_BtD - channel.to(predicted.tokens_BtD)


def influence_map(full_T3HW: Tensor, without_T3HW: Tensor) -> NDArray[np.float32]:
    """eq. I_k(p): where the picture changes without the channel, mean over colours; sums to 1 in every frame.

    Of frames before they are rounded to bytes: a channel that changes little would show the rounding.
    """
    change_THW = (full_T3HW - without_T3HW).abs().mean(1).double()
    return (change_THW / (EPSILON + change_THW.sum((1, 2), keepdim=True))).float().numpy()


@dataclass(frozen=True)
class _Drawing:
    """A method's futures of a batch, whole and with each channel left out."""

    drawn: Drawn
    pixels_BT3HW: Tensor  # before rounding
    without: Mapping[str, Tensor]  # L, A, I -> the same


def _drawn(subject: Subject, scene: Scene, studio: Studio) -> _Drawing:
    predicted = PLAIN.answer(subject, scene)
    grid, render = future_grid(scene), studio.stored.decoder.render
    pixels = render(predicted.tokens_BtD, grid)
    channels: PerFactor[Tensor] | None = predicted.channels
    without = {k: render(without_channel(predicted, k), grid) for k in CHANNELS} if channels is not None else {}
    return _Drawing(drawn_of(scene, studio, as_bytes(pixels)), pixels, without)


def _example(
    scene: Scene, b: int, scenes: Scenes, studio: Studio, drawn: Mapping[str, _Drawing], titles: Mapping[str, str],
    note: str,
) -> DecodedExample:  # fmt: skip
    methods = {name: one.drawn.frames_BTHW3[b] for name, one in drawn.items()}
    seen, ideal = observed(scene, studio).frames_BTHW3[b], oracle(scene, studio).frames_BTHW3[b]
    parted = OURS if OURS in drawn else next((name for name, one in drawn.items() if one.without), "")
    without = {k: pixels[b] for k, pixels in drawn[parted].without.items()} if parted else {}
    times = scene.times_BT[b]
    agents, by = _agents(scene, b, scenes)
    failures = _failures(scene, b, studio, drawn)
    nearest = {name: nearest_of(scene, b, studio, drawn[name].drawn) for name, found in failures.items() if not found}
    moves = moving_pixels(scene, studio, observed(scene, studio))[b].numpy()
    return DecodedExample(
        scene.clips[b].clip_id,
        tuple((times[scene.context :] - times[scene.context - 1]).tolist()),
        scene.frames_BTHW3[b, scene.context - 1],
        seen,
        ideal,
        methods,
        titles,
        parted if without else "",
        {k: to_bytes(pixels) for k, pixels in without.items()},
        {k: influence_map(drawn[parted].pixels_BT3HW[b], pixels) for k, pixels in without.items()},
        agents,
        common_box(seen, methods),
        failures=failures,
        decoder=studio.identity()["decoder"],
        note=note,
        split=scene.settings.split,
        agents_by=by,
        errors={name: errors_by_region(seen, ideal, frames, agents, moves) for name, frames in methods.items()},
        nearest={name: one for name, one in nearest.items() if one is not None},
    )


def _failures(scene: Scene, b: int, studio: Studio, drawn: Mapping[str, _Drawing]) -> dict[str, list[Failure]]:
    """By method; nothing where no detector looks for agents."""
    if studio.detector is None:
        return {}
    return {name: failures_of(scene, b, studio, one.drawn) for name, one in drawn.items()}


def _agents(scene: Scene, b: int, scenes: Scenes) -> tuple[NDArray[np.bool_] | None, str]:
    """Where agents are in the observed future, and who says so: ground truth (of audit clips), else the teacher."""
    if scenes.part.truth:
        masks, by = agent_masks(scene, b)[scene.context :].astype(np.uint8), TRUTH
    elif scene.known.packets is not None:
        masks, by = agent_support(scene.known.packets[b])[scene.context :], TEACHER
    else:
        return None, ""
    H, W = scene.frames_BTHW3.shape[2:4]
    resized = [cv2.resize(np.ascontiguousarray(one), (W, H), interpolation=cv2.INTER_NEAREST) for one in masks]
    return np.stack(resized).astype(bool), by


def _errors(subject: Subject, scenes: Scenes, told: Callable[[int], object]) -> dict[str, float]:
    """Future-frame L1 of every clip."""
    errors: dict[str, float] = {}
    for scene in scenes:
        predicted = PLAIN.answer(subject, scene).tokens_BtD
        of_clips = (predicted - scene.target().to(predicted)).abs().mean((1, 2)).tolist()
        errors |= {clip.clip_id: error for clip, error in zip(scene.clips, of_clips, strict=True)}
        told(len(scene))
    return errors
