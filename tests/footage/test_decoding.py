"""Source videos of every kind: upright, progressive, square-pixel frames at their own times, or a reason."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from factorjepa.errors import VideoError
from factorjepa.footage.cutting import Sampler
from factorjepa.footage.decoding import Decoded, Faults, Framing, SourceVideo, read_header
from factorjepa.footage.settings import LimitSettings
from factorjepa.video import Frames, write_video

from .videos import encode, number_of, numbered, sound, street, turn

LIMITS = LimitSettings()


def decoded(path: Path) -> list[Decoded]:
    return list(SourceVideo(path, path.name).frames())


def pictures(path: Path, short_side: int = 480) -> list[Frames]:
    video = SourceVideo(path, path.name)
    frames = list(video.frames())
    framing = Framing.of(frames[0].frame, video.aspect, short_side)
    return [framing.picture(one.frame) for one in frames]


def resampled(path: Path, fps: float) -> list[int]:
    """Which frame of the source is shown at each k / fps."""
    frames, sampler = decoded(path), Sampler(fps)
    ends = [after.at for after in frames[1:]] + [frames[-1].at + frames[-1].duration]
    return [one.index for one, end in zip(frames, ends, strict=True) for _ in sampler.shown(one.at, end)]


class TestTimes:
    @pytest.mark.parametrize("kind", ["mkv", "mp4", "ts"])
    @pytest.mark.parametrize("start", [0, 5000])
    def test_a_file_lasts_as_long_whenever_its_clock_begins(self, tmp_path: Path, kind: str, start: int) -> None:
        times = [start + k / 12 for k in range(24)]
        path = encode(tmp_path / f"late.{kind}", numbered(24), times)
        assert read_header(path, path.name, LIMITS).seconds == pytest.approx(2, abs=0.2)

    def test_a_variable_frame_rate_is_resampled_by_timestamp(self, tmp_path: Path) -> None:
        times = [0.0, 0.04, 0.08, 0.5, 0.54, 1.0, 1.3, 1.31, 1.32, 1.9]
        path = encode(tmp_path / "vfr.mkv", numbered(10), times)
        frames = decoded(path)
        assert [one.at for one in frames] == pytest.approx(times, abs=1e-3)
        expected = [max(k for k, at in enumerate(times) if at <= number / 8 + 1e-3) for number in range(16)]
        assert resampled(path, 8.0)[:16] == expected
        assert [number_of(picture) for picture in pictures(path)] == list(range(10))

    @pytest.mark.parametrize(("source", "target"), [(30, 12.0), (10, 12.0), (25, 8.0), (24, 24.0)])
    def test_frame_k_of_the_clip_is_what_was_shown_at_that_second(
        self, tmp_path: Path, source: int, target: float
    ) -> None:
        path = encode(tmp_path / "even.mp4", numbered(2 * source), fps=source)
        shown = resampled(path, target)
        assert len(shown) == 2 * target
        assert shown == [int(k / target * source + 1e-6) for k in range(len(shown))]

    def test_frames_stamped_in_the_order_of_storage_are_shown_in_theirs(self, tmp_path: Path) -> None:
        """MPEG-4 with B-frames in AVI: the stamps run backwards, the decoder's order does not."""
        path = encode(tmp_path / "old.avi", numbered(40), fps=10, codec="mpeg4", bf="2")
        frames = decoded(path)
        gaps = np.diff([one.at for one in frames])
        assert len(frames) >= 38
        assert gaps.min() > 0
        assert gaps.max() < 0.25

    def test_a_source_that_starts_late_starts_at_zero(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "late.mkv", numbered(5), [3.0, 3.1, 3.2, 3.3, 3.4])
        assert [one.at for one in decoded(path)] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4], abs=1e-3)


