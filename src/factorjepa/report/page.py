"""One self-contained page: style, script and pictures are inside it, and nothing is asked of a network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from .. import __version__
from ..statistics.deciding import MODERATED
from ..statistics.explaining import LADDERS
from ..statistics.verdict import LEAST_CITIES, verdict
from . import decoded, figures, tables
from .answers import Answer, answers
from .cards import cards, example_views
from .cautions import Caution, cautions, near_chance
from .explaining import explained_section
from .markup import Markup, coded, joined, tag, text
from .material import Material, arranged
from .strata import strata_tables

_LONG = 240  # characters of a caution, before it is folded
_COUNTED = {
    "method": ("method", "methods"), "city": ("city", "cities"), "source": ("source video", "source videos"),
    "clip_id": ("clip", "clips"), "seed": ("training seed", "training seeds"),
}  # fmt: skip
_LEGEND = (
    ("better", "better: decided"), ("worse", "worse"), ("open", "not separated or not resolved"),
    ("untested", "untestable: nothing is decided"),
)  # fmt: skip


def page(material: Material) -> str:
    """The whole document."""
    style, script = (
        resources.files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    sections = _sections(material)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{material.title}: FactorJEPA report"),
        Markup(f"<style>{style}</style>"),
    )
    links = [tag("a", heading, href=f"#{name}") for name, heading, _ in sections]
    body = tag(
        "body",
        _top(material),
        tag("nav", links, aria_label="Sections"),
        tag("main", [tag("section", tag("h2", heading), content, id=name) for name, heading, content in sections]),
        tag(
            "footer",
            f"Made by factorjepa {__version__} from scores.parquet and the runs beside it. This file asks nothing of "
            "a network.",
        ),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    """Nothing from anywhere; our script alone, by its hash; style attributes carry figures' sizes."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; base-uri "
        "'none'; form-action 'none'"
    )


def _top(material: Material) -> Markup:
    scores = material.scores
    amounts = [
        (", ".join(material.backbones), "backbone" + ("s" if len(material.backbones) > 1 else "")),
        *(_amount(len(scores.values(column)), *words) for column, words in _COUNTED.items()),
        *([(scores.evaluator["split"], "split")] if "split" in scores.evaluator else []),
    ]  # fmt: skip
    facts = tag("ul", [tag("li", tag("b", value), f" {name}") for value, name in amounts], class_="facts")
    warned = cautions(material)
    warning = tag(
        "div", tag("b", "Read this first"), tag("ul", [tag("li", _folded(one)) for one in warned]), class_="warning",
        role="note",
    )  # fmt: skip
    said = [_answers(material, backbone) for backbone in material.backbones]
    return tag("header", tag("h1", f"FactorJEPA report: {material.title}"), facts, warning if warned else None, said)


def _folded(caution: str) -> Markup:
    """What it is about; a long list of who has what is there for who asks."""
    if not isinstance(caution, Caution) or len(caution) <= _LONG:
        return text(caution)
    return joined(caution.said, tag("details", tag("summary", "Which"), caution.who))


def _amount(count: int, one: str, several: str) -> tuple[str, str]:
    return f"{count:,}", one if count == 1 else several


def _answers(material: Material, backbone: str) -> Markup:
    several = tag("h3", backbone) if len(material.backbones) > 1 else None
    return joined(several, tag("div", [_answer(one) for one in answers(material, backbone)], class_="answers"))


def _answer(one: Answer) -> Markup:
    evidence = tag("details", tag("summary", "Evidence"), tag("ul", [tag("li", coded(line)) for line in one.evidence]))
    return tag("div", tag("h3", one.question), tag("p", coded(one.short)), evidence if one.evidence else None)


def _sections(material: Material) -> list[tuple[str, str, Markup]]:
    """Anchor, heading, content."""
    each = material.backbones
    drawn = material.decoded
    street = [("street", decoded.heading(drawn), decoded.section(drawn, material.order))] if drawn else []
    return [
        ("headline", "Headline effects", joined([_headline(material, backbone) for backbone in each])),
        *_ladders(material),
        ("scorecard", "Scorecard", joined([_scorecard(material, backbone) for backbone in each])),
        ("contrasts", "Contrasts and decisions", _contrasts(material)),
        ("where", "Where it helps and where it fails", joined([_where(material, backbone) for backbone in each])),
        *street,
        ("masking", "Masking curves", joined([_masking(material, backbone) for backbone in each])),
        ("scale", "Across backbones", _scale(material)),
        ("training", "Training", _training(material)),
        ("structure", "Inside the model", joined([_structure(material, backbone) for backbone in each])),
        ("questions", "Same question, two encoders", cards(material.examples)),
        ("examples", "Predictions against targets", example_views(material.examples, material.order)),
        ("data", "Data and privacy", _data(material)),
        ("made", "How this was made", _made(material)),
    ]


