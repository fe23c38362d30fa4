"""Object states: equal to the tracklets' own geometry when all is visible, and blind to whatever is hidden or later."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from factorjepa.backbones.masks import LARGE_BLOCKS, SMALL_BLOCKS, context_masks
from factorjepa.errors import TeacherError
from factorjepa.teacher.batch import TargetBatch, collate
from factorjepa.teacher.packet import Packet, agents_of_context, build_packet, projections_for
from factorjepa.teacher.regions import Evidence, Tracklet, region_of
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.teacher.states import GEOMETRY, ObjectStates, object_states, visible_cells

from .evidence import evidence_of, random_evidence, rectangle

SETTINGS = TeacherSettings()
PROJECTIONS = projections_for(12, SETTINGS)
CONTEXT, SIDE, GRID = 12, 64, 16


def packet_of(evidence: Evidence) -> Packet:
    return build_packet(evidence, np.arange(evidence.frames) / 4, SETTINGS, PROJECTIONS)


def batch_of(*evidence: Evidence) -> TargetBatch:
    return collate([packet_of(one) for one in evidence], SETTINGS)


def field(states: ObjectStates, name: str) -> Tensor:
    return states.geometry_BNG[..., GEOMETRY.index(name)]


def assert_equal(one: ObjectStates, two: ObjectStates) -> None:
    for name, value in vars(one).items():
        other = getattr(two, name)
        assert torch.equal(value, other) if isinstance(value, Tensor) else value == other, name


def direct_geometry(tracklet: Tracklet, camera: np.ndarray, side: int) -> dict[str, float]:
    """The state of a tracklet cut at the context, in plain Python from its regions."""
    boxes = [region.box(side) for region in tracklet.regions]
    centres = [np.array([(b[0] + b[2]) / 2, (b[1] + b[3]) / 2]) for b in boxes]
    areas = [region.pixels / side**2 for region in tracklet.regions]
    last = tracklet.frames[-1]
    recent = [k for k, frame in enumerate(tracklet.frames) if frame > last - 4]

    def slope(points: list[np.ndarray]) -> np.ndarray:
        times = np.array([tracklet.frames[k] for k in recent], float)
        if len(recent) < 2:
            return np.zeros(2)
        return np.polyfit(times, np.array([points[k] for k in recent]), 1)[0]

    def carried(point: np.ndarray, frame: int) -> np.ndarray:
        for step in range(frame + 1, last + 1):
            point = camera[step, :, :2].astype(float) @ point + camera[step, :, 2]
        return point

    stabilised = [carried(centre, frame) for centre, frame in zip(centres, tracklet.frames, strict=True)]
    velocity, own = slope(centres), slope(stabilised)
    left, top, right, bottom = boxes[-1]
    values = [
        *centres[-1], right - left, bottom - top, *velocity, *own, areas[-1], areas[-1] / max(areas),
        np.mean([region.confidence for region in tracklet.regions]),
        (CONTEXT - 1 - tracklet.frames[0]) / CONTEXT, (CONTEXT - 1 - last) / CONTEXT,
        float(left <= 0 or top <= 0 or right >= 1 or bottom >= 1),
    ]  # fmt: skip
    return dict(zip(GEOMETRY, map(float, values), strict=True))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), agents=st.integers(0, 7))
def test_places_are_the_centres_of_an_agents_boxes(seed: int, agents: int) -> None:
    evidence = random_evidence(seed, agents)
    batch = batch_of(evidence)
    expected = torch.zeros_like(batch.places_known_BNT)
    assert batch.places_BNT2.shape == (*expected.shape, 2)
    for slot, track in enumerate(agents_of_context(evidence, SETTINGS)):
        tracklet = evidence.tracklets[track]
        for frame, region in zip(tracklet.frames, tracklet.regions, strict=True):
            left, top, right, bottom = region.box(SIDE)
            centre = torch.tensor([(left + right) / 2, (top + bottom) / 2], dtype=torch.float32)
            torch.testing.assert_close(batch.places_BNT2[0, slot, frame], centre)
            expected[0, slot, frame] = True
    assert batch.places_known_BNT.equal(expected)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), agents=st.integers(0, 7))
def test_with_everything_visible_states_are_the_tracklets_own_geometry(seed: int, agents: int) -> None:
    evidence = random_evidence(seed, agents)
    states = object_states(batch_of(evidence).cells)
    chosen = [evidence.tracklets[k].until(CONTEXT) for k in agents_of_context(evidence, SETTINGS)]
    assert int(states.valid_BN.sum()) == len(chosen)
    for slot, tracklet in enumerate(chosen):
        for name, value in direct_geometry(tracklet, evidence.camera, SIDE).items():
            assert float(field(states, name)[0, slot]) == pytest.approx(value, abs=2e-5), name
        # the descriptor: mean projected feature under all pixels of the support
        total = np.zeros(12)
        for frame, region in zip(tracklet.frames, tracklet.regions, strict=True):
            rows, columns = np.nonzero(region.full_mask(SIDE))
            total += evidence.features[frame, rows * 8 // SIDE, columns * 8 // SIDE].sum(0)
        wanted = total @ PROJECTIONS.descriptor_DE
        cosine = wanted @ states.descriptor_BNE[0, slot].numpy() / np.linalg.norm(wanted)
        assert cosine == pytest.approx(1, abs=1e-3)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_a_mask_that_hides_nothing_changes_nothing(seed: int) -> None:
    cells = batch_of(random_evidence(seed), random_evidence(seed + 1)).cells
    assert_equal(object_states(cells), object_states(cells, torch.ones(2, GRID**2, dtype=torch.bool)))
    assert_equal(object_states(cells), object_states(cells, torch.ones(2, CONTEXT, GRID**2, dtype=torch.bool)))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 0.9))
def test_hidden_cells_have_no_influence_to_the_bit(seed: int, share: float) -> None:
    cells = batch_of(random_evidence(seed)).cells
    random = np.random.default_rng(seed)
    visible = torch.from_numpy(random.random((1, GRID**2)) < share)
    hidden = ~visible[0, cells.cell_C]
    noise = torch.from_numpy(random.integers(1, 50, len(hidden)))
    perturbed = dataclasses.replace(
        cells,
        pixels_C=torch.where(hidden, noise, cells.pixels_C),
        extent_C4=torch.where(hidden[:, None], noise[:, None], cells.extent_C4),
        descriptor_CE=torch.where(
            hidden[:, None], torch.full_like(cells.descriptor_CE, torch.nan), cells.descriptor_CE
        ),
    )
    assert_equal(object_states(cells, visible), object_states(perturbed, visible))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_what_is_hidden_in_the_masks_has_no_influence_either(seed: int) -> None:
    """From the evidence on: agents cut to the visible half give the states of the visible half."""
    evidence = random_evidence(seed)
    left = np.zeros((SIDE, SIDE), bool)
    left[:, : SIDE // 2] = True

    def cut(tracklet: Tracklet) -> Tracklet:
        kept = [
            (t, r) for t, r in zip(tracklet.frames, tracklet.regions, strict=True) if (r.full_mask(SIDE) & left).any()
        ]
        regions = tuple(region_of(r.full_mask(SIDE) & left, r.descriptor, r.confidence) for _, r in kept)
        return Tracklet(tuple(t for t, _ in kept), regions)

    visible = torch.zeros(1, GRID, GRID, dtype=torch.bool)
    visible[:, :, : GRID // 2] = True
    masked = object_states(batch_of(evidence).cells, visible.flatten(1))
    chosen = [cut(evidence.tracklets[k].until(CONTEXT)) for k in agents_of_context(evidence, SETTINGS)]
    seen = [(slot, tracklet) for slot, tracklet in enumerate(chosen) if tracklet.frames]
    assert masked.slot_BN[masked.valid_BN].tolist() == [slot for slot, _ in seen]
    for place, (_, tracklet) in enumerate(seen):
        wanted = direct_geometry(tracklet, evidence.camera, SIDE)
        for name, value in wanted.items():
            assert float(field(masked, name)[0, place]) == pytest.approx(value, abs=2e-5), name


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_no_byte_depends_on_frames_after_the_context(seed: int) -> None:
    one, other = random_evidence(seed), random_evidence(seed + 77)
    late = [t for t in other.tracklets if t.frames[-1] >= CONTEXT]
    future = [
        Tracklet(frames, tuple(late[0].regions[-1] for _ in frames))
        for frames in [tuple(range(CONTEXT, 16))] * 3 if late
    ]  # fmt: skip
    changed = dataclasses.replace(
        one,
        features=np.concatenate((one.features[:CONTEXT], other.features[CONTEXT:])),
        camera=np.concatenate((one.camera[:CONTEXT], other.camera[CONTEXT:])),
        regions=(*one.regions[:CONTEXT], *other.regions[CONTEXT:]),
        tracklets=(*(t.until(CONTEXT) for t in one.tracklets if t.frames[0] < CONTEXT), *future),
    )
    before, after = batch_of(one).cells, batch_of(changed).cells
    for name, value in vars(before).items():
        assert torch.equal(value, getattr(after, name)) if isinstance(value, Tensor) else value == getattr(after, name)
    assert_equal(object_states(before), object_states(after))


def mover(frames: range, dx: float = 0.0, x: float = 8, y: float = 24, size: int = 8) -> Tracklet:
    return Tracklet(tuple(frames), tuple(rectangle(round(x + dx * t), round(y), size, size, SIDE) for t in frames))


def test_an_agent_hidden_by_now_keeps_its_last_seen_state_and_ages() -> None:
    cells = batch_of(evidence_of([mover(range(16), dx=4, x=0)])).cells
    visible = torch.zeros(1, GRID, GRID, dtype=torch.bool)
    visible[:, :, :8] = True  # the left half: the agent is inside, whole, up to frame 6
    states = object_states(cells, visible.flatten(1))
    assert float(field(states, "gap")[0, 0]) == pytest.approx(4 / CONTEXT)  # a last column is seen in frame 7
    assert float(field(states, "age")[0, 0]) == pytest.approx(11 / CONTEXT)
    assert float(field(states, "centre_x")[0, 0]) < 0.5
    assert float(field(states, "visibility")[0, 0]) == pytest.approx(0.5)
    boxes = states.extrapolated_boxes(torch.tensor([0.0]))
    assert boxes[0, 0, 0, 0] > 0.5  # it went on behind the mask


def test_one_never_seen_is_not_valid_and_the_others_move_up() -> None:
    cells = batch_of(evidence_of([mover(range(16)), mover(range(16), x=48, y=48)])).cells
    visible = torch.zeros(1, GRID, GRID, dtype=torch.bool)
    visible[:, 8:, 8:] = True
    states = object_states(cells, visible.flatten(1))
    assert states.valid_BN.tolist() == [[True, False]]
    assert states.slot_BN.tolist() == [[1, 0]]
    assert not states.geometry_BNG[0, 1].any()
    assert not states.descriptor_BNE[0, 1].any()


def test_pairs_are_the_nearest_valid_neighbours_within_reach() -> None:
    tracks = [mover(range(16), x=3 * k, size=3) for k in range(16)] + [mover(range(16), x=8, y=58, size=4)]
    states = object_states(batch_of(evidence_of(tracks)).cells)
    centres = states.geometry_BNG[0, :, :2].double().numpy()
    for i in range(17):
        mine = [
            j
            for (a, j), valid in zip(states.pairs_BP2[0].tolist(), states.pair_valid_BP[0], strict=True)
            if valid and a == i
        ]
        apart = {j: math.dist(centres[i], centres[j]) for j in range(17) if j != i}
        near = sorted((j for j in apart if apart[j] <= 0.25 + 1e-9), key=lambda j: (round(apart[j], 6), j))
        assert [round(apart[j], 6) for j in mine] == [round(apart[j], 6) for j in near[:12]]
    assert not any(
        16 in pair for pair, valid in zip(states.pairs_BP2[0].tolist(), states.pair_valid_BP[0], strict=True) if valid
    )


def test_padding_lies_behind_and_is_empty() -> None:
    states = object_states(batch_of(random_evidence(1, 6), evidence_of([]), random_evidence(2, 2)).cells)
    for valid in (states.valid_BN, states.pair_valid_BP):
        assert torch.equal(valid, valid.long().sort(dim=1, descending=True).values.bool())
    assert not states.valid_BN[1].any()
    assert not states.pair_valid_BP[1].any()
    assert not states.pairs_BP2[~states.pair_valid_BP].any()
    assert torch.isfinite(states.geometry_BNG).all()


def test_a_clip_has_the_same_states_in_any_batch() -> None:
    one, two = random_evidence(4, 3), random_evidence(5, 7)
    alone, together = object_states(batch_of(one).cells), object_states(batch_of(two, one).cells)
    count = int(alone.valid_BN.sum())
    assert torch.equal(alone.geometry_BNG[0, :count], together.geometry_BNG[1, :count])
    assert torch.equal(alone.descriptor_BNE[0, :count], together.descriptor_BNE[1, :count])
    pairs = int(alone.pair_valid_BP.sum())
    assert torch.equal(alone.pairs_BP2[0, :pairs], together.pairs_BP2[1, :pairs])


@pytest.mark.parametrize("tokens", [16, 8, 4])
@pytest.mark.parametrize("policy", [SMALL_BLOCKS, LARGE_BLOCKS])
def test_context_masks_become_cells_exactly(tokens: int, policy: object) -> None:
    cells = batch_of(random_evidence(0), random_evidence(1)).cells
    kept = context_masks(policy, 0, ["a", "b"], (6, tokens, tokens))  # type: ignore[arg-type]
    visible = visible_cells(kept, (6, tokens, tokens), cells)
    grid = torch.zeros(2, 6 * tokens**2, dtype=torch.bool)
    for row, indices in zip(grid, kept, strict=True):
        row[indices] = True
    for b, t, y, x in np.random.default_rng(0).integers(0, (2, CONTEXT, GRID, GRID), (200, 4)):
        scale = GRID // tokens
        assert visible[b, t, y * GRID + x] == grid[b].view(6, tokens, tokens)[t // 2, y // scale, x // scale]


def test_tokens_that_do_not_cover_whole_cells_are_refused() -> None:
    cells = batch_of(random_evidence(0)).cells
    with pytest.raises(TeacherError, match=r"set targets\.grid to 24"):
        visible_cells(torch.zeros(1, 1, dtype=torch.long), (6, 24, 24), cells)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_states_agree_with_the_cpu_and_repeat_to_the_bit() -> None:
    cells = batch_of(random_evidence(1, 7), random_evidence(2, 3)).cells
    visible = torch.from_numpy(np.random.default_rng(0).random((2, GRID**2)) < 0.6)
    here, there = object_states(cells, visible), object_states(cells.to("cuda"), visible.cuda())
    assert_equal(there, object_states(cells.to("cuda"), visible.cuda()))
    for name in ("valid_BN", "slot_BN", "pairs_BP2", "pair_valid_BP"):
        assert torch.equal(getattr(here, name), getattr(there, name).cpu()), name
    torch.testing.assert_close(there.geometry_BNG.cpu(), here.geometry_BNG, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(there.descriptor_BNE.cpu(), here.descriptor_BNE, atol=1e-6, rtol=1e-5)
