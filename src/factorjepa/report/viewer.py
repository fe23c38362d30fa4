"""One clip's decoded futures on the page: flip between methods, go through time, leave a channel out.

Every picture is in the page once, in an SVG that draws nothing; panels, zoomed parts and thumbnails refer to it. What
is shown is the name of a picture and the number of a frame, which the page's script changes. Without a script, the
furthest frame of every method is there to see.

Names of pictures in example n: `d<n>-<source>-<frame>`; sources: observed, oracle, m0.., xL.. (without), iL..
(influence), agents (contours). Of errors there is one picture a source, `d<n>-e-<source>`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..decoded import CHANNELS, DecodedExample, apart
from ..rendering import panels
from ..rendering.gallery import ahead, column_order
from ..rendering.panels import Frame
from .failures import told_apart, why
from .markup import Markup, joined, tag

MOST, MOST_FRAMES = 6, 8  # examples on the page; frames of each
BUDGET = 1_500_000  # characters of pictures, of all examples together
_ONE = 500_000  # and of one
_LADDER = ((256, 86), (224, 82), (192, 80), (160, 76), (128, 72), (96, 64), (64, 50))  # longer side in px, quality
_SMOOTH = 3  # contours are traced on a grid this much finer


def viewers(examples: Sequence[DecodedExample]) -> Markup | None:
    shown = examples[:MOST]
    left = len(examples) - len(shown)
    if not shown:
        return None
    limit = min(_ONE, BUDGET // len(shown))
    more = tag("p", f"{left} more in the folder of decoded futures.", class_="missing") if left else None
    return joined([_viewer(example, place, limit) for place, example in enumerate(shown)], more)


@dataclass(frozen=True)
class _View:
    """An example with the frames that are shown and the names of its pictures."""

    example: DecodedExample
    name: str
    frames: Sequence[int]

    @property
    def methods(self) -> dict[str, str]:
        """Source -> method, as the paper orders them."""
        return {f"m{k}": method for k, method in enumerate(column_order(self.example.methods))}

    @property
    def removed(self) -> str:
        """The source whose channels were left out."""
        return next((source for source, method in self.methods.items() if method == self.example.removed_from), "")

    def sources(self) -> dict[str, Frame]:
        example = self.example
        found = {"observed": example.observed_THW3, "oracle": example.oracle_THW3}
        found |= {source: example.methods[method] for source, method in self.methods.items()}
        found |= {f"x{k}": example.without[k] for k in CHANNELS if k in example.without}
        changes = example.change_maps() if self.removed else {}
        high = panels.heat_range(changes)
        for k, values in changes.items():
            whole = example.methods[example.removed_from]
            found[f"i{k}"] = np.stack([panels.heat(*pair, high) for pair in zip(whole, values, strict=True)])
        return found

    def errors(self) -> dict[str, NDArray[np.float64]]:
        """How far the oracle and each method are off at each pixel, `[H, W]` of the range, mean over the future."""
        example = self.example
        if not example.errors:
            return {}
        drawn = {"oracle": example.oracle_THW3} | {one: example.methods[method] for one, method in self.methods.items()}
        return {source: apart(frames, example.observed_THW3).mean(0) for source, frames in drawn.items()}

    def title_of(self, source: str) -> str:
        return self.example.title_of(self.methods[source])


def _viewer(example: DecodedExample, place: int, limit: int) -> Markup:
    count = len(example.seconds)
    frames = sorted({round(k) for k in np.linspace(0, count - 1, min(count, MOST_FRAMES))})
    view = _View(example, f"d{place}", frames)
    chosen = view.removed or next(reversed(view.methods), "")
    told = " · ".join(part for part in (example.note, example.decoder and f"decoder: {example.decoder}") if part)
    return tag(
        "article",
        tag("h3", example.clip_id),
        tag("p", told, class_="missing") if told else None,
        _store(view, limit),
        tag(
            "div",
            _panel(view, "last", "Last seen frame", still=True),
            _panel(view, "observed", "Observed future"),
            _panel(view, "oracle", "Oracle decode"),
            _panel(view, chosen, view.title_of(chosen), chosen=True) if chosen else None,
            class_="stage",
        ),
        _bar(view),
        _methods(view, chosen) if chosen else None,
        tag("p", told_apart(view.example), class_="apart") if chosen else None,
        _failures(view),
        _channels(view),
        class_="decoded",
        data_name=view.name,
        data_whole=view.removed or None,
    )


def _store(view: _View, limit: int) -> Markup:
    """All pictures and contours, drawn nowhere."""
    height, width = view.example.last_HW3.shape[:2]
    pictures = {f"{view.name}-last": view.example.last_HW3}
    for source, frames in view.sources().items():
        pictures |= {f"{view.name}-{source}-{k}": frames[at] for k, at in enumerate(view.frames)}
    errors = view.errors()
    high = panels.heat_range(errors)
    ground = view.example.observed_THW3[-1]
    pictures |= {f"{view.name}-e-{source}": panels.heat(ground, one, high) for source, one in errors.items()}
    kept = [
        tag("image", id=name, href=uri, width=width, height=height, preserveAspectRatio="none")
        for name, uri in _within(pictures, limit).items()
    ]
    if view.example.agents_THW is not None:
        kept += [
            tag("path", id=f"{view.name}-agents-{k}", d=_path(view.example, at), class_="agents")
            for k, at in enumerate(view.frames)
        ]
    return tag("svg", tag("defs", kept), class_="store", aria_hidden="true")


def _within(pictures: dict[str, Frame], limit: int) -> dict[str, str]:
    """The largest and finest of the ladder that stays in the limit; its last step where none does."""
    found: dict[str, str] = {}
    for side, quality in _LADDER:
        found = {name: _webp(picture, side, quality) for name, picture in pictures.items()}
        if sum(map(len, found.values())) <= limit:
            break
    return found


def _webp(picture: Frame, side: int, quality: int) -> str:
    image = Image.fromarray(panels.enlarged(picture, panels.factor_of(picture)))  # smoother than a browser does it
    if max(image.size) > side:
        scale = side / max(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=quality, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def _path(example: DecodedExample, frame: int) -> str:
    """The contour in pixels of the frame, to a tenth."""
    assert example.agents_THW is not None
    polygons = [(one + 0.5) / _SMOOTH for one in panels.contours_of(example.agents_THW[frame], _SMOOTH)]
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in polygon) + "Z" for polygon in polygons)


def _panel(view: _View, source: str, title: str, still: bool = False, chosen: bool = False) -> Markup:
    """A large picture, the part of it that is boxed, and its name. `still`: no frame of the future, so no contour."""
    rect = part = None
    if view.example.box is not None:
        left, top, right, bottom = view.example.box
        rect = tag("rect", x=left, y=top, width=right - left, height=bottom - top, class_="box")
        inside = f"{left} {top} {right - left} {bottom - top}"
        part = _picture(view, source, inside, "part", f"{title}, enlarged", still, chosen)
    whole = _picture(view, source, _whole(view), "whole", title, still, chosen, rect)
    return tag("figure", tag("figcaption", tag("b", title, class_="title" if chosen else None)), whole, part)


def _picture(
    view: _View,
    source: str,
    inside: str,
    kind: str,
    label: str,
    still: bool = False,
    chosen: bool = False,
    over: Markup | None = None,
    over_time: bool = False,
) -> Markup:
    """`inside` is a viewBox; `data-of` names what the script shows here, `chosen` is the reader's choice.

    `still` is the last seen frame and `over_time` a picture of all frames: both stay as they are, without a contour.
    """
    last = len(view.frames) - 1
    if still or over_time:
        href = f"#{view.name}-last" if still else f"#{view.name}-{source}"
        drawn = [tag("use", href=href)]
        return tag("svg", drawn, over, viewBox=inside, class_=f"picture {kind}", role="img", aria_label=label)
    href = f"#{view.name}-{source}-{last}"
    drawn = [tag("use", href=href, data_of="chosen" if chosen else source)]
    if not source.startswith("i") and view.example.agents_THW is not None:
        contour = f"#{view.name}-agents-{last}"
        drawn += [tag("use", href=contour, data_of="agents", class_=kind_) for kind_ in ("halo", "line")]
    return tag("svg", drawn, over, viewBox=inside, class_=f"picture {kind}", role="img", aria_label=label)


def _bar(view: _View) -> Markup:
    """Time and contour; of no use without a script, which shows it."""
    seconds = [view.example.seconds[k] for k in view.frames]
    last = len(seconds) - 1
    slider = tag(
        "input", type="range", min=0, max=last, step=1, value=last, class_="time",
        aria_valuetext=ahead(seconds[last]), data_seconds=" ".join(f"{one:.2f}" for one in seconds),
    )  # fmt: skip
    contour = tag("label", tag("input", type="checkbox", class_="contour", checked=True), " contour of agents")
    time = tag("label", "time ", slider, " ", tag("output", ahead(seconds[last])))
    play = tag("button", "play", type="button", class_="play", aria_pressed="false")
    return tag("div", time if last else None, play if last else None,
               contour if view.example.agents_THW is not None else None, class_="controls")  # fmt: skip


def _methods(view: _View, chosen: str) -> Markup:
    """Thumbnails; with a script each is a choice."""
    whole = _whole(view)
    choices = [
        _choice(f"{view.name}-method", source, view.title_of(source),
                [_picture(view, source, whole, "thumb", view.title_of(source))], source == chosen)
        for source in view.methods
    ]  # fmt: skip
    furthest = ahead(view.example.seconds[view.frames[-1]])
    said = tag("legend", "Future predicted by", tag("span", f" ({furthest})", class_="unlive"))
    return tag("fieldset", said, tag("div", choices, class_="choices-of"), class_="methods")


def _channels(view: _View) -> Markup | None:
    """The whole future, then without each channel, each with where its removal shows."""
    present = [k for k in CHANNELS if k in view.example.without]
    if not present or not view.removed:
        return None
    title, whole, name = view.title_of(view.removed), _whole(view), f"{view.name}-channel"
    choices = [_choice(name, "", "all channels", [_picture(view, view.removed, whole, "thumb", title)], True)]
    for k in present:
        words = f"without {CHANNELS[k]}"
        drawn = [_picture(view, f"x{k}", whole, "thumb", f"{title} {words}")]
        if k in view.example.influence:
            drawn.append(_picture(view, f"i{k}", whole, "thumb", f"influence of {CHANNELS[k]}"))
        choices.append(_choice(name, f"x{k}", words, drawn, False))
    most = panels.heat_range(view.example.change_maps())
    maps = (
        f"{view.example.changes()} Below: where, all channels of this clip on one scale from none (grey) to "
        f"{100 * most:.0f} % of the range (yellow), by its square root."
        if view.example.influence
        else ""
    )
    said = tag("legend", f"{title} without one of its channels")
    note = tag("p", maps, class_="missing") if maps else None
    return tag("fieldset", said, tag("div", choices, class_="choices-of"), note, class_="channels")


def _choice(name: str, value: str, title: str, drawn: Sequence[Markup], checked: bool) -> Markup:
    radio = tag("input", type="radio", name=name, value=value, checked=checked or None, data_title=title)
    return tag("label", radio, tag("span", title), list(drawn))


def _whole(view: _View) -> str:
    height, width = view.example.last_HW3.shape[:2]
    return f"0 0 {width} {height}"


def _failures(view: _View) -> Markup | None:
    """Why each method fails here; a script leaves that of the one that is shown."""
    parts = []
    for source, method in view.methods.items():
        found, errors = view.example.failures.get(method), view.example.errors.get(method, ())
        if found is None and not errors:
            continue
        title, said = view.title_of(source), why(found, errors, view.example.nearest.get(method))
        parts.append(
            tag("div", tag("h4", f"What is wrong with {title} in this clip"), said,
                _error_maps(view, source, title) if errors else None, data_failures=source)
        )  # fmt: skip
    if not parts:
        return None
    return tag("div", parts, class_="failures", aria_live="polite")


def _error_maps(view: _View, source: str, title: str) -> Markup:
    """The oracle's and the method's errors, over the future, on one scale."""
    maps = [
        tag("figure", _picture(view, f"e-{one}", _whole(view), "thumb", f"error of {name}", over_time=True),
            tag("figcaption", name))
        for one, name in (("oracle", "Oracle decode"), (source, title))
    ]  # fmt: skip
    high = panels.heat_range(view.errors())
    said = (
        f"How far each pixel is off, mean over the future: from nothing (grey) to {100 * high:.0f} % of the range "
        "(yellow), by its square root; one scale for all methods of this clip."
    )
    return tag("div", maps, tag("p", said, class_="missing"), class_="maps")
