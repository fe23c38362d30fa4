"""Tables of the page: numbers aligned, sortable by a click, wide ones scroll inside their frame."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..scores import DiagnosticInfo, RunInfo
from ..statistics import ContrastRow
from ..statistics.contrasts import OURS, PRESPECIFIED
from ..statistics.deciding import MODERATED
from ..statistics.pareto import about_goes, goes_of, training_hours
from ..statistics.verdict import UNTESTABLE, stated
from ..words import counted, listed
from .forest import kind_of
from .markup import Markup, joined, tag
from .material import Material
from .numbers import NOTHING, big, decimals, interval, number, p_value

_NAMED = {contrast.name for contrast in PRESPECIFIED}  # the others' names say no more than their methods
MOST_ROWS = 300  # of contrasts on the page; the CSV files hold all


@dataclass(frozen=True)
class Cell:
    """What is shown, and the number it sorts by."""

    shown: object
    value: float | None = None
    class_: str = ""
    hint: str = ""


def table(
    headings: Sequence[str | Cell],
    rows: Sequence[Sequence[str | Cell]],
    caption: str,
    numeric: Sequence[int] = (),
    class_: str = "",
) -> Markup:
    """`numeric` names the columns that are aligned to the right."""
    head = tag("tr", [_heading(one, k in numeric) for k, one in enumerate(headings)])
    body = [tag("tr", [_cell(one, k in numeric, k == 0) for k, one in enumerate(row)]) for row in rows]
    whole = tag(
        "table", tag("caption", caption), tag("thead", head), tag("tbody", body), class_=f"sortable {class_}".strip()
    )
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _heading(one: str | Cell, right: bool) -> Markup:
    cell = one if isinstance(one, Cell) else Cell(one)
    button = tag("button", cell.shown, type="button", title=cell.hint or "Sort by this column")
    return tag("th", button, scope="col", class_="n" if right else None, aria_sort="none")


def _cell(one: str | Cell, right: bool, first: bool) -> Markup:
    cell = one if isinstance(one, Cell) else Cell(one)
    kinds = " ".join(kind for kind in ("n" if right else "", cell.class_) if kind)
    value = None if cell.value is None else ("" if math.isnan(cell.value) else f"{cell.value:.10g}")
    attributes = {"class_": kinds or None, "data_v": value, "title": cell.hint or None}
    return tag("th", cell.shown, scope="row", **attributes) if first else tag("td", cell.shown, **attributes)


def tried_table(material: Material) -> Markup | None:
    """What every method tried, as validation clips judged it; nothing where nothing was tuned."""
    if not material.tried:
        return None
    names = list(dict.fromkeys(name for one in material.tried for name in one.values))
    order = {method: place for place, method in enumerate(material.order)}
    rows: list[list[str | Cell]] = []
    for one in sorted(material.tried, key=lambda one: order.get(one.method, len(order))):
        values = [one.values.get(name, "") for name in names]
        error = Cell(number(one.error, 4), one.error)
        title = material.title_of(one.method)
        named = f"{title}, {one.backbone}" if len(material.backbones) > 1 and one.backbone else title
        rows.append([named, *values, error, "chosen" if one.chosen else ""])
    columns = ["method", *names, "Future-frame L1", ""]
    caption = "What every method tried with one seed, judged on validation clips"
    return table(columns, rows, caption, range(1, len(columns) - 1))


def scorecard_table(material: Material, backbone: str) -> Markup:
    """Methods by diagnostics: mean above, interval below."""
    diagnostics = [info for info in material.diagnostics.values() if info.status != "structure"]
    by_place = {(row.method, row.diagnostic): row for info in diagnostics for row in material.rows(backbone, info.name)}
    rows: list[list[str | Cell]] = []
    for method in material.methods(backbone):
        cells: list[str | Cell] = [
            Cell(material.title_of(method), class_="ours" if method == OURS else ""),
            material.family(method),
        ]
        for info in diagnostics:
            row = by_place.get((method, info.name))
            if row is None or math.isnan(row.mean):
                cells.append(Cell(NOTHING, math.nan, hint=row.note if row else "no value"))
                continue
            places = decimals(row.low, row.high, row.mean)
            shown = joined(number(row.mean, places), tag("small", interval(row.low, row.high, places)))
            seeds = f"seed SD {row.seed_sd:.2g}; " if math.isfinite(row.seed_sd) else ""
            hint = (
                f"{seeds}{row.clips} clips, {row.cities} cities, {row.interval} "
                f"interval{'; ' + row.note if row.note else ''}"
            )
            cells.append(Cell(shown, row.mean, hint=hint))
        rows.append(cells)
    chances = [material.chance(backbone, info.name) for info in diagnostics]
    if any(map(math.isfinite, chances)):
        nothing = "what who knows nothing scores"
        cells = [_chance_cell(info, one) for info, one in zip(diagnostics, chances, strict=True)]
        rows.append([Cell("Chance", class_="chance", hint=nothing), "", *cells])
    arrows = {"lower": "\N{DOWNWARDS ARROW}", "higher": "\N{UPWARDS ARROW}"}
    headings: list[str | Cell] = ["method", "family"]
    headings += [
        Cell(f"{info.title} {arrows[info.direction]}", hint=f"{info.formula} ({info.unit})") for info in diagnostics
    ]
    return table(headings, rows, f"{backbone}: means over cities with 95 % intervals", range(2, len(headings)))


def _chance_cell(info: DiagnosticInfo, value: float) -> Cell:
    why = info.about_chance(value)
    return Cell(number(value, 2) if math.isfinite(value) else "", value, class_="chance", hint=why.capitalize())


def contrast_table(material: Material, backbone: str) -> Markup:
    """Prespecified contrasts on primary diagnostics; exploratory ones and other diagnostics folded away below."""
    here = [row for row in material.comparison.contrasts if row.backbone == backbone]
    everything = [row for row in here if not unmeasured(row)]
    everything.sort(key=lambda row: (row.family != "primary", row.status != "primary", row.a != OURS))  # stable
    shown = everything[:MOST_ROWS]
    left = len(everything) - len(shown)
    more = f"; {left} more in tables/contrasts.csv" if left else ""
    kinds = {
        "prespecified contrast": [row for row in shown if row.family == row.status == "primary"],
        "exploratory contrast": [row for row in shown if row.status == "primary" != row.family],
        "contrast on the other diagnostics": [row for row in shown if row.status != "primary"],
    }
    first, *rest = [(kind, rows) for kind, rows in kinds.items() if rows] or [("contrast", [])]
    drawn = []
    if first[1]:
        drawn.append(_contrasts(material, first[1], f"{backbone}: paired contrasts; positive favours the first{more}"))
    for kind, rows in rest:
        what, _, where = kind.partition(" on ")
        said = f"{backbone}: {counted(len(rows), what)}{f' on {where}' if where else ''}"
        drawn.append(tag("details", tag("summary", said), _contrasts(material, rows, said)))
    return joined(drawn, _without(material, backbone, [row for row in here if unmeasured(row)]))


def _contrasts(material: Material, rows: Sequence[ContrastRow], caption: str) -> Markup:
    """What is noted about every row alike is said once, in the caption."""
    notes = {row.note for row in rows}
    headings: list[str | Cell] = [
        "a over b", "diagnostic", "decision", Cell("effect", hint="with its 95 % interval"), "units", "a / b", "p",
        "adjusted p", Cell("deciding p", hint="adjusted; few cities and training seeds are allowed for"),
    ]  # fmt: skip
    cells = [_contrast_cells(material, row) for row in rows]
    numbers = range(3, len(headings))
    if len(notes) == 1:
        alike = f". {notes.pop()}" if notes != {""} else ""
        return table(headings, cells, f"{caption}{alike}", numbers, "contrasts")
    noted = [[*its, Cell(row.note, class_="note")] for its, row in zip(cells, rows, strict=True)]
    return table([*headings, "note"], noted, caption, numbers, "contrasts")


def ranks_table(material: Material) -> Markup | None:
    """rho_m and tau_m of every diagnostic, with their ranges as a method or a family is left out (eq. R_rho)."""
    ranks = {(row.diagnostic, row.first, row.second): row for row in material.comparison.ranks}
    rows: list[list[str | Cell]] = []
    for (name, first, second), row in ranks.items():
        without = (row.spearman_without_method, row.spearman_without_family)
        others = (row.kendall_without_method, row.kendall_without_family)
        cells = [_rank_cell(row.spearman, *without), _rank_cell(row.kendall, *others)]
        rows.append([material.name(name), f"{first}, {second}", Cell(str(len(row.methods)), hint=row.note), *cells])
    headings: list[str | Cell] = ["diagnostic", "backbones", "methods in common", "Spearman", "Kendall"]
    caption = "Order of the methods on two backbones; ranges as one method, and as one family, is left out"
    return table(headings, rows, caption, range(2, len(headings))) if rows else None


def _rank_cell(value: float, without_method: Sequence[float], without_family: Sequence[float]) -> Cell:
    if math.isnan(value):
        return Cell(NOTHING, math.nan, hint="too few methods, or all are equal")
    ranges = ((without_method, "method"), (without_family, "family"))
    said = [tag("small", f"{interval(ends[0], ends[1], 2, sign=True)} {word}") for ends, word in ranges if ends]
    return Cell(joined(number(value, 2, sign=True), *said), value)


def unmeasured(row: ContrastRow) -> bool:
    """Whether there is nothing to show: a method or its values are missing."""
    return row.decision.startswith(UNTESTABLE) and not math.isfinite(row.effect)


def _without(material: Material, backbone: str, rows: Sequence[ContrastRow]) -> Markup | None:
    """The contrasts that could not be made, one line each."""
    diagnostics: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        over = f"{row.contrast}: {material.title_of(row.a)} over {material.title_of(row.b)}"
        why = material.decision(row).removeprefix(f"{UNTESTABLE}: ")
        diagnostics.setdefault((over, why), []).append(material.name(row.diagnostic))
    if not rows:
        return None
    lines = [tag("li", f"{over}, {listed(names)}: {why}.") for (over, why), names in diagnostics.items()]
    count = len({row.contrast for row in rows})
    summary = f"{backbone}: {counted(count, 'contrast')} could not be tested"
    return tag("details", tag("summary", summary), tag("ul", lines))


def _contrast_cells(material: Material, row: ContrastRow) -> list[str | Cell]:
    places = decimals(row.low, row.high, row.effect)
    tested = not row.decision.startswith(UNTESTABLE)
    adjusted = f"{p_value(row.adjusted_p)} {'H' if row.adjustment == 'Holm' else 'BH'}" if tested else ""
    name = tag("small", row.contrast) if row.contrast in _NAMED else None
    effect, within = number(row.effect, places, sign=True), interval(row.low, row.high, places, sign=True)
    return [
        Cell(joined(f"{material.title_of(row.a)} over {material.title_of(row.b)}", name)),
        material.name(row.diagnostic),
        Cell(
            stated(row),
            class_=f"decision {kind_of(row)}",
            hint=f"{row.family} family, {row.adjustment or 'not tested'}",
        ),
        Cell(joined(effect, tag("small", within)) if tested else effect, row.effect),
        Cell(number(row.units, 1, sign=True), row.units),
        Cell(number(row.ratio, 3), row.ratio),
        Cell(p_value(row.p), row.p) if tested else Cell("", math.nan),
        Cell(adjusted, row.adjusted_p if tested else math.nan),
        _deciding_cell(row) if tested else Cell("", math.nan),
    ]


def _deciding_cell(row: ContrastRow) -> Cell:
    its = row.deciding
    if its.note:
        return Cell(NOTHING, math.nan, hint=its.note)
    within = interval(its.low, its.high, decimals(its.low, its.high, row.effect), sign=True)
    said = [f"{its.seed_share:.0%} of its squared width comes from training seeds"] if its.seed_share else []
    if its.seed_variance == MODERATED:
        said.append(
            f"their variance is moderated: SD {its.seed_sd:.2g} of this pair, {its.pooled_sd:.2g} expected from "
            f"{its.pooled_methods} methods, which lend {its.prior_freedom:.1f} of {its.seed_freedom:.1f} degrees of "
            "freedom"
        )
    return Cell(joined(p_value(its.adjusted_p), tag("small", within)), its.adjusted_p, hint="; ".join(said))


def methods_table(material: Material, backbone: str) -> Markup:
    """What was trained, and at what cost."""
    runs: dict[str, list[RunInfo]] = {}
    for run in material.scores.runs:
        if run.backbone == backbone:
            runs.setdefault(run.method, []).append(run)
    pareto = {row.method: row for row in material.comparison.pareto if row.backbone == backbone}
    goes = goes_of([run for its in runs.values() for run in its])
    apart = about_goes(goes)
    rows: list[list[str | Cell]] = []
    for method in material.methods(backbone):
        its = runs.get(method, [])
        hours = training_hours(its)
        by = [material.title_of(other) for other in pareto[method].dominated_by] if method in pareto else []
        first, step = (its[0] if its else None), max((run.step for run in its), default=0)
        rows.append([
            Cell(material.title_of(method), class_="ours" if method == OURS else ""),
            material.family(method),
            Cell(big(first.trainable) if first else NOTHING, float(first.trainable) if first else math.nan),
            Cell(f"{step:,}" if its else NOTHING, float(step)),
            Cell(number(hours, 2), hours),
            *([_go_cell(its, goes)] if apart else []),
            ", ".join(str(run.seed) for run in sorted(its, key=lambda run: run.seed)),
            ", ".join(by[:4]) + (f" and {len(by) - 4} more" if len(by) > 4 else ""),
        ])  # fmt: skip
    hours_said = "Time of all updates of one run, summed over its processes; mean over seeds"
    chosen = Cell("checkpoint", hint="The update that validation chose")
    headings: list[str | Cell] = [
        "method", "family", "trainable", chosen, Cell("training hours", hint=hours_said),
        *([Cell("go", hint="Methods were trained together where this is the same: only their hours compare")]
          if apart else []),
        "seeds", "dominated by",
    ]  # fmt: skip
    caption = f"{backbone}: methods, costs, and who is better for no more (primary means)"
    made = table(headings, rows, caption, (2, 3, 4))
    return joined(made, tag("p", f"{backbone}: {apart}.")) if apart else made


def _go_cell(runs: Sequence[RunInfo], goes: Mapping[tuple[str, ...], int]) -> Cell:
    """Numbers of the goes in which the runs were trained, with what is known of them under the pointer."""
    numbers = {goes[run.go]: run.go for run in runs if run.go in goes and run.seconds is not None}
    hints = [f"{number}: {'; '.join(filter(None, go)) or 'not recorded'}" for number, go in sorted(numbers.items())]
    return Cell(", ".join(map(str, sorted(numbers))), float(min(numbers, default=0)), hint=" | ".join(hints))
