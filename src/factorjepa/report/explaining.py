"""What explains a gain and what each part is worth, as tables: one step a row, on the diagnostics that tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..statistics.explaining import AREA, COLUMNS, Explained, Ladder, told, worth_showing
from ..statistics.verdict import BETTER, WORSE, brief
from ..words import counted
from .cautions import differing
from .markup import Markup, joined, tag
from .material import Material
from .numbers import NOTHING, decimals, interval, number
from .tables import Cell, table

_SAID = (
    "A row names all that changes from one method to the other, so that a difference can be credited to it. Where "
    "their settings differ as well, because each was tuned, it says in what, and the credit is shared. Exploratory: "
    f"adjusted over all contrasts that are not prespecified. {AREA} is the area under the masking curve; it has an "
    "interval over cities and no decision of its own. \u201cChosen blocks\u201d: those train that Auto-RGN\u2019s "
    "rule chooses, instead of the top ones; \u201cboth\u201d: object states enter early and late; "
    "\u201c@word\u201d: the method with other settings, a variant. Of one is shown what it changes, and what becomes "
    "of the step between a method and its control where it stands in for either."
)


_MORE = {
    "parts": " An ablation lacks one part of FactorJEPA, or is given other targets, and the part is worth what is lost "
    "without it; where a setting is changed, what the change would gain is shown.",
}


def explained_section(material: Material, ladder: Ladder) -> Markup | None:
    """A table for every backbone; nothing where too few steps were measured on all of them."""
    made = [one for backbone in material.backbones if (one := _table(material, backbone, ladder))]
    return joined(tag("p", _SAID, _MORE.get(ladder.name)), made) if made else None


def _table(material: Material, backbone: str, ladder: Ladder) -> Markup | None:
    found = [row for row in material.comparison.explained(ladder) if row.backbone == backbone]
    if not worth_showing(found, ladder):
        return None
    shown, more = told(found)
    captions = {
        "methods": f"{backbone}: what a step is worth, with 95 % intervals; positive is a gain",
        "variants": f"{backbone}: what variants change, and what they are beside controls; positive is a gain",
    }
    tables = [_rows(material, backbone, rows, captions[where], ladder) for where, rows in shown.items()]
    left = f"{counted(more, 'step')} more, in which a variant stands in for its method, in {ladder.name}.csv."
    return joined(tables, tag("p", left) if more else None)


def _rows(material: Material, backbone: str, found: Sequence[Explained], caption: str, ladder: Ladder) -> Markup:
    by_place = {(row.step, row.diagnostic): row for row in found}
    rows: list[list[str | Cell]] = []
    for step in dict.fromkeys(row.step for row in found):
        cells = [by_place[step, diagnostic] for diagnostic, _ in COLUMNS]
        methods = f"{material.title_of(cells[0].b)} \N{RIGHTWARDS ARROW} {material.title_of(cells[0].a)}"
        also = differing(material, backbone, cells[0].a, cells[0].b)
        said = [tag("small", words) for words in (methods, f"and {also}" if also else "") if words]
        rows.append([Cell(joined(step, said)), *map(_cell, cells)])
    headings: list[str | Cell] = ["what changes"]
    headings += [AREA if variant else material.name(diagnostic) for diagnostic, variant in COLUMNS]
    return table(headings, rows, caption, range(1, len(headings)), ladder.name)


def _cell(row: Explained) -> Cell:
    if math.isnan(row.effect):
        return Cell(NOTHING, math.nan, hint="not measured")
    places = decimals(row.low, row.high, row.effect)
    decision, why = brief(row.decision), row.decision.partition(":")[2]
    shown = joined(
        number(row.effect, places, sign=True),
        tag("small", interval(row.low, row.high, places, sign=True)),
        tag("small", decision) if decision else None,
    )
    sense = next((word for word in (BETTER, WORSE) if decision.startswith(word)), "")
    return Cell(shown, row.effect, class_=sense, hint=why.strip())
