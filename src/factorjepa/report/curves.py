"""The training curve of one or several runs: validation error above, the terms of the objective below, stages shaded.

Read from the runs' own records (`metrics.jsonl`), so it can be drawn while they are still running.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from ..adaptation.method import Method
from ..config import resolve
from ..errors import ReportError
from ..storage import atomic_path
from ..training.run import CONFIG, METRICS, RunDirectory
from ..training.settings import TrainSettings
from ..words import listed

VALIDATION = "val/future_l1"
TERMS = {
    "jepa": "prediction", "factor": "factor targets", "visibility": "visibility", "separation": "separation",
    "sparsity": "sparsity", "places": "places of agents",
}  # fmt: skip
# Okabe and Ito's colours, which colour-blind readers can tell apart, darkened a little for thin lines on white.
COLOURS = ("#0b5fa5", "#c8501e", "#00846a", "#b0568c", "#8a6d00", "#3b93c9")
_INK, _QUIET, _RULE, _BANDS = "#222222", "#6b6b6b", "#c9c9c9", ("#f4f4f2", "#eaeff5")
_STYLE: Any = {
    "font.family": "sans-serif", "font.size": 8.0, "axes.edgecolor": _RULE, "axes.linewidth": 0.7,
    "axes.labelcolor": _QUIET, "axes.spines.top": False, "axes.spines.right": False, "text.color": _INK,
    "xtick.color": _RULE, "ytick.color": _RULE, "xtick.labelcolor": _QUIET, "ytick.labelcolor": _QUIET,
    "xtick.major.size": 2.5, "ytick.major.size": 2.5, "xtick.major.width": 0.7, "ytick.major.width": 0.7,
    "xtick.labelsize": 7.0, "ytick.labelsize": 7.0, "svg.fonttype": "none", "svg.hashsalt": "factorjepa",
}  # fmt: skip
_WIDTH, _LETTER = 7.2, 0.063  # inches: two columns of a paper, and a letter of a name to the right of the lines
_WINDOWS = ("validation_clips", "replication", "size", "frames", "fps", "context")
_SMOOTHED = 1 / 15  # of the run: what a running mean is taken over

Series = tuple[NDArray[np.float64], NDArray[np.float64]]  # steps, values


@dataclasses.dataclass(frozen=True)
class Run:
    """What a curve shows of a run."""

    name: str
    method: Method
    updates: int  # as planned; the record may end earlier
    records: tuple[dict[str, Any], ...]
    validated_on: tuple[tuple[str, Any], ...] = ()  # settings that say which windows: errors on others do not compare

    @classmethod
    def read(cls, folder: Path) -> Run:
        run = RunDirectory.existing(folder)
        asked = yaml.safe_load(run.config)
        if "method" not in asked:
            raise ReportError(f"{folder}: its {CONFIG} names no method; curves show runs of `factorjepa train`")
        settings = resolve(TrainSettings, run.folder / CONFIG)
        windows = (("data", Path(settings.data).name), *((key, getattr(settings, key)) for key in _WINDOWS))
        found = cls(run.folder.name, settings.resolved_method(), settings.updates, tuple(run.metrics()), windows)
        if not found.records and (run.folder / METRICS).is_file() and (run.folder / METRICS).stat().st_size:
            raise ReportError(f"{folder / METRICS}: is damaged: no line of it can be read; train the run again")
        if not len(found.series(VALIDATION)[0]):
            raise ReportError(f"{folder}: has recorded nothing yet; draw it after the first validation")
        return found

    def series(self, key: str) -> Series:
        rows = [(record["step"], record[key]) for record in self.records if key in record]
        steps, values = np.array(rows, np.float64).reshape(-1, 2).T
        return steps, values

    @property
    def last(self) -> int:
        return max(int(record["step"]) for record in self.records)

    @property
    def stages(self) -> list[tuple[str, int, int]]:
        """Name, first and last step of each stage that has begun."""
        ends = [round(end * self.updates) for end in itertools.accumulate(stage.share for stage in self.method.stages)]
        spans = itertools.pairwise([0, *ends])
        named = [(stage.name, start, min(end, self.last)) for stage, (start, end) in zip(self.method.stages, spans,
                                                                                         strict=True)]  # fmt: skip
        return [span for span in named if span[1] < span[2]]


def differing(runs: Sequence[Run]) -> list[str]:
    """Settings in which the runs' validation windows differ, as `validation_clips 24 and 2`."""
    found = []
    for key in dict.fromkeys(key for run in runs for key, _ in run.validated_on):
        values = list(dict.fromkeys(str(dict(run.validated_on).get(key)) for run in runs))
        found += [f"{key} {listed(values)}"] if len(values) > 1 else []
    return found


