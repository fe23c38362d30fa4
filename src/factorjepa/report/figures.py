"""The figures of the page from the material: which rows go into which panel."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence

from ..statistics import ScoreRow
from ..statistics.contrasts import FROZEN, OURS
from . import plot
from .curves import TERMS, VALIDATION, Run, labels_of, running_mean
from .forest import Group, Line, forest
from .markup import Markup, tag
from .material import BASELINE, Material
from .panels import Axes, Band, Dot, Point, Series, dot_panel, heat_map, line_panel, scatter_panel

WIDE, MOST_LINES, MOST_DOTS, MOST_CURVES = 980.0, 14, 24, 6
_FACTORS = ("layout", "agents", "visibility", "interactions")
_BETTER = {"lower": "lower is better", "higher": "higher is better"}
_PRESPECIFIED = {"total": "total", "pkg": "package", "sup|pkg": "supervision", "INT": "INT", "DI+": "DI+"}
_WHERE = {
    "future_l1": (r"h\d+|(teacher_)?agents|(teacher_)?interacting", "Future-frame L1"),
    "intervention_l1": (r"localised|true_region(_held)?|counterfactual", "Intervention L1"),
}
_PLACES = {
    "agents": "on tokens of agents", "interacting": "on tokens of interacting agents",
    "localised": "where the target changes most",
    "teacher_agents": "on tokens of agents, by the teacher",
    "teacher_interacting": "on tokens of neighbours, by the teacher",
    "true_region": "edits of true agents that go on", "true_region_held": "edits of true agents, held in place",
    "counterfactual": "an agent truly removed",
}  # fmt: skip


def kind(material: Material, method: str) -> str:
    """A method's colour."""
    if method in (OURS, BASELINE, FROZEN):
        return {OURS: "ours", BASELINE: "base", FROZEN: "frozen"}[method]
    return {"factorized": "raw", "control": "control"}.get(material.family(method), "plain")


def grid(panels: Sequence[Markup]) -> Markup:
    return tag("div", list(panels), class_="panels")


def wide_and_narrow(wide: Markup, narrow: Sequence[Markup]) -> list[Markup]:
    """One for a laptop, one for a phone; the style sheet shows one of them."""
    return [tag("div", wide, class_="wide"), tag("div", grid(narrow), class_="narrow")]


def headline_groups(material: Material, backbone: str) -> tuple[list[Group], int]:
    """The attribution contrasts, and FactorJEPA over every other method; how many had no room.

    Its ablations are forms of it: tables say what each part is worth. Where it was not evaluated itself, those that
    were compared with the baseline stand for it.
    """
    rows = material.contrasts(backbone)
    groups: list[Group] = []
    attribution = []
    for name, word in _PRESPECIFIED.items():
        its = {
            row.diagnostic: dataclasses.replace(row, decision=material.decision(row))
            for row in rows
            if row.contrast == name and row.family == "primary"
        }
        if any(row.adjustment or math.isfinite(row.effect) for row in its.values()) or (its and name == "total"):
            one = next(iter(its.values()))
            attribution.append(Line(f"{word}: {material.title_of(one.a)} over {material.title_of(one.b)}", its, word))
    variants = material.variants(backbone)
    if any(math.isfinite(row.effect) for line in attribution for row in line.rows.values()) or not variants:
        groups += [Group("Attribution, prespecified (Holm)", attribution)] if attribution else []
    left_out = 0
    for ours in variants or [OURS]:
        lines, without_room = _over_others(material, backbone, ours)
        title = material.title_of(ours)
        if lines:
            groups.append(Group(f"{title}, exploratory (BH)", lines, title))
        left_out += without_room
    shown = [row for group in groups for line in group.lines for row in line.rows.values()]
    if not any(math.isfinite(row.effect) for row in shown):
        lines, left_out = _over_frozen(material, backbone)
        if lines:
            return [Group(f"Over {material.title_of(FROZEN)}, exploratory (BH)", lines)], left_out
    return groups, left_out


