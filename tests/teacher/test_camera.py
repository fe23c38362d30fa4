"""Camera motion: known motions are recovered, agents do not pass for the camera, and nothing is made up."""

from __future__ import annotations

import cv2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from factorjepa.config import resolve
from factorjepa.teacher.camera import IDENTITY, camera_motion, moved
from factorjepa.world import WorldSettings, clip
from factorjepa.world.camera import Pose

SIDE = 256


def texture(seed: int, side: int = SIDE) -> NDArray[np.uint8]:
    """A picture with structure of every size, as streets have."""
    rng = np.random.default_rng(seed)
    layers = [cv2.resize(rng.random((n, n, 3)), (side, side), interpolation=cv2.INTER_CUBIC) for n in (8, 32, 96)]
    return (np.clip(sum(layers) / 3, 0, 1) * 255).astype(np.uint8)


def warped(picture: NDArray[np.uint8], motion: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The picture after a motion `[2, 3]` in [0, 1] coordinates."""
    side = picture.shape[0]
    pixels = np.concatenate([motion[:, :2], motion[:, 2:] * side], axis=1)
    pixels[:, 2] += (motion[:, :2].sum(axis=1) - 1) * 0.5  # OpenCV counts from pixel centres
    return np.asarray(cv2.warpAffine(picture, pixels, (side, side), borderMode=cv2.BORDER_REFLECT), dtype=np.uint8)


def similarity(zoom: float, roll: float, x: float, y: float) -> NDArray[np.float64]:
    """Zoom and roll about the centre, then a shift."""
    a = zoom * np.array([[np.cos(roll), -np.sin(roll)], [np.sin(roll), np.cos(roll)]])
    return np.concatenate([a, (np.array([0.5 + x, 0.5 + y]) - a @ np.array([0.5, 0.5]))[:, None]], axis=1)


@given(
    zoom=st.floats(0.92, 1.1), roll=st.floats(-0.06, 0.06), x=st.floats(-0.1, 0.1), y=st.floats(-0.1, 0.1),
    seed=st.integers(0, 20),
)  # fmt: skip
@settings(max_examples=12)
def test_shifts_zooms_and_rolls_are_recovered_to_a_pixel(
    zoom: float, roll: float, x: float, y: float, seed: int
) -> None:
    truth = similarity(zoom, roll, x, y)
    picture = texture(seed)
    found = camera_motion(np.stack([picture, warped(picture, truth)]))
    points = np.random.default_rng(0).random((50, 2))
    assert found.tracked.all()
    assert found.cuts == ()
    assert np.abs(moved(points, found.affine[1]) - moved(points, truth)).max() < 1 / SIDE


def test_agents_that_move_otherwise_do_not_pass_for_the_camera() -> None:
    truth = similarity(1.0, 0.0, 0.03, -0.01)
    before, agents = texture(1), texture(2)
    after = warped(before, truth)
    for k in range(6):  # a quarter of the picture walks to the left
        top, left = 20 + 36 * k, 60 + 20 * (k % 3)
        before[top : top + 30, left : left + 90] = agents[top : top + 30, left : left + 90]
        after[top : top + 30, left - 14 : left + 76] = agents[top : top + 30, left : left + 90]
    found = camera_motion(np.stack([before, after]))
    assert np.abs(found.affine[1] - truth).max() < 2 / SIDE


def test_a_fast_turn_is_still_followed() -> None:
    wide = texture(3, 384)
    found = camera_motion(np.stack([wide[:SIDE, :SIDE], wide[:SIDE, 80 : 80 + SIDE]]))
    assert found.tracked[1]
    assert np.abs(found.affine[1, :, 2] - [-80 / SIDE, 0]).max() < 0.02


def test_where_nothing_can_be_followed_the_identity_stands_in() -> None:
    rng = np.random.default_rng(0)
    black = np.zeros((3, SIDE, SIDE, 3), np.uint8)
    noise = rng.integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8)
    for frames in (black, noise):
        found = camera_motion(frames)
        assert np.array_equal(found.affine, np.tile(IDENTITY, (3, 1, 1)))
        assert found.tracked.tolist() == [True, False, False]
        assert found.cuts == ()


def test_a_cut_is_found_and_a_pan_is_none() -> None:
    first, second = texture(4), 255 - cv2.GaussianBlur(texture(5), (0, 0), 3) // 2
    pan = [warped(first, similarity(1.0, 0.0, 0.05 * k, 0.0)) for k in range(3)]
    shown = np.stack([*pan, second, warped(second, similarity(1.0, 0.0, 0.02, 0.0))])
    assert camera_motion(shown).cuts == (3,)


def test_a_single_frame_stands_still() -> None:
    found = camera_motion(texture(0)[None])
    assert np.array_equal(found.affine, IDENTITY[None])
    assert found.cuts == ()


def test_the_estimate_is_the_same_to_the_bit_and_knows_no_later_frames() -> None:
    picture = texture(6)
    frames = np.stack([warped(picture, similarity(1 + 0.01 * k, 0.0, 0.02 * k, 0.0)) for k in range(5)])
    once, again = camera_motion(frames), camera_motion(frames)
    assert once.affine.tobytes() == again.affine.tobytes()
    changed = frames.copy()
    changed[3:] = 255 - changed[3:]
    assert camera_motion(changed).affine[:3].tobytes() == once.affine[:3].tobytes()


def test_the_simulators_drone_is_followed_on_the_ground() -> None:
    """The true motion of ground points between frames, from the camera's poses, beside the estimate."""
    overrides = ["size=256", "seconds=[4, 4]", "capture_modes={aerial: 1}", "illumination={day: 1}"]
    made = clip(resolve(WorldSettings, "sparse", overrides), seed=5, index=0)
    frames, truths = zip(*made.frames_with_truth(), strict=True)
    truth = made.annotate(list(truths))
    numbers = np.arange(0, 45, 3)
    found = camera_motion(np.stack(frames)[numbers])
    points = (np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(-1, 2) + 0.5) / 8
    errors, stillness = [], []
    for t in range(1, len(numbers)):
        before, after = (
            Pose(
                truth.camera_position[n].astype(np.float64), truth.camera_axes[n].astype(np.float64), truth.focal, 128.0
            )
            for n in numbers[t - 1 : t + 1]
        )
        rays = np.concatenate([(points * 256 - 128) / truth.focal, np.ones((64, 1))], axis=1) @ before.axes
        down = rays[:, 2] < -0.2
        ground = before.position + rays[down] * (-before.position[2] / rays[down, 2])[:, None]
        true = after.project(ground)[0] / 256
        errors.append(np.median(np.hypot(*(moved(points[down], found.affine[t]) - true).T)))
        stillness.append(np.median(np.hypot(*(points[down] - true).T)))
    assert np.median(errors) < 0.35 * np.median(stillness)
    assert np.median(errors) < 0.003
