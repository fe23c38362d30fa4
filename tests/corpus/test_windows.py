"""Windows: inside the clip, drawn by (replication, clip) alone, and preprocessed as documented."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from factorjepa.corpus.windows import (
    WindowSpec,
    centre_square,
    refuse_unfit,
    window_times,
)
from factorjepa.errors import CorpusError
from factorjepa.pixels import IMAGENET_MEAN, IMAGENET_STD, normalise, resize_to_cover, to_video

from .clips import make_clip

PAPER = WindowSpec()


@given(
    seconds=st.floats(0.5, 60),
    start=st.floats(0, 10_000),
    fps=st.sampled_from([8.0, 12.0, 24.0, 25.0, 29.97, 30.0, 60.0]),
    frames=st.integers(1, 32),
    rate=st.sampled_from([1.0, 4.0, 5.0, 7.5]),
    replication=st.integers(0, 1000),
)
def test_a_window_never_leaves_its_clip(
    seconds: float, start: float, fps: float, frames: int, rate: float, replication: int
) -> None:
    clip = make_clip(t_start=start, t_end=start + seconds, fps=fps)
    spec = WindowSpec(frames=frames, fps=rate)
    if clip.seconds < spec.seconds - 1e-6:
        with pytest.raises(CorpusError, match="is shorter than the"):
            window_times(clip, spec, replication)
        return
    times = window_times(clip, spec, replication)
    assert times[0] >= 0
    assert times[-1] + 1 / rate <= clip.seconds + 2e-6
    np.testing.assert_allclose(np.diff(times), 1 / rate)
    assert times[0] * fps == pytest.approx(round(times[0] * fps))  # starts on a frame of the clip


def test_every_start_that_fits_is_drawn() -> None:
    clip = make_clip(t_start=0.0, t_end=5.0, fps=8.0)
    starts = {float(window_times(clip, PAPER, replication)[0]) for replication in range(300)}
    assert starts == {k / 8 for k in range(9)}


def test_replication_and_clip_decide_the_window() -> None:
    clip, other = make_clip(0, t_end=60.0), make_clip(1, t_end=60.0)
    first = [window_times(clip, PAPER, replication)[0] for replication in range(6)]
    assert first == [window_times(clip, PAPER, replication)[0] for replication in range(6)]
    assert len(set(first)) == 6
    assert first != [window_times(other, PAPER, replication)[0] for replication in range(6)]


def test_a_clip_of_exactly_one_window_has_one_window() -> None:
    clip = make_clip(t_start=0.1, t_end=4.1)  # 3.9999999999999996 s in floating point
    np.testing.assert_allclose(window_times(clip, PAPER, 3), np.arange(16) / 4)


def test_a_short_clip_is_refused_in_words() -> None:
    clip = make_clip(clip_id="pune/s03/v17#4.0", t_start=1.0, t_end=4.1)
    message = r"clip 'pune/s03/v17#4\.0': 3\.1 s is shorter than the 4 s window \(16 frames at 4 fps; .*\)$"
    with pytest.raises(CorpusError, match=message):
        window_times(clip, PAPER)
    with pytest.raises(CorpusError, match="so are 2 other clips"):
        refuse_unfit([make_clip(), clip, clip, clip], PAPER)


def test_a_window_faster_than_its_clip_is_refused_in_words() -> None:
    """Its frames would be the same one again and again, and the future next to nothing."""
    fast = WindowSpec(frames=16, fps=8.5)
    message = (
        r"shows 8 frames a second, and a window of 8\.5 would repeat them: set fps to 8 or less; so is 1 other clip$"
    )
    with pytest.raises(CorpusError, match=message):
        refuse_unfit([make_clip(), make_clip(1)], fast)
    refuse_unfit([make_clip()], WindowSpec(frames=16, fps=8.0))
    odd = make_clip(fps=5 / 3, t_end=20.0)
    with pytest.raises(CorpusError, match=r"set fps to 1\.666 or less"):
        refuse_unfit([odd], fast)
    refuse_unfit([odd], WindowSpec(frames=4, fps=1.666))


@pytest.mark.parametrize("values", [{"frames": 0}, {"fps": 0.0}, {"fps": float("inf")}, {"size": 1}, {"frame": 8}])
def test_an_impossible_window_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        WindowSpec(**values)  # type: ignore[arg-type]


def test_preprocessing_normalises_and_puts_channels_first() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    video = normalise(resize_to_cover(frames, 16, 16))
    assert video.dtype == np.float32
    expected = (frames / 255.0 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    np.testing.assert_allclose(video, expected.transpose(3, 0, 1, 2), atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(32, 64), (64, 32), (32, 32), (33, 70)])
def test_the_centre_of_the_picture_is_kept(height: int, width: int) -> None:
    frames = np.zeros((1, height, width, 3), np.uint8)
    left, top, side = centre_square(width, height)
    assert side == min(height, width)
    assert abs(left - (width - side - left)) <= 1
    assert abs(top - (height - side - top)) <= 1
    frames[:, top : top + side, left : left + side] = 255
    assert np.ptp(normalise(resize_to_cover(frames, 16, 16))[0]) < 1e-5  # nothing from outside the square
    frames[:, height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1] = 0
    shown = normalise(resize_to_cover(frames, 16, 16))[0, 0]
    dark = np.argwhere(shown < shown.max() - 0.1)
    np.testing.assert_allclose(dark.mean(axis=0), 7.5, atol=0.6)


def test_shrinking_averages_areas() -> None:
    """A one-pixel checkerboard becomes even grey; picking pixels would give black, white or stripes."""
    board = np.indices((64, 64)).sum(axis=0) % 2 * 255
    frames = np.repeat(board[None, :, :, None], 3, axis=3).astype(np.uint8)
    grey = normalise(resize_to_cover(frames, 16, 16))[0] * IMAGENET_STD[0] + IMAGENET_MEAN[0]
    np.testing.assert_allclose(grey, 0.5, atol=0.01)


def test_a_batch_is_normalised_to_the_bit_as_one_clip_is() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    assert np.array_equal(to_video(torch.from_numpy(every[None]))[0].numpy(), normalise(every))
