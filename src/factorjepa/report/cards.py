"""What a person looks at: questions with the answers of two encoders, and clips with where predictions were wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..examples import TARGET, Example, Map, Question
from . import pictures
from .markup import Markup, joined, tag
from .material import arranged
from .numbers import number

MOST = 24  # of a kind on the page
_LONGEST_BAR = 100.0  # per cent


def cards(examples: Sequence[Example]) -> Markup:
    """Every question, with the probabilities that one probe head gives over each encoder."""
    found = [(example, question) for example in examples for question in example.questions]
    if not found:
        return tag(
            "p",
            "No questions were kept: evaluate with --examples to see the two encoders answer some.",
            class_="missing",
        )
    said = (
        "One probe head, the same training clips and capacity, read over each encoder. Blue: the right answer; "
        "orange: what an encoder preferred instead."
    )
    same = sum(_alike(question) for _, question in found)
    if same:
        said += f" In {same} of {len(found)} every encoder gives the same answer to the per cent."
    return joined(tag("p", said), tag("div", [_card(*one) for one in found[:MOST]], class_="cards"), _right(found))


def _alike(question: Question) -> bool:
    """Whether a reader sees the same numbers for every encoder."""
    shown = {tuple(round(100 * float(share)) for share in shares) for shares in question.answers.values()}
    return len(question.answers) > 1 and len(shown) == 1


def _right(found: Sequence[tuple[Example, Question]]) -> Markup:
    """How many each encoder has right: a count of shown cards, no score."""
    counts: dict[str, list[int]] = {}
    for _, question in found:
        for encoder, shares in question.answers.items():
            counts.setdefault(encoder, []).append(int(np.argmax(shares) == question.right))
    said = "; ".join(f"{encoder} {sum(right)} of {len(right)}" for encoder, right in counts.items())
    return tag(
        "p",
        f"Right here: {said}. These are examples, chosen and few: the scorecard holds the measurement.",
        class_="missing",
    )


def _card(example: Example, question: Question) -> Markup:
    cells: list[Markup] = [tag("span"), *(tag("b", encoder) for encoder in question.answers)]
    for number_, choice in enumerate(question.choices):
        right = number_ == question.right
        cells.append(tag("span", choice, " ✓" if right else None, class_="right" if right else None))
        for shares in question.answers.values():
            preferred = int(np.argmax(shares)) == number_
            kind = "right" if right else "wrong" if preferred else ""
            bar = tag("i", style=f"width:{_LONGEST_BAR * min(float(shares[number_]), 1.0):.0f}%")
            cells.append(tag("span", bar, f"{100 * float(shares[number_]):.0f} %", class_=f"share {kind}".strip()))
    return tag(
        "div", _film(example), tag("h4", question.question),
        tag("div", cells, class_="choices", style=f"--encoders:{len(question.answers)}"),
        tag("p", "The same answer from each encoder.", class_="head") if _alike(question) else None,
        tag("p", f"Measured by {question.measured}.", class_="head") if question.measured else None,
        tag("p", f"{example.clip_id}{f' · {question.probe}' if question.probe else ''}", class_="head"), class_="card",
    )  # fmt: skip


def example_views(examples: Sequence[Example], order: Sequence[str]) -> Markup:
    """Filmstrip, error maps on one scale, similarity maps on one scale; methods in the page's order."""
    shown = [example for example in examples if example.errors or example.similarities][:MOST]
    if not shown:
        return tag(
            "p",
            "No example clips were kept: evaluate with --examples to see where predictions are wrong.",
            class_="missing",
        )
    said = (
        "Frames the model saw, then (outlined) frames it had to predict. Maps lie over the last frame, all methods of "
        "a clip on one scale. "
        "Error: mean absolute difference of predicted and true tokens. Similarity: cosine of the marked true token "
        "with every predicted one; "
        "a good prediction looks like the map of the target."
    )
    bar = tag("p", "low ", tag("img", src=pictures.scale_bar(), alt="", class_="bar"), " high", class_="missing")
    return joined(tag("p", said), bar, tag("div", [_view(example, order) for example in shown], class_="examples"))


def _view(example: Example, order: Sequence[str]) -> Markup:
    parts: list[Markup] = [tag("h3", example.clip_id), _film(example)]
    if example.note:
        parts.append(tag("p", example.note, class_="missing"))
    if example.errors:
        low, high = _range(list(example.errors.values()))
        tiles = [
            _tile(pictures.error_tile(example, values, low, high), example.title_of(method), f"error {_mean(values)}")
            for method, values in arranged(example.errors, order).items()
        ]  # fmt: skip
        parts.append(tag("div", tiles, class_="tiles"))
    if example.similarities:
        low, high = _range(list(example.similarities.values()))
        names = [TARGET, *(name for name in arranged(example.similarities, order) if name != TARGET)]
        tiles = [
            _tile(
                pictures.similarity_tile(example, example.similarities[name], low, high),
                "true tokens" if name == TARGET else example.title_of(name),
                f"similarity at the mark {_at(example, name)}",
            )
            for name in names if name in example.similarities
        ]  # fmt: skip
        parts.append(tag("div", tiles, class_="tiles"))
    return tag("div", parts)


def _mean(values: Map) -> str:
    known = values[np.isfinite(values)]
    return number(float(known.mean()), 3) if len(known) else "unknown"


def _at(example: Example, name: str) -> str:
    assert example.query is not None
    return number(float(example.similarities[name][example.query]), 2)


def _tile(source: str, title: str, said: str) -> Markup:
    return tag("div", tag("img", src=source, alt=f"{title}: {said}", loading="lazy"), tag("b", title), tag("br"), said)


def _film(example: Example) -> Markup:
    frames = [
        tag("img", src=source, alt="seen by the model" if seen else "to be predicted", class_=None if seen else "ahead")
        for source, seen in pictures.filmstrip(example)
    ]  # fmt: skip
    return tag("div", frames, class_="film", tabindex="0", role="group", aria_label=f"Frames of {example.clip_id}")


def _range(maps: Sequence[Map]) -> tuple[float, float]:
    """One scale for all: without the wildest hundredth on either side."""
    values = np.concatenate([one.ravel() for one in maps])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    return float(np.quantile(values, 0.01)), float(np.quantile(values, 0.99))