def _ladders(material: Material) -> list[tuple[str, str, Markup]]:
    """A section for each ladder of steps that was climbed on any backbone."""
    made = ((ladder, explained_section(material, ladder)) for ladder in LADDERS)
    return [(one.name, one.heading, joined(section, _download(one.name))) for one, section in made if section]


def _captioned(drawn: object, *caption: object, heading: str = "") -> Markup:
    return tag("figure", tag("h3", heading) if heading else None, drawn, tag("figcaption", *caption))


def _absent(why: str) -> Markup:
    return tag("p", why, class_="missing")


def _name(material: Material, backbone: str) -> str:
    return backbone if len(material.backbones) > 1 else ""


def _headline(material: Material, backbone: str) -> Markup:
    drawn, left = figures.headline(material, backbone)
    if not drawn:
        return _absent(
            f"{backbone}: no contrast on a primary diagnostic could be made; it takes FactorJEPA and another method."
        )
    marks = [
        joined(tag("svg", _legend_mark(kind), viewBox="0 0 13 13", class_="legend", aria_hidden="true"), f" {said}. ")
        for kind, said in _LEGEND
    ]  # fmt: skip
    more = f"{left} further methods are in the table of contrasts." if left else None
    caption = (
        tag("b", "Paired effects in units of their 95 % interval. "),
        "One unit is the half of the interval that faces zero: inside the grey band the interval contains zero. Units "
        "say how far "
        "an effect is separated, not how large it is. ", marks, "The axis is logarithmic beyond one unit. ", more,
    )  # fmt: skip
    return _captioned(drawn, *caption, heading=_name(material, backbone))


def _legend_mark(kind: str) -> Markup:
    from .plot import mark

    return mark(6.5, 6.5, kind)


def _scorecard(material: Material, backbone: str) -> Markup:
    panels, left = figures.scorecard(material, backbone)
    more = f"{left} further methods are in the table." if left else None
    text = (
        "Means over cities with 95 % BCa intervals; each panel says which way is better. Claims rest on the paired "
        "contrasts, not on whether these intervals overlap. Training seeds are averaged: what another training would "
        "give is not in them, and the SD over seeds is under the pointer in the table. "
    )
    drawn = (
        _captioned(figures.grid(panels), tag("b", "Held-out scores. "), text, more, heading=_name(material, backbone))
        if panels
        else None
    )
    doubts = [tag("li", one) for one in near_chance(material, backbone)]
    return joined(
        drawn,
        tag("div", tag("b", "Not shown to be better than chance"), tag("ul", doubts), class_="warning", role="note")
        if doubts
        else None,
        tables.scorecard_table(material, backbone),
        _download("scorecard"),
    )


def _contrasts(material: Material) -> Markup:
    rows = [row for row in material.comparison.contrasts if not tables.unmeasured(row)]
    names = {name: info.title for name, info in material.scores.diagnostics.items()}
    titles = {method: material.title_of(method) for row in rows for method in (row.a, row.b)}
    notes = [tag("li", line) for line in (*verdict(rows, titles, names), *material.comparison.notes)]
    said = tag("details", tag("summary", "In words"), tag("ul", notes)) if notes else None
    made = [tables.contrast_table(material, backbone) for backbone in material.backbones]
    how = (
        " (the seeds of a pair, helped by those of the other methods)"
        if material.comparison.settings.get("seed_variance") == MODERATED
        else ""
    )
    explained = (
        "Decisions need an adjusted p of at most "
        f"{material.comparison.settings.get('alpha', 0.05):g}, an interval without zero, and at least {LEAST_CITIES} "
        "cities. Effect, units and p are the paper's: cities and sources vary, training seeds are averaged. The "
        f"deciding interval allows for few cities and for what another training would give{how}, and its adjusted p "
        "must pass as well: not resolved where it does not. H: Holm over the prespecified family; BH: "
        "Benjamini-Hochberg over the rest, exploratory, and by itself over what was asked for. Unstable: a sensitivity "
        "analysis takes the decision back."
    )
    return joined(tag("p", explained), made, _download("contrasts", "sensitivities"), said)


def _where(material: Material, backbone: str) -> Markup:
    places, towns = figures.where(material, backbone), figures.cities(material, backbone)
    strata = strata_tables(material.comparison, backbone, material.name, material.title_of)
    if not places and not towns and not strata:
        return _absent(
            f"{backbone}: the scores hold no parts of the primary diagnostics and too few cities to tell them apart."
        )
    parts = [
        _captioned(figures.grid(places), tag("b", "Parts of the primary diagnostics. "),
                   "Descriptive: no decision is made on parts.", heading=_name(material, backbone)) if places else None,
        _captioned(figures.grid(towns), tag("b", "The total contrast city by city. "),
                   "Hollow marks: cities in which it points the other way. Descriptive; one city is one draw.",
                   ) if towns else None,
    ]  # fmt: skip
    return joined(
        parts, _download("cities") if towns else None, strata, _download("strata") if strata else None
    )  # fmt: skip


