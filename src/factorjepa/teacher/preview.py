"""A window as the teacher sees it: regions, tracks, visibility, interaction edges, and the three factor views."""

from __future__ import annotations

import functools
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ..corpus.preview import beside, font, identity_colour, write_animation
from ..errors import TeacherError
from ..pixels import Frames, resize_to_cover
from .packet import Packet
from .settings import TeacherSettings
from .views import agents_view, bytes_view, interactions_view, layout_view, track_boxes

Picture = NDArray[np.uint8]
_PAPER, _INK, _GREY, _FUTURE, _EDGE = (250, 250, 248), (28, 30, 34), (110, 114, 120), (214, 92, 48), (255, 236, 120)
_GAP, _CAPTION = 8, 20


def targets_animation(
    path: Path, frames: Frames, packet: Packet, settings: TeacherSettings, about: tuple[str, ...], side: int = 288
) -> None:
    """Clip, overlay and figures above; D_L, D_A and D_I below. `about` are lines on who looked at what."""
    if path.suffix not in (".gif", ".mp4"):
        raise TeacherError(f"{path}: a preview is written as .gif or .mp4")
    shown = resize_to_cover(frames, side, side)
    threshold = settings.targets.exclude_below.interactions
    tubes = functools.partial(interactions_view, min_reliability=threshold)
    views = [
        ("D_L: agents filled in", bytes_view(lambda video: layout_view(video, packet), shown)),
        ("D_A: background attenuated", bytes_view(lambda video: agents_view(video, packet), shown)),
        ("D_I: tubes of pairs", bytes_view(lambda video: tubes(video, packet), shown)),
    ]
    facts = _facts(packet, settings, about, side)
    pictures = []
    for t in range(len(frames)):
        when = f"context {t + 1}/{settings.context}" if t < settings.context else f"future {t + 1 - settings.context}"
        seen = overlay(shown[t], packet, t, threshold)
        top = [(when, shown[t]), ("regions, tracks, visibility, edges", seen), ("", facts)]
        below = [(caption, view[t]) for caption, view in views]
        pictures.append(_grid([top, below], side, future=t >= settings.context))
    write_animation(path, pictures, settings.fps)


def targets_overlay(path: Path, frames: Frames, packet: Packet, settings: TeacherSettings, side: int = 320) -> None:
    """The clip's window beside itself with what the packet says is there."""
    shown = resize_to_cover(frames, side, side)
    threshold = settings.targets.exclude_below.interactions
    pictures = [beside(frame, overlay(frame, packet, t, threshold)) for t, frame in enumerate(shown)]
    write_animation(path, pictures, settings.fps)


def overlay(frame: Picture, packet: Packet, t: int, min_reliability: float = 0.0) -> Picture:
    """One frame `[S, S, 3]` with its regions: colour is the track, opacity its visibility, lines are candidate pairs.

    Outlined in white: agents of the context. In grey: regions of no track. Lines are as wide as they are reliable.
    """
    side = len(frame)
    scale = side / float(packet.side)
    canvas = (frame * 0.55 + 255 * 0.10).astype(np.uint8)
    for region, where, visible in packet.region_masks(packet.region_frame == t):
        track = int(packet.region_track[region])
        whole = np.zeros((int(packet.side), int(packet.side)), np.uint8)
        whole[where] = visible
        mask = cv2.resize(whole, (side, side), interpolation=cv2.INTER_NEAREST)
        contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        if track >= 0:
            opacity = 0.1 + 0.65 * float(packet.track_visibility_frames[track, t])
            seen = mask > 0
            canvas[seen] = (1 - opacity) * frame[seen] + opacity * np.array(identity_colour(track))
        outline = (255, 255, 255) if 0 <= track < packet.slots else (170, 170, 170)
        cv2.drawContours(canvas, contours, -1, outline, 1, cv2.LINE_AA)
    boxes_K4 = track_boxes(packet)[:, t] * float(packet.side) * scale
    for (i, j), reliability in zip(packet.pair_tracks.tolist(), packet.pair_reliability, strict=True):
        ends = [(boxes_K4[k, :2] + boxes_K4[k, 2:]) / 2 for k in (i, j)]
        if i < j and reliability >= min_reliability and np.isfinite(ends).all():
            a, b = (tuple(round(float(v)) for v in end) for end in ends)
            cv2.line(canvas, a, b, _EDGE, max(1, round(2 * float(reliability))), cv2.LINE_AA)
    image = Image.fromarray(canvas)
    draw = ImageDraw.Draw(image)
    for track, box in enumerate(boxes_K4):
        if np.isfinite(box).all():
            place = (float(box[0] + box[2]) / 2, max(8.0, float(box[1]) - 5))
            draw.text(place, str(track), fill="white", font=font(11), anchor="mm", stroke_width=2, stroke_fill=_INK)
    return np.asarray(image)


def _facts(packet: Packet, settings: TeacherSettings, about: tuple[str, ...], side: int) -> Picture:
    """Reliabilities as bars with their thresholds, and counts."""
    image = Image.new("RGB", (side, side), _PAPER)
    draw = ImageDraw.Draw(image)
    agents = packet.track_visibility_reliability[: int(packet.slots)]
    tau = settings.targets.exclude_below
    rows = [
        ("layout", float(packet.reliability[0]), tau.layout),
        ("agents", float(packet.reliability[1]), tau.agents),
        ("visibility", float(agents.mean()) if agents.size else 0.0, tau.visibility),
        ("interactions", float(packet.reliability[2]), tau.interactions),
    ]
    y = 10
    for number, (name, omega, threshold) in enumerate(rows):
        draw.text((8, y), name, fill=_INK, font=font(13))
        said = f"{omega:.2f}" if omega >= threshold and omega > 0 else "excluded" if omega > 0 else "no evidence"
        draw.text((side - 8, y), said, fill=_INK, font=font(13), anchor="ra")
        draw.rectangle((8, y + 18, side - 8, y + 25), outline=_GREY)
        draw.rectangle((8, y + 18, 8 + (side - 16) * omega, y + 25), fill=identity_colour(number + 3))
        mark = 8 + (side - 16) * threshold
        draw.line((mark, y + 15, mark, y + 28), fill=_INK)
        y += 40
    lines = (
        f"{int(packet.slots)} agents in the context, {len(packet.track_visibility)} in the window",
        f"candidate pairs, directed: {len(packet.pair_tracks)}", *about,
    )  # fmt: skip
    for line in lines:
        draw.text((8, y), line if len(line) < 46 else line[:45] + "…", fill=_GREY, font=font(11))
        y += 17
    return np.asarray(image)


def _grid(rows: list[list[tuple[str, Picture]]], side: int, future: bool) -> Picture:
    width = _GAP + len(rows[0]) * (side + _GAP)
    height = _GAP + len(rows) * (side + _CAPTION + _GAP)
    image = Image.new("RGB", (width + width % 2, height + height % 2), _PAPER)
    draw = ImageDraw.Draw(image)
    for r, row in enumerate(rows):
        for c, (caption, picture) in enumerate(row):
            x, y = _GAP + c * (side + _GAP), _GAP + r * (side + _CAPTION + _GAP)
            ink = _FUTURE if future and r == 0 and c == 0 else _INK
            draw.text((x, y + 2), caption, fill=ink, font=font(13))
            image.paste(Image.fromarray(picture), (x, y + _CAPTION))
    return np.asarray(image)
