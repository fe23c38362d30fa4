"""Pictures of decoded futures: fixed columns, one contour, one box, one display range."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from decoded_streets import FEW, SECONDS, TITLES, decoded
from factorjepa.decoded import DecodedExample
from factorjepa.rendering import gallery as pictures
from factorjepa.rendering import panels
from factorjepa.video import probe

Frame = NDArray[np.uint8]
GREYS = {"last": 40, "observed": 80, "oracle": 100, "frozen": 130, "auto_rgn": 150, "factorjepa_raw": 170,
         "factorjepa": 190}  # fmt: skip


def flat(grey: int, size: int = 64, frames: int = 4) -> Frame:
    return np.full((frames, size, size, 3), grey, np.uint8)


def greys(size: int = 64, **changed: Any) -> DecodedExample:
    """Every source one grey of its own: where it is shown can be seen, and whether it was stretched."""
    agents = np.zeros((4, size, size), bool)
    agents[:, size // 4 : size // 2, size // 4 : size // 2] = True
    given_ = {
        "methods": {name: flat(GREYS[name], size) for name in FEW}, "titles": TITLES, "agents_THW": agents,
        "box": (size // 8, size // 8, size // 8 + size // 3, size // 8 + size // 3),
    } | changed  # fmt: skip
    return DecodedExample("a/b/c#0.0", SECONDS, flat(GREYS["last"], size)[0], flat(GREYS["observed"], size),
                          flat(GREYS["oracle"], size), **given_)  # fmt: skip


def blocks(picture: Frame, grey: int) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of everything that has exactly this grey."""
    rows, columns = np.nonzero((picture == grey).all(-1))
    assert len(rows), f"no {grey} in the picture"
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


@given(st.permutations(list(TITLES)))
def test_columns_stand_in_the_papers_order_however_methods_are_given(given_: list[str]) -> None:
    ordered = pictures.column_order(given_)
    assert ordered[:3] == ["frozen", "auto_rgn", "factorjepa_raw"]
    assert ordered[-1] == "factorjepa"
    assert ordered[3:-1] == [name for name in given_ if name in ("lora", "mono_supervised")]


def test_a_gallery_shows_context_observed_oracle_and_methods_from_left_to_right_unstretched() -> None:
    drawn = pictures.gallery([greys()])
    edges = [blocks(drawn, GREYS[name]) for name in ("last", "observed", "oracle", *FEW)]
    assert all(one[2] <= following[0] for one, following in pairwise(edges))
    tops = {edge[1] for edge in edges}
    assert len(tops) == 1


@pytest.mark.parametrize(("size", "factor"), [(64, 4), (384, 1), (96, 2)])
def test_small_frames_are_enlarged_by_a_whole_factor_and_large_ones_are_not(size: int, factor: int) -> None:
    left, _, right, _ = blocks(pictures.gallery([greys(size, box=None, agents_THW=None)]), GREYS["oracle"])
    assert right - left == size * factor


def test_the_contour_is_the_same_on_every_panel_but_the_context() -> None:
    placed = pictures.gallery([greys(box=None, agents_THW=None)])
    alike = dataclasses.replace(
        greys(box=None), last_HW3=flat(80)[0], oracle_THW3=flat(80), methods={name: flat(80) for name in FEW}
    )
    drawn, found = pictures.gallery([alike]), []
    for name in ("last", "observed", "oracle", *FEW):
        left, top, right, bottom = blocks(placed, GREYS[name])
        found.append(drawn[top:bottom, left:right])
    assert (found[0] == 80).all()
    assert found[1].max() > 220
    for other in found[2:]:
        np.testing.assert_array_equal(other, found[1])


def test_a_contour_runs_along_the_edge_of_the_agents() -> None:
    mask = np.zeros((64, 64), bool)
    mask[16:32, 20:40] = True
    (polygon,) = panels.contours_of(mask, 4)
    assert np.abs(polygon.min(0) - (80, 64)).max() <= 1
    assert np.abs(polygon.max(0) - (159, 127)).max() <= 1
    assert len(polygon) <= 12  # no stairs


