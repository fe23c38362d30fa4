"""Which contrasts of a comparison the page's answers are drawn from, by what FactorJEPA is set beside."""

from __future__ import annotations

from collections.abc import Sequence

from ..statistics import ContrastRow
from ..statistics.contrasts import OURS
from ..statistics.verdict import UNTESTABLE
from ..words import apart
from .material import Material


def only_tested(rows: Sequence[ContrastRow]) -> list[ContrastRow]:
    return [row for row in rows if not row.decision.startswith(UNTESTABLE)]


def over_others(material: Material, backbone: str) -> dict[str, list[ContrastRow]]:
    """Tested contrasts of FactorJEPA over other methods, by the other's title."""
    found: dict[str, list[ContrastRow]] = {}
    for row in only_tested(material.contrasts(backbone)):
        if row.a == OURS and row.contrast != "total":
            found.setdefault(material.title_of(row.b), []).append(row)
    return found


def of_variants(material: Material, backbone: str) -> dict[str, list[ContrastRow]]:
    """Where FactorJEPA itself was not evaluated: variants of it over what it would be compared with, by title."""
    beside = material.variants(backbone)
    found: dict[str, list[ContrastRow]] = {material.title_of(method): [] for method in beside}
    for row in only_tested(material.contrasts(backbone)):
        if beside.get(row.a) == row.b:
            found[material.title_of(row.a)].append(row)
    return {title: rows for title, rows in found.items() if rows}


def asked_for(material: Material, backbone: str) -> dict[str, list[ContrastRow]]:
    """Tested contrasts that somebody asked for with FactorJEPA on neither side, by `A over B`."""
    found: dict[str, list[ContrastRow]] = {}
    for row in only_tested(material.contrasts(backbone)):
        if material.comparison.asked_for(row) and OURS not in (row.a, row.b):
            over = f"{apart(material.title_of(row.a))} over {apart(material.title_of(row.b))}"
            found.setdefault(over, []).append(row)
    return found


def over_controls(material: Material, backbone: str) -> dict[str, list[ContrastRow]]:
    others = over_others(material, backbone)
    return {name: rows for name, rows in others.items() if material.family(rows[0].b) == "control"}
