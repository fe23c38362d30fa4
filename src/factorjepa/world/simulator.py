"""Clips by address: `clip(settings, seed, index)` is the same clip alone, in any order and in any process.

Sources group clips: clip `i` belongs to source `i // CLIPS_PER_SOURCE`, which fixes city, street, capture mode, light
and weather. Each clip of a source has its own crowd and moment.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from ..errors import WorldError
from ..runlengths import encode_masks, encode_runs
from ..seeding import stream
from ..words import counted
from .backdrop import Backdrop
from .camera import CameraPath, carry, rotated
from .cities import CITIES
from .crowd import RATE, wrap
from .interactions import ANCHOR_EVERY, HORIZON, Interaction, find_interactions
from .motion import Edit, Trajectory, simulate, simulate_together
from .population import Population, populate
from .renderer import Renderer, Truth
from .settings import CaptureMode, Illumination, SceneType, Weather, WorldSettings
from .street import Street, build_street
from .taxonomy import KIND_NAMES
from .textures import Light, light_of
from .truth import ClipTruth

CLIPS_PER_SOURCE = 5
LAP = 1000  # agent ids: entity row plus LAP for every time it left the ring at one end and came in at the other

Frame = NDArray[np.uint8]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SourceSpec:
    """One recording: where, when, how."""

    index: int
    city: str
    session: str
    source: str
    capture_mode: CaptureMode
    scene_type: SceneType
    illumination: Illumination
    weather: Weather


@dataclass(frozen=True)
class ClipSpec:
    """One clip of a recording. `t_start` and `t_end` are seconds in the source video."""

    index: int
    clip_id: str
    source: SourceSpec
    shot: int
    t_start: float
    t_end: float
    frames: int


def source_spec(settings: WorldSettings, seed: int, index: int) -> SourceSpec:
    """The source's place in the provenance tree, drawn from its own address."""
    cities = [settings.cities[k] for k in stream(seed, "cities").permutation(len(settings.cities))]
    city, rank = cities[index % len(cities)], index // len(cities)
    session = f"s{rank // 3:02d}"

    def draw(what: str, weights: dict[Any, float], stride: float) -> Any:
        """Neighbouring sources draw far apart, so that a small corpus shows everything.

        A Kronecker sequence: steps by a quadratic irrational spread evenly at every length.
        """
        names, shares = list(weights), np.cumsum(list(weights.values()))
        position = (stream(seed, settings.regime, what).random() + index * stride) % 1.0
        return names[min(int(np.searchsorted(shares, position * shares[-1], side="right")), len(names) - 1)]

    rainy, hazy = CITIES[city].rain, 0.35 * CITIES[city].haze
    sky = {"clear": max(0.05, 1 - rainy - hazy), "rain": rainy, "haze": hazy}
    capture_mode = cast(CaptureMode, draw("capture mode", settings.capture_modes, 0.41421356))
    scene_type = cast(SceneType, draw("scene type", settings.scene_types, 0.61803399))
    illumination = cast(Illumination, draw("illumination", settings.illumination, 0.73205081))
    weather = cast(Weather, draw("weather", sky, 0.30277564))
    source = f"{city}/{session}/v{rank:03d}"
    return SourceSpec(index, city, session, source, capture_mode, scene_type, illumination, weather)


