"""The four questions a reader has, answered from the adjusted decisions alone.

A method is never called better than its evidence: *better* and *worse* are decisions of the comparison, and in the
first answer only such as no sensitivity analysis takes back; what has no decision (cities, variants) is called
descriptive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..adaptation import METHODS
from ..statistics import ContrastRow
from ..statistics.contrasts import OURS
from ..statistics.deciding import ONE_SEED
from ..statistics.explaining import STEPS, with_variants
from ..statistics.verdict import BETTER, LEAST_CITIES, NOT_RESOLVED, NOT_SEPARATED, UNTESTABLE, WORSE, decided, stated
from ..words import apart, counted, listed, quoted
from .cautions import seeds_of
from .evidence import asked_for, of_variants, only_tested, over_controls, over_others
from .material import BASELINE, Material
from .numbers import decimals, estimate, interval, number, p_value, percent

_NAMED = 3  # controls in one sentence
_NO_CHANGE = 0.95  # intervention error, in shares of the true change, from which a prediction says next to nothing


@dataclass(frozen=True)
class Answer:
    """A question with its answer in a line, and the evidence for it. Commands stand in backticks."""

    question: str
    short: str
    evidence: Sequence[str]


def answers(material: Material, backbone: str) -> list[Answer]:
    total = material.contrasts(backbone, "total")
    return [
        _help(material, backbone, total),
        _how_much(material, backbone, total),
        _how_sure(material, backbone, total),
        _failures(material, backbone, total),
    ]


def _help(material: Material, backbone: str, total: Sequence[ContrastRow]) -> Answer:
    question = "Does factorization help?"
    tested = only_tested(total)
    negative, idle = _wrong_targets(material, backbone)
    if not tested:
        others = over_others(material, backbone)
        evidence = [f"Over {name}, exploratory: {_decisions(material, rows)}." for name, rows in others.items()]
        evidence = [*_attribution(material, backbone), *evidence]
        why_not = _why_not(material, backbone, total)
        if variants := of_variants(material, backbone):
            evidence += [*_beside_controls(material, backbone, variants), *negative]
            return Answer(question, _by_variants(material, variants) + idle, [*evidence, why_not])
        if asked := asked_for(material, backbone):
            return Answer(question, _by_pairs(material, asked) + idle, [*evidence, *negative, why_not])
        return Answer(question, f"It cannot be said. {why_not}{idle}", [*evidence, *negative])
    baseline = material.title_of(tested[0].b)
    said = {decision: _names(material, [r for r in tested if r.stable], decision) for decision in (BETTER, WORSE)}
    evidence = [f"Over {baseline}: {_decisions(material, tested)}.", *_attribution(material, backbone)]
    controls = over_controls(material, backbone)
    evidence += [f"Control, exploratory: over {name}, {_decisions(material, rows)}." for name, rows in controls.items()]
    evidence += negative
    everything = len(said[BETTER]) == len(total)
    if said[BETTER] and said[WORSE]:
        short = f"A trade-off: better than {baseline} on {listed(said[BETTER])}, worse on {listed(said[WORSE])}."
    elif said[WORSE]:
        short = f"No: worse than {baseline} on {listed(said[WORSE])}."
    elif not said[BETTER]:
        short = f"Not shown: no primary diagnostic decides between FactorJEPA and {baseline}."
    else:
        extent = "every primary diagnostic" if everything else listed(said[BETTER])
        short = f"FactorJEPA is better than {baseline} on {extent}."
        if not everything:
            names = [material.name(row.diagnostic) for row in total]
            short += f" Not shown on {listed([name for name in names if name not in said[BETTER]])}."
    short += _held_back(material, tested)
    if said[BETTER]:
        short += _credit({row.diagnostic for row in tested if row.decision == BETTER and row.stable}, controls)
    return Answer(question, short + idle, evidence)


def _attribution(material: Material, backbone: str) -> list[str]:
    """The prespecified contrasts between the parts, those that were tested."""
    said = []
    for contrast, meaning in (
        ("pkg", "the factorized predictor without factor targets"),
        ("sup|pkg", "factor targets on top of it"),
    ):
        rows = only_tested(material.contrasts(backbone, contrast))
        if rows:
            over = f"{material.title_of(rows[0].a)} over {material.title_of(rows[0].b)}"
            said.append(f"Attribution, {meaning} ({over}): {_decisions(material, rows)}.")
    return said


def _held_back(material: Material, rows: Sequence[ContrastRow]) -> str:
    """What looks like a gain or a loss and may not be called one, and why."""
    doubts: dict[str, list[str]] = {}
    for row in rows:
        if row.decision.startswith(NOT_RESOLVED):
            why = row.decision.removeprefix(f"{NOT_RESOLVED}: ")
            if why == ONE_SEED:
                why = "a method was trained once, so how much trainings differ is not known"
            doubts.setdefault(f"it is {row.paper_decision} over cities alone, but {why}", []).append(row.diagnostic)
        elif decided(row) and not row.stable:
            why = f"it is {row.decision}, but a sensitivity analysis takes that back"
            doubts.setdefault(why, []).append(row.diagnostic)
    return "".join(f" On {listed([material.name(one) for one in its])} {why}." for why, its in doubts.items())


def _by_pairs(material: Material, asked: dict[str, list[ContrastRow]]) -> str:
    said = "; ".join(f"{over} is {_decisions(material, rows)}" for over, rows in asked.items())
    return f"{material.title_of(OURS)} itself was not evaluated. What was asked instead, exploratory: {said}."


def _by_variants(material: Material, variants: dict[str, list[ContrastRow]]) -> str:
    """What all of them say, so that none is picked for what it says."""
    alike: dict[str, dict[str, list[str]]] = {}
    for title, rows in variants.items():
        alike.setdefault(rows[0].b, {}).setdefault(_decisions(material, rows), []).append(quoted(title))
    said = [f"{material.title_of(OURS)} itself was not evaluated."]
    for baseline, decided_so in alike.items():
        those = [f"{listed(who)} {'is' if len(who) == 1 else 'are'} {words}" for words, who in decided_so.items()]
        said.append(f"Variants of it over {material.title_of(baseline)}, exploratory: {'. '.join(those)}.")
    return " ".join(said)


def _beside_controls(material: Material, backbone: str, variants: dict[str, list[ContrastRow]]) -> list[str]:
    """Whether what a variant gains may be put down to the factorization: what its controls say."""
    names = {rows[0].a for rows in variants.values()}
    found: dict[tuple[str, str], list[ContrastRow]] = {}
    for row in only_tested(material.contrasts(backbone)):
        if row.a in names and material.family(row.b) == "control":
            found.setdefault((row.a, row.b), []).append(row)
    if not found:
        return ["No control was evaluated, so a gain may come from the inputs rather than from the factorization."]
    return [
        f"Control, exploratory: {apart(material.title_of(a))} over {apart(material.title_of(b))}: "
        f"{_decisions(material, rows)}."
        for (a, b), rows in found.items()
    ]


def _wrong_targets(material: Material, backbone: str) -> tuple[list[str], str]:
    """Negative controls, taught with targets that are not the clip's: what they say, and whether they do as well."""
    found: dict[tuple[str, str], list[ContrastRow]] = {}
    wrong = [step for step in STEPS if METHODS[step.b].targets != "aligned"]
    steps = {(step.a, step.b) for step in with_variants(wrong, material.methods(backbone))}
    for row in only_tested(material.contrasts(backbone)):
        if (row.a, row.b) in steps:
            found.setdefault((row.a, row.b), []).append(row)
    evidence = [
        f"Negative control, exploratory: {apart(material.title_of(a))} over {apart(material.title_of(b))}: "
        f"{_decisions(material, rows)}."
        for (a, b), rows in found.items()
    ]
    level = [apart(material.title_of(b)) for (_, b), rows in found.items() if not any(map(decided, rows))]
    worse = [
        apart(material.title_of(b))
        for (_, b), rows in found.items()
        if {row.decision for row in rows if decided(row)} == {WORSE}
    ]
    doubts = [f"nothing is decided over {listed(level)}"] if level else []
    doubts += [f"it is worse than {listed(worse)}"] if worse else []
    said = f" That targets are of the clip is not shown to help: {'; '.join(doubts)}." if doubts else ""
    return evidence, said


