"""What `compare` found, and how it is kept: CSV files for people, comparison.json for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..errors import ScoresError
from ..storage import write_text
from .rows import ContrastRow, ParetoRow, RankRow, ScoreRow

FILE = "comparison.json"
_DIGITS = 10  # significant: beyond them, the number of threads of a matrix product shows


@dataclass
class Comparison:
    """Everything, with what it was made from."""

    settings: dict[str, Any]
    evaluator: dict[str, str]
    scores: list[ScoreRow]
    contrasts: list[ContrastRow]
    ranks: list[RankRow]
    pareto: list[ParetoRow]
    verdict: list[str]
    notes: list[str]
    command: str = ""  # command line; empty: not recorded

    def write(self, folder: Path) -> Path:
        """One CSV per table, one of all sensitivities, `verdict.txt`, and the JSON that holds everything."""
        folder = Path(folder)
        tables: dict[str, tuple[type[Any], Sequence[Any]]] = {
            "scorecard": (ScoreRow, self.scores),
            "contrasts": (ContrastRow, self.contrasts),
            "ranks": (RankRow, self.ranks),
            "pareto": (ParetoRow, self.pareto),
        }
        for name, (kind, rows) in tables.items():
            cells = [_flat(dataclasses.asdict(row)) for row in rows]
            write_text(folder / f"{name}.csv", _csv(cells, [field.name for field in dataclasses.fields(kind)]))
        place = ("backbone", "contrast", "diagnostic")
        seen = [
            {name: getattr(row, name) for name in place} | _flat(dataclasses.asdict(each))
            for row in self.contrasts
            for each in row.sensitivities
        ]
        write_text(folder / "sensitivities.csv", _csv(seen, list(place)))
        write_text(folder / "verdict.txt", "\n".join([*self.verdict, *self.notes]) + "\n")
        write_text(folder / FILE, self.json())
        return folder

    def json(self) -> str:
        return json.dumps(_plain(dataclasses.asdict(self)), indent=1, allow_nan=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Comparison:
        path = Path(folder) / FILE if Path(folder).is_dir() else Path(folder)
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ScoresError(f"{path}: there is no comparison; make it with `factorjepa compare SCORES`") from None
        except (ValidationError, OSError) as error:
            raise ScoresError(f"{path}: cannot be read as a comparison; compare again ({error})") from error


def _plain(value: Any) -> Any:
    """Without NaN, and rounded to what is reproducible."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """One cell per field: nested ones as `mixed.effect`, lists with spaces; sensitivities have their own file."""
    cells: dict[str, Any] = {}
    for key, value in _plain(row).items():
        if key == "sensitivities":
            continue
        if isinstance(value, dict):
            cells |= {f"{key}.{inner}": each for inner, each in value.items()}
        elif isinstance(value, list):
            cells[key] = " ".join("" if each is None else str(each) for each in value)
        else:
            cells[key] = value
    return cells


def _csv(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """`columns` name an empty table; one with rows has the columns of its rows."""
    text = io.StringIO()
    columns = list(dict.fromkeys(key for row in rows for key in row)) or columns
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
