"""Everything there is can be drawn: kinds, scenes, modes, lights and weathers, small and large."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest

from factorjepa.world import clip
from factorjepa.world.backdrop import BUILDING
from factorjepa.world.camera import Pose
from factorjepa.world.cities import CITIES
from factorjepa.world.renderer import Renderer
from factorjepa.world.settings import CAPTURE_MODES, Illumination, SceneType, Weather
from factorjepa.world.shapes import MATERIALS, PAINTS, SHAPES
from factorjepa.world.simulator import SimulatedClip, source_spec
from factorjepa.world.sprites import AZIMUTHS, Sprite, Style, height_of, pictures_of
from factorjepa.world.taxonomy import KIND_NAMES, KINDS, SUPERCLASSES

from .scenes import SEED, example_truth, settings

WHITE = ((255, 255, 255), (255, 255, 255))
SCENES: tuple[SceneType, ...] = get_args(SceneType)


def seen_from(style: Style, azimuth: int, elevation: int, level: int, phase: int = 0) -> Sprite:
    """A body's picture from afar, by view bins."""
    distance = 6
    code = (((phase * AZIMUTHS + azimuth) * 16 + elevation) * 8 + distance) * 8 + level
    return pictures_of([style], np.array([0]), np.array([code]))[0]


def frames(made: SimulatedClip, *times: float) -> list[np.ndarray]:
    return [frame for frame, _ in made.renderer.render(made.trajectory, made.camera, times)]


@pytest.mark.parametrize("model", sorted(SHAPES))
def test_every_shape_is_drawn_from_all_sides(model: str) -> None:
    style = Style(model, WHITE)
    widths, contrast = [], []
    for azimuth, elevation, level in itertools.product(range(0, AZIMUTHS, 4), (0, 2, 6), (1, 3)):
        picture = seen_from(style, azimuth, elevation, level)
        solid = picture.pixels[:, :, 3] < 128
        assert solid.mean() > 0.02
        assert picture.pixels[solid][:, :3].max() > 40  # not a black hole
        contrast.append(float(picture.pixels[solid][:, :3].std()))
        anchor, _, scale, width, height = picture.frame
        assert (height, width) == picture.pixels.shape[:2]
        assert 0 <= anchor <= width
        if (elevation, level) == (0, 3):
            widths.append(np.flatnonzero(solid.any(axis=0)).size / scale)
    assert np.median(contrast) > 2  # more than a silhouette
    kind = KINDS.get(model)
    if kind is not None:
        assert max(widths) == pytest.approx(max(kind.length, kind.width), rel=0.35)  # as large as it says
        assert height_of(model) == pytest.approx(kind.height, rel=0.35)


def test_there_are_26_kinds_in_seven_superclasses_each_with_a_shape() -> None:
    assert len(KINDS) == 26
    assert set(KINDS) <= set(SHAPES)
    assert len(SUPERCLASSES) == 7
    assert {kind.superclass for kind in KINDS.values()} == set(SUPERCLASSES)
    assert len({kind.height for kind in KINDS.values()}) > 15
    assert all(len(make(0).faces) < 256 for make in SHAPES.values())  # faces are numbered in a byte
    materials = {face.material for make in SHAPES.values() for face in make(0).faces}
    assert materials <= {*MATERIALS, *PAINTS}


def test_walkers_swing_their_legs() -> None:
    for model in ("pedestrian", "cow", "dog"):
        style = Style(model, WHITE)
        still, striding = (seen_from(style, 8, 0, 3, phase).pixels for phase in (0, 1))
        assert still.shape != striding.shape or (still != striding).any()


def test_all_superclasses_appear_in_a_dense_sample() -> None:
    seen = {KINDS[str(kind)].superclass for index, mode in itertools.product((0, 5), CAPTURE_MODES)
            for kind in example_truth(index, mode=mode).agent_kinds}  # fmt: skip
    for index in range(10, 45, 5):
        made = clip(settings(seconds=(1.0, 1.0)), SEED, index)
        for _, truth in made.renderer.render(made.trajectory, made.camera, [0.0, 1.0], truth=True):
            assert truth is not None
            seen |= {KINDS[KIND_NAMES[made.population.kind[one.row]]].superclass for one in truth.seen}
    assert seen == set(SUPERCLASSES)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("mode", CAPTURE_MODES)
def test_every_scene_in_every_mode_is_a_picture(scene: str, mode: str) -> None:
    index = 5 * SCENES.index(scene)  # another city each
    made = clip(settings(size=32, scene_types={scene: 1.0}, capture_modes={mode: 1.0}), SEED, index)
    assert made.spec.source.scene_type == scene
    assert made.spec.source.capture_mode == mode
    first, later = frames(made, 0.0, 1.5)
    for frame in (first, later):
        assert frame.dtype == np.uint8
        assert frame.std() > 8
        assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 100
    assert np.abs(first.astype(int) - later).mean() > 0.5  # something moves


