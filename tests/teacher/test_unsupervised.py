"""Regions without labels: what stands out is found, touching agents come apart, and nothing looks ahead."""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from factorjepa.pixels import Frames
from factorjepa.teacher.background import change
from factorjepa.teacher.camera import camera_motion
from factorjepa.teacher.choosing import Chosen, chosen_regions
from factorjepa.teacher.classical import ClassicalFeatures
from factorjepa.teacher.foreground import CUES, foreground
from factorjepa.teacher.hierarchy import flat_zones, hierarchy
from factorjepa.teacher.parts import measured
from factorjepa.teacher.proposals import retain
from factorjepa.teacher.regions import Region
from factorjepa.teacher.settings import RegionSettings
from factorjepa.teacher.unsupervised import UnsupervisedProposals

SIDE, CONTEXT = 96, 12
RED, BLUE = (200, 40, 40), (40, 60, 190)
Thing = tuple[int, int, int, int, tuple[int, int, int]]  # left, top, width, height, colour


def texture(
    height: int, width: int, colour: tuple[int, int, int], seed: int, depth: float = 12.0
) -> NDArray[np.float32]:
    """Smooth noise around a colour, `[height, width, 3]`."""
    noise = np.random.default_rng(seed).normal(size=(height, width)).astype(np.float32)
    calm = cv2.GaussianBlur(noise, (0, 0), 1.5)
    return np.array(colour, np.float32) + (calm / calm.std() * depth)[..., None]


def street(things: list[list[Thing]], pan: int = 0) -> tuple[Frames, list[list[NDArray[np.bool_]]]]:
    """Frames of textured things over a textured, panning road, and their visible masks; later things are in front."""
    count = len(things)
    road = texture(SIDE, SIDE + pan * count, (110, 108, 105), 0)
    frames, masks = [], []
    for t, here in enumerate(things):
        picture = road[:, pan * t : pan * t + SIDE].copy()
        owner = np.zeros((SIDE, SIDE), int)
        for k, (left, top, width, height, colour) in enumerate(here, start=1):
            picture[top : top + height, left : left + width] = texture(height, width, colour, k)
            owner[top : top + height, left : left + width] = k
        frames.append(picture.clip(0, 255).astype(np.uint8))
        masks.append([owner == k for k in range(1, len(here) + 1)])
    return np.stack(frames), masks


def proposed(frames: Frames, context: int = CONTEXT) -> list[list[Region]]:
    return UnsupervisedProposals(RegionSettings())(
        frames, ClassicalFeatures()(frames), camera_motion(frames).affine, context
    )


def best_iou(mask: NDArray[np.bool_], regions: list[Region]) -> float:
    side = len(mask)
    whole = [region.full_mask(side) for region in regions]
    return max(((mask & seen).sum() / (mask | seen).sum() for seen in whole), default=0.0)


def kept(regions: list[Region]) -> list[Region]:
    return retain(regions, RegionSettings(), SIDE)


def same(one: list[Region], other: list[Region]) -> bool:
    return len(one) == len(other) and all(
        (a.left, a.top, a.confidence) == (b.left, b.top, b.confidence)
        and np.array_equal(a.mask, b.mask)
        and np.array_equal(a.descriptor, b.descriptor)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("pan", [0, 2])
def test_a_moving_thing_is_found_over_a_still_and_a_panning_street(pan: int) -> None:
    frames, masks = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(16)], pan)
    found = [best_iou(true[0], kept(regions)) for true, regions in zip(masks, proposed(frames), strict=True)]
    assert sum(iou > 0.5 for iou in found) >= 14, found


def test_a_thing_that_stands_still_is_found_where_others_like_it_walk() -> None:
    """It may start to walk: what looks like what comes and goes is an agent, whether it moves now or not."""
    frames, masks = street([[(66, 40, 14, 24, RED), (4 + 3 * t, 12, 14, 24, RED)] for t in range(16)])
    found = [best_iou(true[0], kept(regions)) for true, regions in zip(masks, proposed(frames), strict=True)]
    assert sum(iou > 0.5 for iou in found) >= 14, found


