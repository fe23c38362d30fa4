"""The five axes and their secondary measures, frame by frame (appendix B.2).

Legend: T frames; O observations of retained agents; N_t = |A_t|; C superclasses; M measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..world.taxonomy import SUPERCLASSES
from .motion import Steps, gaps, velocities
from .pairs import pairs_within
from .scene import UNRESOLVED, Array, Bools, Ints, Scene
from .settings import Thresholds

_EPSILON = 1e-9


class Domain(StrEnum):
    """Which frames a statistic is evaluated over."""

    ALL = "all frames"
    ONE = "frames with an agent"  # T_1
    TWO = "frames with two agents"  # T_2


@dataclass(frozen=True)
class Measure:
    name: str
    title: str
    domain: Domain
    axis: bool = False  # one of the five; the others are secondary
    unit: str = ""


MEASURES = (
    Measure("count", "agent count density", Domain.ALL, True, "agents/frame"),
    Measure("count_area", "count per megapixel", Domain.ALL, unit="agents/Mpx"),
    Measure("occupancy", "agent occupancy", Domain.ALL, True, "share of valid area"),
    Measure("visibility", "visibility pressure", Domain.ONE, True, "share of agents"),
    Measure("overlap", "overlap rate", Domain.ONE, unit="share of agents"),
    Measure("truncation", "truncation rate", Domain.ONE, unit="share of agents"),
    Measure("gap", "track-gap rate", Domain.ONE, unit="share of agents"),
    Measure("interaction", "interaction pressure", Domain.TWO, True, "mean degree"),
    Measure("edge_density", "edge density per pair", Domain.TWO, unit="share of pairs"),
    Measure("heterogeneity", "agent heterogeneity", Domain.TWO, True, "probability"),
    Measure("entropy", "normalised entropy", Domain.TWO),
    Measure("richness", "class richness", Domain.TWO, unit="superclasses"),
    Measure("effective_classes", "effective number of classes", Domain.TWO, unit="superclasses"),
)
NAMES = tuple(measure.name for measure in MEASURES)
AXES = tuple(measure.name for measure in MEASURES if measure.axis)
OF_CLASSES = ("heterogeneity", "entropy", "richness", "effective_classes")  # nothing without superclasses


def retained(scene: Scene, thresholds: Thresholds) -> Bools:
    """A_t: sure enough, large enough, and of a known superclass where the source tells classes."""
    kept = scene.confidence_O >= thresholds.min_confidence
    kept &= scene.area_O >= thresholds.min_area * scene.support
    if scene.superclass_O is not None:
        kept &= scene.superclass_O != UNRESOLVED
    return np.asarray(kept)


def truncations(scene: Scene, margin: float) -> Bools:
    """e: the box touches the border of the valid picture."""
    slack = margin * scene.unit
    low, high = scene.box_O4[:, :2], scene.box_O4[:, 2:]
    return np.asarray((low <= slack).any(1) | (high >= np.array([scene.width, scene.height]) - slack).any(1))


def overlaps(scene: Scene, least: float) -> Bools:
    """Whether the agent's largest IoM with another of its frame reaches `least`."""
    box, half = scene.box_O4, (scene.box_O4[:, 2:] - scene.box_O4[:, :2]).max(1, initial=0.0) / 2
    first, second = pairs_within(scene.frame_O, (box[:, :2] + box[:, 2:]) / 2, half, 0.0, norm=np.inf)
    low, high = np.maximum(box[first, :2], box[second, :2]), np.minimum(box[first, 2:], box[second, 2:])
    area = (box[:, 2:] - box[:, :2]).prod(1)
    iom = (high - low).clip(0).prod(1) / (np.minimum(area[first], area[second]) + _EPSILON)
    flags = np.zeros(len(box), bool)
    meets = iom >= least
    flags[first[meets]] = True
    flags[second[meets]] = True
    return flags


