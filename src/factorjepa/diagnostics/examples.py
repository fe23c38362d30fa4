"""Clips for people to look at: where each method's prediction is wrong, and one question asked of two encoders.

Clips are chosen by rank, from the hardest to the easiest for one method: nobody picks them. What a question is about is
measured by optical flow, which no model has seen; its choices are thirds of the training clips.

Shapes: n clips, h future tubelets, r x c token rows and columns, D width, F features, C choices.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import DiagnosticsError
from ..examples import FOLDER, TARGET, Example, Question, write_example
from ..training.restore import restore
from .asks import PLAIN, Answers, Subject
from .diagnostic import Role
from .evaluation import Entry, entries_of
from .evaluator import Evaluator
from .flow import future_descriptors
from .pooled import Pool
from .probes import Array, Standard
from .scene import Scene
from .settings import EvaluateSettings
from .tokens import agent_tokens

MOST_METHODS = 6
_FIRST = ("factorjepa", "auto_rgn", "frozen")  # shown before others; the first of them ranks the clips
_ASKED = ("auto_rgn", "frozen")  # whose encoder answers beside FactorJEPA's
_THIRDS = (1 / 3, 2 / 3)
_PROBE = "one softmax head on the mean context token, fitted on training clips, its strength chosen on validation clips"


@dataclass(frozen=True)
class Topic:
    """A number of the future's motion descriptor, and what its thirds are called."""

    question: str
    choices: tuple[str, str, str]
    column: int  # of the descriptor


TOPICS = (
    Topic("How fast will things move in the next second?", ("slowly", "at a middling speed", "fast"), -1),
    Topic("Which way will things turn in the next second?", ("to the left", "neither way", "to the right"), -3),
)


def make_examples(
    runs: Sequence[Path],
    out: Path,
    settings: EvaluateSettings,
    device: torch.device,
    count: int,
    data: Path | None = None,
    targets: Path | None = None,
) -> list[Path]:
    """`count` examples of the first run of each method into OUT/examples; runs of one backbone are shown together."""
    entries = entries_of(runs, data, targets)
    conditions = entries[0].conditions
    first: dict[str, Entry] = {}
    for entry in entries:
        if entry.conditions == conditions:
            first.setdefault(entry.settings.method, entry)
    names = [name for name in _FIRST if name in first] + [name for name in first if name not in _FIRST]
    needs_packets = any(first[name].settings.resolved_method().reads_states for name in names[:MOST_METHODS])
    evaluator = Evaluator(conditions, settings, device, needs_packets)
    subjects = {
        name: Subject(restore(first[name].run, device).learner, evaluator.precision) for name in names[:MOST_METHODS]
    }
    made = examples_of(subjects, evaluator, count)
    shutil.rmtree(out / FOLDER, ignore_errors=True)  # those of an earlier evaluation
    return [write_example(out / FOLDER / f"{number:02d}", example) for number, example in enumerate(made)]


def examples_of(subjects: Mapping[str, Subject], evaluator: Evaluator, count: int) -> list[Example]:
    """The first subject ranks the clips; all are shown on each."""
    ranking = next(iter(subjects))
    measured = next(scenes for scenes in evaluator.parts if scenes.part.role == "measure")
    errors = {
        clip.clip_id: float(error)
        for scene in measured
        for clip, error in zip(scene.clips, _errors(subjects[ranking], scene).mean((1, 2, 3)), strict=True)
    }
    if not errors:
        raise DiagnosticsError("there are no clips to show")
    order = sorted(errors, key=lambda clip: -errors[clip])
    ranks = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)).tolist()
    chosen = {order[rank]: rank for rank in ranks}
    questions = _questions(subjects, evaluator, set(chosen))
    titles = {name: subject.model.method.title for name, subject in subjects.items()}
    found: dict[str, Example] = {}
    for scene in measured:
        marked_Bt = agent_tokens(scene, "truth").numpy() if measured.part.truth else None
        for b, clip in enumerate(scene.clips):
            if clip.clip_id not in chosen:
                continue
            rank = chosen[clip.clip_id] + 1
            note = f"Number {rank} of {len(order)} clips by the error of {titles[ranking]}, hardest first."
            marked_t = None if marked_Bt is None else marked_Bt[b]
            asked = questions.get(clip.clip_id, [])
            found[clip.clip_id] = _example(subjects, scene, b, marked_t, titles, asked, note)
    return [found[order[rank]] for rank in ranks]


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


