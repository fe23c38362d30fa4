"""The frozen parts by themselves: flow, regions, edits, probes, slopes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.diagnostics.flow import descriptor, flows, without_camera
from factorjepa.diagnostics.interventions import EDITS, EditKind, box_masks, edit, salient_boxes
from factorjepa.diagnostics.mask_slope import area, slope
from factorjepa.diagnostics.probes import Ridge, crossed
from factorjepa.diagnostics.settings import EvaluateSettings, InterventionSettings, MotionSettings


def texture(seed: int, height: int, width: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 1.5)


def panned(step: int, square: int = 0) -> np.ndarray:
    """A camera that pans by `step` pixels a frame over a texture, and a square of 24 px that moves by itself."""
    ground, thing = texture(1, 96, 256), texture(2, 24, 24)
    frames = []
    for t in range(6):
        frame = ground[:, 40 + step * t : 136 + step * t].copy()
        frame[36:60, 20 + square * t : 44 + square * t] = thing
        frames.append(frame)
    return np.stack(frames)


def test_flow_of_a_pan_is_the_cameras_and_vanishes_without_it() -> None:
    found = flows(panned(2), 96)
    assert np.median(found[..., 0]) * 96 == pytest.approx(-2, abs=0.1)
    ground = without_camera(found[2])[66:, :]
    assert np.abs(ground).mean() * 96 < 0.15


def test_what_moves_by_itself_is_found_through_the_pan() -> None:
    motion = np.stack([without_camera(flow) for flow in flows(panned(1, 3), 96)])
    (left, top, right, bottom), *_ = salient_boxes(motion, InterventionSettings())
    assert left < 0.35 < right
    assert top < 0.5 < bottom
    speeds = descriptor(motion, MotionSettings(grid=4))[:, -1].reshape(4, 4)
    assert speeds[1:3, :3].max() > 5 * speeds[3].max()


def test_nothing_is_found_where_nothing_moves() -> None:
    still = np.repeat(panned(0)[:1], 6, axis=0)
    motion = np.stack([without_camera(flow) for flow in flows(still, 96)])
    assert salient_boxes(motion, InterventionSettings()) == []


@given(seed=st.integers(0, 99), regions=st.integers(1, 4))
@settings(max_examples=15)
def test_boxes_lie_in_the_picture_and_keep_their_bounds(seed: int, regions: int) -> None:
    chosen = InterventionSettings(regions=regions)
    motion = np.random.default_rng(seed).normal(0, 0.05, (3, 48, 48, 2)).astype(np.float32)
    boxes = salient_boxes(motion, chosen)
    assert len(boxes) <= regions
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= 1 + 1e-9
        assert 0 <= top < bottom <= 1 + 1e-9
        for length in (right - left, bottom - top):
            assert chosen.least_side - 1e-9 <= length <= chosen.largest_side + 1e-9


@given(kind=st.sampled_from(EDITS), left=st.floats(0, 0.6), top=st.floats(0, 0.6), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_an_edit_touches_its_region_alone_and_never_looks_ahead(
    kind: EditKind, left: float, top: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    frames = random.integers(0, 256, (8, 24, 24, 3)).astype(np.uint8)
    masks = box_masks((left, top, left + 0.3, top + 0.4), 8, 24, 24)
    edited, touched = edit(frames, masks, kind, 6, 0.12)
    assert np.array_equal(edited[~touched], frames[~touched])
    assert not np.array_equal(edited[1:], frames[1:])
    other = frames.copy()
    other[6:] = random.integers(0, 256, other[6:].shape)
    assert np.array_equal(edit(other, masks, kind, 6, 0.12)[0][:6], edited[:6])


def test_filling_removes_what_moves_and_shifting_keeps_it() -> None:
    frames = np.full((8, 32, 32, 3), 100, np.uint8)
    masks = np.zeros((8, 32, 32), bool)
    for t in range(8):
        masks[t, 10:16, 2 + 2 * t : 8 + 2 * t] = True
    frames[masks] = 200
    filled, _ = edit(frames, masks, "fill", 8, 0.2)
    assert (filled == 100).all()
    shifted, _ = edit(frames, masks, "shift", 8, 0.2)
    assert (shifted[0] == 200).sum() == (frames[0] == 200).sum()
    assert not np.array_equal(shifted[0], frames[0])


def test_a_probe_learns_what_is_linear_and_nothing_from_noise() -> None:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(200, 6)), random.normal(size=(6, 3))
    y = x @ weight + 5
    grid = EvaluateSettings().probes.grid
    probe = Ridge.fit(x[:120], y[:120], x[120:160], y[120:160], grid)
    assert np.square(probe(x[160:]) - probe.targets(y[160:])).mean() < 1e-4
    noise = random.normal(size=x.shape)
    blind = Ridge.fit(noise[:120], y[:120], noise[120:160], y[120:160], grid)
    wanted = blind.targets(y[160:])
    assert np.square(blind(noise[160:]) - wanted).mean() == pytest.approx(np.square(wanted).mean(), rel=0.1)


def test_crossed_probes_never_see_the_group_they_answer_for() -> None:
    """A group's own offset cannot be known from the others: who sees it would get it right."""
    random = np.random.default_rng(0)
    groups = [f"g{number}" for number in np.repeat(np.arange(6), 20)]
    x = np.eye(6)[np.repeat(np.arange(6), 20)] + 0.01 * random.normal(size=(120, 6))
    y = np.repeat(random.normal(size=6), 20)[:, None]
    found = crossed(x, y, groups, (1e-3, 1.0, 1e3))
    assert found is not None
    assert np.square(found.answer_nG - found.wanted_nG).mean() > 0.5
    linear = crossed(x, x[:, :1] * 3 + 1, [f"g{n % 6}" for n in range(120)], (1e-6, 1.0))
    assert linear is not None
    assert np.abs(linear.read() - (x[:, :1] * 3 + 1)).max() < 1e-2
    assert crossed(x, y, ["a", "b"] * 60, (1.0,)) is None


@given(st.floats(-2, 2), st.floats(0.1, 3))
def test_slope_and_area_of_a_straight_curve(rise: float, start: float) -> None:
    shares = (0.0, 0.3, 0.5, 0.9)
    curve = torch.tensor([[start + rise * share] for share in shares], dtype=torch.float64)
    assert slope(shares, curve).item() == pytest.approx(rise, abs=1e-9)
    assert area(shares, curve).item() == pytest.approx(start + rise * 0.45, abs=1e-9)