def pair_that_meets() -> tuple[Frames, list[list[NDArray[np.bool_]]]]:
    """Two walkers that touch in frames 0, 7, 8 and 15 and are two to six pixels apart in the others."""
    walkers = [[(30 - t, 40, 14, 26, RED), (44 + t, 40, 14, 26, BLUE)] for t in range(4)]
    return street([*walkers, *walkers[::-1], *walkers, *walkers[::-1]])


def test_two_things_side_by_side_stay_apart_where_they_touch_once_they_were_seen_apart() -> None:
    """Two who begin side by side may be taken for one until they part."""
    frames, masks = pair_that_meets()
    regions = proposed(frames)
    for t in range(3, 16):
        assert all(best_iou(mask, kept(regions[t])) > 0.5 for mask in masks[t]), t


def test_motion_shows_a_thing_that_looks_like_the_street() -> None:
    things: list[list[Thing]] = [[(10 + 3 * t, 40, 20, 24, (110, 108, 105))] for t in range(16)]
    frames, masks = street(things, pan=1)
    seen = foreground(frames, ClassicalFeatures()(frames), camera_motion(frames).affine, SIDE, CONTEXT)
    motion = seen.cues[..., CUES.index("motion")]
    inside = np.mean([motion[t][masks[t][0]].mean() for t in range(1, 16)])
    outside = np.mean([motion[t][~masks[t][0]].mean() for t in range(1, 16)])
    assert inside > outside + 1


def test_later_frames_leave_the_context_unchanged_to_the_bit() -> None:
    frames, _ = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(16)], 1)
    other = frames.copy()
    other[CONTEXT:] = np.random.default_rng(3).integers(0, 256, other[CONTEXT:].shape, dtype=np.uint8)
    first, second = proposed(frames), proposed(other)
    assert all(same(a, b) for a, b in zip(first[:CONTEXT], second[:CONTEXT], strict=True))
    assert any(first[:CONTEXT])


def test_a_future_frame_leaves_the_frames_before_it_unchanged_to_the_bit() -> None:
    frames, _ = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(16)], 1)
    other = frames.copy()
    other[15] = 255 - other[15]
    assert all(same(a, b) for a, b in zip(proposed(frames)[:15], proposed(other)[:15], strict=True))


@pytest.fixture
def opencv_threads() -> Iterator[None]:
    before = cv2.getNumThreads()
    yield
    cv2.setNumThreads(before)


@pytest.mark.usefixtures("opencv_threads")
def test_the_number_of_threads_changes_no_bit() -> None:
    frames, _ = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(8)], 1)
    features, camera = ClassicalFeatures()(frames), camera_motion(frames).affine
    results = []
    for threads in (1, 4):
        cv2.setNumThreads(threads)
        results.append(UnsupervisedProposals(RegionSettings())(frames, features, camera, CONTEXT))
        assert cv2.getNumThreads() == threads
    assert all(same(a, b) for a, b in zip(*results, strict=True))