class TestPictures:
    @pytest.mark.parametrize("degrees", [90, 180, 270])
    def test_a_phones_video_is_turned_upright(self, tmp_path: Path, degrees: int) -> None:
        upright = np.zeros((96, 64, 3), np.uint8)
        upright[:48, :32] = 200  # the upper left quarter is bright
        stored = np.rot90(upright, degrees // 90).copy()  # the phone was held turned the other way
        path = turn(encode(tmp_path / "phone.mp4", [stored] * 5), degrees)
        shown = pictures(path)[2].astype(int)
        assert shown.shape == upright.shape
        assert np.abs(shown - upright).mean() < 6

    def test_wide_pixels_become_square(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "dv.mkv", street(1, 5, 72, 64), aspect=Fraction(4, 3))
        assert pictures(path)[0].shape == (64, 96, 3)

    @pytest.mark.parametrize(("width", "height"), [(95, 63), (64, 33), (33, 64)])
    def test_odd_sides_become_even_ones(self, tmp_path: Path, width: int, height: int) -> None:
        path = encode(tmp_path / "odd.mkv", street(1, 3, width, height), codec="ffv1")
        shape = pictures(path)[0].shape
        assert abs(shape[0] - height) <= 1
        assert abs(shape[1] - width) <= 1
        assert shape[0] % 2 == shape[1] % 2 == 0

    def test_large_pictures_shrink_and_keep_their_shape_and_small_ones_stay(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "large.mp4", street(1, 3, 192, 128))
        assert pictures(path, short_side=64)[0].shape == (64, 96, 3)
        assert pictures(path, short_side=480)[0].shape == (128, 192, 3)

    def test_interlaced_footage_loses_its_combs(self, tmp_path: Path) -> None:
        """Two fields of a moving edge, woven: neighbouring lines disagree until they are taken apart."""
        woven = []
        for step in range(12):
            frame = np.full((64, 96, 3), 40, np.uint8)
            for line in range(64):
                frame[line, : 10 + 6 * step + 3 * (line % 2)] = 200
            woven.append(frame)
        options = {"flags": "+ilme+ildct", "x264-params": "tff=1", "crf": "5"}
        path = encode(tmp_path / "camcorder.mkv", woven, **options)

        def combs(frame: Frames) -> float:
            return float(np.abs(frame[1:].astype(int) - frame[:-1]).mean())

        video = SourceVideo(path, "camcorder")
        shown = [Framing.of(one.frame, None, 64).picture(one.frame) for one in video.frames()]
        assert video.deinterlaced
        assert len(shown) == 12
        assert max(combs(frame) for frame in shown[1:-1]) < 0.4 * min(combs(frame) for frame in woven)


class TestDamage:
    def test_a_file_cut_short_is_read_to_where_it_ends(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "cut.ts", street(2, 96))
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        video = SourceVideo(path, "cut")
        frames = list(video.frames())
        assert 30 < len(frames) < 70
        assert frames[-1].at == pytest.approx((len(frames) - 1) / 12, abs=0.3)

    def test_damage_in_the_middle_is_left_out_up_to_the_next_key_frame_and_said(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "hole.mkv", street(2, 96), crf="10")
        data = bytearray(path.read_bytes())
        middle = len(data) // 2
        data[middle : middle + 6000] = np.random.default_rng(0).integers(0, 256, 6000, dtype=np.uint8).tobytes()
        path.write_bytes(data)
        video = SourceVideo(path, "hole")
        frames = list(video.frames())
        assert 40 < len(frames) < 95
        assert any(one.broken for one in frames)
        for before, one in pairwise(frames):
            assert one.broken or one.at - before.at < 2.5 / 12

    def test_frames_missing_from_a_steady_stream_are_noticed_and_a_variable_rate_is_left_alone(
        self, tmp_path: Path
    ) -> None:
        steady = [k / 12 for k in range(40) if k not in (20, 21)]
        frames = decoded(encode(tmp_path / "steady.mkv", numbered(38), steady))
        assert [one.index for one in frames if one.broken] == [20]
        variable = [k / 12 + (0.04 * (k % 3)) for k in range(20)] + [2.4, 2.9, 3.0]
        assert not any(one.broken for one in decoded(encode(tmp_path / "variable.mkv", numbered(23), variable)))

    def test_a_picture_that_changes_its_size_ends_the_source(self, tmp_path: Path) -> None:
        small = encode(tmp_path / "a.ts", street(1, 24, 96, 64)).read_bytes()
        large = encode(tmp_path / "b.ts", street(1, 24, 128, 96)).read_bytes()
        both = tmp_path / "both.ts"
        both.write_bytes(small + large)
        with pytest.raises(VideoError, match="changes from"):
            decoded(both)


class TestRefusals:
    def refused(self, path: Path) -> str:
        def read() -> None:
            read_header(path, path.name, LIMITS)
            decoded(path)

        with pytest.raises(VideoError) as error:
            read()
        return str(error.value)

    def test_sound_alone(self, tmp_path: Path) -> None:
        assert "audio only" in self.refused(sound(tmp_path / "talk.mp4"))

    def test_nothing_text_and_half_an_mp4(self, tmp_path: Path) -> None:
        (tmp_path / "empty.mp4").write_bytes(b"")
        assert "empty" in self.refused(tmp_path / "empty.mp4")
        (tmp_path / "notes.mp4").write_text("first take, rain\n" * 40)
        assert "cannot be opened" in self.refused(tmp_path / "notes.mp4")
        whole = encode(tmp_path / "whole.mp4", street(1, 24)).read_bytes()
        (tmp_path / "half.mp4").write_bytes(whole[: len(whole) // 2])
        assert "cannot be opened" in self.refused(tmp_path / "half.mp4")

    def test_a_playlist_that_calls_itself_a_video_reads_no_other_file(self, tmp_path: Path) -> None:
        real = encode(tmp_path / "private.mp4", street(1, 24))
        (tmp_path / "list.mp4").write_text(f"ffconcat version 1.0\nfile {real.name}\n")
        assert "cannot be opened" in self.refused(tmp_path / "list.mp4")

    def test_a_stream_without_timestamps(self, tmp_path: Path) -> None:
        assert "no frame of it can be decoded" in self.refused(encode(tmp_path / "raw.h264", street(1, 24)))

    def test_a_picture_larger_than_allowed_and_footage_slower_than_allowed(self, tmp_path: Path) -> None:
        path = encode(tmp_path / "a.mp4", street(1, 24))
        with pytest.raises(VideoError, match=r"limits\.pixels"):
            read_header(path, "a", LimitSettings(pixels=1000))
        with pytest.raises(VideoError, match=r"limits\.min_fps"):
            read_header(path, "a", LimitSettings(min_fps=24))

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        subprocess.run(["mkfifo", str(tmp_path / "pipe.mp4")], check=True)
        assert "no such file" in self.refused(tmp_path / "pipe.mp4")

    def test_a_sound_video_is_not_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "fine.mp4"
        write_video(path, street(1, 24), 12)
        header = read_header(path, "fine", LIMITS)
        assert (header.width, header.height, header.fps, header.seconds) == (96, 64, 12.0, 2.0)


def test_faults_are_counted_in_words() -> None:
    assert str(Faults(packets=2, frames=1, ended="cut off")) == "2 undecodable packets; 1 damaged frame; cut off"
    assert not str(Faults())
