"""Effects by stratum on the page: where clips are dense or occluded. Descriptive: nothing is decided on a stratum."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..statistics import Comparison
from ..statistics.rows import StratumRow
from ..statistics.strata import ordered, shown_contrast
from ..words import counted
from .markup import Markup, joined, tag
from .numbers import NOTHING, decimals, interval, number
from .tables import Cell, table

_SAID = (
    "Density and occlusion were cut on training clips. An interval is of its own stratum, and needs six cities: that "
    "one excludes zero and another does not is no evidence that they differ. No decision is made on strata."
)


def strata_tables(
    comparison: Comparison, backbone: str, name_of: Callable[[str], str], title_of: Callable[[str], str]
) -> Markup | None:
    """One contrast, a table for each manifest column: diagnostics (by `name_of`) by levels."""
    rows = [row for row in comparison.strata if row.backbone == backbone]
    rows = [row for row in rows if row.contrast == shown_contrast(rows)]
    drawn = []
    for column in dict.fromkeys(row.column for row in rows):
        of_column = [row for row in rows if row.column == column]
        over = f"{title_of(of_column[0].a)} over {title_of(of_column[0].b)}"
        drawn.append(_table(of_column, over, name_of))
    return joined(drawn, tag("p", _SAID)) if drawn else None


def _table(rows: list[StratumRow], over: str, name_of: Callable[[str], str]) -> Markup:
    cells = {(row.diagnostic, row.level): row for row in rows}
    levels = ordered([row.level for row in rows])
    headings: list[str | Cell] = ["diagnostic"]
    for level in levels:
        amounts = _amounts(next(row for row in rows if row.level == level))
        headings.append(Cell(joined(level, tag("small", f" {amounts}")), hint=amounts))
    body: list[list[str | Cell]] = [
        [name_of(diagnostic), *(_cell(cells[diagnostic, level]) for level in levels)]
        for diagnostic in dict.fromkeys(row.diagnostic for row in rows)
    ]
    first = rows[0]
    caption = f"{first.backbone}: {over} by {first.column.replace('_', ' ')}; positive favours the first"
    return table(headings, body, caption, range(1, len(headings)))


def _cell(row: StratumRow) -> Cell:
    if math.isnan(row.effect):
        return Cell(NOTHING, math.nan, hint=row.note)
    places = decimals(row.low, row.high, row.effect)
    shown = joined(number(row.effect, places, sign=True), tag("small", interval(row.low, row.high, places, sign=True)))
    return Cell(shown, row.effect, hint="; ".join(filter(None, (_amounts(row), row.note))))


def _amounts(row: StratumRow) -> str:
    counts = (counted(row.clips, "clip"), counted(row.sources, "source"), counted(row.cities, "city", "cities"))
    return ", ".join(counts)