def edges(frame_O: Ints, centre_O2: Array, velocity_O2: Array, thresholds: Thresholds) -> Ints:
    """E_t: how many pairs are near each other, or about to come close; by the frame of their first row, [edges]."""
    speed = np.nan_to_num(np.linalg.norm(velocity_O2, axis=1))
    soon, close = thresholds.approach_seconds, thresholds.approach_distance
    base = max(thresholds.near, close)
    # Near, or within `close` after both have moved: the least reaches that cover either.
    reach = (soon * speed - (base - close) / 2).clip(0)
    first, second = pairs_within(frame_O, centre_O2, reach, base)
    r, w = centre_O2[second] - centre_O2[first], velocity_O2[second] - velocity_O2[first]
    meets = np.einsum("pd,pd->p", r, r) <= thresholds.near**2
    with np.errstate(invalid="ignore"):  # an unknown velocity makes no approach
        time = -np.einsum("pd,pd->p", r, w) / (np.einsum("pd,pd->p", w, w) + _EPSILON)
        miss = r + time[:, None] * w
        meets |= (time > 0) & (time <= soon) & (np.einsum("pd,pd->p", miss, miss) <= close**2)
    return np.asarray(frame_O[first[meets]])


def frame_measures(scene: Scene, thresholds: Thresholds) -> Array:
    """Every measure of every frame, [T, M]; NaN where the frame is not in the measure's domain."""
    agents = scene.kept(retained(scene, thresholds))
    steps = Steps.of(agents)
    truncated = truncations(agents, thresholds.edge)
    return of_parts(agents, velocities(agents, steps), gaps(agents, steps, truncated, thresholds.gap_seconds),
                    thresholds)  # fmt: skip


def of_parts(agents: Scene, velocity_O2: Array, gap_O: Bools, thresholds: Thresholds) -> Array:
    """The same of retained agents whose motion is known: what a control may have changed."""
    n_T = agents.counts_T.astype(np.float64)
    one, two = n_T >= 1, n_T >= 2
    truncated, overlap = truncations(agents, thresholds.edge), overlaps(agents, thresholds.overlap)
    edges_T = np.bincount(
        edges(agents.frame_O, agents.centre_O2, velocity_O2, thresholds), minlength=agents.frames
    ).astype(np.float64)

    def rate(flag_O: Bools) -> Array:
        return _where(one, np.bincount(agents.frame_O[flag_O], minlength=agents.frames) / np.maximum(n_T, 1))

    pairs_T = np.maximum(n_T * (n_T - 1), 1)
    found = {
        "count": n_T,
        "count_area": n_T / (agents.support / 1e6),
        "occupancy": agents.cover.union(np.ones(len(agents.frame_O), bool)) / agents.support,
        "visibility": rate(overlap | truncated | gap_O),
        "overlap": rate(overlap),
        "truncation": rate(truncated),
        "gap": rate(gap_O),
        "interaction": _where(two, 2 * edges_T / np.maximum(n_T, 1)),
        "edge_density": _where(two, 2 * edges_T / pairs_T),
    } | mixture(agents, two)
    return np.stack([found[name] for name in NAMES], axis=1)


def mixture(agents: Scene, two_T: Bools) -> dict[str, Array]:
    """h_t and the secondary measures of how many classes share a frame; NaN where nobody tells classes."""
    if agents.superclass_O is None:
        return {name: np.full(agents.frames, np.nan) for name in OF_CLASSES}
    classes = len(SUPERCLASSES)
    n_TC = np.bincount(agents.frame_O * classes + agents.superclass_O, minlength=agents.frames * classes)
    n_TC = n_TC.reshape(agents.frames, classes).astype(np.float64)
    n_T = n_TC.sum(1)
    share_TC = n_TC / np.maximum(n_T, 1)[:, None]
    entropy_T = -(share_TC * np.log(np.where(share_TC > 0, share_TC, 1.0))).sum(1)
    same_T = (n_TC * (n_TC - 1)).sum(1) / np.maximum(n_T * (n_T - 1), 1)
    return {
        "heterogeneity": _where(two_T, 1 - same_T),
        "entropy": _where(two_T, entropy_T / np.log(classes)),
        "richness": _where(two_T, (n_TC > 0).sum(1).astype(np.float64)),
        "effective_classes": _where(two_T, np.exp(entropy_T)),
    }


def _where(eligible_T: Bools, values_T: Array) -> Array:
    return np.where(eligible_T, values_T, np.nan)
