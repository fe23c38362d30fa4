"""Clips for people to look at: where each method's prediction is wrong, and one question asked of two encoders.

Clips are chosen by rank, from the hardest to the easiest for one method: nobody picks them.

Shapes: h future tubelets, r x c token rows and columns, B clips, t target tokens, D width.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import DiagnosticsError
from ..examples import FOLDER, TARGET, Example, Question, write_example
from ..storage import only_writer
from ..training.restore import restore
from .asks import PLAIN, Answers, Subject
from .diagnostic import Role
from .evaluation import Entry, entries_of
from .evaluator import Evaluator
from .pooled import Pool
from .questions import future_motion, questions
from .scene import Scene
from .settings import EvaluateSettings
from .tokens import agent_tokens

MOST_METHODS = 6
_FIRST = ("factorjepa", "auto_rgn", "frozen")  # shown before others; the first of them ranks the clips
_ASKED = ("auto_rgn", "frozen")  # whose encoder answers beside FactorJEPA's

Progress = Callable[[int, int], object]


def make_examples(
    runs: Sequence[Path],
    out: Path,
    settings: EvaluateSettings,
    device: torch.device,
    count: int,
    data: Path | None = None,
    targets: Path | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """`count` examples of the first run of each method into OUT/examples; runs of one backbone are shown together."""
    first = first_runs(runs, data, targets)
    with only_writer(out, "evaluating"):
        evaluator = Evaluator(next(iter(first.values())).conditions, settings, device)
        made = examples_of(subjects_of(first, evaluator, device), evaluator, count, progress)
        shutil.rmtree(out / FOLDER, ignore_errors=True)  # those of an earlier evaluation
        return [write_example(out / FOLDER / f"{number:02d}", example) for number, example in enumerate(made)]


def first_runs(runs: Sequence[Path], data: Path | None, targets: Path | None) -> dict[str, Entry]:
    """The first run of each method, of those that share the first one's conditions; who ranks clips comes first."""
    entries, _ = entries_of(runs, data, targets)  # the evaluation has said what cannot be read
    first: dict[str, Entry] = {}
    for entry in entries:
        if entry.conditions == entries[0].conditions:
            first.setdefault(entry.settings.method, entry)
    names = [name for name in _FIRST if name in first] + [name for name in first if name not in _FIRST]
    return {name: first[name] for name in names[:MOST_METHODS]}


def subjects_of(first: Mapping[str, Entry], evaluator: Evaluator, device: torch.device) -> dict[str, Subject]:
    """Their models."""
    subjects = {name: Subject(restore(entry.run, device).learner, evaluator.precision) for name, entry in first.items()}
    if any(subject.model.method.reads_states for subject in subjects.values()):
        evaluator.refuse_without_packets()
    return subjects


def ranked(errors: Mapping[str, float], count: int) -> tuple[list[str], dict[str, int]]:
    """Clips from the hardest to the easiest, and the ranks of `count` of them, evenly over the list."""
    if not errors:
        raise DiagnosticsError("there are no clips to show")
    order = sorted(errors, key=lambda clip: -errors[clip])
    ranks = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)).tolist()
    return order, {order[rank]: rank for rank in ranks}


def examples_of(
    subjects: Mapping[str, Subject], evaluator: Evaluator, count: int, progress: Progress | None = None
) -> list[Example]:
    """The first subject ranks the clips; all are shown on each."""
    ranking = next(iter(subjects))
    measured = next(scenes for scenes in evaluator.parts if scenes.part.role == "measure")
    total = 2 * len(measured) + (2 * len(evaluator) if _asked_beside(subjects) else 0)
    seen = 0

    def told(clips: int) -> None:
        nonlocal seen
        seen += clips
        if progress is not None:
            progress(seen, total)

    errors: dict[str, float] = {}
    for scene in measured:
        of_clips = _errors(subjects[ranking], scene).mean((1, 2, 3)).tolist()
        errors |= {clip.clip_id: error for clip, error in zip(scene.clips, of_clips, strict=True)}
        told(len(scene))
    order, chosen = ranked(errors, count)
    asked = _questions(subjects, evaluator, set(chosen), told)
    titles = {name: subject.model.method.title for name, subject in subjects.items()}
    found: dict[str, Example] = {}
    for scene in measured:
        marked_Bt = agent_tokens(scene, "truth").numpy() if measured.part.truth else None
        for b, clip in enumerate(scene.clips):
            if clip.clip_id not in chosen:
                continue
            rank = chosen[clip.clip_id] + 1
            note = (
                f"Number {rank} of {len(order)} clips by the latent error (future-frame L1) of {titles[ranking]}, "
                "hardest first."
            )
            marked_t = None if marked_Bt is None else marked_Bt[b]
            found[clip.clip_id] = _example(subjects, scene, b, marked_t, titles, asked.get(clip.clip_id, []), note)
        told(len(scene))
    return [found[clip_id] for clip_id in chosen]


