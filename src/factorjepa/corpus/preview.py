"""Pictures of a corpus: a contact sheet of clips, and one clip with its ground truth drawn over it."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ..errors import CorpusError
from ..storage import write_atomic
from ..video import probe, read_frames, write_video
from ..world import ClipTruth
from .manifest import Clip, Manifest
from .shards import TRUTH, sidecar_path
from .splits import Split
from .store import ClipStore

Picture = NDArray[np.uint8]
_INK, _PAPER, _GREY = (28, 30, 34), (250, 250, 248), (110, 114, 120)
_TILE, _CAPTION, _GAP = 224, 34, 10


def choose_clips(manifest: Manifest, count: int) -> list[Clip]:
    """Clips as unlike each other as can be: each next one repeats least of what is shown already."""
    left, chosen = list(manifest), list[Clip]()
    shown = Counter[tuple[str, object]]()
    while left and len(chosen) < count:
        following = min(left, key=lambda clip: (sum(shown[trait] for trait in _traits(clip)), clip.clip_id))
        left.remove(following)
        chosen.append(following)
        shown.update(_traits(following))
    return chosen


def _traits(clip: Clip) -> list[tuple[str, object]]:
    tags = [(name, clip.attributes.get(name)) for name in ("scene_type", "illumination", "weather")]
    return [("city", clip.city), ("mode", clip.capture_mode), ("source", clip.source), *tags]


def liveliest(manifest: Manifest) -> Clip:
    """The clip with most to see: of an audit city if there is one, at street level, by day, with most agents."""
    clips = list(manifest.select(split=Split.AUDIT) or manifest)
    if not clips:
        raise CorpusError("there are no clips to show")

    def liveliness(clip: Clip) -> tuple[bool, bool, float]:
        by_day = clip.attributes.get("illumination", "day") == "day"
        return clip.capture_mode != "aerial", by_day, float(clip.attributes.get("agents_per_frame", 0.0))

    return max(clips, key=liveliness)


def contact_sheet(path: Path, clips: Sequence[Clip], store: ClipStore, columns: int = 6) -> None:
    """One frame from the middle of each clip, with where and when it was taken."""
    if not clips:
        raise CorpusError("there are no clips to show")
    columns = min(columns, len(clips))
    rows = -(-len(clips) // columns)
    cell_w, cell_h = _TILE + _GAP, _TILE + _CAPTION + _GAP
    sheet = Image.new("RGB", (columns * cell_w + _GAP, rows * cell_h + _GAP), _PAPER)
    draw = ImageDraw.Draw(sheet)
    for k, clip in enumerate(clips):
        frame = read_frames(store.open(clip.path), np.array([clip.seconds / 2]), clip.clip_id)[0]
        x, y = _GAP + (k % columns) * cell_w, _GAP + (k // columns) * cell_h
        sheet.paste(Image.fromarray(_square(frame, _TILE)), (x, y))
        tags = [
            str(clip.attributes[name]) for name in ("scene_type", "illumination", "weather") if name in clip.attributes
        ]
        draw.text((x, y + _TILE + 3), f"{clip.city} · {clip.capture_mode}", fill=_INK, font=font(13))
        draw.text((x, y + _TILE + 18), " · ".join(tags), fill=_GREY, font=font(12))
    write_atomic(path, lambda temporary: sheet.save(temporary, format="PNG"))


def has_truth(clip: Clip, store: ClipStore) -> bool:
    return store.exists(sidecar_path(clip.path, TRUTH))


def animated_clip(
    path: Path, clip: Clip, store: ClipStore, side: int = 320, fps: float = 6.0, seconds: float = 8.0
) -> None:
    """The clip; beside it, where it has ground truth, itself with masks, ids, visibility and interactions.

    A .gif or an .mp4 by the name's ending.
    """
    if path.suffix not in (".gif", ".mp4"):
        raise CorpusError(f"{path}: a preview is written as .gif or .mp4")
    info = probe(store.open(clip.path), clip.clip_id)
    count = max(1, int(min(info.seconds, seconds) * fps))
    times = np.arange(count) / fps
    frames = read_frames(store.open(clip.path), times, clip.clip_id)
    truth = None
    if has_truth(clip, store):
        truth = ClipTruth.from_bytes(store.read(sidecar_path(clip.path, TRUTH)), clip.clip_id)
    pictures = [_side_by_side(frame, float(time), truth, side) for frame, time in zip(frames, times, strict=True)]
    write_animation(path, pictures, fps)


def write_animation(path: Path, pictures: Sequence[Picture], fps: float) -> None:
    """An .mp4 or, for any other ending, a .gif that repeats for ever."""
    if path.suffix == ".mp4":
        write_video(path, pictures, fps)
        return
    images = [Image.fromarray(picture).quantize(255, method=Image.Quantize.FASTOCTREE) for picture in pictures]
    options = {
        "save_all": True,
        "append_images": images[1:],
        "duration": round(1000 / fps),
        "loop": 0,
        "optimize": False,
    }
    write_atomic(path, lambda temporary: images[0].save(temporary, format="GIF", **options))


def overlay(frame: Picture, truth: ClipTruth, number: int, side: int) -> Picture:
    """One frame with its ground truth: agents coloured by identity, fainter the more of them is hidden; ids; edges."""
    scale = side / truth.size
    large = cv2.resize(frame, (side, side), interpolation=cv2.INTER_CUBIC)
    canvas = (large * 0.55 + 255 * 0.10).astype(np.uint8)
    instances = cv2.resize(truth.instances(number).astype(np.int32), (side, side), interpolation=cv2.INTER_NEAREST)
    rows = truth.observations(number)
    centres: dict[int, tuple[float, float]] = {}
    labels = []
    for row in rows:
        agent, fraction = int(truth.agent[row]), float(truth.visible_fraction[row])
        colour = identity_colour(int(truth.agent_ids[agent]))
        seen = instances == agent + 1
        if seen.any():
            canvas[seen] = (0.35 * large[seen] + 0.65 * np.array(colour)).astype(np.uint8)
        left, top, right, bottom = (float(v) * scale for v in truth.box[row])
        centres[agent] = ((left + right) / 2, (top + bottom) / 2)
        if fraction < 0.95 and truth.amodal_pixels[row] * scale * scale > 60:  # outline of what is hidden
            amodal = cv2.resize(
                truth.amodal_mask(int(row)).astype(np.uint8), (side, side), interpolation=cv2.INTER_NEAREST
            )
            contours, _ = cv2.findContours(amodal, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            cv2.drawContours(canvas, contours, -1, colour, 1, cv2.LINE_AA)
        if truth.visible_pixels[row] * scale * scale > 250:
            labels.append(((left + right) / 2, top, int(truth.agent_ids[agent]), fraction))
    time = number / truth.fps
    index = {int(agent_id): k for k, agent_id in enumerate(truth.agent_ids)}
    for one in truth.interactions:
        a, b = index.get(one.agent, -1), index.get(one.other, -1)
        if one.start <= time < one.end and a in centres and b in centres and one.kind != "indirect":
            start, end = (tuple(round(v) for v in centres[k]) for k in (b, a))
            cv2.arrowedLine(canvas, start, end, (255, 236, 120), 1, cv2.LINE_AA, tipLength=0.12)
    image = Image.fromarray(canvas)
    draw = ImageDraw.Draw(image)
    for x, y, agent_id, fraction in labels:
        text = f"{agent_id % 1000}" if fraction > 0.95 else f"{agent_id % 1000}: {fraction:.0%}"
        draw.text(
            (x, max(8.0, y - 5)),
            text,
            fill=(255, 255, 255),
            font=font(11),
            anchor="mm",
            stroke_width=2,
            stroke_fill=(20, 20, 24),
        )
    return np.asarray(image)


def _side_by_side(frame: Picture, time: float, truth: ClipTruth | None, side: int) -> Picture:
    plain = _square(frame, side)
    if truth is None:
        return plain
    number = min(int(time * truth.fps + 1e-6), truth.frames - 1)
    return beside(plain, overlay(frame, truth, number, side))


def beside(left: Picture, right: Picture) -> Picture:
    gap = np.full((len(left), 8, 3), 250, np.uint8)
    return np.concatenate([left, gap, right], axis=1)


def _square(frame: Picture, side: int) -> Picture:
    """The frame's central square at the wanted size."""
    height, width = frame.shape[:2]
    edge = min(height, width)
    top, left = (height - edge) // 2, (width - edge) // 2
    crop = frame[top : top + edge, left : left + edge]
    return np.asarray(cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA if edge > side else cv2.INTER_CUBIC))


def identity_colour(agent: int) -> tuple[int, int, int]:
    """A lasting, bright colour per identity: hues a golden ratio apart."""
    red, green, blue = colorsys.hsv_to_rgb(agent * 0.61803 % 1.0, 0.75, 0.98)
    return round(255 * red), round(255 * green), round(255 * blue)


def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
