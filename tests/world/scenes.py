"""Small worlds for the tests, and second opinions on what they contain."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from factorjepa.config import resolve
from factorjepa.seeding import stream
from factorjepa.world import ClipTruth, SimulatedClip, WorldSettings, clip
from factorjepa.world.crowd import DT, State
from factorjepa.world.dynamics import step
from factorjepa.world.neighbours import pairs_within
from factorjepa.world.population import Population, populate
from factorjepa.world.settings import CaptureMode, SceneType
from factorjepa.world.street import build_street

Floats = NDArray[np.float64]
SEED = 7


def settings(preset: str = "dense", **values: object) -> WorldSettings:
    """A regime with frames of 64 px and clips of two to three seconds, unless told otherwise."""
    return resolve(WorldSettings, preset, (), **({"size": 64, "seconds": (2.0, 3.0), "fps": 6.0} | values))


def annotated(made: SimulatedClip) -> ClipTruth:
    return made.annotate([truth for _, truth in made.frames_with_truth()])


@functools.cache
def example(index: int = 0, preset: str = "dense", mode: str | None = None, scene: str | None = None) -> SimulatedClip:
    values: dict[str, object] = {"seconds": (4.0, 4.0)}
    if mode is not None:
        values["capture_modes"] = {mode: 1.0}
    if scene is not None:
        values["scene_types"] = {scene: 1.0}
    return clip(settings(preset, **values), SEED, index)


@functools.cache
def example_truth(
    index: int = 0, preset: str = "dense", mode: str | None = None, scene: str | None = None
) -> ClipTruth:
    return annotated(example(index, preset, mode, scene))


@functools.cache
def lonely(index: int) -> SimulatedClip:
    """A street with three agents or so."""
    return clip(settings("sparse", density=0.1, seconds=(4.0, 4.0)), SEED, index)


def crowd_on(
    seed: int, scene: SceneType = "commercial", regime: str = "dense", mode: CaptureMode = "walk", density: float = 1.0
) -> Population:
    """A crowd on a street of its own, without anything to draw it."""
    values = settings(regime)
    street = build_street(values, values.cities[seed % len(values.cities)], scene, stream(seed, "street"))
    return populate(street, mode, density, stream(seed, "crowd"))


def stepped(population: Population, steps: int, state: State | None = None) -> list[State]:
    """States after 0, 1, ..., `steps` steps with everybody there."""
    n = len(population.crowd)
    everyone, urge, world = np.ones(n, dtype=bool), np.ones(n), np.zeros(n, dtype=np.intp)
    states = [state or population.start]
    for k in range(steps):
        now = states[-1]
        pairs = pairs_within(now, population.crowd, population.ground, world, population.crowd.mobile)
        states.append(step(now, population.crowd, population.ground, pairs, k * DT, everyone, urge))
    return states


def around(difference: Floats, period: float) -> Floats:
    """The shortest way around a ring, by trying all three copies."""
    candidates = np.stack([difference % period, difference % period - period])
    return np.asarray(candidates[np.abs(candidates).argmin(axis=0), *np.indices(difference.shape)])


def distances(x: Floats, y: Floats, extent: tuple[float, float]) -> Floats:
    """`[..., N, N]` metres between everybody on the torus."""
    dx = around(x[..., None, :] - x[..., :, None], extent[0])
    dy = around(y[..., None, :] - y[..., :, None], extent[1])
    return np.asarray(np.hypot(dx, dy))