def _why_not(material: Material, backbone: str, total: Sequence[ContrastRow]) -> str:
    """Why the paper's contrast is open, and what to do about it."""
    absent = material.absent(backbone, (OURS, BASELINE))
    if absent:
        add = " and ".join(f"`factorjepa train CORPUS --out RUN --method {method}`" for method in absent)
        return (
            f"{_not_evaluated(material, absent)}, so the paper's question cannot be answered; add "
            f"{'it' if len(absent) == 1 else 'them'}: {add}, then evaluate all runs together."
        )
    if not total:
        return "There are no scores of a primary diagnostic."
    if all(0 < row.cities < LEAST_CITIES for row in total):
        return f"{_too_few(total)}."
    reasons = sorted({row.decision.removeprefix(f"{UNTESTABLE}: ") for row in total})
    return f"{material.title_of(OURS)} over {material.title_of(BASELINE)} is untestable: {listed(reasons)}."


def _not_evaluated(material: Material, methods: Sequence[str]) -> str:
    titles = listed([apart(material.title_of(method)) for method in methods])
    return f"{titles} {'was' if len(methods) == 1 else 'were'} not evaluated"


def _too_few(rows: Sequence[ContrastRow]) -> str:
    most = max(row.cities for row in rows)
    return f"The scores are of {counted(most, 'city', 'cities')}, and fewer than {LEAST_CITIES} decide nothing"


