"""Pictures inside the page: filmstrips and token maps as data URIs, each limited in size."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..examples import Example, Frames, Map
from ..rendering.panels import colours

_FRAME = 96  # pixels high in a filmstrip
_TILE = 168  # side of a map
_STRIP = 6  # frames shown


def filmstrip(example: Example) -> list[tuple[str, bool]]:
    """A few frames as data URIs, evenly over the clip, the last seen one among them; whether the model saw each."""
    count, context = len(example.frames_THW3), example.context
    ahead = 2 if context < count else 0
    seen = np.linspace(0, context - 1, min(_STRIP - ahead, context)).round().astype(int)
    later = np.linspace(context, count - 1, min(ahead, count - context)).round().astype(int)
    return [(_jpeg(_resized(example.frames_THW3[k], _FRAME)), bool(k < context)) for k in (*seen, *later)]


def error_tile(example: Example, values: Map, low: float, high: float) -> str:
    """The mean error over the future at each place, over the last frame."""
    return _tile(example.frames_THW3[-1], values.mean(0), low, high, None)


def similarity_tile(example: Example, values: Map, low: float, high: float) -> str:
    """Cosine with the query token at its own time, the query marked."""
    assert example.query is not None
    tubelet, row, column = example.query
    return _tile(example.frames_THW3[-1], values[tubelet], low, high, (row, column))


def scale_bar() -> str:
    return _png(colours(np.linspace(0, 1, 64)[None].repeat(4, 0)))


def _tile(
    frame: Frames, values_rc: NDArray[np.float32], low: float, high: float, marked: tuple[int, int] | None
) -> str:
    """Colour says the value, the frame shows through."""
    rows, columns = values_rc.shape
    height, width = _TILE, max(1, round(_TILE * columns / rows))
    shares = np.clip((np.nan_to_num(values_rc, nan=low) - low) / max(high - low, 1e-9), 0, 1)
    picked = (np.arange(height) * rows // height)[:, None], (np.arange(width) * columns // width)[None]
    heat = colours(shares)[picked].astype(np.float64)
    grey = np.asarray(Image.fromarray(frame).convert("L").resize((width, height)), np.float64)[..., None]
    mixed = np.clip(0.62 * heat + 0.38 * grey, 0, 255).astype(np.uint8)
    if marked is not None:
        top, bottom = (round(k * height / rows) for k in (marked[0], marked[0] + 1))
        left, right = (round(k * width / columns) for k in (marked[1], marked[1] + 1))
        for thickness, colour in ((2, 0), (1, 255)):
            edge = mixed[max(top - thickness, 0) : bottom + thickness, max(left - thickness, 0) : right + thickness]
            inner = mixed[top:bottom, left:right].copy()
            edge[:] = colour
            mixed[top:bottom, left:right] = inner
    return _jpeg(mixed)


def _resized(frame: Frames, height: int) -> Frames:
    size = (max(1, round(height * frame.shape[1] / frame.shape[0])), height)
    return np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.LANCZOS))


def _jpeg(pixels: Frames) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=82, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _png(pixels: Frames) -> str:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