def _questions(subjects: Mapping[str, Subject], evaluator: Evaluator, wanted: set[str]) -> dict[str, list[Question]]:
    """Both topics for every wanted clip, answered over FactorJEPA's encoder and one other; none without both."""
    other = next((name for name in _ASKED if name in subjects), None)
    if "factorjepa" not in subjects or other is None:
        return {}
    pools = {name: _pools(subjects[name], evaluator) for name in (other, "factorjepa")}
    found: dict[str, list[Question]] = {}
    for topic in TOPICS:
        answers: dict[str, Array] = {}
        for name, pool in pools.items():
            edges = np.quantile(pool["fit"].y[:, topic.column], _THIRDS)
            labels = {role: np.digitize(one.y[:, topic.column], edges) for role, one in pool.items()}
            head = Head.fit(
                pool["fit"].x, labels["fit"], pool["choose"].x, labels["choose"], evaluator.settings.probes.grid
            )
            answers[subjects[name].model.method.title] = head(pool["measure"].x)
        for number, clip in enumerate(pool["measure"].clips):
            if clip.clip_id in wanted:
                shares = {title: shares_nC[number].tolist() for title, shares_nC in answers.items()}
                right = int(labels["measure"][number])
                found.setdefault(clip.clip_id, []).append(
                    Question(topic.question, topic.choices, right, shares, _PROBE)
                )
    return found


def _pools(subject: Subject, evaluator: Evaluator) -> dict[Role, Pool]:
    """Mean context token of the last block, and the future's motion averaged over cells, by part."""
    pools: dict[Role, Pool] = {}
    for scenes in evaluator.parts:
        pool = pools.setdefault(scenes.part.role, Pool())
        for scene in scenes:
            layers_LBD = Answers(subject, scene, (PLAIN,))[PLAIN].layers_LBD
            assert layers_LBD is not None, "the plain ask has them"
            pool.add(scene.clips, layers_LBD[-1], future_descriptors(scene).mean(1))
    return pools


@dataclass(frozen=True)
class Head:
    """Softmax regression with one strength; it answers probabilities `[n, C]`."""

    features: Standard
    weight_FC: Array  # the last row is the bias, which is not shrunk

    @classmethod
    def fit(
        cls, x_nF: Array, label_n: NDArray[np.intp], x_choose: Array, label_choose: NDArray[np.intp],
        grid: Sequence[float],
    ) -> Head:  # fmt: skip
        """Fitted on the first pair; of `grid` the strength with the least cross-entropy on the second."""
        features = Standard.of(x_nF)
        heads = [cls(features, _softmax_weights(features(x_nF), label_n, strength)) for strength in grid]
        return min(heads, key=lambda head: _cross_entropy(head(x_choose), label_choose))

    def __call__(self, x_nF: Array) -> Array:
        return _shares(_with_one(self.features(x_nF)) @ self.weight_FC)


def _softmax_weights(x_nF: Array, label_n: NDArray[np.intp], strength: float, choices: int = 3) -> Array:
    from scipy.optimize import minimize

    x = _with_one(x_nF)
    wanted = np.eye(choices)[label_n]
    shrunk = np.append(np.full(x_nF.shape[1], strength), 0.0)[:, None]

    def loss(flat: Array) -> tuple[float, Array]:
        weight = flat.reshape(-1, choices)
        shares = _shares(x @ weight)
        value = _cross_entropy(shares, label_n) + 0.5 * float((shrunk * weight**2).sum())
        return value, (x.T @ (shares - wanted) / len(x) + shrunk * weight).ravel()

    found = minimize(loss, np.zeros(x.shape[1] * choices), jac=True, method="L-BFGS-B", options={"maxiter": 200})
    return np.asarray(found.x.reshape(-1, choices))


def _with_one(x_nF: Array) -> Array:
    return np.concatenate([x_nF, np.ones((len(x_nF), 1))], 1)


def _shares(logits_nC: Array) -> Array:
    above = np.exp(logits_nC - logits_nC.max(1, keepdims=True))
    return np.asarray(above / above.sum(1, keepdims=True))


def _cross_entropy(shares_nC: Array, label_n: NDArray[np.intp]) -> float:
    return float(-np.log(np.maximum(shares_nC[np.arange(len(label_n)), label_n], 1e-12)).mean())
