"""The structural maps: what changes a target, what must not, and what is said where there is no evidence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factorjepa.config import resolve
from factorjepa.errors import ConfigError
from factorjepa.teacher.interactions import PAIR_FIELDS
from factorjepa.teacher.packet import COLUMNS, Packet, build_packet, projections_for
from factorjepa.teacher.projection import isometry, soft_bins
from factorjepa.teacher.regions import Evidence, Tracklet, region_of
from factorjepa.teacher.settings import TeacherSettings

from .evidence import evidence_of, plain_features, random_evidence, rectangle

SETTINGS = TeacherSettings()
PROJECTIONS = projections_for(12, SETTINGS)
SIDE = 64


def packet_of(evidence: Evidence, settings: TeacherSettings = SETTINGS) -> Packet:
    return build_packet(evidence, np.arange(evidence.frames) / 4, settings, PROJECTIONS)


def walker(
    x: float, y: float, dx: float = 0.0, dy: float = 0.0, kind: int = 0, frames: range = range(16), size: int = 8
) -> Tracklet:
    places = [(round(x + dx * t), round(y + dy * t)) for t in frames]
    return Tracklet(tuple(frames), tuple(rectangle(left, top, size, size, SIDE, kind) for left, top in places))


def assert_in_range(packet: Packet) -> None:
    for name in COLUMNS:
        values = getattr(packet, name)
        if values.dtype.kind == "f":
            assert np.isfinite(values).all(), name
    for name in ("track_visibility", "track_visibility_frames"):
        assert ((getattr(packet, name) >= 0) & (getattr(packet, name) <= 1)).all(), name
    for name in ("track_visibility_reliability", "track_reliability", "pair_reliability"):
        assert ((getattr(packet, name) >= 0.1 - 1e-6) & (getattr(packet, name) <= 1)).all(), name
    assert all(r == 0 or 0.1 - 1e-6 <= r <= 1 for r in packet.reliability)
    assert np.abs(packet.pair_descriptor.astype(float)).max(initial=0) <= 4
    assert packet.slots <= SETTINGS.targets.max_agents


class TestProjections:
    @given(rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 5))
    def test_widening_keeps_every_length_and_narrowing_keeps_them_on_average(
        self, rows: int, columns: int, seed: int
    ) -> None:
        matrix = isometry(seed, "x", rows, columns).astype(float)
        if rows <= columns:
            assert np.allclose(matrix @ matrix.T, np.eye(rows), atol=1e-5)
        assert np.trace(matrix @ matrix.T) == pytest.approx(rows, rel=1e-4)

    def test_they_depend_on_seed_name_and_shape_only(self) -> None:
        isometry.cache_clear()
        again = projections_for(12, TeacherSettings())
        other = projections_for(
            12, SETTINGS.model_copy(update={"targets": SETTINGS.targets.model_copy(update={"projection_seed": 1})})
        )
        for field in dataclasses.fields(again):
            assert np.array_equal(getattr(again, field.name), getattr(PROJECTIONS, field.name))
            assert not np.array_equal(getattr(other, field.name), getattr(PROJECTIONS, field.name))

    @given(st.lists(st.tuples(st.floats(-1, 2), st.floats(-1, 2)), min_size=1, max_size=5), st.integers(1, 5))
    def test_bins_share_every_place_out(self, places: list[tuple[float, float]], bins: int) -> None:
        weights = soft_bins(np.array(places, np.float32), bins)
        assert np.allclose(weights.sum(1), 1, atol=1e-5)
        assert (weights >= 0).all()

    def test_bins_move_with_the_place(self) -> None:
        corner = soft_bins(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32), 3)
        assert corner.argmax(1).tolist() == [0, 2, 6]


class TestLayout:
    def test_what_stands_on_agents_has_no_influence(self) -> None:
        evidence = evidence_of([walker(16, 16, size=24)])
        changed = evidence.features.copy()
        changed[:, 3:4, 3:4] = -changed[:, 3:4, 3:4]  # cell 3 of 8 lies within pixels 24 to 32, under the agent
        seen, other = packet_of(evidence), packet_of(dataclasses.replace(evidence, features=changed))
        assert np.array_equal(seen.layout, other.layout)
        changed[:, 7, 7] = -changed[:, 7, 7]
        assert not np.array_equal(seen.layout, packet_of(dataclasses.replace(evidence, features=changed)).layout)

    def test_where_things_lie_survives_pooling(self) -> None:
        features = plain_features(16)
        mirrored = np.ascontiguousarray(features[:, :, ::-1])
        one, two = (packet_of(evidence_of([], features=f)).layout.astype(float) for f in (features, mirrored))
        assert np.linalg.norm(one - two) > 0.3 * np.linalg.norm(one)

    def test_a_flickering_part_counts_less_than_a_lasting_one(self) -> None:
        features = plain_features(16)
        flicker = features.copy()
        flicker[::2, :4] = -flicker[::2, :4]
        steady, unsteady = packet_of(evidence_of([], features=features)), packet_of(evidence_of([], features=flicker))
        assert unsteady.reliability[0] < steady.reliability[0] == pytest.approx(1.0)

    def test_a_moving_camera_costs_no_stability(self) -> None:
        wide = plain_features(1, grid=8 + 15)[0]
        features = np.stack([wide[:8, t : t + 8] for t in range(16)])
        camera = np.tile(np.eye(2, 3, dtype=np.float32), (16, 1, 1))
        camera[1:, 0, 2] = -1 / 8  # the scene moves one cell to the left per frame
        known = packet_of(evidence_of([], features=features, camera=camera))
        unknown = packet_of(evidence_of([], features=features))
        assert known.reliability[0] == pytest.approx(1.0, abs=1e-4)
        assert unknown.reliability[0] < 0.8

    def test_agents_everywhere_leave_no_layout_to_learn(self) -> None:
        packet = packet_of(evidence_of([walker(0, 0, size=SIDE)]))
        assert packet.reliability[0] == 0
        assert not packet.layout.any()


class TestAgents:
    def test_no_agent_is_no_evidence_and_not_a_negative(self) -> None:
        packet = packet_of(evidence_of([]))
        assert packet.reliability.tolist()[1:] == [0, 0]

    def test_place_motion_kind_and_number_change_the_target(self) -> None:
        base = packet_of(evidence_of([walker(10, 10)])).agents.astype(float)
        for other in (
            [walker(40, 40)], [walker(10, 10, dx=2)], [walker(10, 10, kind=3)],
            [walker(10, 10), walker(12, 12)],
        ):  # fmt: skip
            changed = packet_of(evidence_of(other)).agents.astype(float)
            assert np.linalg.norm(base - changed) > 0.1 * np.linalg.norm(base)

    def test_the_order_of_tracklets_does_not_matter(self) -> None:
        tracks = [walker(5, 5, kind=1), walker(30, 30, dx=1, kind=2), walker(50, 20, dy=1, kind=3)]
        one, two = packet_of(evidence_of(tracks)), packet_of(evidence_of(tracks[::-1]))
        for name in ("agents", "interactions", "layout"):
            assert np.allclose(getattr(one, name), getattr(two, name), atol=2e-3)

    def test_a_broken_track_is_less_reliable(self) -> None:
        whole, broken = walker(10, 10), walker(10, 10, frames=range(0, 16, 3))
        assert packet_of(evidence_of([broken])).reliability[1] < packet_of(evidence_of([whole])).reliability[1]

    def test_agents_that_come_after_the_context_count_but_are_no_slots(self) -> None:
        late = walker(40, 40, frames=range(12, 16), kind=5)
        packet = packet_of(evidence_of([walker(10, 10), late]))
        assert packet.slots == 1
        assert len(packet.track_visibility) == 2
        assert not np.array_equal(packet.agents, packet_of(evidence_of([walker(10, 10)])).agents)

    def test_too_many_agents_keep_the_best_supported_in_order(self) -> None:
        few = TeacherSettings(targets={"max_agents": 2})
        tracks = [walker(5, 5, size=10), walker(30, 30, size=3), walker(40, 10, size=8)]
        packet = packet_of(evidence_of(tracks), few)
        assert packet.slots == 2
        widths = [int(packet.region_place[packet.region_track == slot][0, 2]) for slot in (0, 1, 2)]
        assert widths == [10, 8, 3]


class TestVisibility:
    def test_an_agent_alone_in_the_open_is_visible(self) -> None:
        packet = packet_of(evidence_of([walker(20, 20, dx=1)]))
        assert packet.track_visibility[0] == pytest.approx(np.sqrt(0.9), abs=0.01)  # the regions' confidence is 0.9

    def test_one_in_front_hides_and_the_one_behind_does_not(self) -> None:
        """Equal boxes that overlap; the one whose feet are lower in the picture stands in front."""
        back = walker(20, 20, size=16)
        front = walker(26, 28, size=16)
        hidden = front.regions[0].full_mask(SIDE)
        whole = back.regions[0]
        left = region_of(whole.full_mask(SIDE) & ~hidden, whole.descriptor, 0.9)
        packet = packet_of(evidence_of([Tracklet(back.frames, (left,) * 16), front]))
        assert packet.track_visibility[0] < 0.8 * packet.track_visibility[1]

    def test_a_gap_attenuates_and_absence_has_no_weight(self) -> None:
        gap = Tracklet((2, 3, 4, 7, 8), walker(20, 20).regions[:5])
        packet = packet_of(evidence_of([gap]))
        frames, known = packet.track_visibility_frames[0].astype(float), packet.track_known[0]
        assert known.tolist() == [0, 0] + [1] * 7 + [0] * 7
        assert 0 < frames[5] == frames[6] < 0.6 * frames[4]

    def test_who_leaves_over_the_border_is_known_to_be_gone(self) -> None:
        leaving = walker(40, 20, dx=4, frames=range(0, 6))
        packet = packet_of(evidence_of([leaving]))
        assert packet.track_known[0].all()
        assert packet.track_visibility_frames[0, 6:].max() == 0
        assert packet.track_visibility_frames[0, 5] < packet.track_visibility_frames[0, 2]

    def test_growing_steadily_is_no_occlusion_but_a_sudden_loss_is(self) -> None:
        growing = Tracklet(tuple(range(16)), tuple(rectangle(20, 20, 8 + t, 8 + t, SIDE) for t in range(16)))
        assert packet_of(evidence_of([growing])).track_visibility_frames[0].astype(float).min() > 0.9
        regions = [rectangle(20, 20, 8 if t != 7 else 3, 8, SIDE) for t in range(16)]
        dip = packet_of(evidence_of([Tracklet(tuple(range(16)), tuple(regions))])).track_visibility_frames[0]
        assert dip.argmin() == 7
        assert dip[7] < 0.7 * dip[6]


class TestInteractions:
    def test_only_pairs_within_reach_and_seen_together(self) -> None:
        tracks = [
            walker(5, 5), walker(15, 5),  # neighbours
            walker(50, 50, frames=range(0, 8)), walker(52, 50, frames=range(8, 16)),  # same place, never together
        ]  # fmt: skip
        packet = packet_of(evidence_of(tracks))
        named = {tuple(pair) for pair in packet.pair_tracks.tolist()}
        assert named == {(0, 1), (1, 0)}

    def test_the_distance_is_that_of_the_setting(self) -> None:
        tracks = [walker(5, 5), walker(5 + 15, 5), walker(5, 5 + 17)]
        packet = packet_of(evidence_of(tracks))
        assert {tuple(pair) for pair in packet.pair_tracks.tolist()} == {(0, 1), (1, 0)}

    def test_neighbours_are_the_nearest_ones(self) -> None:
        settings = TeacherSettings(targets={"max_neighbours": 2})
        tracks = [walker(20 + 3 * k, 20, size=3) for k in range(5)]
        packet = packet_of(evidence_of(tracks), settings)
        of_first = [j for i, j in packet.pair_tracks.tolist() if i == 0]
        assert of_first == [1, 2]

    def test_pair_descriptors_say_who_approaches(self) -> None:
        meeting = packet_of(evidence_of([walker(10, 20, dx=0.5), walker(26, 20, dx=-0.5)]))
        parting = packet_of(evidence_of([walker(17, 20, dx=-0.5), walker(19, 20, dx=0.5)]))
        column = PAIR_FIELDS.index("approach")
        assert (meeting.pair_descriptor[:, column] < -0.3).all()
        assert (parting.pair_descriptor[:, column] > 0.3).all()
        assert not np.array_equal(meeting.interactions, parting.interactions)

    def test_time_to_closest_approach_is_that_of_constant_velocity(self) -> None:
        packet = packet_of(evidence_of([walker(10, 20, frames=range(4)), walker(25, 20, dx=-1, frames=range(4))]))
        values = dict(zip(PAIR_FIELDS, packet.pair_descriptor[0].astype(float), strict=True))
        assert values["time_to_closest"] == pytest.approx(12 / 16, abs=0.01)  # 12 pixels left, one per frame
        assert values["closest"] == pytest.approx(0, abs=0.01)
        assert values["dx"] == pytest.approx(12 / 16, abs=0.01)


class TestHostileEvidence:
    @settings(max_examples=40)
    @given(seed=st.integers(0, 10_000), agents=st.integers(0, 12), frames=st.integers(1, 20))
    def test_every_field_is_finite_and_in_range(self, seed: int, agents: int, frames: int) -> None:
        assert_in_range(packet_of(random_evidence(seed, agents, frames, context=max(1, frames - 4))))

    @pytest.mark.parametrize("agents", [0, 1, 2, 200])
    def test_any_number_of_agents(self, agents: int) -> None:
        packet = packet_of(random_evidence(3, agents))
        assert_in_range(packet)
        assert len(packet.track_visibility) == agents
        assert np.bincount(packet.pair_tracks[:, 0]).max(initial=0) <= SETTINGS.targets.max_neighbours

    def test_features_that_say_nothing(self) -> None:
        packet = packet_of(evidence_of([walker(10, 10)], features=np.zeros((16, 8, 8, 12), np.float32)))
        assert_in_range(packet)
        assert packet.reliability[0] == 0

    def test_a_camera_gone_mad(self) -> None:
        camera = np.full((16, 2, 3), np.nan, np.float32)
        camera[3] = 0
        camera[4] = 1e9
        assert_in_range(packet_of(evidence_of([walker(10, 10, dx=1)], camera=camera)))

    def test_one_frame_is_too_little_to_be_sure_of(self) -> None:
        packet = packet_of(evidence_of([], frames=1, context=1))
        assert packet.reliability[0] == pytest.approx(0.1)


@pytest.mark.parametrize("context", [16, 20])
def test_a_context_that_leaves_no_future_is_refused(context: int) -> None:
    with pytest.raises(ConfigError, match=f"a context of {context} leaves no future in a window of 16 frames"):
        resolve(TeacherSettings, None, [f"context={context}"])