def test_the_box_is_at_the_same_place_on_every_panel_and_its_part_is_enlarged_below() -> None:
    example = greys(agents_THW=None)
    drawn, bare = pictures.gallery([example]), pictures.gallery([dataclasses.replace(example, box=None)])
    red = (drawn == panels.RED).all(-1)
    places = []
    for name in ("last", "observed", "oracle", *FEW):
        left, top, right, bottom = blocks(bare, GREYS[name])
        places.append(red[top:bottom, left:right])
        lower = red[bottom + 1 :, left:right]
        assert lower.any()
    for other in places[1:]:
        np.testing.assert_array_equal(other, places[0])


def test_a_zoomed_part_shows_the_part() -> None:
    frame = np.zeros((64, 64, 3), np.uint8)
    frame[10:31, 20:41] = (200, 10, 10)
    assert (panels.zoomed(frame, (20, 10, 41, 31), 256) == (200, 10, 10)).all()


def test_a_method_that_one_example_lacks_leaves_a_named_gap_not_a_shifted_column() -> None:
    both = greys(agents_THW=None, box=None)
    one = dataclasses.replace(both, methods={"factorjepa": flat(GREYS["factorjepa"])})
    drawn = pictures.gallery([both, one])
    left, top, right, bottom = blocks(drawn, GREYS["factorjepa"])
    assert right - left == 256
    assert bottom - top > 512  # both rows, in one column


def test_a_filmstrip_has_a_row_per_source_and_a_column_per_frame() -> None:
    shades = {name: np.stack([np.full((64, 64, 3), 20 * k + 3 * t, np.uint8) for t in range(4)])
              for k, name in enumerate(("observed", "oracle", "frozen", "factorjepa"), start=1)}  # fmt: skip
    example = DecodedExample("a", SECONDS, flat(9)[0], shades["observed"], shades["oracle"],
                             {name: shades[name] for name in ("factorjepa", "frozen")}, TITLES)  # fmt: skip
    drawn = pictures.filmstrip(example)
    places = np.array([[blocks(drawn, 20 * k + 3 * t)[:2] for t in range(4)] for k in range(1, 5)])
    assert (np.diff(places[..., 0], axis=1) >= 256).all()  # later frames to the right
    assert (np.diff(places[..., 1], axis=0) >= 256).all()  # observed, oracle, frozen, FactorJEPA downwards
    assert (places[..., 0] == places[0, :, 0]).all()


def test_the_moving_picture_begins_with_the_last_seen_frame_everywhere_and_is_slower_than_the_street() -> None:
    beats = pictures.moving(greys(agents_THW=None))
    assert len(beats) == 1 + len(SECONDS)
    first, second = beats[0][0], beats[1][0]
    assert (first == GREYS["last"]).all(-1).sum() == 6 * 256 * 256
    assert all((second == GREYS[name]).all(-1).sum() >= 256 * 256 for name in ("observed", "oracle", *FEW))
    assert {beat.shape for beat, _ in beats} == {first.shape}
    assert first.shape[0] % 2 == first.shape[1] % 2 == 0
    assert all(held > 1 for _, held in beats)


