"""The scene-stratified figure (main paper, "How Dense is DENSEWORLD?"): count density and occupancy, scene by scene."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from ..errors import ReportError
from ..statistics.regime_drawing import SCENE_MEASURES
from ..statistics.regime_rows import Estimate, RegimeComparison, SceneRow
from ..statistics.regime_scenes import EQUAL_STRATUM
from ..storage import write_atomic

_TITLES = {"count": "Agent count density (agents per frame)", "occupancy": "Agent occupancy (% of valid area)"}
_FIRST, _OTHER, _INK, _FAINT = "#1f5fa8", "#8a8f98", "#22262b", "#d9dce1"
_STYLE: Any = {
    "font.family": "sans-serif", "font.size": 8.5, "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False, "axes.edgecolor": _FAINT, "text.color": _INK, "axes.labelcolor": _INK,
    "xtick.color": _INK, "ytick.color": _INK, "svg.hashsalt": "factorjepa",
}  # fmt: skip


def write_scene_figure(comparison: RegimeComparison, path: Path) -> Path:
    """One row of two panels for every reference. The kind of picture follows from the name: png, svg or pdf."""
    if not comparison.scenes:
        raise ReportError("pairs were not matched on scene_type, so there is no scene-stratified figure")
    picture = _drawn(comparison, path.suffix.removeprefix(".") or "png")
    write_atomic(path, lambda temporary: temporary.write_bytes(picture))
    return path


def _drawn(comparison: RegimeComparison, kind: str) -> bytes:
    import matplotlib  # where it is used: it takes half a second
    from matplotlib.figure import Figure

    by_reference = {name: [row for row in comparison.scenes if row.reference == name] for name in comparison.references}
    by_reference = {name: rows for name, rows in by_reference.items() if rows}
    lines = [len({row.scene for row in rows}) for rows in by_reference.values()]
    heights = [0.34 * count for count in lines]
    height = sum(heights) + 1.15 * len(lines)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(8.0, height), facecolor="white")
        grid = figure.subplots(len(lines), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
        for line, (reference, rows) in enumerate(by_reference.items()):
            order = _order(rows)
            for axes, measure in zip(grid[line], SCENE_MEASURES, strict=True):
                its = {row.scene: row for row in rows if row.measure == measure}
                _panel(axes, [its[scene] for scene in order], measure, comparison.first, reference)
                if measure != SCENE_MEASURES[0]:
                    axes.set_yticklabels([])
        figure.subplots_adjust(
            left=0.215,
            right=0.94,
            top=1 - 0.62 / height,
            bottom=0.42 / height,
            wspace=0.2,
            hspace=1.15 * len(lines) / height,
        )
        buffer = io.BytesIO()
        dated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
        figure.savefig(buffer, format=kind, dpi=200, metadata=dated)
    return buffer.getvalue()


def _order(rows: list[SceneRow]) -> list[str]:
    """Scenes from below: the mean over strata, then by how far the counts differ; the same in both panels."""
    counts = [row for row in rows if row.measure == SCENE_MEASURES[0]]
    strata = sorted((row for row in counts if row.scene != EQUAL_STRATUM), key=lambda row: row.difference.value)
    return [EQUAL_STRATUM, *(row.scene for row in strata)]


def _panel(axes: Any, ordered: list[SceneRow], measure: str, first: str, reference: str) -> None:
    """Dots with intervals; a thin line joins the two of a scene, and the ratio stands at the right."""
    scale = 100.0 if measure == "occupancy" else 1.0
    for place, row in enumerate(ordered):
        ends = [row.other.value * scale, row.first.value * scale]
        axes.plot(ends, [place, place], color=_FAINT, linewidth=2.2, solid_capstyle="round", zorder=1)
        for estimate, colour, offset in ((row.other, _OTHER, -0.13), (row.first, _FIRST, 0.13)):
            _dot(axes, estimate, colour, place, offset, scale)
        axes.text(
            1.02, place, f"{row.ratio.value:.2f}x", transform=axes.get_yaxis_transform(), ha="left", va="center",
            fontsize=8, color=_INK, fontweight="bold" if row.scene == EQUAL_STRATUM else "normal",
        )  # fmt: skip
    axes.axhline(0.5, color=_FAINT, linewidth=0.8)
    axes.set_yticks(range(len(ordered)), [f"{row.scene}  ({row.pairs})" for row in ordered])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(ordered) - 0.4)
    furthest = [v * scale for row in ordered for e in (row.first, row.other) for v in (e.value, e.high)]
    axes.set_xlim(0, 1.05 * max([value for value in furthest if math.isfinite(value)], default=1.0))
    axes.grid(axis="x", color=_FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_title(_TITLES[measure], fontsize=9, loc="left", pad=20)
    axes.text(0, 1.0, first, color=_FIRST, transform=axes.transAxes, fontsize=8.5, fontweight="bold", va="bottom")
    axes.annotate(
        f"against matched {reference}", (0, 1.0), xycoords="axes fraction", xytext=(7 + 5.2 * len(first), 0),
        textcoords="offset points", color=_OTHER, fontsize=8.5, va="bottom", fontweight="bold",
    )  # fmt: skip


def _dot(axes: Any, estimate: Estimate, colour: str, place: float, offset: float, scale: float) -> None:
    if math.isfinite(estimate.low):
        axes.plot([estimate.low * scale, estimate.high * scale], [place + offset] * 2, color=colour, linewidth=1.1,
                  zorder=2)  # fmt: skip
    axes.plot(
        estimate.value * scale, place + offset, "o", color=colour, markersize=5, markeredgecolor="white", zorder=3
    )