def _credit(gains: set[str], controls: dict[str, list[ContrastRow]]) -> str:
    """Whether the gain, on these diagnostics, may be put down to the factorization."""
    if not controls:
        return " No control was evaluated, so the gain may come from the inputs rather than from the factorization."
    equal = [name for name, rows in controls.items() if not any(_beaten(row, gains) for row in rows)]
    if equal:
        names = _some(equal, controls)
        return f" But it is not shown to be better than {names}: the gain cannot be put down to the factorization."
    worse = [name for name, rows in controls.items() if any(row.decision == WORSE for row in rows)]
    if worse:
        return f" Against {listed(list(map(apart, worse)))} it is a trade-off."
    return f" There it is also better than {listed(list(map(apart, controls)))} on at least one (exploratory)."


def _some(names: Sequence[str], controls: dict[str, list[ContrastRow]]) -> str:
    """All of them, or of many how many they are and which speak against FactorJEPA most; the evidence has all."""
    if len(names) <= _NAMED:
        return listed(list(map(apart, names)))
    first = sorted(names, key=lambda name: -sum(row.decision == WORSE for row in controls[name]))[:_NAMED]
    return f"{len(names)} of {len(controls)} controls, such as {listed(list(map(apart, first)))}"


def _beaten(row: ContrastRow, gains: set[str]) -> bool:
    return row.decision == BETTER and row.stable and row.diagnostic in gains


def _how_much(material: Material, backbone: str, total: Sequence[ContrastRow]) -> Answer:
    question = "By how much?"
    known = [row for row in total if math.isfinite(row.effect)]
    if not known:
        return _how_much_otherwise(question, material, backbone, total)
    first = known[0]
    direction = material.scores.diagnostics[first.diagnostic].direction
    name = f"{material.name(first.diagnostic)} ({direction} is better)"
    words = f"{name}: {change(material, first)} against {material.title_of(first.b)}"
    return Answer(question, f"{words}{_judged(first)}.", [_amount(material, row) for row in known])


