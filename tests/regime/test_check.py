"""The check of the teacher against native annotations."""

from __future__ import annotations

import numpy as np
import pytest

from factorjepa.errors import RegimeError
from factorjepa.regime.check import agreement, cropped
from factorjepa.regime.settings import Thresholds

from .scenes import Agent, scene

T = Thresholds()


def crowd(frames: int, fps: float, growing: bool = True) -> list[Agent]:
    """One agent more each second."""
    return [
        Agent(t, (5 + 12 * k, 40, 15 + 12 * k, 60), track=k)
        for t in range(frames) for k in range(1 + int(t / fps) if growing else 3)
    ]  # fmt: skip


def test_a_teacher_that_sees_what_is_marked_agrees_at_another_rate_and_offset() -> None:
    native = scene(crowd(60, 10.0), 60, fps=10.0)
    teacher = scene([a for a in crowd(24, 4.0) if a.frame >= 8], 24, fps=4.0)
    part = teacher.with_slots(np.where(np.arange(24) >= 8, np.arange(24) - 8, -1), np.arange(16) / 4)
    found = {one.measure: one for one in agreement(part, native, 2.0, T)}
    assert found["count"].rank_correlation == pytest.approx(1.0)
    assert found["count"].teacher == pytest.approx(found["count"].native)
    assert found["count"].frames == 16


def test_a_constant_says_nothing_about_ranks() -> None:
    native, teacher = scene(crowd(20, 4.0), 20), scene(crowd(20, 4.0, growing=False), 20)
    assert np.isnan(agreement(teacher, native, 0.0, T)[0].rank_correlation)


def test_annotations_of_another_moment_are_refused() -> None:
    with pytest.raises(RegimeError, match="no frame of the teacher's window"):
        agreement(scene(crowd(8, 4.0), 8), scene(crowd(8, 4.0), 8), 100.0, T)


def test_who_is_outside_the_teachers_square_is_nobody() -> None:
    wide = scene([Agent(0, (0, 0, 30, 30)), Agent(0, (40, 0, 60, 30)), Agent(0, (150, 0, 190, 50))], size=(200, 100))
    inside = cropped(wide, 50, 0, 100)
    assert inside.box_O4.tolist() == [[0, 0, 10, 30]]
    assert inside.cover.union(np.ones(1, bool)).tolist() == [300]
