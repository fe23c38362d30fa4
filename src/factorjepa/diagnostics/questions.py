"""Multiple-choice questions about the future's motion, answered by one probe head over several encoders.

What is right is measured by optical flow without the camera's motion, which no model has seen. Classes have gaps
between them: a clip that lies in a gap is neither asked about nor fitted on, so that a right answer is never one by a
hair. What was measured, and where the classes end, stands on the card.

Shapes: B clips, K pairs of future frames, s pixels a side, n clips, F features, C choices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..examples import Question
from .diagnostic import Role
from .flow import Floats, own_motion
from .pooled import Pool
from .probes import Array, Standard
from .scene import Scene

UNCLEAR = -1
_FEWEST = 4  # training clips with an answer, and two classes among them: fewer make no probe
_SLOW, _MIDDLING, _FAST = 0.25, (5 / 12, 7 / 12), 0.75  # shares of the training clips: a third each, less the gaps
_SIDED, _EVEN, _BORDER = 0.5, 0.2, 0.35  # of all motion, what goes to one side on balance
_MOVES = 0.004  # sides per frame: slower is taken for standing (`interventions.least_motion`)
_LEAST_AREA = 0.01  # of the picture that must move for a side to be asked about
_PROBE = "one softmax head on the mean context token, fitted on training clips, its strength chosen on validation clips"

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Topic(ABC):
    """A question, the classes of what is measured, and how an answer was found."""

    question: str
    choices: tuple[str, str, str]

    @abstractmethod
    def labels(self, measured_n4: Array, training_n4: Array) -> Labels:
        """The class of each clip, `UNCLEAR` where it is not clear of the others."""

    @abstractmethod
    def how(self, measured_4: Array, training_n4: Array) -> str:
        """For the card: what was measured in this clip."""


class Speed(Topic):
    """Thirds of the training clips by how fast things move."""

    def labels(self, measured_n4: Array, training_n4: Array) -> Labels:
        slow, low, high, fast = self._ends(training_n4)
        speed = measured_n4[:, 0]
        found = np.full(len(speed), UNCLEAR, np.intp)
        found[(speed >= low) & (speed <= high)] = 1
        found[speed <= slow], found[speed >= fast] = 0, 2
        return found

    def how(self, measured_4: Array, training_n4: Array) -> str:
        slow, _, _, fast = self._ends(training_n4)
        return (
            f"optical flow without the camera's: on average {_share(measured_4[0])} of the picture's side per frame. "
            f"Slowly: up to {_share(slow)}, fast: from {_share(fast)} (quarters of the training clips)"
        )

    def _ends(self, training_n4: Array) -> tuple[float, ...]:
        return tuple(np.quantile(training_n4[:, 0], (_SLOW, *_MIDDLING, _FAST)).tolist())


class Side(Topic):
    """To which side what moves goes on balance; both halves of the future must say so."""

    def labels(self, measured_n4: Array, training_n4: Array) -> Labels:
        whole, halves = measured_n4[:, 1], measured_n4[:, 2:]
        clear = np.select([whole <= -_SIDED, np.abs(whole) <= _EVEN, whole >= _SIDED], [0, 1, 2], UNCLEAR)
        coarse = np.digitize(halves, (-_BORDER, _BORDER))  # NaN, where nothing moves, is of the last class
        agree = (coarse == clear[:, None]).all(1) & ~np.isnan(halves).any(1)
        return np.where(agree, clear, UNCLEAR).astype(np.intp)

    def how(self, measured_4: Array, training_n4: Array) -> str:
        side, balance = "right" if measured_4[1] > 0 else "left", _share(abs(measured_4[1]))
        return (
            f"optical flow without the camera's, of what moves: on balance {balance} of all motion goes to the {side}. "
            f"A side: from {_share(_SIDED)}, neither: up to {_share(_EVEN)}, in both halves of the future"
        )


TOPICS: tuple[Topic, ...] = (
    Speed("How fast will things move in the next second?", ("slowly", "at a middling speed", "fast")),
    Side(
        "To which side will most of what moves go in the next second?", ("to the left", "neither side", "to the right")
    ),
)


def future_motion(scene: Scene) -> Array:
    """`[B, 4]`: mean speed in sides per frame; motion to the right less to the left, as a share of all motion, in the
    whole future and in its two halves (NaN where too little moves)."""

    def make() -> Array:
        motion = own_motion(scene, scene.context - 1, scene.frames_BTHW3.shape[1] - 1)
        return np.stack([motion_of(one) for one in motion])

    return scene.kept("question motion", make)


def motion_of(motion_Kss2: Floats) -> Array:
    """The four numbers of one clip."""
    half = len(motion_Kss2) // 2
    speed = float(np.hypot(motion_Kss2[..., 0], motion_Kss2[..., 1]).mean())
    return np.array([speed, *(_balance(part) for part in (motion_Kss2, motion_Kss2[:half], motion_Kss2[half:]))])


def _balance(motion_Kss2: Floats) -> float:
    speed = np.hypot(motion_Kss2[..., 0], motion_Kss2[..., 1])
    moves = speed >= _MOVES
    if moves.mean() < _LEAST_AREA:
        return float("nan")
    return float(motion_Kss2[..., 0][moves].sum() / speed[moves].sum())


def questions(
    pools: Mapping[str, Mapping[Role, Pool]], wanted: set[str], grid: Sequence[float]
) -> dict[str, list[Question]]:
    """Of the clips `wanted`, every question that has a clear answer. `pools`: by encoder, mean tokens and motion."""
    found: dict[str, list[Question]] = {}
    clips = next(iter(pools.values()))  # the same, and with the same motion, for every encoder
    training, measured = clips["fit"].y, clips["measure"].y
    for topic in TOPICS:
        labels = {role: topic.labels(pool.y, training) for role, pool in clips.items()}
        fit, choose = (labels[role] != UNCLEAR for role in ("fit", "choose"))
        if fit.sum() < _FEWEST or len(np.unique(labels["fit"][fit])) < 2 or not choose.any():
            continue
        answers: dict[str, Array] = {}
        for title, pool in pools.items():
            x, x_choose = pool["fit"].x[fit], pool["choose"].x[choose]
            head = Head.fit(x, labels["fit"][fit], x_choose, labels["choose"][choose], grid)
            answers[title] = head(pool["measure"].x)
        for number, clip in enumerate(clips["measure"].clips):
            right = int(labels["measure"][number])
            if clip.clip_id in wanted and right != UNCLEAR:
                shares = {title: shares_nC[number].tolist() for title, shares_nC in answers.items()}
                how = topic.how(measured[number], training)
                asked = Question(topic.question, topic.choices, right, shares, _PROBE, how)
                found.setdefault(clip.clip_id, []).append(asked)
    return found


def _share(value: float) -> str:
    return f"{100 * value:.2g} %"


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