def _over_frozen(material: Material, backbone: str) -> tuple[list[Line], int]:
    """What adapting gives at all, where nobody of FactorJEPA's kind was evaluated; how many had no room."""
    rows, found = material.contrasts(backbone), dict[str, Line]()
    for method in material.methods(backbone):
        its = {row.diagnostic: row for row in rows if (row.a, row.b) == (method, FROZEN) and row.family != "primary"}
        if its:
            found[method] = Line(material.title_of(method), its)
    lines = [found[method] for method in material.few(backbone, MOST_LINES) if method in found]
    return lines, len(found) - len(lines)


def _over_others(material: Material, backbone: str, ours: str) -> tuple[list[Line], int]:
    """A method over every other that is no form of it, and how many of them had no room."""
    rows, others = material.contrasts(backbone), dict[str, Line]()
    for row in rows:
        over_another = row.a == ours and material.family(row.b) != "ablation"
        if row.family != "primary" and over_another and row.b not in others:
            its = {one.diagnostic: one for one in rows if one.contrast == row.contrast}
            others[row.b] = Line(f"over {material.title_of(row.b)}", its)
    shown = [others[method] for method in material.methods(backbone) if method in others]
    kept = {others[method].label for method in material.few(backbone, MOST_LINES) if method in others}
    lines = [line for line in shown if line.label in kept]
    return lines, len(shown) - len(lines)


def headline(material: Material, backbone: str) -> tuple[list[Markup], int]:
    groups, left = headline_groups(material, backbone)
    names = {name: info.title for name, info in material.primary.items()}
    if not groups or not names:
        return [], 0
    narrow = [forest(groups, {name: title}, plot.PANEL, 152) for name, title in names.items()]
    return wide_and_narrow(forest(groups, names, WIDE, 252), narrow), left


def scorecard(material: Material, backbone: str) -> tuple[list[Markup], int]:
    """One panel per diagnostic, the same methods in each."""
    methods = material.few(backbone, MOST_DOTS)
    panels = []
    for info in material.diagnostics.values():
        if info.status == "structure":
            continue
        by_method = {row.method: row for row in material.rows(backbone, info.name)}
        dots = [_dot(material, by_method[method]) for method in methods if method in by_method]
        if any(math.isfinite(dot.value) for dot in dots):
            chance = material.chance(backbone, info.name)
            known = math.isfinite(chance)
            said = f"{_BETTER[info.direction]} · {info.unit}{' · dashed: chance' if known else ''}"
            panels.append(dot_panel(info.title, said, dots, chance if known else None))
    return panels, len(material.methods(backbone)) - len(methods)


def where(material: Material, backbone: str) -> list[Markup]:
    """Parts of the headline numbers: horizons, agents, true counterfactuals."""
    methods, panels = material.few(backbone, 8), []
    for diagnostic, (pattern, title) in _WHERE.items():
        rows = [
            row for row in material.rows(backbone, diagnostic, headline=False) if re.fullmatch(pattern, row.variant)
        ]
        for variant in dict.fromkeys(row.variant for row in rows):
            by_method = {row.method: row for row in rows if row.variant == variant}
            dots = [_dot(material, by_method[method]) for method in methods if method in by_method]
            if not any(math.isfinite(dot.value) for dot in dots):
                continue
            nothing = 1.0 if diagnostic == "intervention_l1" else None
            also = " · dashed: no change" if nothing else ""
            said = _PLACES.get(variant, f"future step {variant[1:]}")
            panels.append(dot_panel(title, said + also, dots, nothing))
    return panels