def _how_much_otherwise(question: str, material: Material, backbone: str, total: Sequence[ContrastRow]) -> Answer:
    """The paper's contrast has no estimate: why, and what FactorJEPA does against the methods that are there."""
    absent = material.absent(backbone, (OURS, BASELINE))
    why = f"{_not_evaluated(material, absent)}." if absent else _why_not(material, backbone, total)
    short = f"There is no estimate of {material.title_of(OURS)} over {material.title_of(BASELINE)}: {why}"
    variants, others = of_variants(material, backbone), over_others(material, backbone)
    asked = {} if variants or others else asked_for(material, backbone)
    rows = [row for its in (others | variants or asked).values() for row in its]
    told: dict[tuple[str, str], list[ContrastRow]] = {}  # variants by what they are against; and the diagnostic
    for over, its in (variants or asked or {"": rows[:1]}).items():
        for first in its[:1]:
            told.setdefault((first.b if variants else over, first.diagnostic), []).append(first)
    for (_, diagnostic), firsts in told.items():
        one = firsts[0]
        who = _against(material, one) if len(firsts) == 1 else f"Variants against {apart(material.title_of(one.b))}"
        amounts = [
            f"{'' if len(firsts) == 1 else apart(material.title_of(row.a)) + ' '}{change(material, row)}{_judged(row)}"
            for row in firsts
        ]
        short += f" {who} (exploratory), {material.name(diagnostic)}: {'; '.join(amounts)}."
    return Answer(question, short, [f"{_against(material, row)}, {_amount(material, row)}" for row in rows])


def _against(material: Material, row: ContrastRow) -> str:
    """Which method is meant, where it is not FactorJEPA itself."""
    other = f"gainst {apart(material.title_of(row.b))}"
    return f"A{other}" if row.a == OURS else f"{apart(material.title_of(row.a))} a{other}"


def _amount(material: Material, row: ContrastRow) -> str:
    units = f", {number(row.units, 1, sign=True)} interval units" if math.isfinite(row.units) else ""
    return f"{material.name(row.diagnostic)}: {change(material, row)}{units}{_judged(row)}."


def change(material: Material, row: ContrastRow) -> str:
    """In percent of the other method's value where a ratio means something, else the difference of the values.

    In the diagnostic's own direction: an error that falls is negative.
    """
    if math.isfinite(row.ratio) and math.isfinite(row.ratio_low):
        low, high = 100 * (row.ratio_low - 1), 100 * (row.ratio_high - 1)
        places = decimals(low, high)
        return f"{percent(row.ratio - 1, places)} {interval(low, high, places, sign=True)}"
    sign = -1.0 if material.scores.diagnostics[row.diagnostic].direction == "lower" else 1.0
    ends = sorted((sign * row.low, sign * row.high))
    return estimate(sign * row.effect, ends[0], ends[1], sign=True)


def _judged(row: ContrastRow) -> str:
    """Which side the effect lies on, and what was decided about it."""
    said = stated(row) if decided(row) else row.decision
    side = BETTER if row.effect > 0 else WORSE
    return f" ({said})" if said.startswith(side) or not row.effect else f" (on the {side} side; {said})"