def clip_spec(settings: WorldSettings, seed: int, index: int) -> ClipSpec:
    return clip_specs(settings, seed, index // CLIPS_PER_SOURCE)[index % CLIPS_PER_SOURCE]


def clip_specs(settings: WorldSettings, seed: int, index: int) -> list[ClipSpec]:
    """All clips of source `index`, one after the other in time."""
    if index < 0:
        raise WorldError(f"clip and source indices must not be negative, got source {index}")
    source = source_spec(settings, seed, index)
    lengths = stream(seed, settings.regime, "lengths", index).uniform(*settings.seconds, size=CLIPS_PER_SOURCE)
    frames = np.maximum(1, np.rint(lengths * settings.fps)).astype(int).tolist()
    specs: list[ClipSpec] = []
    for shot, count in enumerate(frames):
        t_start = float(sum(frames[:shot]) / settings.fps)
        t_end = t_start + float(count / settings.fps)
        clip_id = f"{source.source}#{shot}.0"
        specs.append(ClipSpec(index * CLIPS_PER_SOURCE + shot, clip_id, source, shot, t_start, t_end, count))
    return specs


@dataclass(frozen=True)
class _Scene:
    """What the clips of one source share."""

    spec: SourceSpec
    street: Street
    light: Light
    backdrop: Backdrop


@functools.lru_cache(maxsize=4)
def _scene(settings: WorldSettingsKey, seed: int, index: int) -> _Scene:
    values = settings.settings
    spec = source_spec(values, seed, index)
    rng = stream(seed, values.regime, "street", index)
    street = build_street(values, spec.city, spec.scene_type, rng)
    light = light_of(street, spec.illumination, spec.weather, rng)
    return _Scene(spec, street, light, Backdrop(street, light, spec.weather, rng))


class WorldSettingsKey:
    """Settings as a cache key: equal by content (the settings hold dictionaries, which do not hash)."""

    def __init__(self, settings: WorldSettings) -> None:
        self.settings = settings
        self.text = settings.model_dump_json()

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorldSettingsKey) and other.text == self.text


@dataclass(frozen=True)
class SimulatedClip:
    """A clip with its world: can be rendered at any time, annotated, and run again with an edit."""

    settings: WorldSettings
    seed: int
    spec: ClipSpec
    scene: _Scene
    population: Population
    trajectory: Trajectory
    camera: CameraPath
    edits: tuple[Edit, ...] = ()

    @functools.cached_property
    def renderer(self) -> Renderer:
        scene, address = self.scene, (self.seed, self.settings.regime, self.spec.index)
        return Renderer(
            scene.street, self.population, scene.light, scene.spec.weather, scene.backdrop, self.settings.size, address
        )

    @property
    def seconds(self) -> float:
        return self.spec.frames / self.settings.fps

    def times(self) -> NDArray[np.float64]:
        return np.arange(self.spec.frames) / self.settings.fps

    def frames(self) -> Iterator[Frame]:
        """Every frame of the clip."""
        for frame, _ in self.renderer.render(self.trajectory, self.camera, self.times()):
            yield frame

    def window(self, start: float = 0.0, frames: int = 16, fps: float = 4.0) -> Frame:
        """`[frames, H, W, 3]` from `start` seconds on, without a video file in between."""
        return np.asarray(self.windows([start], frames, fps)[0])

    def windows(self, starts: Sequence[float], frames: int = 16, fps: float = 4.0) -> Frame:
        """Several windows, `[len(starts), frames, H, W, 3]`."""
        for start in starts:
            if start < 0 or start + (frames - 1) / fps > self.seconds:
                raise WorldError(
                    f"clip {self.spec.clip_id!r}: a window of {counted(frames, 'frame')} at {fps:g} fps from "
                    f"{start:g} s does not fit into {self.seconds:.2f} s"
                )
        times = (np.asarray(starts)[:, None] + np.arange(frames) / fps).ravel()
        shown = np.empty((len(times), self.settings.size, self.settings.size, 3), np.uint8)
        for k, (frame, _) in enumerate(self.renderer.render(self.trajectory, self.camera, times)):
            shown[k] = frame
        return shown.reshape(len(starts), frames, *shown.shape[1:])

    def frames_with_truth(self) -> Iterator[tuple[Frame, Truth]]:
        for frame, truth in self.renderer.render(self.trajectory, self.camera, self.times(), truth=True):
            assert truth is not None
            yield frame, truth

    def annotate(self, truths: list[Truth]) -> ClipTruth:
        """Collect per-frame truth, velocities and interactions into the clip's ground truth."""
        return _annotate(self, truths)

    def attributes(self) -> dict[str, str | int | float]:
        street, source = self.scene.street, self.spec.source
        return {
            "scene_type": source.scene_type,
            "illumination": source.illumination,
            "weather": source.weather,
            "road_context": "crossing"
            if street.junction is not None
            else "flyover"
            if street.family.flyover
            else "straight",
            "regime": self.settings.regime,
            "agents": len(self.population.agents),
        }


