"""`DATACARD.md` beside every corpus: what it is for and what it is not for, what was done, how much there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..storage import write_text
from ..words import counted
from .composition import Composition, compose
from .manifest import Manifest
from .rejected import REJECTED_CSV, Rejected, amounts_rejected, read_in_part

DATACARD = "DATACARD.md"
_INTENDED = (
    "predictive world modelling", "video representation learning", "multi-agent forecasting",
    "robustness under partial observability",
)  # fmt: skip
_PROHIBITED = (
    "person identification", "persistent tracking of individuals", "inference of sensitive attributes", "surveillance",
)  # fmt: skip


def write_datacard(
    folder: Path,
    manifest: Manifest,
    processing: Sequence[str],
    privacy: Mapping[str, str],
    rejected: Sequence[Rejected] = (),
) -> None:
    """`processing` in sentences; `privacy` is the filter's own statement."""
    whole = compose(manifest)
    total = whole.total
    parts = [
        "# Data card",
        f"{counted(total.clips, 'clip')} from {counted(total.sources, 'source video')} in "
        f"{counted(len(whole.cities), 'city', 'cities')}, {total.hours:.2f} hours.",
        "## Uses",
        f"Intended: {', '.join(_INTENDED)}.",
        f"Not to be used for: {', '.join(_PROHIBITED)}. A corpus describes the places and hours it shows; it is no "
        "sample of anything larger.",
        "## Processing",
        _bullets(processing),
        "## Privacy",
        _privacy(privacy),
        "## Counts",
        _table(("split", "clips", "sources", "hours"), _splits(whole)),
        _table(("city", *whole.city_by_mode.columns, "total"), _cities(whole)),
    ]
    if rejected:
        parts += ["## Left out"]
        if rows := [(r.stage, r.reason, str(r.count), f"{r.seconds:.1f}") for r in amounts_rejected(rejected)]:
            parts += [_table(("stage", "reason", "count", "seconds"), rows)]
        if damaged := read_in_part(rejected):
            parts += [f"{counted(len(damaged), 'file')} could be read in part only."]
        parts += [f"Each with its detail: `{REJECTED_CSV}`."]
    path, text = folder / DATACARD, "\n\n".join(parts) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def _privacy(statement: Mapping[str, str]) -> str:
    if statement["privacy"].startswith("off"):
        return (
            "**Off.** Faces and registration plates were not looked for and not blurred: whoever made this corpus said "
            "so (`--privacy off`). Treat it as footage of identifiable people."
        )
    caution = (
        "What no detector sees is not blurred. Look at contact sheets (`--audit`), and measure on plates and faces of "
        "your own region, before anybody else sees this corpus."
    )
    return f"{_bullets([f'{name}: {value}' for name, value in statement.items()])}\n\n{caution}"


def _splits(whole: Composition) -> list[tuple[str, ...]]:
    return [(split, str(a.clips), str(a.sources), f"{a.hours:.2f}") for split, a in whole.splits.items()]


def _cities(whole: Composition) -> list[tuple[str, ...]]:
    cross = whole.city_by_mode
    return [
        (row, *(str(cross.counts[row, mode]) for mode in cross.columns), str(cross.row_total(row)))
        for row in cross.rows
    ]


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Names come from users' tables: nothing in them may end the cell or be taken for HTML."""
    return text.replace("|", "/").replace("<", "&lt;")
