"""Trajectories: runs the dynamics over a clip, with or without an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from .crowd import DT, Bools, Crowd, Floats, Motion, State
from .dynamics import step
from .neighbours import Everyone
from .population import Population

LIST_STEPS = 6  # steps for which one list of possible neighbours serves
WARM_UP = 16  # steps before the clip starts, so that nobody is still where they were put


@dataclass(frozen=True)
class Edit:
    """One change to the world from `start` seconds on. All other random numbers stay the same."""

    without: int | None = None  # agent row taken out
    brake: int | None = None  # agent row that stops
    hurry: int | None = None  # agent row that goes 1.6 times as fast
    alone: bool = False  # no agent reacts to another
    start: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """What the edits make of one moment."""

    present: Bools
    urge: Floats
    alone: bool


def conditions(edits: Sequence[Edit], time: float, n: int) -> Conditions:
    """Who is there, how much everyone wants to get on, and whether anybody reacts, at `time`."""
    present, urge, alone = np.ones(n, dtype=bool), np.ones(n), False
    for edit in edits:
        if time < edit.start - 1e-9:
            continue
        if edit.without is not None:
            present[edit.without] = False
        if edit.brake is not None:
            urge[edit.brake] = 0.0
        if edit.hurry is not None:
            urge[edit.hurry] = 1.6
        alone |= edit.alone
    return Conditions(present, urge, alone)


@dataclass(frozen=True)
class Trajectory(Motion):
    """States at every simulation step of the clip: arrays `[T, N]`."""

    present: Bools

    def __len__(self) -> int:
        return len(self.x)

    def state(self, index: int) -> State:
        return State(*(getattr(self, f.name)[index].copy() for f in fields(State)))


def simulate(
    population: Population, steps: int, edits: Sequence[Edit] = (), camera_from: Trajectory | None = None
) -> Trajectory:
    """Run one clip for `steps` steps after the warm-up. `camera_from` replays the camera carrier of another run."""
    return simulate_together([population], [steps], edits, camera_from)[0]


def simulate_together(
    populations: Sequence[Population],
    steps: Sequence[int],
    edits: Sequence[Edit] = (),
    camera_from: Trajectory | None = None,
) -> list[Trajectory]:
    """Run several clips of one street side by side, each for its own number of steps.

    The same numbers as one by one, at a fraction of the overhead. Edits and `camera_from` are for a single clip.
    """
    ground = populations[0].ground
    camera = populations[0].camera if camera_from is not None else None
    histories: list[list[Trajectory]] = [[] for _ in populations]
    running = list(range(len(populations)))
    state = State.joined([p.start for p in populations])
    begin, pauses = -WARM_UP, sorted({0, *steps})
    for end in pauses:
        crowd, world, parts = _side_by_side(populations, running)
        things = np.concatenate([populations[index].kind < 0 for index in running])
        everyone = Everyone(crowd, world, crowd.mobile)
        moments: list[tuple[State, Bools]] = []
        for k in range(begin, end):
            now = conditions(edits if k >= 0 else (), k * DT, len(crowd))
            if camera_from is not None and camera is not None and k >= 0:
                for name in ("x", "y", "vx", "vy", "hx", "hy"):
                    getattr(state, name)[camera] = getattr(camera_from, name)[k, camera]
            moments.append((state, now.present))
            # Streets, obstacles and the camera stay; agents alone do not see each other.
            present = things if now.alone else now.present
            if (k - begin) % LIST_STEPS == 0:
                possible = everyone.within(state, ground, LIST_STEPS)
            state = step(state, crowd, ground, possible.now(state, ground), k * DT, present, now.urge)
        if begin >= 0:
            together = _stacked(moments)
            for index, part in zip(running, parts, strict=True):
                histories[index].append(together.take(part))
        left = [(index, part) for index, part in zip(running, parts, strict=True) if steps[index] > end]
        if not left:
            break
        if len(left) < len(running):  # those who are done step aside
            running = [index for index, _ in left]
            state = State.joined([state.take(part) for _, part in left])
        begin = end
    return [
        Trajectory(**{f.name: np.concatenate([getattr(h, f.name) for h in history]) for f in fields(Trajectory)})
        for history in histories
    ]


def _stacked(moments: Sequence[tuple[State, Bools]]) -> Trajectory:
    columns = {f.name: np.stack([getattr(state, f.name) for state, _ in moments]) for f in fields(State)}
    return Trajectory(**columns, present=np.stack([present for _, present in moments]))


def _side_by_side(
    populations: Sequence[Population], running: Sequence[int]
) -> tuple[Crowd, NDArray[np.intp], list[slice]]:
    """The joined crowd of these clips, whose world each row belongs to, and the rows of each."""
    crowds = [populations[index].crowd for index in running]
    sizes = [len(crowd) for crowd in crowds]
    ends = np.cumsum(sizes).tolist()
    parts = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    return Crowd.joined(crowds), np.repeat(np.arange(len(crowds)), sizes), parts
