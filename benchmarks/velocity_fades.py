"""How long does a velocity last? Tracks of real people, extrapolated from one second to the next ones.

    python benchmarks/velocity_fades.py MOT17-02_gt.txt:30:1920x1080 MOT17-05_gt.txt:14:640x480

Ground truth of the MOT benchmark, its frame rate and the picture's size. Tracks are read at 4 frames a second, as a
window is. An agent's velocity is the slope of its box's centre over four frames, as the object states have it
(`teacher.states`); it stays as it is, fades, or counts for nothing. What is told is where the centre will be, of all
who are still there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factorjepa.teacher.annotations import MotBoxes
from factorjepa.teacher.states import VELOCITY_FRAMES
from results import publish

FPS = 4.0
LASTS = (1.0, 2.0, 4.0, 8.0)  # frames

Array = NDArray[np.float64]


def tracks(path: Path, rate: float, size: tuple[int, int]) -> list[Array]:
    """Centres of each person at 4 frames a second, in sides of the picture: `[T, 2]`, NaN where it is not there."""
    rows = MotBoxes.read(path, size[0])
    frames = np.round(np.arange(0, rows.frame.max() + 1, rate / FPS)).astype(int)
    found = []
    for person in np.unique(rows.ids[rows.asked]):
        its = rows.asked & (rows.ids == person)
        places = np.full((frames[-1] + round(rate), 2), np.nan)
        places[rows.frame[its]] = (rows.boxes[its, :2] + rows.boxes[its, 2:]) / 2 / min(size)
        found.append(places[frames])
    return found


def moved(people: list[Array], ahead: int) -> tuple[Array, Array]:
    """Velocities a frame, and how far each has gone so many frames later, both `[M, 2]`."""
    weights = np.arange(VELOCITY_FRAMES) - (VELOCITY_FRAMES - 1) / 2
    velocity, gone = [], []
    for places in people:
        for now in range(VELOCITY_FRAMES - 1, len(places) - ahead):
            velocity.append(weights @ places[now - VELOCITY_FRAMES + 1 : now + 1] / (weights**2).sum())
            gone.append(places[now + ahead] - places[now])
    pairs = np.stack((velocity, gone)).reshape(2, -1, 2)
    pairs = pairs[:, ~np.isnan(pairs).any((0, 2))]
    return pairs[0], pairs[1]


def off(velocity: Array, gone: Array, frames: float) -> float:
    """How far off one is who goes on for so many frames, in percent of the picture's shorter side."""
    return float(100 * np.hypot(*(gone - frames * velocity).T).mean())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sequences", nargs="+", help="FILE:RATE:WIDTHxHEIGHT")
    parser.add_argument("--json", type=Path, help="keep the figures here")
    asked = parser.parse_args(arguments)
    columns = ("stays", *(f"fades in {lasts:g}" for lasts in LASTS), "constant")
    print("\n".join((f"| sequence | ahead, s | people | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|")))
    rows: list[dict[str, Any]] = []
    for sequence in asked.sequences:
        name, rate, size = sequence.rsplit(":", 2)
        width, height = map(int, size.split("x"))
        people = tracks(Path(name), float(rate), (width, height))
        for ahead in (4, 8):
            velocity, gone = moved(people, ahead)
            times = (0.0, *(lasts * (1 - np.exp(-ahead / lasts)) for lasts in LASTS), float(ahead))
            errors = [off(velocity, gone, frames) for frames in times]
            row = {"sequence": Path(name).stem, "seconds": ahead / FPS, "places": len(gone)}
            rows.append(row | {"off": dict(zip(columns, errors, strict=True))})
            cells = [f"{error:.2f}" for error in errors]
            best = errors.index(min(errors))
            cells[best] = f"**{cells[best]}**"
            print(f"| {row['sequence']} | {ahead / FPS:g} | {len(gone)} | {' | '.join(cells)} |")
    publish({"sequences": rows}, asked.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
