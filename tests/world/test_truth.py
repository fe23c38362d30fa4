"""Ground truth agrees with itself, with the pictures, and with a second look at the geometry."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from factorjepa.errors import WorldError
from factorjepa.runlengths import decode_mask, encode_masks, encode_runs, set_pixels
from factorjepa.world import ClipTruth
from factorjepa.world.backdrop import BUILDING, FOOTPATH, OBSTACLE, ROAD, SKY, STRUCTURE, WATER
from factorjepa.world.camera import CameraPath
from factorjepa.world.simulator import LAP
from factorjepa.world.taxonomy import KINDS

from .scenes import Floats, annotated, clip, example, example_truth
from .scenes import settings as world

MODES = ("drive", "walk", "aerial")
EXAMPLES = [(index, mode) for index in (0, 5) for mode in MODES]


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda p: f"{p[1]}{p[0]}")
def truth(request: pytest.FixtureRequest) -> ClipTruth:
    index, mode = request.param
    return example_truth(index, mode=mode)


def projected(truth: ClipTruth, points: Floats, frame: np.ndarray) -> tuple[Floats, Floats]:
    """Pixels and depth of ground points, straight from the pinhole equation."""
    world_points = np.concatenate([points, np.zeros((len(points), 1))], axis=1)
    relative = world_points - truth.camera_position[frame]
    right, down, forward = (np.sum(relative * truth.camera_axes[frame, k], axis=1) for k in range(3))
    return np.stack([right, down], axis=1) / forward[:, None] * truth.focal + truth.size / 2, forward


class TestMasks:
    def test_visible_is_part_of_amodal_and_both_are_counted_right(self, truth: ClipTruth) -> None:
        assert len(truth.frame) > 20
        for row in range(0, len(truth.frame), 3):
            visible, amodal = truth.visible_mask(row), truth.amodal_mask(row)
            assert not (visible & ~amodal).any()
            assert visible.sum() == truth.visible_pixels[row]
            assert amodal.sum() == truth.amodal_pixels[row] > 0
            rows, columns = np.nonzero(amodal)
            tight = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
            assert tuple(truth.box[row]) == tight
            at_border = tight[0] == 0 or tight[1] == 0 or tight[2] == truth.size or tight[3] == truth.size
            assert truth.truncated[row] == at_border

    def test_the_instance_map_holds_each_frame_s_agents_and_nobody_else(self, truth: ClipTruth) -> None:
        for frame in range(0, truth.frames, 4):
            rows = truth.observations(frame)
            assert (truth.frame[rows] == frame).all()
            agents = truth.agent[rows]
            assert len(set(agents.tolist())) == len(agents)  # one observation per agent and frame
            shown = set(np.unique(truth.instances(frame)).tolist()) - {0}
            assert shown == {int(a) + 1 for a, n in zip(agents, truth.visible_pixels[rows], strict=True) if n}

    def test_the_nearer_of_two_agents_is_the_one_seen(self, truth: ClipTruth) -> None:
        """Where two whole bodies cover a pixel, the pixel shows the nearer or something nearer still."""
        for frame in range(0, truth.frames, 6):
            rows = truth.observations(frame)
            depth = np.full((truth.size, truth.size), np.inf)
            for row in rows:
                mask = truth.amodal_mask(int(row))
                depth[mask] = np.minimum(depth[mask], truth.depth[row])
            for row in rows:
                seen = truth.visible_mask(int(row))
                assert (depth[seen] >= truth.depth[row] - 1e-4).all()

    def test_observations_are_sorted_by_frame_and_agents_are_known(self, truth: ClipTruth) -> None:
        assert (np.diff(truth.frame) >= 0).all()
        assert set(truth.agent.tolist()) == set(range(len(truth.agent_ids)))
        assert len(set(truth.agent_ids.tolist())) == len(truth.agent_ids)
        assert set(truth.agent_kinds.tolist()) <= set(KINDS)
        assert (np.abs(truth.agent_lengths / [KINDS[str(k)].length for k in truth.agent_kinds] - 1) < 0.2).all()


def test_agents_disappear_and_come_back() -> None:
    """Seen well, then hidden by more than 70 %, then seen well again."""
    returned = 0
    for index, mode in EXAMPLES:
        truth = example_truth(index, mode=mode)
        for agent in range(len(truth.agent_ids)):
            rows = np.flatnonzero((truth.agent == agent) & (truth.amodal_pixels >= 12) & ~truth.truncated)
            fraction = truth.visible_fraction[rows]
            hidden = np.flatnonzero(fraction < 0.3)
            if hidden.size and (fraction[hidden[0] :] > 0.7).any() and (fraction[: hidden[0]] > 0.7).any():
                returned += 1
    assert returned >= 1


class TestGeometry:
    def test_position_projects_to_the_body_and_to_its_depth(self, truth: ClipTruth) -> None:
        check_positions(truth)

    @pytest.mark.parametrize("index", [0, 5])
    def test_positions_on_the_crossing_street_too(self, index: int) -> None:
        made = clip(world(seconds=(12.0, 12.0), fps=2.0, scene_types={"junction": 1.0}), 1, index)
        check_positions(annotated(made))

    def test_image_velocity_is_the_motion_of_the_ground_point(self, truth: ClipTruth) -> None:
        errors, speeds = [], []
        for frame in range(truth.frames - 1):
            now, then = truth.observations(frame), truth.observations(frame + 1)
            _, a, b = np.intersect1d(truth.agent[now], truth.agent[then], return_indices=True)
            rows, later = now[a], then[b]
            usable = (truth.depth[rows] > 2.5) & (truth.depth[later] > 2.5)
            rows, later = rows[usable], later[usable]
            before, _ = projected(truth, truth.position[rows], truth.frame[rows])
            after, _ = projected(truth, truth.position[later], truth.frame[later])
            still, _ = projected(truth, truth.position[rows], truth.frame[later])
            measured = (after - before) * truth.fps
            errors += np.abs(truth.image_velocity[rows] - measured).max(axis=1).tolist()
            speeds += np.hypot(*measured.T).tolist()
            np.testing.assert_allclose(
                truth.camera_velocity[rows], (still - before) * truth.fps, atol=0.05 * truth.fps, rtol=0.02
            )
        assert len(errors) > 20
        assert np.median(errors) < 0.05 * np.median(speeds) + 0.25  # px/s
        assert np.quantile(errors, 0.95) < 0.25 * np.quantile(speeds, 0.95) + 1.0

    def test_world_velocity_is_the_change_of_position(self, truth: ClipTruth) -> None:
        errors = []
        for agent in range(len(truth.agent_ids)):
            rows = np.flatnonzero(truth.agent == agent)
            rows = rows[:-1][np.diff(truth.frame[rows]) == 1]
            if rows.size:
                following = np.searchsorted(truth.frame, truth.frame[rows] + 1)
                for row, start in zip(rows.tolist(), following.tolist(), strict=True):
                    stop = int(np.searchsorted(truth.frame, truth.frame[row] + 2))
                    after = next(k for k in range(start, stop) if truth.agent[k] == agent)
                    moved = (truth.position[after] - truth.position[row]) * truth.fps
                    errors.append(np.abs(moved - truth.velocity[row]).max())
        assert np.median(errors) < 0.3  # steps of an eighth of a second, and accelerations of metres per second squared
        assert np.quantile(errors, 0.98) < 1.5

    def test_camera_axes_are_orthonormal_and_right_handed(self, truth: ClipTruth) -> None:
        axes = truth.camera_axes.astype(np.float64)
        np.testing.assert_allclose(axes @ axes.transpose(0, 2, 1), np.eye(3)[None].repeat(len(axes), 0), atol=1e-6)
        np.testing.assert_allclose(np.cross(axes[:, 0], axes[:, 1]), axes[:, 2], atol=1e-6)
        assert (axes[:, 1, 2] < 0).all()  # down points down

    def test_camera_moves_smoothly(self, truth: ClipTruth) -> None:
        assert np.linalg.norm(np.diff(truth.camera_position, axis=0), axis=1).max() * truth.fps < 15.0


def check_positions(truth: ClipTruth) -> None:
    pixels, depth = projected(truth, truth.position.astype(np.float64), truth.frame)
    np.testing.assert_allclose(depth, truth.depth, atol=0.02)
    # The ground point lies under the body: inside its box, stretched by its size, unless the frame cuts it.
    whole = np.flatnonzero(~truth.truncated & (truth.depth > 4.0) & (truth.amodal_pixels >= 12))
    left, top, right, bottom = truth.box[whole].T.astype(np.float64)
    margin = 0.3 * np.maximum(right - left, bottom - top) + 2.0
    u, v = pixels[whole].T
    assert ((u > left - margin) & (u < right + margin)).all()
    assert ((v > top - margin) & (v < bottom + margin)).all()


angles = st.floats(-3.0, 3.0)
places = st.floats(-100.0, 100.0)


@given(
    arrays(np.float64, (4, 3), elements=places), arrays(np.float64, (4, 3), elements=angles), st.floats(0.3, 2.0),
    st.floats(0.0, 3.5), st.sampled_from([32, 128]),
)  # fmt: skip
def test_every_pose_is_a_rotation_and_projects_its_own_axis_to_the_centre(
    position: Floats, turned: Floats, focal: float, at: float, size: int
) -> None:
    pose = CameraPath(position, turned, focal).pose(at, size)
    np.testing.assert_allclose(pose.axes @ pose.axes.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(pose.axes) == pytest.approx(1.0)
    ahead = pose.position + 5.0 * pose.axes[2]
    pixel, depth = pose.project(ahead)
    np.testing.assert_allclose(pixel, size / 2, atol=1e-6)
    assert depth == pytest.approx(5.0)
    aside, _ = pose.project(ahead + pose.axes[0])
    np.testing.assert_allclose(aside, [size / 2 + focal * size / 5, size / 2], atol=1e-6)


def rays(truth: ClipTruth, frame: int) -> Iterator[tuple[int, int, Floats]]:
    """Pixels on a coarse grid with the direction that each looks in."""
    for row in range(2, truth.size, 5):
        for column in range(2, truth.size, 5):
            camera = np.array([column + 0.5 - truth.size / 2, row + 0.5 - truth.size / 2, truth.focal])
            yield row, column, camera @ truth.camera_axes[frame].astype(np.float64)


@pytest.mark.parametrize(
    ("scene", "mode"), [("commercial", "walk"), ("promenade", "drive"), ("market", "aerial"), ("residential", "drive")]
)
def test_layout_is_what_the_ray_through_each_pixel_meets(scene: str, mode: str) -> None:
    made, truth = example(0, mode=mode, scene=scene), example_truth(0, mode=mode, scene=scene)
    street = made.scene.street
    checked = set()
    for frame in (0, truth.frames - 1):
        layout, eye = truth.layout(frame), truth.camera_position[frame].astype(np.float64)
        for row, column, ray in rays(truth, frame):
            label = int(layout[row, column])
            if label in (OBSTACLE, STRUCTURE):
                continue
            to_front = (np.sign(ray[1]) * street.half_way - eye[1]) / ray[1] if abs(ray[1]) > 1e-6 else np.inf
            to_ground = -eye[2] / ray[2] if ray[2] < -1e-6 else np.inf
            y = eye[1] + to_ground * ray[1]
            if min(abs(abs(y) - edge) for edge in (street.half_road, street.half_way)) < 0.1 or to_ground > 300:
                continue  # on the line between two classes, or at the horizon
            if abs(y) < street.half_way:
                expected = {ROAD} if abs(y) < street.half_road else {FOOTPATH}
            elif street.family.water and y < 0:
                expected = {WATER, SKY}
            else:
                height = eye[2] + to_front * ray[2]
                expected = {BUILDING} if height < 3.0 else {BUILDING, SKY}
            assert label in expected, (frame, row, column)
            checked.add(label)
    assert {ROAD, FOOTPATH, BUILDING} <= checked


@pytest.fixture(scope="module")
def one() -> ClipTruth:
    return example_truth(0)


@pytest.fixture(scope="module")
def stored(one: ClipTruth) -> bytes:
    return one.to_bytes()


class TestFile:
    def test_comes_back_identical(self, one: ClipTruth, stored: bytes) -> None:
        back = ClipTruth.from_bytes(stored)
        for field in dataclasses.fields(ClipTruth):
            before, after = getattr(one, field.name), getattr(back, field.name)
            if isinstance(before, np.ndarray):
                assert after.dtype == before.dtype or before.dtype.kind == "U", field.name
                np.testing.assert_array_equal(after, before, err_msg=field.name)
            elif field.name == "interactions":
                rounded = tuple(dataclasses.replace(i, effect=round(i.effect, 3)) for i in before)
                assert after == rounded
            else:
                assert after == before
        assert back.to_bytes() == stored

    def test_is_small_beside_the_masks_it_holds(self, one: ClipTruth, stored: bytes) -> None:
        assert len(stored) < 0.1 * len(one.frame) * one.size**2

    def test_cut_anywhere_is_refused_by_name(self, stored: bytes) -> None:
        for end in np.linspace(0, len(stored) - 1, 60).astype(int):
            with pytest.raises(WorldError, match="clip 'x'"):
                ClipTruth.from_bytes(stored[:end], "clip 'x'")

    @settings(max_examples=30)
    @given(st.binary(max_size=300))
    def test_garbage_is_refused(self, data: bytes) -> None:
        with pytest.raises(WorldError):
            ClipTruth.from_bytes(data)

    def test_a_single_changed_byte_is_refused_or_harmless(self, one: ClipTruth, stored: bytes) -> None:
        draw = np.random.default_rng(0)
        near_the_end = len(stored) - 1 - draw.integers(0, 4000, 300)  # the archive's directory
        for place in [*draw.integers(0, len(stored), 200).tolist(), *near_the_end.tolist()]:
            damaged = bytearray(stored)
            damaged[place] ^= int(draw.integers(1, 256))
            try:
                back = ClipTruth.from_bytes(bytes(damaged))
            except WorldError:
                continue
            assert (back.frame == one.frame).all()

    def test_other_numpy_files_are_refused(self, stored: bytes) -> None:
        array, archive = io.BytesIO(), io.BytesIO()
        np.save(array, np.arange(3))
        np.savez(archive, frames=np.arange(3))
        for data in (archive, array):
            with pytest.raises(WorldError):
                ClipTruth.from_bytes(data.getvalue())

    @pytest.mark.parametrize("damage", [{"interactions": "[[1, 2]]"}, {"interactions": "{no"}, {"size": np.arange(2)}])
    def test_a_file_with_nonsense_inside_is_refused(self, stored: bytes, damage: dict[str, object]) -> None:
        with np.load(io.BytesIO(stored)) as archive:
            content = {name: archive[name] for name in archive.files}
        buffer = io.BytesIO()
        np.savez(buffer, **(content | damage))
        with pytest.raises(WorldError):
            ClipTruth.from_bytes(buffer.getvalue())

    def test_another_format_says_so(self, stored: bytes) -> None:
        with np.load(io.BytesIO(stored)) as archive:
            content = {name: archive[name] for name in archive.files}
        buffer = io.BytesIO()
        np.savez(buffer, **(content | {"format": np.array(99)}))
        with pytest.raises(WorldError, match=r"format 99.*simulate it again"):
            ClipTruth.from_bytes(buffer.getvalue())


masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=12))


@given(st.lists(st.one_of(masks, masks.map(np.zeros_like), masks.map(np.ones_like)), max_size=5))
def test_masks_survive_run_length_coding(several: list[np.ndarray]) -> None:
    runs, counts = encode_masks(several)
    assert len(counts) == len(several)
    assert runs.size == counts.sum()
    for mask, part in zip(several, np.split(runs, np.cumsum(counts)[:-1]) if several else [], strict=True):
        assert (decode_mask(part, mask.shape) == mask).all()
        assert part.sum() == mask.size
        assert (part[1:] > 0).all()  # only the leading background may be empty
    flat = np.zeros((len(several), max((mask.size for mask in several), default=0)), bool)
    flat[set_pixels(runs, counts)] = True
    for found, mask in zip(flat, several, strict=True):
        assert (found[: mask.size] == mask.ravel()).all()
        assert not found[mask.size :].any()


@given(arrays(np.uint8, st.integers(0, 60), elements=st.integers(0, 3)))
def test_labels_survive_run_length_coding(flat: np.ndarray) -> None:
    lengths, values = encode_runs(flat)
    assert (np.repeat(values, lengths) == flat).all()
    assert (np.diff(values.astype(int)) != 0).all()


class TestInteractionsInTruth:
    def test_name_agents_of_the_table_in_view_within_the_clip(self, truth: ClipTruth) -> None:
        ids, seconds = set(truth.agent_ids.tolist()), truth.frames / truth.fps
        for one in truth.interactions:
            assert one.agent in ids
            assert one.other in ids
            assert one.agent != one.other
            assert 0 <= one.start < one.end <= seconds + 1.0
            assert one.effect >= 0.15

    def test_displacement_alone_is_known_for_agents_in_view_only(self, truth: ClipTruth) -> None:
        assert truth.alone.shape[1] == len(truth.agent_ids)
        known = np.isfinite(truth.alone)
        assert known.any()
        assert (truth.alone[known] >= 0).all()
        first_lap = truth.agent_ids < LAP
        assert not known[:, ~first_lap].any()
