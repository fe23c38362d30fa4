"""Decoded futures as pictures: the paper's gallery, filmstrips, moving futures, and what each channel carries.

Columns stand in the paper's order: context, observed future, oracle decode, V-JEPA, FactorJEPA-RAW, FactorJEPA. The
contour of every panel is the observed future's; the red box is one for all panels of an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from ..decoded import CHANNELS, GIF, DecodedExample
from ..storage import write_atomic
from ..video import write_video
from . import panels
from .panels import Frame
from .sheets import Row, abreast, sheet

GALLERY, FILMSTRIP, CHANNEL_SHEET, FILM = "gallery.png", "filmstrip.png", "channels.png", "future.mp4"
CONTEXT, OBSERVED, ORACLE = "Context", "Observed future", "Oracle decode"
_FIRST, _LAST = ("frozen", "auto_rgn", "factorjepa_raw"), ("factorjepa",)
_FPS, _HOLD, _HOLD_ENDS = 4.0, 3, 6  # a frame of 4 fps footage is held three times as long, the ends six times
_ABREAST = 4  # panels in a row of the moving picture


def column_order(methods: Iterable[str]) -> list[str]:
    """V-JEPA frozen, then adapted; FactorJEPA-RAW; others as given; FactorJEPA last."""
    given = list(dict.fromkeys(methods))
    first, last = ([name for name in fixed if name in given] for fixed in (_FIRST, _LAST))
    return [*first, *(name for name in given if name not in (*first, *last)), *last]


def ahead(seconds: float) -> str:
    return f"{seconds:.2f} s ahead"


def gallery(examples: Sequence[DecodedExample], frame: int = -1) -> Frame:
    """One row of panels per example, its zoomed row below; `frame` of the future, the furthest unless told."""
    methods = column_order(name for example in examples for name in example.methods)
    titles = {name: example.title_of(name) for example in examples for name in example.methods}
    rows: list[Row] = []
    for example in examples:
        futures = [example.observed_THW3, example.oracle_THW3, *(example.methods.get(name) for name in methods)]
        frames = [example.last_HW3, *(None if future is None else future[frame] for future in futures)]
        note = f"{example.clip_id}  ·  {ahead(example.seconds[frame])}{f'  ·  {example.note}' if example.note else ''}"
        rows.append(Row([_panel(example, one, frame, column > 0) for column, one in enumerate(frames)], note))
        if example.box is not None:
            zoomed = [_zoom(example, one, frame, column > 0) for column, one in enumerate(frames)]
            rows.append(Row(zoomed, follows=True))
    decoders = sorted({example.decoder for example in examples if example.decoder})
    said = [
        next(filter(None, (example.contour() for example in examples)), ""),
        "Red: the same region in every panel, enlarged below it." if any(example.box for example in examples) else "",
        f"Decoder: {', '.join(decoders)}." if decoders else "",
    ]
    heads = [CONTEXT, OBSERVED, ORACLE, *(titles[name] for name in methods)]
    return sheet(heads, rows, " ".join(filter(None, said)))


def filmstrip(example: DecodedExample) -> Frame:
    """Observed, oracle and each method downwards; the future frames along."""
    rows = [
        Row([_panel(example, one, t, contour=True, box=False) for t, one in enumerate(frames)], before=title,
            follows=True)
        for title, frames in _futures(example)
    ]  # fmt: skip
    heads = [f"+{seconds:.2f} s" for seconds in example.seconds]
    return sheet(heads, rows, f"{example.clip_id}. {example.contour()}".strip())


def moving(example: DecodedExample) -> list[tuple[Frame, int]]:
    """The last seen frame, then the future of everyone side by side; each with how many frames long it is held."""
    futures = _futures(example)
    seen = panels.enlarged(example.last_HW3, panels.factor_of(example.last_HW3))
    beats = [abreast([(title, seen) for title, _ in futures], "last seen frame", _ABREAST)]
    for t, seconds in enumerate(example.seconds):
        shown = [(title, _marked(example, frames[t], t, contour=True, box=False)) for title, frames in futures]
        beats.append(abreast(shown, ahead(seconds), _ABREAST))
    held = [_HOLD_ENDS, *[_HOLD] * (len(beats) - 2), _HOLD_ENDS]
    return list(zip(beats, held, strict=True))


def channel_sheet(example: DecodedExample, frame: int = -1) -> Frame | None:
    """The whole future, then without each channel; below, where each channel's removal shows. None where none was."""
    channels = [k for k in CHANNELS if k in example.without]
    if not channels:
        return None
    whole = example.methods[example.removed_from][frame]
    changes = example.change_maps()
    factor, high = panels.factor_of(whole), panels.heat_range(changes)
    futures = [whole, *(example.without[k][frame] for k in channels)]
    above = [_panel(example, one, frame, contour=True, box=False) for one in futures]
    maps: list[Frame | None] = [None]
    for k in channels:
        values = changes.get(k)
        maps.append(None if values is None else panels.enlarged(panels.heat(whole, values[frame], high), factor))
    heads = [example.title_of(example.removed_from), *(f"without {CHANNELS[k]}" for k in channels)]
    said = (
        f"{example.clip_id}, {ahead(example.seconds[frame])}. {example.changes()} Below: where, all on "
        f"one scale from none (grey) to {100 * high:.0f} % of the range (yellow), by its square root."
    )
    return sheet(heads, [Row(above), Row(maps, follows=True, blank=True)], said)


