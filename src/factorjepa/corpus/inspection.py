"""`inspect`: what a corpus consists of and how dense it is, as tables for the terminal.

Names and values from a corpus are `Text`: square brackets in them are theirs, not instructions to the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..words import counted
from .composition import Amount, Composition, Quantiles
from .manifest import Manifest
from .rejected import Rejected, amounts_rejected, read_in_part
from .splits import Split

_COUNTED = "privacy_"  # attributes that count what the privacy filter did
_NAMED = 3  # files of a row

# Measures that the simulator takes from ground truth, in the order and the words in which they are shown.
MEASURES = {
    "agents_per_frame": "agents per frame",
    "occupancy": "occupancy (share of the frame)",
    "hidden": "agents more than half hidden",
    "interaction_degree": "interaction degree (image plane)",
    "heterogeneity": "heterogeneity",
    "counterfactual_degree": "others whose absence would move an agent",
    "displaced": "agents moved > 1/2 body in 1 s by neighbours",
}


def describe(name: str, composition: Composition) -> RenderableType:
    """All tables of one corpus."""
    total, seconds = composition.total, composition.seconds
    whole, cities = counted(total.clips, "clip"), counted(len(composition.cities), "city", "cities")
    head = f"{whole} from {counted(total.sources, 'source')} in {cities}, {total.hours:.2f} h"
    if seconds is not None:
        head += f"; clips of {seconds.minimum:.1f}-{seconds.maximum:.1f} s (median {seconds.median:.1f})"
    parts: list[RenderableType] = [
        Text(name, style="bold"),
        Text(head),
        _splits(composition.splits),
        _cities(composition),
    ]
    shown = {tag: values for tag, values in composition.tags.items() if len(values) > 1 or tag == "regime"}
    if shown:
        parts.append(_tags(shown))
    if measures := _measures(composition.measures):
        parts.append(measures)
    return Group(*parts)


def rejected_tables(rejected: Sequence[Rejected]) -> RenderableType:
    """What was left out of a corpus, by stage and reason, and files of which only a part could be read."""
    table = _table("Left out")
    for column in ("stage", "reason", "count", "minutes"):
        table.add_column(column, justify="left" if column in ("stage", "reason") else "right")
    table.add_column("of", overflow="fold")
    for amount in amounts_rejected(rejected):
        minutes = f"{amount.seconds / 60:.1f}" if amount.seconds else "-"
        table.add_row(amount.stage, amount.reason, str(amount.count), minutes, Text(_some(amount.files)))
    parts: list[RenderableType] = [table] if table.row_count else []
    if damaged := read_in_part(rejected):
        parts.append(Text(f"Read in part: {_some(damaged)}"))
    return Group(*parts)


def _some(names: Sequence[str]) -> str:
    """The first of many names, and how many there are besides."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def privacy_table(manifest: Manifest, rejected: Sequence[Rejected], statement: Mapping[str, str]) -> Table:
    """What was done about faces and registration plates: by whom, how often, and what was left out for it."""
    table = _table("Privacy")
    table.add_column("")
    table.add_column("", overflow="fold")
    for name, value in statement.items():
        table.add_row(Text(name), Text(value))
    counts: dict[str, list[int]] = {}
    for clip in manifest:
        for name, count in clip.attributes.items():
            if name.startswith(_COUNTED) and isinstance(count, int):
                counts.setdefault(name.removeprefix(_COUNTED), []).append(count)
    for name, values in sorted(counts.items()):
        somewhere = counted(sum(value > 0 for value in values), "clip")
        table.add_row(Text(name.replace("_", " ")), f"{sum(values):,} in {somewhere}")
    excluded = sum(row.stage == "privacy" for row in rejected)
    table.add_row("excluded by checks", counted(excluded, "clip"))
    return table


def compare(names: Sequence[str], compositions: Sequence[Composition]) -> Table:
    """Means of the ground-truth measures that all have, with the ratio of the first corpus to each other one."""
    table = _table("Measured from ground truth (mean over clips)")
    table.add_column("measure")
    for name in names:
        table.add_column(name, justify="right")
    for name in names[1:]:
        table.add_column(f"{names[0]} / {name}", justify="right", style="bold")
    for key, words in MEASURES.items():
        if any(key not in composition.measures for composition in compositions):
            continue
        means = [composition.measures[key].mean for composition in compositions]
        ratios = [f"{means[0] / mean:.2f}x" if mean > 0 else "-" for mean in means[1:]]
        table.add_row(words, *(_number(mean) for mean in means), *ratios)
    return table


def _splits(splits: Mapping[Split, Amount]) -> Table:
    table = _table("Splits (whole sources)")
    for column in ("split", "clips", "sources", "hours"):
        table.add_column(column, justify="left" if column == "split" else "right")
    for split, amount in splits.items():
        table.add_row(str(split), str(amount.clips), str(amount.sources), f"{amount.hours:.2f}")
    return table


def _cities(composition: Composition) -> Table:
    cross = composition.city_by_mode
    table = _table("Clips by city and capture mode")
    table.add_column("city")
    for mode in cross.columns:
        table.add_column(mode, justify="right")
    table.add_column("total", justify="right", style="bold")
    table.add_column("")
    widest = max((cross.row_total(row) for row in cross.rows), default=1)
    for row in cross.rows:
        total = cross.row_total(row)
        bar = "█" * round(20 * total / widest)
        table.add_row(
            Text(row), *(str(cross.counts[row, mode]) for mode in cross.columns), str(total), Text(bar, style="cyan")
        )
    return table


def _tags(tags: Mapping[str, Mapping[str, int]]) -> Table:
    table = _table("Attributes (clips)")
    table.add_column("attribute")
    table.add_column("values")
    for name, values in tags.items():
        words = ", ".join(f"{value} {count}" for value, count in values.items())
        table.add_row(Text(name.replace("_", " ")), Text(words))
    return table


def _measures(measures: Mapping[str, Quantiles]) -> Table | None:
    known = {key: measures[key] for key in (*MEASURES, "agents") if key in measures}
    if not known:
        return None
    table = _table("Measured from ground truth (per clip)")
    for column in ("measure", "mean", "5 %", "median", "95 %"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for key, spread in known.items():
        words = MEASURES.get(key, "agents on the whole street")
        table.add_row(words, *(_number(v) for v in (spread.mean, spread.p05, spread.median, spread.p95)))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