def _how_sure(material: Material, backbone: str, total: Sequence[ContrastRow]) -> Answer:
    question, comparison = "How sure are we?", material.comparison
    tested = only_tested(total)
    places = [row for row in comparison.scores if row.backbone == backbone]
    clips, sources, cities = (
        max((getattr(row, name) for row in places), default=0) for name in ("clips", "sources", "cities")
    )
    sample = f"{counted(cities, 'city', 'cities')}, {counted(sources, 'source video')}, {counted(clips, 'clip')}"
    seeds = max(seeds_of(material, backbone).values(), default=0)
    evidence = [
        f"{sample} and {counted(seeds, 'training seed')}; paired hierarchical bootstrap over cities and sources, "
        f"{_replicates(material)}BCa intervals."
    ]
    if not tested:
        return Answer(question, _sure_otherwise(material, backbone, total, sample), evidence)
    made = [row for row in tested if decided(row)]
    family = sum(
        row.family == "primary" and math.isfinite(row.p) and row.backbone == backbone for row in comparison.contrasts
    )
    evidence.append(
        f"Holm over {counted(family, 'prespecified test')}; adjusted p of the total contrast over cities, and where "
        "few cities and training seeds are allowed for: "
        + "; ".join(
            f"{material.name(row.diagnostic)} {p_value(row.adjusted_p)} and {p_value(row.deciding.adjusted_p)}"
            for row in tested
        ) + ". A decision needs both."
    )  # fmt: skip
    unstable = [material.name(row.diagnostic) for row in made if not row.stable]
    if unstable:
        evidence.append(
            f"The direction on {listed(unstable)} turns round in a sensitivity analysis: read it with care."
        )
    elif made:
        evidence.append(
            "No sensitivity analysis turns a decided direction round (cities left out, clip weights, other "
            "constructions)."
        )
    mixed = [row for row in made if math.isfinite(row.mixed.effect)]
    if mixed:
        agree = sum(row.mixed.supportive for row in mixed)
        evidence.append(f"The mixed-effects model supports {agree} of {counted(len(mixed), 'decided direction')}.")
    solid = sum(row.stable for row in made)
    short = (
        f"{len(made)} of {counted(len(total), 'primary diagnostic')} decided at adjusted p "
        f"\N{LESS-THAN OR EQUAL TO} {comparison.settings.get('alpha', 0.05):g}"
    )
    if made:
        short += f", {'all' if solid == len(made) else solid} of them stable"
    unresolved = sum(row.decision.startswith(NOT_RESOLVED) for row in tested)
    if unresolved:
        short += f", {unresolved} not resolved"
    return Answer(question, f"{short}; {sample}, {counted(seeds, 'training seed')}.", evidence)


def _sure_otherwise(material: Material, backbone: str, total: Sequence[ContrastRow], sample: str) -> str:
    """The paper's contrast was not tested; others may have been."""
    here = [row for row in material.comparison.contrasts if row.backbone == backbone]
    tested = only_tested(here)
    measured = [row for row in here if row.cities]
    absent = material.absent(backbone, (OURS, BASELINE))
    said = [f"{_not_evaluated(material, absent)}: the paper's contrast was not tested."] if absent else []
    if tested:
        said.append(
            f"{sum(map(decided, tested))} of {counted(len(tested), 'other test')} decided at adjusted p "
            f"\N{LESS-THAN OR EQUAL TO} {material.comparison.settings.get('alpha', 0.05):g}; {sample}."
        )
    elif measured and all(row.cities < LEAST_CITIES for row in measured):
        said.append(f"Nothing was decided. {_too_few(measured)}: {sample}.")
    else:
        said.append(f"Nothing could be tested; {sample}.")
    if tested and not absent:
        said.insert(0, _why_not(material, backbone, total))
    return " ".join(said)


def _replicates(material: Material) -> str:
    known = material.comparison.settings.get("replicates")
    return f"{known:,} replicates, " if isinstance(known, int) else ""