def _example(
    subjects: Mapping[str, Subject],
    scene: Scene,
    b: int,
    marked_t: NDArray[np.bool_] | None,
    titles: Mapping[str, str],
    questions: Sequence[Question],
    note: str,
) -> Example:
    """Maps of one clip of a batch."""
    shape = (-1, *scene.grid[1:])
    target_tD = scene.target()[b].numpy()
    place = query_token(target_tD, marked_t, scene.grid[1] * scene.grid[2])
    errors, similar = {}, {TARGET: _cosine(target_tD, target_tD[place]).reshape(shape)}
    for name, subject in subjects.items():
        predicted_tD = Answers(subject, scene, (PLAIN,))[PLAIN].tokens_BtD[b].cpu().numpy()
        errors[name] = np.abs(predicted_tD - target_tD).mean(-1).reshape(shape)
        similar[name] = _cosine(predicted_tD, target_tD[place]).reshape(shape)
    tubelet, row, column = (int(k) for k in np.unravel_index(place, similar[TARGET].shape))
    return Example(
        scene.clips[b].clip_id, scene.frames_BTHW3[b], scene.context, titles, errors, similar, (tubelet, row, column),
        questions, note,
    )  # fmt: skip


def query_token(target_tD: NDArray[np.float32], marked_t: NDArray[np.bool_] | None, places: int) -> int:
    """The most unusual token of the last tubelet: least like the clip's mean token; on an agent where that is known."""
    last = np.arange(len(target_tD) - places, len(target_tD))
    if marked_t is not None and marked_t[last].any():
        last = last[marked_t[last]]
    return int(last[_cosine(target_tD[last], target_tD.mean(0)).argmin()])


def _errors(subject: Subject, scene: Scene) -> NDArray[np.float32]:
    """`[B, h, r, c]`."""
    predicted = Answers(subject, scene, (PLAIN,))[PLAIN].tokens_BtD
    error_Bt = (predicted - scene.target().to(predicted)).abs().mean(-1)
    errors: NDArray[np.float32] = error_Bt.reshape(len(scene), -1, *scene.grid[1:]).cpu().numpy()
    return errors


def _cosine(tokens_tD: NDArray[np.float32], one_D: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(tokens_tD, axis=-1) * np.linalg.norm(one_D)
    return np.asarray(tokens_tD @ one_D / np.maximum(lengths, 1e-9), np.float32)


def _questions(
    subjects: Mapping[str, Subject], evaluator: Evaluator, wanted: set[str], told: Callable[[int], object]
) -> dict[str, list[Question]]:
    """Answered over FactorJEPA's encoder and one other; none without both."""
    other = _asked_beside(subjects)
    if other is None:
        return {}
    pools = {
        subjects[name].model.method.title: _pools(subjects[name], evaluator, told) for name in (other, "factorjepa")
    }
    return questions(pools, wanted, evaluator.settings.probes.grid)


def _asked_beside(subjects: Mapping[str, Subject]) -> str | None:
    """Whose encoder answers beside FactorJEPA's."""
    return next((name for name in _ASKED if name in subjects), None) if "factorjepa" in subjects else None


def _pools(subject: Subject, evaluator: Evaluator, told: Callable[[int], object]) -> dict[Role, Pool]:
    """Mean context token of the last block, and the future's motion, by part."""
    pools: dict[Role, Pool] = {}
    for scenes in evaluator.parts:
        pool = pools.setdefault(scenes.part.role, Pool())
        for scene in scenes:
            layers_LBD = Answers(subject, scene, (PLAIN,))[PLAIN].layers_LBD
            assert layers_LBD is not None, "the plain ask has them"
            pool.add(scene.clips, layers_LBD[-1], future_motion(scene))
            told(len(scene))
    return pools