@pytest.mark.parametrize("light", get_args(Illumination))
def test_every_light_and_weather_is_a_picture_of_its_own(light: str) -> None:
    """The same street in all weathers, which the settings leave to the city."""
    made = clip(settings(illumination={light: 1.0}, size=48), SEED, 0)
    pictures = {}
    for weather in get_args(Weather):
        scene = made.scene
        renderer = Renderer(
            scene.street, made.population, scene.light, weather, scene.backdrop, made.settings.size, (SEED, weather)
        )
        pictures[weather] = next(iter(renderer.render(made.trajectory, made.camera, [0.5])))[0]
        assert pictures[weather].std() > 5
    assert (pictures["rain"] != pictures["clear"]).any()  # streaks


def test_night_is_darker_than_dusk_and_dusk_than_day() -> None:
    day, dusk, night = (
        np.mean([frames(clip(settings(illumination={light: 1.0}), SEED, i), 0.0)[0].mean() for i in (0, 10, 20)])
        for light in ("day", "dusk", "night")
    )
    assert night < 0.9 * dusk
    assert dusk < 0.9 * day


def test_weathers_and_cities_occur_and_look_different() -> None:
    assert {source_spec(settings(), SEED, index).weather for index in range(40)} == set(get_args(Weather))
    means = {}
    day = {"illumination": {"day": 1.0}, "capture_modes": {"walk": 1.0}, "scene_types": {"commercial": 1.0}}
    for city in CITIES:
        made = clip(settings(size=32, cities=(city,), **day), SEED, 0)
        means[city] = frames(made, 0.0)[0].reshape(-1, 3).mean(axis=0)
    apart = [np.abs(means[a] - means[b]).max() for a, b in itertools.combinations(CITIES, 2)]
    assert min(apart) > 0.5


@pytest.mark.parametrize("size", [32, 256])
def test_small_and_large_frames_show_the_same_view(size: int) -> None:
    import cv2

    reference = clip(settings(size=128), SEED, 5)
    other = clip(settings(size=size), SEED, 5)
    a, b = frames(reference, 1.0)[0], frames(other, 1.0)[0]
    assert b.shape == (size, size, 3)
    a, b = (cv2.resize(image, (16, 16), interpolation=cv2.INTER_AREA).astype(float) for image in (a, b))
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.9


def test_agents_and_their_shadows_are_in_the_picture() -> None:
    """Where the truth says an agent is, the picture differs from the empty street."""
    made = clip(settings(illumination={"day": 1.0}), SEED, 0)
    shown = 0
    for k, (frame, truth) in enumerate(made.frames_with_truth()):
        if k % 6:
            continue
        pose = made.camera.pose(k / made.settings.fps * 8, made.settings.size)
        empty = made.scene.backdrop.view(pose, made.settings.size, False).frame
        covered = truth.instances > 0
        if covered.sum() > 30:
            shown += 1
            differs = np.abs(frame.astype(int) - empty).max(axis=2) > 6
            assert differs[covered].mean() > 0.85
    assert shown >= 1


@pytest.mark.parametrize("mode", ["drive", "walk"])
def test_rows_without_houses_are_what_they_would_be_if_houses_were_looked_for(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = clip(settings(scene_types={"commercial": 1.0}, capture_modes={mode: 1.0}), SEED, 0)
    backdrop, views = made.scene.backdrop, []
    for lowest in (backdrop.lowest, 0.0):
        monkeypatch.setattr(backdrop, "lowest", lowest)
        views.append([backdrop.view(made.camera.pose(step, 96), 96, True) for step in (0.0, 7.5, 15.0)])
    assert made.camera.position[0, 2] < backdrop.tallest
    for short, full in zip(*views, strict=True):
        assert (short.frame == full.frame).all()
        assert (short.layout == full.layout).all()
        assert (short.nearness == full.nearness).all()


def test_the_side_street_has_walls_from_the_ground_up() -> None:
    """Rays that look down through the gap at a crossing meet the corner houses before the ground behind them."""
    made = clip(settings(scene_types={"junction": 1.0}, capture_modes={"drive": 1.0}, size=128), SEED, 0)
    street, backdrop = made.scene.street, made.scene.backdrop
    pose = made.camera.pose(0.0, 128)
    eye = np.array([street.junction - street.half_way - 3.0, 0.0, 1.5])
    ahead = Pose(eye, np.array([[0.0, -1.0, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]), pose.focal, pose.centre)
    layout = backdrop.view(ahead, 128, True).layout
    assert layout is not None
    far_corner = np.array([street.junction + street.half_way, street.half_way + 1.0, 0.3])
    (column, row), _ = ahead.project(far_corner)
    assert layout[int(row), int(column)] == BUILDING


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("mode", CAPTURE_MODES)
def test_no_pixel_is_left_to_what_memory_happens_to_hold(
    scene: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fresh arrays are filled with two kinds of rubbish; a picture that shows the difference read one of them."""
    pictures = []
    for rubbish in (3.0, 57.0):
        made = clip(settings(size=32, scene_types={scene: 1.0}, capture_modes={mode: 1.0}), SEED, 0)

        def filled(like: np.ndarray, *_: object, rubbish: float = rubbish, **__: object) -> np.ndarray:
            return np.full_like(like, rubbish)

        with monkeypatch.context() as patch:
            patch.setattr(np, "empty_like", filled)
            pictures.append(frames(made, 0.0, 1.0))
    wrong = sum(int((a != b).any(axis=2).sum()) for a, b in zip(*pictures, strict=True))
    assert wrong == 0, f"{wrong} pixels of two frames are read before they are written"
