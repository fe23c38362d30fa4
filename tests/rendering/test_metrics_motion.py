"""Flow EPE: motion that is known because it was made."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from factorjepa.rendering.metrics.motion import (
    departing,
    flow_epe,
    future_flow,
    magnitude_ratio,
    moving,
    to_bytes,
)

SIDE = 96


def wall() -> np.ndarray:
    rng = np.random.default_rng(1)
    layers = [cv2.resize(rng.random((n, n, 3)).astype(np.float32), (2 * SIDE, 2 * SIDE)) for n in (12, 40)]
    return np.asarray(0.5 * layers[0] + 0.5 * layers[1])


def view(across: int, walker: int | None = None) -> Tensor:
    """The wall seen from `across` pixels to the right, somebody in front of it at column `walker`."""
    picture = wall()[40 : 40 + SIDE, 40 + across : 40 + across + SIDE].copy()
    if walker is not None:
        picture[30:66, walker : walker + 24] = wall()[100:136, 100:124][..., ::-1] ** 2
    return torch.from_numpy(picture).permute(2, 0, 1)


def clip(*frames: Tensor) -> Tensor:
    return torch.stack(frames)[None]


def test_a_camera_that_turns_shows_as_flow_in_sides_of_the_picture() -> None:
    flow = future_flow(view(0)[None], clip(view(-4)))
    middle = flow[0, 0, 20:-20, 20:-20]
    assert np.median(middle[..., 0]) == pytest.approx(4 / SIDE, abs=0.003)
    assert np.median(middle[..., 1]) == pytest.approx(0, abs=0.003)


def test_epe_is_zero_for_the_same_future_and_the_error_of_motion_for_another() -> None:
    context, future = view(0)[None], clip(view(-2), view(-4))
    reference = future_flow(context, future)
    assert not flow_epe(reference, future_flow(context, future)).any()
    still = flow_epe(reference, future_flow(context, clip(view(0), view(0))))
    assert still == pytest.approx(np.array([[2 / SIDE, 4 / SIDE]]), abs=0.004)


def test_epe_over_a_region_asks_only_there() -> None:
    context = view(0, 20)[None]
    reference = future_flow(context, clip(view(0, 26)))
    found = future_flow(context, clip(view(0, 20)))
    walker, ground = (np.zeros((1, 1, SIDE, SIDE), bool) for _ in range(2))
    walker[..., 34:62, 24:40], ground[..., 80:, :] = True, True
    assert flow_epe(reference, found, walker)[0, 0] > 0.04 > 0.004 > flow_epe(reference, found, ground)[0, 0]
    assert np.isnan(flow_epe(reference, found, np.zeros_like(walker))[0, 0])


def test_what_departs_is_on_the_context_frames_pixels_and_is_not_the_camera() -> None:
    reference = future_flow(view(0, 20)[None], clip(view(-3, 30), view(-6, 60)))
    found = departing(reference)
    assert found.shape == (1, 2, SIDE, SIDE)
    assert (found[0, 0] == found[0, 1]).all()
    assert found[0, 0, 38:58, 26:38].mean() > 0.8
    assert found[0, 0, 75:90, 15:80].mean() < 0.1


def test_what_moves_is_on_each_frames_own_pixels_and_is_not_the_camera() -> None:
    found = moving(view(0, 20)[None], clip(view(-3, 30), view(-6, 40), view(-9, 43)))[0]
    for frame, left in enumerate((30, 40)):
        assert found[frame, 38:58, left + 6 : left + 18].mean() > 0.8
    assert found[:, 75:90, 15:80].mean() < 0.1
    assert found[2, 38:58, 49:61].mean() < 0.1  # goes with the camera's picture: it stands still


def test_a_road_that_a_camera_drives_over_does_not_move() -> None:
    corners = np.float32([[0, 0], [SIDE, 0], [SIDE, SIDE], [0, SIDE]])
    nearer = np.float32([[2, 1], [SIDE - 2, 1], [SIDE + 14, SIDE + 10], [-14, SIDE + 10]])  # the near edge more
    ahead = cv2.getPerspectiveTransform(corners, nearer)
    road = wall()[40 : 40 + SIDE, 40 : 40 + SIDE]
    driven = cv2.warpPerspective(road, ahead, (SIDE, SIDE), borderMode=cv2.BORDER_REFLECT)
    before, after = (torch.from_numpy(one.copy()).permute(2, 0, 1) for one in (road, driven))
    found = moving(before[None], clip(after))[0, 0]
    assert found[12:-12, 12:-12].mean() < 0.1


def test_the_magnitude_ratio_tells_who_stands_still_and_who_walks_half_the_way() -> None:
    context = view(0, 20)[None]
    reference = future_flow(context, clip(view(0, 28)))
    ratios = [magnitude_ratio(reference, future_flow(context, clip(view(0, x))))[0, 0] for x in (20, 24, 28)]
    assert ratios[0] == pytest.approx(0, abs=0.05)
    assert ratios[1] == pytest.approx(0.5, abs=0.2)
    assert ratios[2] == 1
    nothing = future_flow(context, clip(view(0, 20)))
    assert np.isnan(magnitude_ratio(nothing, reference)).all()


def test_bytes_are_rounded_and_clipped() -> None:
    frames = torch.tensor([-0.5, 0.0, 0.501, 1.0, 2.0]).view(1, 1, 1, 5).expand(1, 3, 1, 5)
    assert to_bytes(frames)[0, 0, :, 0].tolist() == [0, 0, 128, 255, 255]
