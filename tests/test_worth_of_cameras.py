"""What following the camera is worth, as a benchmark asks it: on cameras whose way is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import camera_ceiling
from camera_ceiling import Camera, lay_at
from factorjepa.verbs.data import simulate

ROWS, FOCAL, HEIGHT = 8, 0.8, 1.5
MIDDLES = (np.arange(ROWS) + 0.5) / ROWS
OWN = np.stack(np.meshgrid(MIDDLES, MIDDLES), -1).reshape(-1, 2)


def standing(x: float = 0.0, yaw: float = 0.0) -> Camera:
    """On a street along x, looking along it, or turned to the left."""
    cosine, sine = math.cos(yaw), math.sin(yaw)
    axes = np.array([[sine, -cosine, 0.0], [0.0, 0.0, -1.0], [cosine, sine, 0.0]])
    return Camera(np.array([x, 0.0, HEIGHT]), axes)


def test_nothing_moves_beside_a_camera_at_rest() -> None:
    assert np.allclose(lay_at(standing(), standing(), FOCAL, ROWS), OWN)


def test_far_away_the_picture_turns_with_the_camera_and_does_not_grow() -> None:
    turned = lay_at(standing(), standing(x=2.0, yaw=0.1), FOCAL, ROWS).reshape(ROWS, ROWS, 2)
    angles = np.arctan((MIDDLES - 0.5) / FOCAL) - 0.1  # to the right
    assert np.allclose(turned[0, :, 0], 0.5 + FOCAL * np.tan(angles))
    nearer = lay_at(standing(), standing(x=2.0), FOCAL, ROWS).reshape(ROWS, ROWS, 2)
    assert np.allclose(nearer[: ROWS // 2], OWN.reshape(ROWS, ROWS, 2)[: ROWS // 2])  # above the horizon


def test_the_ground_comes_nearer_as_the_camera_goes_forward() -> None:
    found = lay_at(standing(), standing(x=2.0), FOCAL, ROWS).reshape(ROWS, ROWS, 2)
    for row in range(ROWS // 2, ROWS):
        away = FOCAL * HEIGHT / (MIDDLES[row] - 0.5)
        assert found[row, 0, 1] == pytest.approx(0.5 + FOCAL * HEIGHT / (away + 2.0))
        assert found[row, 0, 0] == pytest.approx(0.5 + (MIDDLES[0] - 0.5) * away / (away + 2.0))


def test_what_lay_behind_the_camera_lies_outside_of_the_picture() -> None:
    found = lay_at(standing(), standing(x=-10.0), FOCAL, ROWS).reshape(ROWS, ROWS, 2)
    assert (found[-1] > 1).all()


def test_a_camera_that_goes_on_as_it_went_is_foretold() -> None:
    before, now, then = (standing(x=0.5 * k, yaw=0.05 * k) for k in (0, 1, 4))
    found = now.onward(before, 3.0)
    assert np.allclose(found.position, then.position)
    assert np.allclose(found.axes, then.axes)


def test_the_ladder_of_what_cameras_are_worth_is_climbed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    streets, log = tmp_path / "dense", tmp_path / "log.json"
    simulate(streets, ["seconds=[6,7]", "fps=4"], clips=40, seed=3, preset="dense")
    short = ["--steps", "2", "--seeds", "0", "--clips", "16", "--json", str(log)]
    capsys.readouterr()
    assert camera_ceiling.main([str(streets), *short]) == 0
    rungs = {rung["rung"]: rung for rung in json.loads(log.read_text())["rungs"]}
    assert [*rungs] == [*camera_ceiling.RUNGS]
    assert len({rung["l1"] for rung in rungs.values()}) == len(rungs)  # each is told something else
    for name, (_, before) in camera_ceiling.RUNGS.items():
        if before:
            taken_off = 100 * (rungs[before]["l1"] - rungs[name]["l1"]) / rungs["nothing"]["l1"]
            assert rungs[name]["percent"] == pytest.approx(taken_off, abs=1e-4)
    assert capsys.readouterr().out.count("\n| ") == 1 + len(rungs)
