"""Windows nobody would choose, from pixels to packet: everything stays finite and in range."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from factorjepa.teacher.batch import collate
from factorjepa.teacher.classical import ClassicalFeatures
from factorjepa.teacher.observe import observe
from factorjepa.teacher.packet import build_packet, projections_for
from factorjepa.teacher.proposals import Proposals, describe, mask_side
from factorjepa.teacher.regions import Floats, Region, region_of
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.states import object_states
from factorjepa.teacher.unsupervised import UnsupervisedProposals

from .test_structure import assert_in_range

SETTINGS = TeacherSettings(regions={"side": 64})
FEATURES = ClassicalFeatures()
PROJECTIONS = projections_for(FEATURES.width, SETTINGS)


class BrightBlobs:
    """A proposal rule for the tests: connected bright parts, as confident as they are bright."""

    name = "bright blobs"

    def __call__(self, frames: np.ndarray, features: Floats, camera: Floats, context: int) -> list[list[Region]]:
        side = mask_side(SETTINGS.regions, frames.shape[1])
        found = []
        for frame, grid in zip(frames, features, strict=True):
            grey = cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA).mean(2)
            count, labels = cv2.connectedComponents((grey > 140).astype(np.uint8))
            masks = [labels == k for k in range(1, count)]
            found.append([region_of(m, describe(m, grid), float(grey[m].mean() / 255)) for m in masks])
        return found


def blobs(count: int, frames: int = 16, size: int = 96) -> np.ndarray:
    random = np.random.default_rng(count)
    video = np.full((frames, size, size, 3), 40, np.uint8)
    places, steps = random.uniform(2, size - 6, (count, 2)), random.uniform(-1.5, 1.5, (count, 2))
    for t in range(frames):
        for place, step in zip(places, steps, strict=True):
            x, y = np.clip(place + t * step, 0, size - 4).astype(int)
            video[t, y : y + 4, x : x + 4] = 250
    return video


def noise(frames: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (frames, 96, 96, 3), dtype=np.uint8)


def cuts() -> np.ndarray:
    random = np.random.default_rng(1)
    shots = [cv2.resize(random.integers(0, 256, (6, 6, 3), dtype=np.uint8), (96, 96)) for _ in range(4)]
    return np.stack([shots[t // 4] for t in range(16)])


WINDOWS = {
    "no agents": blobs(0), "one agent": blobs(1), "two hundred agents": blobs(200), "noise": noise(),
    "black": np.zeros((16, 96, 96, 3), np.uint8), "white": np.full((16, 96, 96, 3), 255, np.uint8),
    "one frame": blobs(3, frames=1), "one frame of noise": noise(1), "two frames": blobs(3, frames=2), "cuts": cuts(),
    "tiny": blobs(1, size=32), "lights out": np.concatenate((blobs(5)[:6], np.zeros((10, 96, 96, 3), np.uint8))),
}  # fmt: skip


@pytest.mark.parametrize("proposals", [BrightBlobs(), UnsupervisedProposals(SETTINGS.regions)], ids=lambda p: p.name)
@pytest.mark.parametrize("name", WINDOWS)
def test_every_field_is_finite_and_in_range(name: str, proposals: Proposals) -> None:
    frames = WINDOWS[name]
    evidence = observe(frames, SETTINGS, FEATURES, proposals)
    packet = build_packet(evidence, np.arange(len(frames)) / 4, SETTINGS, PROJECTIONS)
    assert_in_range(packet)
    if len(frames) < SETTINGS.context:
        return
    states = object_states(collate([packet], SETTINGS).cells)
    assert states.geometry_BNG.isfinite().all()
    assert states.geometry_BNG.abs().max() <= 1
    lengths = states.descriptor_BNE.norm(dim=2)[states.valid_BN]
    assert ((lengths - 1).abs() < 1e-4).all() or not lengths.numel() or name in ("black", "white")


def test_agents_are_found_where_there_are_some() -> None:
    """The hostile cases would pass with a teacher that sees nothing."""
    evidence = observe(WINDOWS["one agent"], SETTINGS, FEATURES, BrightBlobs())
    packet = build_packet(evidence, np.arange(16) / 4, SETTINGS, PROJECTIONS)
    assert packet.slots == 1
    assert packet.reliability[1] > 0.5


def test_no_byte_of_the_object_states_depends_on_the_pixels_of_the_future() -> None:
    frames = blobs(6)
    changed = frames.copy()
    changed[SETTINGS.context :] = noise()[SETTINGS.context :]
    packets = []
    for window in (frames, changed):
        evidence = observe(window, SETTINGS, FEATURES, BrightBlobs())
        packets.append(build_packet(evidence, np.arange(16) / 4, SETTINGS, PROJECTIONS))
    before, after = (collate([packet], SETTINGS).cells for packet in packets)
    assert int(object_states(before).valid_BN.sum()) >= 3
    for name, value in vars(before).items():
        other = getattr(after, name)
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other, name
    assert not np.array_equal(packets[0].agents, packets[1].agents)  # the targets do see the future