def training_curve(runs: Sequence[Run], path: Path) -> Path:
    """Draw the runs into `path`; its suffix says as what (png, pdf, svg)."""
    kind = path.suffix.removeprefix(".") or "png"
    if kind not in ("png", "pdf", "svg"):
        raise ReportError(f"{path}: figures are written as png, pdf or svg, not {kind!r}")
    data = _drawn(runs, kind)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return path


def labels_of(runs: Sequence[Run]) -> list[str]:
    """Each run's method as tables print it; where a method appears twice, with the folder's name."""
    times = Counter(run.method.title for run in runs)
    return [run.method.title if times[run.method.title] == 1 else f"{run.method.title} ({run.name})" for run in runs]


def apart(places: Sequence[float], least: float) -> list[float]:
    """Places moved as little as needed to lie at least `least` apart, in the order in which they are."""
    order = np.argsort(places, kind="stable")
    groups: list[tuple[float, list[int]]] = []  # centre, members
    for index in order.tolist():
        groups.append((places[index], [index]))
        while len(groups) > 1:
            (low, lower), (high, upper) = groups[-2:]
            if high - low >= least * (len(lower) + len(upper)) / 2:
                break
            members = lower + upper
            groups[-2:] = [((low * len(lower) + high * len(upper)) / len(members), members)]
    moved = list(places)
    for centre, members in groups:
        for number, index in enumerate(members):
            moved[index] = centre + (number - (len(members) - 1) / 2) * least
    return moved