def write_gallery(folder: Path, examples: Mapping[str, DecodedExample]) -> list[Path]:
    """Into OUT/decoded: the gallery of all; in the folder that each is named by, its strip, channels and film."""
    folder, written = Path(folder), []
    if examples:
        written.append(_write(folder / GALLERY, gallery(list(examples.values()))))
    for name, example in examples.items():
        written.append(_write(folder / name / FILMSTRIP, filmstrip(example)))
        if (channels := channel_sheet(example)) is not None:
            written.append(_write(folder / name / CHANNEL_SHEET, channels))
        beats = moving(example)
        _write_gif(folder / name / GIF, beats)
        write_video(folder / name / FILM, (beat for beat, held in beats for _ in range(held)), _FPS)
        written += [folder / name / GIF, folder / name / FILM]
    return written


def _write_gif(path: Path, beats: Sequence[tuple[Frame, int]]) -> None:
    """One palette for all beats, or colours would flicker; dithered, or skies would have steps."""
    sample = np.concatenate([beat[::3, ::3] for beat, _ in beats])
    palette = Image.fromarray(sample).quantize(256)
    images = [Image.fromarray(beat).quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for beat, _ in beats]
    durations = [round(1000 * held / _FPS) for _, held in beats]
    options = {"save_all": True, "append_images": images[1:], "duration": durations, "loop": 0, "optimize": False}
    write_atomic(path, lambda temporary: images[0].save(temporary, format="GIF", **options))


def _write(path: Path, picture: Frame) -> Path:
    write_atomic(path, lambda temporary: Image.fromarray(picture).save(temporary, format="PNG", compress_level=4))
    return path


def _futures(example: DecodedExample) -> list[tuple[str, Frame]]:
    """Titles and frames: observed, oracle, then methods in the paper's order."""
    methods = [(example.title_of(name), example.methods[name]) for name in column_order(example.methods)]
    return [(OBSERVED, example.observed_THW3), (ORACLE, example.oracle_THW3), *methods]


def _panel(example: DecodedExample, frame: Frame | None, t: int, contour: bool, box: bool = True) -> Frame | None:
    return None if frame is None else _marked(example, frame, t, contour, box)


def _marked(example: DecodedExample, frame: Frame, t: int, contour: bool, box: bool) -> Frame:
    """Enlarged, with the contour and the box. The context has no contour: it would be of a later moment."""
    factor = panels.factor_of(frame)
    drawn = panels.enlarged(frame, factor)
    if contour and example.agents_THW is not None:
        drawn = panels.outlined(drawn, panels.contours_of(example.agents_THW[t], factor))
    return panels.boxed(drawn, example.box, factor) if box and example.box is not None else drawn


def _zoom(example: DecodedExample, frame: Frame | None, t: int, contour: bool) -> Frame | None:
    if frame is None or example.box is None:
        return None
    factor = panels.factor_of(frame)
    drawn = panels.zoomed(frame, example.box, frame.shape[1] * factor)
    if contour and example.agents_THW is not None:
        outlines = panels.contours_of(example.agents_THW[t], factor)
        drawn = panels.outlined_zoom(drawn, outlines, example.box, factor)
    return panels.framed(drawn)
