"""Retention keeps what the paper keeps; overlaps and descriptors are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.teacher.proposals import describe, mask_iou, retain
from factorjepa.teacher.regions import Region
from factorjepa.teacher.settings import RegionSettings

from .patches import SIDE, patch

SETTINGS = RegionSettings(side=SIDE)

boxes = st.tuples(
    st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.02, 0.5), st.floats(0.02, 0.5), st.integers(0, 7),
    st.floats(0.5, 1.0),
)  # fmt: skip


@given(st.lists(boxes, max_size=6), st.lists(boxes, max_size=6), st.sampled_from([0.0, 0.3, 0.7]))
@settings(max_examples=30)
def test_mask_iou_equals_counting_pixels(
    first: list[tuple[float, ...]], second: list[tuple[float, ...]], at_least: float
) -> None:
    a, b = ([patch(*one) for one in some] for some in (first, second))  # type: ignore[arg-type]
    found = mask_iou(a, b, at_least)
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            x, y = one.full_mask(SIDE), other.full_mask(SIDE)
            true = (x & y).sum() / (x | y).sum()
            assert found[i, j] == pytest.approx(true) or (found[i, j] == 0 and true < at_least)


@given(st.lists(boxes, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_what_is_retained_obeys_the_table_and_not_the_order(several: list[tuple[float, ...]], random: object) -> None:
    regions = [patch(*one) for one in several]  # type: ignore[arg-type]
    kept = retain(regions, SETTINGS, SIDE)
    for region in kept:
        assert region.confidence >= 0.55
        assert region.pixels >= 0.001 * SIDE * SIDE
    overlap = mask_iou(kept, kept) - np.eye(len(kept))
    assert (overlap < 0.70).all()
    dropped = [r for r in regions if not any(r is k for k in kept)]
    for region in dropped:  # each for one of the three reasons
        assert (
            region.confidence < 0.55
            or region.pixels < 0.001 * SIDE * SIDE
            or any(k.confidence >= region.confidence and mask_iou([k], [region])[0, 0] >= 0.70 for k in kept)
        )
    shuffled = random.sample(regions, len(regions))  # type: ignore[attr-defined]
    assert [content(r) for r in retain(shuffled, SETTINGS, SIDE)] == [content(r) for r in kept]


def test_of_two_duplicates_the_confident_one_stays() -> None:
    sure, unsure = patch(0.5, 0.5, 0.3, 0.3, 0, 0.9), patch(0.51, 0.5, 0.3, 0.3, 1, 0.6)
    assert retain([unsure, sure], SETTINGS, SIDE) == [sure]
    assert len(retain([unsure, sure], RegionSettings(side=SIDE, duplicate_iou=1.0), SIDE)) == 2


def test_a_descriptor_is_the_mean_over_the_masks_cells() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(8, 8, 5)).astype(np.float32)
    mask = np.zeros((64, 64), dtype=bool)
    mask[16:32, 8:24] = True  # cells 2-3 down, 1-2 across, whole
    mask[16:24, 24:28] = True  # and half of cell (2, 3)
    mean = features[2:4, 1:3].sum(axis=(0, 1)) + 0.5 * features[2, 3]
    np.testing.assert_allclose(describe(mask, features), mean / np.linalg.norm(mean), rtol=1e-5)


def test_a_region_smaller_than_a_cell_has_its_cells_feature() -> None:
    features = np.zeros((4, 4, 2), np.float32)
    features[..., 0], features[3, 1] = 1.0, (0.0, 1.0)
    mask = np.zeros((64, 64), dtype=bool)
    mask[60, 20] = True
    np.testing.assert_allclose(describe(mask, features), [0.0, 1.0])


def content(region: Region) -> tuple[object, ...]:
    return region.left, region.top, region.mask.tobytes(), region.descriptor.tobytes(), region.confidence


def test_duplicates_that_differ_in_their_descriptors_alone_come_in_any_order() -> None:
    one, other = patch(0.5, 0.5, 0.3, 0.3, 0, 0.9), patch(0.5, 0.5, 0.3, 0.3, 1, 0.9)
    first, second = retain([one, other], SETTINGS, SIDE), retain([other, one], SETTINGS, SIDE)
    assert [content(r) for r in first] == [content(r) for r in second]