def hostile(kind: str) -> Frames:
    rng = np.random.default_rng(5)
    if kind == "noise":
        return rng.integers(0, 256, (16, SIDE, SIDE, 3), dtype=np.uint8)
    if kind == "black":
        return np.zeros((16, SIDE, SIDE, 3), np.uint8)
    if kind == "nobody":
        return street([[] for _ in range(16)], 1)[0]
    if kind == "one frame":
        return street([[(30, 40, 14, 24, RED)]])[0]
    if kind == "two hundred":
        places = [(8 * (k % 12), 5 * (k // 12), 4, 5, tuple(rng.integers(0, 256, 3))) for k in range(200)]
        return street([[(left, top, w, h, colour) for left, top, w, h, colour in places] for _ in range(16)])[0]
    assert kind == "cut"
    frames = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(16)])[0]
    frames[6:] = 255 - frames[6:, ::-1]
    return frames


@pytest.mark.parametrize("kind", ["noise", "black", "nobody", "one frame", "two hundred", "cut"])
def test_hostile_windows_give_sane_regions(kind: str) -> None:
    frames = hostile(kind)
    found = proposed(frames)
    assert len(found) == len(frames)
    for region in (region for regions in found for region in regions):
        height, width = region.mask.shape
        assert 0 <= region.left <= SIDE - width
        assert 0 <= region.top <= SIDE - height
        assert region.mask.any(axis=0).all()
        assert region.mask.any(axis=1).all()
        assert 0 <= region.confidence <= 1
        assert np.isfinite(region.descriptor).all()
        assert np.linalg.norm(region.descriptor) == pytest.approx(1, abs=1e-4)


def test_black_frames_hold_nobody() -> None:
    assert not any(proposed(hostile("black")))


def test_regions_of_a_frame_do_not_overlap() -> None:
    frames, _ = street([[(10 + 3 * t, 40, 14, 24, RED), (60 - 2 * t, 50, 12, 20, BLUE)] for t in range(16)], 1)
    for regions in proposed(frames):
        assert sum(region.full_mask(SIDE).astype(int) for region in regions).max(initial=0) <= 1


def mosaic(side: int, colours: int, seed: int) -> NDArray[np.float32]:
    """Pixels of a few Lab colours at random, `[side, side, 3]`."""
    rng = np.random.default_rng(seed)
    palette = rng.uniform(0, 100, (colours, 3)).astype(np.float32)
    return palette[rng.integers(0, colours, (side, side))]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 14), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_leaves_are_connected_pixels_of_one_colour_in_reading_order(side: int, colours: int, seed: int) -> None:
    lab = mosaic(side, colours, seed)
    labels, boxes = flat_zones(lab)
    free, count = np.ones((side, side), dtype=bool), 0
    for row, column in np.ndindex(side, side):
        if free[row, column]:
            alike = (np.abs(lab - lab[row, column]).sum(axis=-1) < 4).astype(np.uint8)
            leaf = cv2.floodFill(alike, None, (column, row), 2)[1] == 2
            assert (labels[leaf] == count).all()
            rows, across = np.flatnonzero(leaf.any(axis=1)), np.flatnonzero(leaf.any(axis=0))
            assert boxes[count].tolist() == [across[0], rows[0], across[-1] + 1, rows[-1] + 1]
            free, count = free & ~leaf, count + 1
    assert len(boxes) == count


