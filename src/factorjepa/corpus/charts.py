"""The figure of a corpus' composition: clips of each city by capture mode (appendix, Corpus composition).

The paper has a panel for metropolitan and one for additional sites. A manifest with an attribute `site` gets a panel
for each of its values, on one horizontal scale; others get one panel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import CorpusError
from ..storage import write_atomic
from .checks import CAPTURE_MODES
from .composition import cross_table
from .manifest import Manifest

SITE = "site"
_KINDS = ("png", "pdf", "svg")
_COLOURS = {"drive": "#0b5fa5", "walk": "#c8501e", "aerial": "#00846a"}  # Okabe and Ito's, darkened a little
_INK, _QUIET = "#222222", "#6b6b6b"
_STYLE: Any = {
    "font.family": "sans-serif", "font.size": 8.0, "text.color": _INK, "axes.edgecolor": "#c9c9c9",
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "xtick.color": _QUIET,
    "ytick.left": False, "svg.fonttype": "none", "svg.hashsalt": "factorjepa",
}  # fmt: skip


def composition_figure(manifest: Manifest, path: Path) -> None:
    """Draw it into `path`; its suffix says as what (png, pdf, svg)."""
    kind = path.suffix.removeprefix(".")
    if kind not in _KINDS:
        raise CorpusError(f"{path}: figures are written as {', '.join(_KINDS)}, not {kind!r}")
    if not len(manifest):
        raise CorpusError("there are no clips to draw")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels: dict[str, list[tuple[str, str]]] = {}
    for clip in manifest:
        panels.setdefault(str(clip.attributes.get(SITE, "")), []).append((clip.city, clip.capture_mode))
    tables = [(name, cross_table(pairs)) for name, pairs in sorted(panels.items(), key=lambda item: -len(item[1]))]
    heights = [len(table.rows) for _, table in tables]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 0.9 + 0.45 * len(tables) + 0.22 * sum(heights)), layout="constrained")
        axes = figure.subplots(len(tables), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axis, (name, table) in zip(axes, tables, strict=True):
            cities = sorted(table.rows, key=lambda city: (table.row_total(city), city))
            left = [0] * len(cities)
            for mode in CAPTURE_MODES:
                counts = [table.counts.get((city, mode), 0) for city in cities]
                axis.barh(cities, counts, left=left, height=0.72, color=_COLOURS[mode], label=mode)
                left = [a + b for a, b in zip(left, counts, strict=True)]
            for row, total in enumerate(left):
                axis.annotate(f"{total:,}", (total, row), (3, 0), textcoords="offset points", va="center", color=_QUIET)
            axis.set_title(name, loc="left", fontsize=8.0, color=_QUIET)
        axes[-1].set_xlabel("clips", color=_QUIET)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False)
        metadata = {"png": {"Software": ""}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
        write_atomic(path, lambda temporary: figure.savefig(temporary, format=kind, dpi=200, metadata=metadata))