def clip(settings: WorldSettings, seed: int, index: int) -> SimulatedClip:
    """Clip `index` of the world with this seed."""
    return clips(settings, seed, [index])[0]


def clips(
    settings: WorldSettings, seed: int, indices: Sequence[int], seconds: Sequence[float] | None = None
) -> list[SimulatedClip]:
    """Several clips of one source, simulated side by side; the same clips as one by one.

    `seconds` cuts the simulation of each short for those who only look at the beginning (no ground truth then).
    """
    sources = {index // CLIPS_PER_SOURCE for index in indices}
    if len(sources) != 1:
        raise WorldError("clips simulated together must belong to one source")
    whole = clip_specs(settings, seed, int(sources.pop()))
    specs = [whole[index % CLIPS_PER_SOURCE] for index in indices]
    scene = _scene(WorldSettingsKey(settings), seed, specs[0].source.index)
    populations = [
        populate(
            scene.street, scene.spec.capture_mode, settings.density, stream(seed, settings.regime, "crowd", spec.index)
        )
        for spec in specs
    ]
    # Effects of an interaction are measured one second after it: the simulation runs a little longer than the clip.
    needed = [spec.frames / settings.fps + HORIZON for spec in specs] if seconds is None else seconds
    trajectories = simulate_together(populations, [math.ceil(length * RATE) + 2 for length in needed])
    made = []
    for spec, population, trajectory in zip(specs, populations, trajectories, strict=True):
        rng = stream(seed, settings.regime, "camera", spec.index)
        path = carry(scene.street, population, trajectory, scene.spec.capture_mode, rng)
        made.append(SimulatedClip(settings, seed, spec, scene, population, trajectory, path))
    return made


def resimulate(
    original: SimulatedClip,
    *,
    without: int | None = None,
    brake: int | None = None,
    hurry: int | None = None,
    alone: bool = False,
    start: float = 0.0,
    camera: str = "recorded",
) -> SimulatedClip:
    """The same clip with one thing changed from `start` seconds on; what does not depend on it keeps every bit.

    Agents are named by their id in the ground truth. `camera="recorded"` keeps the viewpoint of the original;
    `"reactive"` lets the camera's carrier respond as well. Edits add up when an edited clip is edited again.
    """
    if sum(option is not None for option in (without, brake, hurry)) + alone != 1:
        raise WorldError("resimulate takes exactly one of without=, brake=, hurry= or alone=True")
    if camera not in ("recorded", "reactive"):
        raise WorldError(f"camera must be 'recorded' or 'reactive', got {camera!r}")

    def row(agent: int | None) -> int | None:
        if agent is None:
            return None
        found = agent % LAP if isinstance(agent, int | np.integer) else -1
        if found < 0 or agent < 0 or found not in original.population.agents:
            raise WorldError(
                f"clip {original.spec.clip_id!r} has no agent {agent!r}; see the agent ids in its ground truth"
            )
        return found

    if not 0 <= start < original.seconds:
        raise WorldError(f"start must lie in the clip, 0 <= start < {original.seconds:g} s, got {start}")
    edits = (*original.edits, Edit(row(without), row(brake), row(hurry), alone, start))
    steps = len(original.trajectory)
    replay = original.trajectory if camera == "recorded" else None
    trajectory = simulate(original.population, steps, edits, replay)
    path = original.camera
    if camera == "reactive":
        rng = stream(original.seed, original.settings.regime, "camera", original.spec.index)
        path = carry(original.scene.street, original.population, trajectory, original.scene.spec.capture_mode, rng)
    return dataclasses.replace(original, trajectory=trajectory, camera=path, edits=edits)


def _annotate(clip: SimulatedClip, truths: list[Truth]) -> ClipTruth:
    size, fps = clip.settings.size, clip.settings.fps
    first_lap: dict[int, int] = {}
    index_of: dict[int, int] = {}
    sightings: dict[int, list[tuple[float, int]]] = {}
    rows: list[tuple[int, int, int]] = []  # frame, agent index, entity row
    boxes, visible, amodal, depth, shown, runs, counts = [], [], [], [], [], [], []
    instance_runs, instance_values, layout_runs, layout_values = [], [], [], []
    for number, truth in enumerate(truths):
        seen_pixels = np.bincount(truth.instances.ravel(), minlength=len(truth.seen) + 1)
        to_agent = np.zeros(len(truth.seen) + 1, np.int32)
        crops = []
        for k, seen in enumerate(truth.seen):
            agent_id = seen.row + LAP * _lap_code(seen.lap - first_lap.setdefault(seen.row, seen.lap))
            agent = index_of.setdefault(agent_id, len(index_of))
            to_agent[k + 1] = agent + 1
            across, down, width, height = cv2.boundingRect(seen.amodal.view(np.uint8))
            crop = seen.amodal[down : down + height, across : across + width]
            top, left = seen.corner[0] + down, seen.corner[1] + across
            crops.append(crop)
            rows.append((number, agent, seen.row))
            sightings.setdefault(seen.row, []).append((number / fps, agent_id))
            boxes.append((left, top, left + crop.shape[1], top + crop.shape[0]))
            visible.append(int(seen_pixels[k + 1]))
            amodal.append(cv2.countNonZero(crop.view(np.uint8)))
            depth.append(seen.depth)
            shown.append(seen.x)
        mask_runs, mask_counts = encode_masks(crops)
        runs.append(mask_runs)
        counts.append(mask_counts)
        lengths, values = encode_runs(truth.instances.ravel())
        instance_runs.append(lengths)
        instance_values.append(to_agent[values.astype(np.intp)])
        lengths, values = encode_runs(truth.layout.ravel())
        layout_runs.append(lengths)
        layout_values.append(values)

    table = np.array(rows, dtype=np.int32).reshape(-1, 3)
    box = np.array(boxes, dtype=np.int16).reshape(-1, 4)
    frame, entity = table[:, 0], table[:, 2]
    step = frame / fps * RATE
    low = np.minimum(step.astype(int), len(clip.trajectory) - 2)
    share = step - low
    motion = {name: getattr(clip.trajectory, name) for name in ("y", "vx", "vy")}
    at = {name: values[low, entity] * (1 - share) + values[low + 1, entity] * share for name, values in motion.items()}
    focal = clip.camera.focal * size
    y = wrap(at["y"], clip.scene.street.extent[1])  # as it is drawn; x is where it is drawn already
    where = np.stack([np.array(shown, dtype=np.float64).reshape(-1), y], axis=1)
    speed = np.stack([at["vx"], at["vy"]], axis=1)
    image_velocity, camera_velocity = _image_velocities(truths, focal, fps, frame, where, speed)
    ids = np.array(list(index_of), dtype=np.int32)
    kinds = clip.population.kind[ids % LAP]
    interactions, alone = _interactions(clip, index_of, sightings)
    return ClipTruth(
        size=size,
        fps=fps,
        frames=len(truths),
        focal=focal,
        attributes=clip.attributes(),
        agent_ids=ids,
        agent_kinds=np.array([KIND_NAMES[k] for k in kinds], dtype=np.str_),
        agent_lengths=(2 * clip.population.crowd.half_length[ids % LAP]).astype(np.float32),
        camera_position=np.array([truth.position for truth in truths], np.float32),
        camera_axes=np.array([truth.axes for truth in truths], np.float32),
        frame=frame,
        agent=table[:, 1],
        box=box,
        visible_pixels=np.array(visible, np.int32),
        amodal_pixels=np.array(amodal, np.int32),
        truncated=(box[:, 0] <= 0) | (box[:, 1] <= 0) | (box[:, 2] >= size) | (box[:, 3] >= size),
        depth=np.array(depth, np.float32),
        position=where.astype(np.float32),
        velocity=speed.astype(np.float32),
        image_velocity=image_velocity,
        camera_velocity=camera_velocity,
        amodal_runs=np.concatenate(runs) if runs else np.empty(0, np.uint32),
        amodal_offsets=np.cumsum(np.concatenate([[0], *counts]), dtype=np.int64),
        instance_runs=np.concatenate(instance_runs),
        instance_values=np.concatenate(instance_values),
        instance_offsets=_offsets(instance_runs),
        layout_runs=np.concatenate(layout_runs),
        layout_values=np.concatenate(layout_values).astype(np.uint8),
        layout_offsets=_offsets(layout_runs),
        interactions=interactions,
        alone=alone,
    )


def _offsets(parts: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    return np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)


def _lap_code(laps: int) -> int:
    """0, 1, 2, 3, ... for 0, +1, -1, +2, ... rounds of the ring."""
    return 2 * abs(laps) - (laps > 0)


def _interactions(
    clip: SimulatedClip, index_of: dict[int, int], sightings: dict[int, list[tuple[float, int]]]
) -> tuple[tuple[Interaction, ...], NDArray[np.float32]]:
    """Interactions by agent id, and displacement when alone per anchor and agent of the table.

    `sightings` lists, for each entity row, when it was seen under which id.
    """
    found, alone = find_interactions(clip.population, clip.trajectory, _in_view(clip), clip.edits)

    def id_at(row: int, time: float) -> int | None:
        seen = sightings.get(row, [])
        return min(seen, key=lambda one: abs(one[0] - time))[1] if seen else None

    table = np.full((len(alone), len(index_of)), np.nan, np.float32)
    for row in sightings:
        for anchor in range(len(alone)):
            agent = id_at(row, anchor * ANCHOR_EVERY)
            if agent is not None:
                table[anchor, index_of[agent]] = alone[anchor, row]
    named = []
    for one in found:
        agent, other = id_at(one.agent, one.start), id_at(one.other, one.start)
        if agent is not None and other is not None and one.start < clip.seconds:
            end = min(one.end, clip.seconds)
            named.append(dataclasses.replace(one, agent=agent, other=other, end=end))
    return tuple(named), table


def _in_view(clip: SimulatedClip) -> NDArray[np.bool_]:
    """`[T, N]` whether an entity's ground point lies in the frame and near, at simulation steps inside the clip."""
    steps = math.ceil(clip.seconds * RATE) + 1
    backdrop, size = clip.scene.backdrop, clip.settings.size
    result = np.zeros((steps, len(clip.population.crowd)), dtype=bool)
    for k in range(steps):
        pose = clip.camera.pose(k, size)
        x, y = clip.trajectory.x[k], wrap(clip.trajectory.y[k], clip.scene.street.extent[1])
        points = np.stack([backdrop.unrolled(x, pose), y, np.full_like(x, 0.5)], axis=1)
        pixels, depth = pose.project(points)
        inside = (np.abs(pixels - size / 2) < 0.55 * size).all(axis=1)
        result[k] = clip.trajectory.present[k] & inside & (depth > 1.0) & (depth < 45.0)
    return result


def _image_velocities(
    truths: list[Truth], focal: float, fps: float, frame: NDArray[np.int32], point: Floats, velocity: Floats
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """px/s at which points on the ground move through the frame, and would if they stood still."""
    eyes, axes = np.stack([truth.position for truth in truths]), np.stack([truth.axes for truth in truths])
    last = len(truths) - 1
    after = np.minimum(frame + 1, last)
    before = after - 1 if last > 0 else after
    here = np.concatenate([point, np.zeros((len(point), 1))], axis=1)
    ahead = here + np.concatenate([velocity, np.zeros((len(point), 1))], axis=1) / fps

    def project(world: Floats, at: NDArray[np.int32]) -> Floats:
        seen = rotated(world - eyes[at], axes[at])
        return np.asarray(seen[:, :2] * (focal / np.maximum(seen[:, 2:], 0.1)))

    now = project(here, before)
    return ((project(ahead, after) - now) * fps).astype(np.float32), ((project(here, after) - now) * fps).astype(
        np.float32
    )