def cities(material: Material, backbone: str) -> list[Markup]:
    """The total contrast city by city: descriptive, no decision is made here."""
    panels = []
    for row in material.contrasts(backbone, "total"):
        effects = material.city_effects(backbone, row.a, row.b, row.diagnostic)
        if len(effects) < 2:
            continue
        order = sorted(effects, key=lambda city: effects[city])
        shown = order if len(order) <= MOST_DOTS else order[: MOST_DOTS // 2] + order[-MOST_DOTS // 2 :]
        dots = [Dot(city, effects[city], kind="toward" if effects[city] > 0 else "against") for city in reversed(shown)]
        over = f"{material.title_of(row.a)} over {material.title_of(row.b)} · right of the line: better"
        panels.append(dot_panel(material.name(row.diagnostic), over, dots, 0.0))
    return panels


def masking(material: Material, backbone: str) -> list[Markup]:
    """Error over the hidden share, and the area under the curve: a small slope alone can be a bad model."""
    rows = material.rows(backbone, "mask_slope", headline=False)
    curves, methods = [], material.few(backbone, MOST_CURVES)
    for method in methods:
        points = sorted(
            (
                (float(row.variant[7:]), row)
                for row in rows
                if row.method == method and re.fullmatch(r"hidden_[\d.]+", row.variant)
            ),
            key=lambda point: point[0],
        )
        if points:
            its = [row for _, row in points]
            curves.append(Series(
                material.title_of(method), [share for share, _ in points], [row.mean for row in its],
                [row.low for row in its],
                [row.high for row in its], kind(material, method),
            ))  # fmt: skip
    if not curves:
        return []
    shares = sorted({share for one in curves for share in one.x})
    panels = [
        line_panel(
            "Masking curve", curves, Axes("hidden share of the context", shares, "Future-frame L1 · lower is better")
        )
    ]
    areas = {row.method: row for row in rows if row.variant == "alt/auc"}
    if areas:
        dots = [_dot(material, areas[method]) for method in methods if method in areas]
        panels.append(dot_panel("Area under the curve", "mean error over the hidden shares · lower is better", dots))
    return panels


def cross_scale(material: Material) -> list[Markup]:
    panels = []
    for first, second in itertools.combinations(material.backbones, 2):
        for name, info in material.primary.items():
            pair = [{row.method: row for row in material.rows(backbone, name)} for backbone in (first, second)]
            common = [method for method in material.methods(first) if method in pair[1]]
            points = [
                Point(
                    material.title_of(method),
                    _dot(material, pair[0][method]),
                    _dot(material, pair[1][method]),
                    kind(material, method),
                )
                for method in common
                if math.isfinite(pair[0][method].mean) and math.isfinite(pair[1][method].mean)
            ]
            if points:
                rank = next((row for row in material.comparison.ranks
                             if (row.diagnostic, row.first, row.second) == (name, first, second)), None)  # fmt: skip
                rho = "too few methods for a rank correlation"
                if rank and math.isfinite(rank.spearman):
                    rho = f"Spearman {rank.spearman:.2f}, Kendall {rank.kendall:.2f} over {len(rank.methods)} methods"
                panels.append(scatter_panel(info.title, rho, points, first, second))
    return panels


def training(runs: Sequence[Run]) -> list[Markup]:
    """Validation error and the terms of the loss over the updates; stages of the first run that has several."""
    staged = next((run for run in runs if len(run.method.stages) > 1), None)
    bands = [Band(name, start, end) for name, start, end in staged.stages] if staged else []
    labels = labels_of(runs)
    last = max(run.last for run in runs)
    kinds = _run_kinds(runs)
    curves = []
    for run, label, colour in zip(runs, labels, kinds, strict=True):
        steps, values = (one.tolist() for one in run.series(VALIDATION))
        if not run.method.trains:
            steps, values = [0.0, float(last)], [values[-1]] * 2
        curves.append(Series(label, steps, values, kind=colour, dots=run.method.trains and len(steps) < 30))
    subtitle = "lower is better" + (f" · bands: stages of {staged.method.title}" if staged else "")
    axes = Axes("update", None, subtitle, bands)
    title = "Future-frame L1 on validation clips"
    drawn = wide_and_narrow(line_panel(title, curves, axes, 760), [line_panel(title, curves, axes)])
    terms = []
    for term, name in TERMS.items():
        lines = []
        for run, label, colour in zip(runs, labels, kinds, strict=True):
            steps, values = run.series(term)
            if values.any():
                smooth = running_mean(values, max(1, round(last / 15)))
                keep = slice(None, None, max(1, len(steps) // 200))
                lines.append(Series(label, steps[keep].tolist(), smooth[keep].tolist(), kind=colour, dots=False))
        if lines:
            terms.append(
                line_panel(f"Loss: {name}", lines, Axes("update", None, "running mean over training clips", bands))
            )
    return [*drawn, grid(terms)]


def _run_kinds(runs: Sequence[Run]) -> list[str]:
    known = {OURS: "ours", BASELINE: "base", FROZEN: "frozen"}
    families = {"factorized": "raw", "control": "control"}
    return [known.get(run.method.name, families.get(run.method.family, "plain")) for run in runs]


def leakage(material: Material, backbone: str) -> list[Markup]:
    """Rows: the channel that is read; columns: the factor that is asked for. The diagonal is 1 by definition."""
    panels = []
    for name, info in material.diagnostics.items():
        if info.reduction != "leakage":
            continue
        rows = material.rows(backbone, name, headline=False)
        for method in dict.fromkeys(row.method for row in rows if math.isfinite(row.mean)):
            by_pair = {
                tuple(row.variant.split("->", 1)): row for row in rows if row.method == method and "->" in row.variant
            }
            pairs = [pair for pair in by_pair if len(pair) == 2 and pair[0] != "constant"]
            factors = list(dict.fromkeys(factor for pair in pairs for factor in pair))
            if not 2 <= len(factors) <= 8:
                continue
            order: list[str] = [factor for factor in _FACTORS if factor in factors]
            order += [factor for factor in factors if factor not in order]
            cells = [[_leak(by_pair.get((own, asked)), own, asked) for asked in order] for own in order]
            panels.append(
                heat_map(
                    material.title_of(method),
                    f"{info.title}: channel (row) read for factor (column)",
                    order,
                    order,
                    cells,
                )
            )
    return panels[:8]


def depth(material: Material, backbone: str) -> list[Markup]:
    panels = []
    for name, info in material.diagnostics.items():
        if info.reduction != "explained":
            continue
        rows = [row for row in material.rows(backbone, name, headline=False) if re.fullmatch(r"[^/]+/\d+", row.variant)]
        rows += [row for row in material.rows(backbone, name) if re.fullmatch(r"[^/]+/\d+", row.variant)]
        for factor in dict.fromkeys(row.variant.split("/")[0] for row in rows):
            curves = []
            for method in material.few(backbone, 4):
                its = sorted(
                    (
                        (int(row.variant.split("/")[1]), row)
                        for row in rows
                        if row.method == method and row.variant.startswith(f"{factor}/")
                    ),
                    key=lambda point: point[0],
                )
                if its:
                    curves.append(Series(
                        material.title_of(method), [float(layer) for layer, _ in its], [row.mean for _, row in its],
                        [row.low for _, row in its], [row.high for _, row in its], kind(material, method),
                    ))  # fmt: skip
            if any(math.isfinite(value) for one in curves for value in one.y):
                panels.append(
                    line_panel(
                        f"{info.title}: {factor}",
                        curves,
                        Axes("encoder block", None, "share of variance that a linear probe reads"),
                    )
                )
    return panels


def _dot(material: Material, row: ScoreRow) -> Dot:
    return Dot(material.title_of(row.method), row.mean, row.low, row.high, kind(material, row.method), row.note)


def _leak(row: ScoreRow | None, own: str, asked: str) -> Dot | None:
    if own == asked:
        return Dot(f"{own} for itself, by definition", 1.0)
    if row is None:
        return None
    undefined = "undefined: the factor's own channel does not predict it"
    return Dot(f"{own} channel, {asked} asked", row.mean, row.low, row.high, note=row.note or undefined)