def running_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Centred mean over `width` values; over as many as there are towards the ends."""
    sums = np.cumsum([0.0, *values])
    count = len(values)
    low = np.maximum(np.arange(count) - width // 2, 0)
    high = np.minimum(np.arange(count) + width // 2 + 1, count)
    means: NDArray[np.float64] = (sums[high] - sums[low]) / (high - low)
    return means


def _drawn(runs: Sequence[Run], kind: str) -> bytes:
    import matplotlib  # where it is used: it takes half a second
    from matplotlib.figure import Figure

    if not runs:
        raise ReportError("no run was named: a curve needs at least one")
    terms = [term for term in TERMS if any(run.series(term)[1].any() for run in runs)]
    height = 2.6 + (1.5 if terms else 0.0)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), facecolor="white")
        margin = 0.25 + _LETTER * max(len(label) + 7 for label in labels_of(runs))
        edges = {"left": 0.55 / _WIDTH, "right": 1 - margin / _WIDTH, "top": 1 - 0.42 / height}
        bottom = (1.92 if terms else 0.42) / height
        above = figure.add_gridspec(1, 1, bottom=bottom, **edges).subplots()
        _validation(above, runs)
        if terms:
            spread = {**edges, "right": 1 - 0.15 / _WIDTH, "top": 1.08 / height, "bottom": 0.3 / height, "wspace": 0.45}
            figure.text(edges["left"], 1.4 / height, "Terms of the loss on training clips", fontsize=8.5, va="center")
            below = figure.add_gridspec(1, len(terms), **spread).subplots(squeeze=False)[0]
            for axes, term in zip(below, terms, strict=True):
                _term(axes, runs, term)
        buffer = io.BytesIO()
        dated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(buffer, format=kind, dpi=200, metadata=dated)
    return buffer.getvalue()


def _validation(axes: Any, runs: Sequence[Run]) -> None:
    """Future-frame L1 on the validation clips, lowest value dotted; what does not train is a dashed level."""
    _ground(axes, runs, names=True)
    ends = []
    for run, colour in _coloured(runs):
        steps, values = run.series(VALIDATION)
        ends.append(values[-1])
        if not run.method.trains:
            axes.axhline(values[-1], color=colour, linewidth=1.1, dashes=(4, 3), zorder=2)
            continue
        axes.plot(steps, values, color=colour, linewidth=1.6, solid_capstyle="round", zorder=3)
        best = int(values.argmin())
        axes.plot(
            steps[best], values[best], "o", color=colour, markersize=4.2, markeredgecolor="white", clip_on=False,
            zorder=4,
        )  # fmt: skip
    axes.set_title("Future-frame L1 on validation clips", loc="left", fontsize=8.5, pad=16)
    staged = _staged(runs)
    bands = f"bands: stages of {staged.method.title}; " if staged and len(runs) > 1 else ""
    axes.set_title(f"{bands}dot: lowest", loc="right", fontsize=7, color=_QUIET, pad=16)
    axes.set_xlabel("update", labelpad=1)
    axes.locator_params(axis="y", nbins=6)
    low, high = axes.get_ylim()
    text_height = 0.135 * (high - low) / (axes.get_position().height * axes.figure.get_figheight())
    right = axes.get_xlim()[1]
    placed = zip(apart(ends, text_height), ends, labels_of(runs), _coloured(runs), strict=True)
    for place, end, label, (run, colour) in placed:
        last = run.series(VALIDATION)[0][-1] if run.method.trains else right
        axes.annotate(
            f"{end:.4f}  {label}", (last, end), (right * 1.02, place), textcoords="data", color=colour, va="center",
            annotation_clip=False, fontsize=8, arrowprops=_leader(last < 0.97 * right, colour),
        )  # fmt: skip


def _term(axes: Any, runs: Sequence[Run], term: str) -> None:
    """One term of the objective, without its coefficient: every update, and their running mean."""
    _ground(axes, runs, names=False)
    low, high = np.inf, -np.inf
    for run, colour in _coloured(runs):
        steps, values = run.series(term)
        if not values.any():
            continue
        smooth = running_mean(values, round(_SMOOTHED * max(run.last for run in runs)))
        if len(runs) == 1:
            axes.plot(steps, values, color=colour, linewidth=0.5, alpha=0.35, zorder=2)
        axes.plot(steps, smooth, color=colour, linewidth=1.1, zorder=3)
        shown = values if len(runs) == 1 else smooth
        low, high = min(low, shown.min()), max(high, float(np.quantile(shown, 0.99)))  # wild first updates may leave
    if high > low:
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    axes.set_title(TERMS[term], loc="left", fontsize=7.5, color=_QUIET, pad=4)
    axes.locator_params(axis="y", nbins=3)
    axes.locator_params(axis="x", nbins=2, integer=True)


def _ground(axes: Any, runs: Sequence[Run], names: bool) -> None:
    """The frame of a panel, with stages as bands behind the lines."""
    right = max(run.last for run in runs)
    axes.set_xlim(0, max(right, 1))
    axes.margins(y=0.12)
    axes.locator_params(axis="x", integer=True)
    staged = _staged(runs)
    if staged is None:
        return
    for number, (name, start, end) in enumerate(staged.stages):
        axes.axvspan(start, end, color=_BANDS[number % 2], linewidth=0, zorder=0)
        if names:
            axes.text(
                (start + end) / 2, 1.015, name, transform=axes.get_xaxis_transform(), ha="center", va="bottom",
                fontsize=7, color=_QUIET, style="italic",
            )  # fmt: skip


def _staged(runs: Sequence[Run]) -> Run | None:
    """Whose stages are shown: those of the first run that has several."""
    return next((run for run in runs if len(run.method.stages) > 1), None)


def _leader(needed: bool, colour: str) -> dict[str, Any] | None:
    """A thin line from a name to a run that ended before the others."""
    return {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5, "shrinkA": 1} if needed else None


def _coloured(runs: Sequence[Run]) -> Iterator[tuple[Run, str]]:
    """Colours in order; what does not train is grey."""
    colours = itertools.cycle(COLOURS)
    return ((run, next(colours) if run.method.trains else "#5a5a5a") for run in runs)