def _failures(material: Material, backbone: str, total: Sequence[ContrastRow]) -> Answer:
    question = "Where does it fail?"
    variants = of_variants(material, backbone)
    asked = {rows[0].a for rows in variants.values()} or {OURS}
    total = [row for rows in variants.values() for row in rows] or total
    ours = [row for row in material.comparison.contrasts if row.backbone == backbone and row.a in asked]
    if all(row.decision.startswith(UNTESTABLE) for row in ours):
        few = f" {_too_few(ours)}." if any(row.cities for row in ours) else ""
        return Answer(question, f"It is not known: nothing about FactorJEPA could be tested.{few}", [])
    worse: dict[str, list[str]] = {}
    for row in ours:
        if row.decision == WORSE and row.status != "structure":  # what a probe reads inside a model is no failure
            doubts = [*([] if row.family == "primary" else ["exploratory"]), *([] if row.stable else ["unstable"])]
            said = apart(material.title_of(row.b)) + (f" ({', '.join(doubts)})" if doubts else "")
            worse.setdefault(_named(material, row), []).append(said)
    evidence = [
        f"{diagnostic}: worse than {listed(list(dict.fromkeys(others)))}." for diagnostic, others in worse.items()
    ]
    open_ = [row for row in total if row.decision == NOT_SEPARATED]
    unresolved = [row for row in total if row.decision.startswith(NOT_RESOLVED)]
    for what, rows in (("Not separated from", open_), ("Not resolved against", unresolved)):
        if rows:
            names = listed([_named(material, row) for row in rows])
            evidence.append(f"{what} {material.title_of(total[0].b)}: {names}.")
    turned = _turned(material, backbone, total)
    evidence += turned
    unsolved = [
        row for row in material.rows(backbone, "intervention_l1", headline=False)
        if row.method in asked and row.variant == "counterfactual" and row.mean >= _NO_CHANGE
    ]  # fmt: skip
    evidence += [
        f"An agent truly removed: the error is {estimate(one.mean, one.low, one.high)} of the true change; predicting "
        "no "
        "change at all would score 1."
        for one in unsolved
    ]
    lost = [row for row in ours if row.decision == WORSE and _named(material, row) in worse]
    subject = "A variant is worse" if variants else "Worse"
    short = (
        [f"{subject} than another method on {_diagnostics(material, lost)}."]
        if lost
        else ["No decision says that it is worse than another method."]
    )
    if open_:
        short.append(f"Not separated on {_diagnostics(material, open_)}.")
    if unresolved:
        short.append(f"Not resolved on {_diagnostics(material, unresolved)}.")
    if turned:
        short.append(turned[0].split(":", 1)[0] + ".")
    if unsolved:
        short.append("The future without an agent is unsolved.")
    return Answer(question, " ".join(short), evidence)


def _diagnostics(material: Material, rows: Sequence[ContrastRow]) -> str:
    """Each once."""
    return listed(list(dict.fromkeys(material.name(row.diagnostic) for row in rows)))


def _named(material: Material, row: ContrastRow) -> str:
    """A diagnostic, and whose it is where it is a variant's."""
    name = material.name(row.diagnostic)
    return name if row.a == OURS else f"{name} ({quoted(material.title_of(row.a))})"


def _turned(material: Material, backbone: str, total: Sequence[ContrastRow]) -> list[str]:
    """Cities in which a decided gain points the other way (descriptive)."""
    said = []
    for row in total:
        if row.decision != BETTER:
            continue
        effects = material.city_effects(backbone, row.a, row.b, row.diagnostic)
        against = sorted(city for city, effect in effects.items() if effect < 0)
        if against:
            shown = listed(against[:6]) + (" and others" if len(against) > 6 else "")
            where = (
                f"In {len(against)} of {counted(len(effects), 'city', 'cities')} {_named(material, row)} "
                "points the other way"
            )
            said.append(f"{where}: {shown} (descriptive).")
    return said


def _names(material: Material, rows: Sequence[ContrastRow], decision: str) -> list[str]:
    return [material.name(row.diagnostic) for row in rows if row.decision == decision]


def _decisions(material: Material, rows: Sequence[ContrastRow]) -> str:
    """`better on A and B; better, unstable on C; not resolved on D (why); not separated on E`."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if not row.decision.startswith(UNTESTABLE):
            found.setdefault(stated(row) if decided(row) else row.decision, []).append(material.name(row.diagnostic))
    order = (BETTER, WORSE, NOT_RESOLVED, NOT_SEPARATED)
    ranked = sorted(found, key=lambda said: next(k for k, one in enumerate(order) if said.startswith(one)))
    parts = {said: said.partition(": ") for said in ranked}
    lines = [f"{what} on {listed(found[said])}{f' ({why})' if why else ''}" for said, (what, _, why) in parts.items()]
    return "; ".join(lines) or "untestable"
