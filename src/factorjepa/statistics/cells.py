"""Rows as cells: CSV for people, JSON without NaN for programs."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

_DIGITS = 10  # significant: beyond them, the number of threads of a matrix product shows


def plain(value: Any) -> Any:
    """Without NaN, and rounded to what is reproducible."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") + 0.0 if math.isfinite(value) else None  # zero has no sign
    return value


def flat(row: dict[str, Any]) -> dict[str, Any]:
    """One cell per field: nested ones as `mixed.effect`, lists with spaces; sensitivities have their own file."""
    cells: dict[str, Any] = {}
    for key, value in plain(row).items():
        if key == "sensitivities":
            continue
        if isinstance(value, dict):
            cells |= {f"{key}.{inner}": each for inner, each in value.items()}
        elif isinstance(value, list):
            cells[key] = " ".join("nan" if each is None else str(each) for each in value)  # each in its place
        else:
            cells[key] = value
    return cells


def csv_text(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """`columns` name an empty table; one with rows has the columns of its rows."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row)) or columns
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
