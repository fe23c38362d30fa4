"""Regions, tracklets and the boxes that object states extrapolate to."""

from __future__ import annotations

import numpy as np
import torch

from factorjepa.teacher.regions import Tracklet, region_of
from factorjepa.teacher.states import GEOMETRY, ObjectStates


def test_a_region_gives_its_mask_back() -> None:
    whole = np.zeros((32, 32), dtype=bool)
    whole[4:9, 20:30] = True
    whole[6, 22] = False
    region = region_of(whole, np.ones(4, np.float32) / 2, 0.7)
    assert np.array_equal(region.full_mask(32), whole)
    assert region.box(32) == (20 / 32, 4 / 32, 30 / 32, 9 / 32)
    assert region.pixels == 49


def test_a_cut_tracklet_knows_nothing_of_later_frames() -> None:
    region = region_of(np.ones((8, 8), dtype=bool), np.ones(1, np.float32), 1.0)
    track = Tracklet((2, 3, 7, 12), (region,) * 4)
    assert track.until(12).frames == (2, 3, 7)
    assert track.until(0) == Tracklet((), ())


def test_boxes_go_on_at_constant_velocity_and_make_up_for_the_time_unseen() -> None:
    geometry = torch.zeros(1, 1, len(GEOMETRY))
    for name, value in {"centre_x": 0.2, "centre_y": 0.5, "width": 0.1, "height": 0.3, "velocity_x": 0.01}.items():
        geometry[..., GEOMETRY.index(name)] = value
    geometry[..., GEOMETRY.index("gap")] = 3 / 12
    states = ObjectStates(
        descriptor_BNE=torch.zeros(1, 1, 2), geometry_BNG=geometry, valid_BN=torch.ones(1, 1, dtype=torch.bool),
        slot_BN=torch.zeros(1, 1, dtype=torch.long), pairs_BP2=torch.zeros(1, 0, 2, dtype=torch.long),
        pair_valid_BP=torch.zeros(1, 0, dtype=torch.bool), context=12,
    )  # fmt: skip
    boxes = states.extrapolated_boxes(torch.tensor([0.0, 4.0]))
    torch.testing.assert_close(boxes[0, 0], torch.tensor([[0.23, 0.5, 0.1, 0.3], [0.27, 0.5, 0.1, 0.3]]))