def _masking(material: Material, backbone: str) -> Markup:
    panels = figures.masking(material, backbone)
    if not panels:
        return _absent(f"{backbone}: the scores hold no masking curve (diagnostic mask_slope).")
    said = "A model that is bad with the whole context has a small slope too: read the curve and its area beside it."
    return _captioned(
        figures.grid(panels),
        tag("b", "Prediction error as the context is hidden. "),
        said,
        heading=_name(material, backbone),
    )


def _scale(material: Material) -> Markup:
    panels = figures.cross_scale(material)
    if not panels:
        return _absent(
            "One backbone was evaluated. Evaluate the methods on a second one to see whether their order holds."
        )
    said = (
        "One point per method. The methods are a fixed set, so correlations are descriptive: agreement is robustness "
        "to scale, not replication."
    )
    return joined(
        _captioned(figures.grid(panels), tag("b", "Scores on two backbones. "), said),
        tables.ranks_table(material),
        _download("ranks"),
    )


def _training(material: Material) -> Markup:
    if not material.runs:
        return _absent("No run folder was found beside the scores; name them with --runs to see how training went.")
    by_method = {run.method.name: run for run in material.runs}
    drawn = figures.training(list(arranged(by_method, material.order).values()))
    said = "One run per method. Validation clips chose the checkpoint; they take no part in the scores."
    return joined(_captioned(drawn, tag("b", "Training curves with stages. "), said), tables.tried_table(material))


def _structure(material: Material, backbone: str) -> Markup:
    heat, curves = figures.leakage(material, backbone), figures.depth(material, backbone)
    if not heat and not curves:
        return _absent(f"{backbone}: the scores hold neither leakage nor a depth profile.")
    leaks = (
        "0: a channel knows nothing of the other factor; 1: as much as that factor's own channel. Below 0: on these "
        "clips it predicts that factor worse than a constant does. A dash: the own channel does not predict it."
    )
    reads = (
        "How much of a factor a linear probe reads after each encoder block. Teacher-relative unless it says ground "
        "truth."
    )
    return joined(
        _captioned(figures.grid(heat), tag("b", "Leakage. "), leaks, heading=_name(material, backbone))
        if heat
        else None,
        _captioned(figures.grid(curves), tag("b", "Depth profile. "), reads) if curves else None,
    )


def _data(material: Material) -> Markup:
    rows = [joined(tag("dt", name), tag("dd", value)) for name, value in material.data.rows]
    return joined([tag("p", one) for one in material.data.sentences], tag("dl", rows) if rows else None)


def _made(material: Material) -> Markup:
    runs = [
        tag(
            "details", tag("summary", f"{run.run}: {run.title}, {run.backbone}, seed {run.seed}, update {run.step:,}"),
            tag("pre", run.config),
        )
        for run in material.scores.runs[:200]
    ]  # fmt: skip
    settings = [
        joined(tag("dt", name), tag("dd", str(value)))
        for name, value in material.comparison.settings.items()
        if value is not None
    ]
    evaluator = [joined(tag("dt", name), tag("dd", value)) for name, value in material.scores.evaluator.items()]
    infos = [
        joined(tag("dt", one.title), tag("dd", "; ".join(filter(None, (one.formula, one.evaluator, one.provenance)))))
        for one in material.diagnostics.values()
    ]
    notes = (
        joined(tag("h3", "Notes"), tag("ul", [tag("li", note) for note in material.notes])) if material.notes else None
    )
    return joined(
        [tables.methods_table(material, backbone) for backbone in material.backbones], _download("pareto"),
        notes,
        tag("h3", "Commands"), _commands(material),
        tag("h3", "Diagnostics"), tag("dl", infos),
        tag("h3", "Comparison"), tag("dl", settings),
        tag("h3", "Evaluator"),
        tag("dl", evaluator) if evaluator else _absent("The scores do not say what measured them."),
        tag("h3", "Resolved configurations"), runs,
    )  # fmt: skip


def _commands(material: Material) -> Markup:
    """As they were given, each with what it made."""
    known = [f"# {step.made}\n{step.line}" for step in material.steps if step.line]
    unknown = [step.made for step in material.steps if not step.line]
    return joined(
        tag("p", "As they were given, each with what it made.") if known else None,
        tag("pre", "\n\n".join(known)) if known else None,
        [_absent(f"Not recorded, because no command line made it or an older version did: {one}.") for one in unknown],
    )


def _download(*names: str) -> Markup:
    links: Sequence[Markup] = [tag("a", f"{name}.csv", href=f"tables/{name}.csv") for name in names]
    return tag(
        "p",
        "As a table: ",
        joined(*(joined(", " if k else None, link) for k, link in enumerate(links))),
        class_="missing",
    )