@settings(max_examples=25, deadline=None)
@given(st.integers(4, 14), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_a_tree_joins_connected_parts_up_to_the_whole_picture(side: int, colours: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lab = mosaic(side, colours, seed)
    tree = hierarchy(lab, lab)
    columns = rng.normal(size=(side, side, 2)).astype(np.float32)
    sums = tree.summed(columns)
    labels = rng.integers(-1, 3, (side, side))
    shared = tree.shared(labels, 3)
    assert len(tree.parent) == 2 * (tree.leaves.max() + 1) - 1
    assert (tree.parent[:-1] > np.arange(len(tree.parent) - 1)).all()
    assert tree.parent[-1] == -1
    for node in rng.choice(len(tree.parent), size=3):
        mask = tree.labels(np.array([node])) == 0
        assert mask.sum() == tree.area[node]
        np.testing.assert_allclose(columns[mask].sum(axis=0), sums[node], atol=1e-4)
        assert shared[node].tolist() == [np.count_nonzero(labels[mask] == k) for k in range(3)]
        rows, across = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert tree.box[node].tolist() == [across[0], rows[0], across[-1] + 1, rows[-1] + 1]
        assert cv2.connectedComponents(mask.astype(np.uint8), connectivity=4)[0] == 2
        sides = [mask[:, 1:] != mask[:, :-1], mask[1:] != mask[:-1]]
        assert tree.outline[node] == sum(map(np.count_nonzero, sides))
        steps = [
            np.linalg.norm(np.diff(lab, axis=axis), axis=-1)[edge] for axis, edge in zip((1, 0), sides, strict=True)
        ]
        assert tree.contrast[node] == pytest.approx(sum(step.sum() for step in steps), abs=1e-2)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_the_chosen_parts_are_worth_most_of_all_that_lie_apart(side: int, seed: int) -> None:
    lab = mosaic(side, 6, seed)
    tree = hierarchy(lab, lab)
    worth = np.random.default_rng(seed).normal(size=len(tree.parent)).round(3)
    pixels = [tree.labels(np.array([node])) == 0 for node in range(len(worth))]

    def best(nodes: list[int], free: NDArray[np.bool_]) -> float:
        if not nodes:
            return 0.0
        first, rest = nodes[0], nodes[1:]
        without = best(rest, free)
        if worth[first] <= 0 or not free[pixels[first]].all():
            return without
        return max(without, worth[first] + best(rest, free & ~pixels[first]))

    chosen = tree.best_apart(worth)
    assert sum(pixels[node].astype(int) for node in chosen).max(initial=0) <= 1 if len(chosen) else (worth <= 0).all()
    assert worth[chosen].sum() == pytest.approx(best(list(range(len(worth))), np.ones((side, side), dtype=bool)))


def confidence(found: Chosen, true: NDArray[np.bool_]) -> float:
    """Of the chosen region that is the true one."""
    masks = [found.labels == k for k in range(len(found.excess))]
    alike = [(mask & true).sum() / (mask | true).sum() > 0.5 for mask in masks]
    return max(sure for sure, same in zip(found.confidence(), alike, strict=True) if same)


def test_what_is_there_in_the_frames_beside_is_likelier_now() -> None:
    """In the context those before and after speak; later on only those before."""
    frames, masks = street([[(10 + 3 * t, 40, 14, 24, RED)] for t in range(6)])
    seen = foreground(frames, ClassicalFeatures()(frames), camera_motion(frames).affine, SIDE, 4)
    parts = [measured(seen, t, 0.001) for t in range(6)]
    alone, together = (chosen_regions(seen, parts, 4, persistence=share) for share in (0.0, 0.8))
    for t in range(6):
        assert confidence(together[t], masks[t][0]) > confidence(alone[t], masks[t][0]), t


@pytest.mark.parametrize("pan", [0, 2])
def test_a_walker_differs_from_the_scene_behind_it_and_the_street_does_not(pan: int) -> None:
    frames, masks = street([[(6 + 4 * t, 40, 14, 24, RED)] for t in range(16)], pan)
    changed = change(frames, camera_motion(frames).affine, CONTEXT)
    for t in range(16):
        true = masks[t][0]
        assert changed[t][true].mean() > 10 * changed[t][~true].mean(), t


def test_one_frame_and_a_thing_that_never_moves_are_no_change() -> None:
    still, _ = street([[(30, 40, 14, 24, RED)] for _ in range(16)])
    for frames in (still, still[:1]):
        known = min(CONTEXT, len(frames))
        assert change(frames, camera_motion(frames).affine, known).max() == pytest.approx(0, abs=1e-3)


def test_the_scene_is_what_most_of_the_frames_that_see_a_place_show() -> None:
    """A camera that pans: places at the rim are seen by few, and never by all."""
    frames, _ = street([[] for _ in range(12)], pan=4)
    frames[5] = 255 - frames[5]
    changed = change(frames, camera_motion(street([[] for _ in range(12)], pan=4)[0]).affine, CONTEXT)
    others = np.delete(np.arange(12), 5)
    assert changed[others].mean() < 0.02
    assert changed[5].mean() > 1