def test_frames_that_are_wide_and_methods_of_one_name_are_drawn_too() -> None:
    wide = np.full((2, 48, 96, 3), 90, np.uint8)
    example = DecodedExample(
        "a", (0.5, 1.0), wide[0], wide, wide, {"one": wide + 60, "other": wide + 90}, {"one": "Same", "other": "Same"},
        box=panels.common_box(wide, {"one": wide + 60}),
    )  # fmt: skip
    left, top, right, bottom = blocks(pictures.filmstrip(example), 150)
    assert (bottom - top, (right - left) // 2 * 2 >= 2 * 192) == (96, True)
    blocks(pictures.gallery([example]), 180)
    for beat, _ in pictures.moving(example)[1:]:
        blocks(beat, 150)
        blocks(beat, 180)


def test_the_common_box_lies_where_something_was_planted() -> None:
    observed = flat(90)
    moved = observed.copy()
    moved[:, 38:52, 8:22] = 220
    left, top, right, bottom = panels.common_box(observed, {"a": moved, "b": observed})
    assert right - left == bottom - top == 21
    assert left <= 8 and top <= 38 and right >= 22 and bottom >= 52  # noqa: PT018


@given(st.integers(0, 2**16), st.integers(7, 20), st.integers(7, 20), st.integers(1, 3))
def test_the_common_box_is_the_best_of_all_squares(seed: int, height: int, width: int, count: int) -> None:
    random = np.random.default_rng(seed)
    observed, *methods = random.integers(0, 256, (count + 1, 2, height, width, 3), dtype=np.uint8)
    box = panels.common_box(observed, {str(k): one for k, one in enumerate(methods)})
    left, top, right, bottom = box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    wide = [one.astype(float) for one in methods]
    apart = np.mean([np.abs(one - observed) for one in wide], axis=0)
    pairs = [np.abs(a - b) for k, a in enumerate(wide) for b in wide[:k]]
    apart = (apart + (np.mean(pairs, axis=0) if pairs else 0)).sum((0, 3))
    side = right - left
    sums = {(y, x): apart[y : y + side, x : x + side].sum() for y in range(height - side + 1)
            for x in range(width - side + 1)}  # fmt: skip
    assert sums[top, left] == pytest.approx(max(sums.values()))


def test_heat_has_one_range_for_all_maps_and_is_grey_where_nothing_changes() -> None:
    quiet, loud = np.zeros((4, 64, 64), np.float32), np.zeros((4, 64, 64), np.float32)
    quiet[:] = 0.02
    loud[:, :8, :8] = 0.4
    high = panels.heat_range({"L": quiet, "A": loud})
    assert high == pytest.approx(0.4)
    frame = flat(200)[0]
    strong, none = panels.heat(frame, loud[0], high)[0, 0], panels.heat(frame, loud[0], high)[-1, -1]
    weak = panels.heat(frame, quiet[0], high)[0, 0]
    assert strong.astype(int).sum() - strong[2] > 2 * strong[2]  # yellow
    assert (none == 200).all()
    assert (np.abs(weak.astype(int) - strong) > 10).any()


def test_no_scale_of_heat_ends_below_what_an_eye_sees() -> None:
    for maps in ({}, {"L": np.full((1, 8, 8), 0.001, np.float32)}):
        assert panels.heat_range(maps) == panels.LEAST_SCALE


def test_the_map_of_a_channel_that_does_nothing_is_grey_beside_one_that_does() -> None:
    example = decoded()
    whole = example.methods["factorjepa"]
    idle = dataclasses.replace(example, without={**example.without, "I": whole})  # and its influence still sums to 1
    changes = idle.change_maps()
    assert changes["I"].max() == 0 < changes["L"].max()
    mean = np.abs(whole.astype(int) - example.without["L"]).mean() / 255
    assert changes["L"].mean() == pytest.approx(mean, rel=1e-3)
    grey = panels.heat(whole[-1], changes["I"][-1], panels.heat_range(changes))
    assert (grey == grey[..., :1]).all()


def test_the_channel_sheet_is_left_out_where_no_channel_was_removed() -> None:
    assert pictures.channel_sheet(decoded(channels=False)) is None
    example = decoded()
    sheet = pictures.channel_sheet(example)
    assert sheet is not None
    assert sheet.shape[1] >= 4 * 256
    one = dataclasses.replace(example, without={"A": example.without["A"]}, influence={})
    fewer = pictures.channel_sheet(one)
    assert fewer is not None
    assert fewer.shape[1] < sheet.shape[1]


def test_write_gallery_leaves_whole_files_that_play(tmp_path: Path) -> None:
    example = greys(methods={"factorjepa": flat(GREYS["factorjepa"])})
    written = pictures.write_gallery(tmp_path, {"00": example})
    names = sorted(str(path.relative_to(tmp_path)) for path in written)
    assert names == ["00/filmstrip.png", "00/future.gif", "00/future.mp4", "gallery.png"]
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(written)
    with Image.open(tmp_path / "00" / "future.gif") as gif:
        durations = []
        for k in range(gif.n_frames):  # type: ignore[attr-defined]
            gif.seek(k)
            durations.append(gif.info["duration"])
    assert len(durations) == 5
    assert min(durations) >= 500  # a person can follow
    film = probe(tmp_path / "00" / "future.mp4")
    assert film.seconds == pytest.approx(sum(durations) / 1000, abs=0.3)
    before = {path: path.read_bytes() for path in written}
    pictures.write_gallery(tmp_path, {"00": example})
    assert before == {path: path.read_bytes() for path in written}


def test_no_example_makes_no_gallery(tmp_path: Path) -> None:
    assert pictures.write_gallery(tmp_path, {}) == []
    assert not list(tmp_path.iterdir())
