"""A detector's boxes turned into masks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from factorjepa.errors import TeacherError
from factorjepa.teacher.detected import DetectorProposals, refined
from factorjepa.teacher.settings import RegionSettings


def test_a_detector_must_be_named() -> None:
    with pytest.raises(TeacherError, match=r"regions\.detector does not say"):
        DetectorProposals(RegionSettings(kind="detector"))


def test_features_tell_the_agent_from_its_box() -> None:
    """A disc off the box's centre: the mask follows it, without features the rounded shape is taken."""
    place = (np.arange(32) + 0.5) / 32
    disc = (place - 0.5) ** 2 + ((place - 0.5) ** 2)[:, None] < 0.22**2
    disc[:, place > 0.6] = False
    features = np.stack([disc, ~disc], axis=-1).astype(np.float32)
    box = np.array([[0.28, 0.28, 0.72, 0.72]])
    fine = np.repeat(np.repeat(disc, 4, axis=0), 4, axis=1)

    def agreement(mask: NDArray[np.bool_]) -> float:
        return float((mask & fine).sum() / (mask | fine).sum())

    told = refined(box, features, 128)[0]
    untold = refined(box, np.ones_like(features) / np.sqrt(2), 128)[0]
    assert agreement(told) > agreement(untold) + 0.05
    assert 0.79 < untold.sum() / (0.44 * 128) ** 2 < 0.95  # between an ellipse and the box


def test_the_nearer_of_two_hides_the_other() -> None:
    features = np.ones((16, 16, 1), np.float32)
    near, far = (0.3, 0.3, 0.5, 0.9), (0.4, 0.25, 0.6, 0.7)
    masks = refined(np.array([near, far]), features, 128)
    alone = refined(np.array([far]), features, 128)[0]
    assert masks[0].sum() == refined(np.array([near]), features, 128)[0].sum()
    assert masks[1].sum() < 0.8 * alone.sum()


@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0, 1.0), (0.999, 0.999, 1.0, 1.0), (0.5, 0.2, 0.5001, 0.9)])
def test_a_box_of_any_size_gives_a_mask_inside_it(box: tuple[float, float, float, float]) -> None:
    features = np.random.default_rng(0).normal(size=(9, 9, 4)).astype(np.float32)
    mask = refined(np.array([box]), features, 64)[0]
    rows, columns = np.nonzero(mask)
    assert rows.size
    assert columns.min() >= round(box[0] * 64) - 1
    assert rows.max() <= round(box[3] * 64)
