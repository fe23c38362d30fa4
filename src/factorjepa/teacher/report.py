"""The report on a packet cache as tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from .coverage import FACTORS, QUANTILES, Coverage
from .sensitivity import Variant

_BARS = " ▁▂▃▄▅▆▇█"


def coverage_table(by_split: dict[str, Coverage]) -> Table:
    """Who has a target: retained, absent for want of evidence, excluded as unreliable."""
    table = _table("Coverage by factor and split (visibility counts agents, the others clips)")
    for column in ("split", "factor", "of", "retained", "", "absent", "below tau", "tau"):
        table.add_column(column, justify="left" if column in ("split", "factor") else "right")
    for split, coverage in by_split.items():
        for name in FACTORS:
            factor = coverage.factors[name]
            share = "-" if np.isnan(factor.coverage) else f"{factor.coverage:.1%}"
            table.add_row(
                split, name, str(factor.total), str(factor.retained), share, str(factor.without_evidence),
                str(factor.below_threshold), f"{factor.threshold:g}",
            )  # fmt: skip
        table.add_section()
    return table


def counts_table(by_split: dict[str, Coverage]) -> Table:
    table = _table("Per clip: agents of the context, tracklets of the window, directed candidate pairs")
    for column in ("split", "", "mean", *(f"{q:.0%}" for q in QUANTILES), "most"):
        table.add_column(column, justify="left" if column in ("split", "") else "right")
    for split, coverage in by_split.items():
        rows = {
            "agents": coverage.agents,
            "tracklets": coverage.tracks,
            "pairs": coverage.pairs,
        }
        for name, values in rows.items():
            spread = (f"{v:.0f}" for v in np.quantile(values, QUANTILES))
            table.add_row(split, name, f"{values.mean():.1f}", *spread, f"{values.max():.0f}")
        table.add_section()
    return table


def reliability_table(by_split: dict[str, Coverage]) -> Table:
    """omega by quantiles and as a small histogram over [0, 1]; T_V below them."""
    table = _table("Reliability omega (where there is evidence), and the visibility target")
    for column in ("split", "factor", "0 ... 1", *(f"{q:.0%}" for q in QUANTILES)):
        table.add_column(column, justify="left" if column in ("split", "factor", "0 ... 1") else "right")
    for split, coverage in by_split.items():
        for name in FACTORS:
            factor = coverage.factors[name]
            table.add_row(split, name, histogram_text(factor.histogram()), *_numbers(factor.quantiles()))
        if coverage.visibility.size:
            counts = np.histogram(coverage.visibility, 10, (0.0, 1.0))[0].astype(np.int64)
            table.add_row(split, "T_V", histogram_text(counts), *_numbers(np.quantile(coverage.visibility, QUANTILES)))
        table.add_section()
    return table


def sensitivity_table(variants: Sequence[Variant], clips: int) -> Table:
    table = _table(f"Threshold sensitivity, one at a time, {clips} clips (* as set; T_A: cosine with that one's)")
    for column in ("threshold", "value", "agents", "pairs", "omega L A I", "kept % L A I", "T_A"):
        table.add_column(column, justify="left" if column == "threshold" else "right", no_wrap=True)
    last = ""
    for one in variants:
        if last and one.setting != last:
            table.add_section()
        last = one.setting
        like = "-" if np.isnan(one.agreement) else f"{one.agreement:.3f}"
        table.add_row(
            one.setting.split(".")[1], f"{one.value:g}{'*' if one.as_set else ' '}", f"{one.agents:.1f}",
            f"{one.pairs:.1f}", " ".join(f"{v:.2f}" for v in one.reliability),
            " ".join(f"{100 * v:.0f}" for v in one.coverage), like,
        )  # fmt: skip
    return table


def histogram_text(counts: NDArray[np.int64]) -> str:
    """Ten counts as ten small bars; anything at all is at least the smallest one."""
    most = max(1, int(counts.max(initial=0)))
    return "".join(_BARS[-(-int(count) * (len(_BARS) - 1) // most)] for count in counts)


def _numbers(values: NDArray[np.float64]) -> list[str]:
    return ["-" if np.isnan(v) else f"{v:.2f}" for v in values]


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
