"""Factor views: what stays, what goes, and nothing strange at the edges of what a packet may hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from factorjepa.teacher.packet import Packet, build_packet, projections_for
from factorjepa.teacher.regions import Tracklet
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.views import (
    agent_support,
    agents_view,
    bytes_view,
    interactions_view,
    layout_view,
    pair_tubes,
    track_boxes,
)

from .evidence import evidence_of, random_evidence, rectangle

SETTINGS = TeacherSettings()
PROJECTIONS = projections_for(12, SETTINGS)
SIDE, SIZE = 64, 128
VIEWS = [layout_view, agents_view, interactions_view]
View = Callable[..., Tensor]


def pictures(view: View, video: np.ndarray, packet: Packet, **options: float) -> np.ndarray:
    return bytes_view(lambda floats: view(floats, packet, **options), video)


def packet_of(*tracklets: Tracklet) -> Packet:
    return build_packet(evidence_of(tracklets), np.arange(16) / 4, SETTINGS, PROJECTIONS)


def standing(left: int, top: int, size: int = 10, frames: range = range(16)) -> Tracklet:
    return Tracklet(tuple(frames), (rectangle(left, top, size, size, SIDE),) * len(frames))


def street(seed: int = 0) -> np.ndarray:
    """A smooth picture with noise, the same in all frames."""
    random = np.random.default_rng(seed)
    slope = np.linspace(60, 180, SIZE)[None, :, None]
    frame = np.clip(slope + random.normal(0, 12, (SIZE, SIZE, 3)), 0, 255)
    return np.tile(frame.astype(np.uint8), (16, 1, 1, 1))


def red_agent(video: np.ndarray, left: int, top: int, size: int = 10) -> np.ndarray:
    video = video.copy()
    scale = SIZE // SIDE
    video[:, top * scale : (top + size) * scale, left * scale : (left + size) * scale] = (250, 20, 20)
    return video


def inside(left: int, top: int, size: int = 10) -> tuple[slice, slice, slice]:
    scale = SIZE // SIDE
    return slice(None), slice(top * scale, (top + size) * scale), slice(left * scale, (left + size) * scale)


def test_the_layout_view_has_no_agent_and_all_of_the_rest() -> None:
    video = red_agent(street(), 20, 20)
    view = pictures(layout_view, video, packet_of(standing(20, 20)))
    expected = street()[inside(20, 20)].mean((0, 1, 2))
    assert np.abs(view[inside(20, 20)].mean((0, 1, 2)) - expected).max() < 12  # the street goes on behind the agent
    far = np.ones((SIZE, SIZE), bool)
    far[30:72, 30:72] = False
    assert np.array_equal(view[:, far], video[:, far])


def test_the_agents_view_keeps_agents_and_attenuates_the_rest() -> None:
    video = red_agent(street(), 20, 20)
    view = pictures(agents_view, video, packet_of(standing(20, 20)))
    assert np.array_equal(view[inside(20, 20)], video[inside(20, 20)])
    far = np.s_[:, 90:, 90:]
    assert view[far].std() < 0.4 * video[far].std()


def test_edges_are_feathered() -> None:
    """Contrast falls off over several pixels outside an agent, not at once."""
    noise = np.random.default_rng(0).integers(0, 256, (16, SIZE, SIZE, 3), dtype=np.uint8)
    view = pictures(agents_view, noise, packet_of(standing(20, 20)))
    contrast = view[:, 40:60, 58:72].std((0, 1, 3)) / noise.std()
    assert (contrast[:2] > 0.95).all()  # still inside
    assert (np.diff(contrast[1:6]) < 0).all()
    assert contrast[2] > 0.4 > contrast[3] > 0.2
    assert contrast[-1] < 0.1


def test_the_interactions_view_keeps_pairs_and_not_lone_agents() -> None:
    video = red_agent(red_agent(red_agent(street(), 8, 8, 6), 18, 8, 6), 50, 50, 6)
    packet = packet_of(standing(8, 8, 6), standing(18, 8, 6), standing(50, 50, 6))
    view = pictures(interactions_view, video, packet)
    between = np.s_[:, 16:28, 16:48]  # both agents of the pair and what lies between them
    assert np.array_equal(view[between], video[between])
    assert np.abs(view[inside(50, 50, 6)].astype(int) - video[inside(50, 50, 6)]).mean() > 30
    none = pictures(interactions_view, video, packet, min_reliability=1.01)
    assert none[between].std() <= 0.5 * video[between].std()


def test_a_tube_bridges_gaps_and_ends_with_its_agents() -> None:
    first = Tracklet((0, 1, 4, 5), (rectangle(8, 8, 6, 6, SIDE),) * 4)
    tubes = pair_tubes(packet_of(first, standing(18, 8, 6)))
    assert tubes.any((1, 2)).tolist() == [True] * 6 + [False] * 10
    boxes = track_boxes(packet_of(first))
    assert np.isfinite(boxes[0, :6]).all()
    assert np.isnan(boxes[0, 6:]).all()


@pytest.mark.parametrize("view", VIEWS)
def test_without_agents_there_is_nothing_to_keep_or_to_remove(view: View) -> None:
    video = street()
    seen = pictures(view, video, packet_of())
    if view is layout_view:
        assert np.array_equal(seen, video)
    else:
        assert seen.std() < 0.5 * video.std()


@pytest.mark.parametrize("view", VIEWS)
def test_bytes_and_normalised_floats_give_the_same_view(view: View) -> None:
    video = red_agent(street(), 20, 20)
    packet = packet_of(standing(20, 20), standing(32, 20))
    normalised = (torch.from_numpy(video).permute(0, 3, 1, 2).float() / 255 - 0.45) / 0.225
    seen, floats = pictures(view, video, packet), view(normalised, packet)
    assert np.abs(((floats * 0.225 + 0.45) * 255).permute(0, 2, 3, 1).numpy() - seen).max() < 1.0


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("sides", [(SIDE, SIDE, SIDE), (SIDE, SIDE // 2, SIDE)])
def test_several_clips_at_once_are_seen_as_each_alone(view: View, sides: tuple[int, ...]) -> None:
    packets = [
        packet_of(),
        dataclasses.replace(packet_of(standing(10, 6, 8), standing(20, 6, 8)), side=np.int64(sides[1])),
        packet_of(standing(32, 40)),
    ]
    video = torch.rand(3, 16, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    together = view(video.flatten(0, 1), *packets).unflatten(0, (3, 16))
    alone = torch.stack([view(clip, packet) for clip, packet in zip(video, packets, strict=True)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_one_agent_of_each_clip_may_be_taken_out() -> None:
    packets = [packet_of(standing(8, 8), standing(40, 40)), packet_of(standing(8, 8), standing(40, 40))]
    video = torch.rand(2, 16, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    seen = layout_view(video.flatten(0, 1), *packets, tracks=[0, 1]).unflatten(0, (2, 16))
    for clip, (gone, kept) in enumerate([((12, 12), (44, 44)), ((44, 44), (12, 12))]):
        assert not torch.allclose(seen[clip, ..., *gone], video[clip, ..., *gone], atol=0.05)
        assert torch.equal(seen[clip, ..., *kept], video[clip, ..., *kept])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("agents", [1, 200])
@pytest.mark.parametrize("size", [32, 129])
def test_any_packet_and_size_gives_finite_pixels(view: View, agents: int, size: int) -> None:
    packet = build_packet(random_evidence(2, agents), np.arange(16) / 4, SETTINGS, PROJECTIONS)
    video = torch.rand(16, 3, size, size, generator=torch.Generator().manual_seed(0))
    seen = view(video, packet)
    assert seen.shape == video.shape
    assert bool(torch.isfinite(seen).all())
    assert seen.min() > -1e-4
    assert seen.max() < 1 + 1e-4


def test_an_agent_over_the_whole_picture_leaves_its_mean() -> None:
    view = pictures(layout_view, street(), packet_of(standing(0, 0, SIDE)))
    assert view.std() < 0.2 * street().std()


def test_support_is_the_union_of_tracked_regions() -> None:
    evidence = random_evidence(7, 5)
    support = agent_support(build_packet(evidence, np.arange(16) / 4, SETTINGS, PROJECTIONS))
    for t, regions in enumerate(evidence.regions):
        union = np.zeros((SIDE, SIDE), bool)
        for region in regions:
            union |= region.full_mask(SIDE)
        assert np.array_equal(support[t] > 0, union)
