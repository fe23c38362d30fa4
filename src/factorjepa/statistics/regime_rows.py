"""What a comparison of regimes consists of, row by row, and how it is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..errors import RegimeError
from ..storage import write_text
from .cells import csv_text, flat, plain

FILE = "regime.json"


@dataclass
class Estimate:
    """A number with its 95 % interval; `kind` says how the interval was made, `note` why not by BCa."""

    value: float
    low: float
    high: float
    kind: str = ""
    note: str = ""


@dataclass
class Variation:
    """The same difference, measured or aggregated another way."""

    name: str
    difference: float
    agrees: bool


@dataclass
class WithoutCity:
    """The same difference without one city of either corpus; interval from the replicates that did not draw it."""

    corpus: str
    city: str
    difference: float
    low: float
    high: float
    survives: bool


@dataclass
class MeasureRow:
    """One measure against one reference."""

    reference: str
    measure: str
    title: str
    axis: bool  # one of the five
    domain: str
    unit: str
    first: Estimate
    other: Estimate
    difference: Estimate
    ratio: Estimate
    eligible_first: float  # share of sampled frames of the matched clips
    eligible_other: float
    p: float
    adjusted_p: float  # Holm over all axes and references; NaN for secondary measures
    verdict: str
    variations: list[Variation] = field(default_factory=list)
    without_city: list[WithoutCity] = field(default_factory=list)


@dataclass
class SceneRow:
    """One scene stratum of the paper's table."""

    reference: str
    scene: str
    measure: str
    pairs: int
    other: Estimate
    first: Estimate
    difference: Estimate
    ratio: Estimate


@dataclass
class BalanceRow:
    """How well two corpora could be matched."""

    reference: str
    fields: tuple[str, ...]
    given_up: tuple[str, ...]
    absent: tuple[str, ...]
    caliper: float
    candidates_first: int
    candidates_other: int
    pairs: int
    unmatched_first: float
    unmatched_other: float
    sources_first: int
    sources_other: int
    clusters_first: int
    clusters_other: int
    strata: int
    strata_narrowed: int  # with a narrower caliper, for balance
    smd_before: dict[str, float]
    smd_after: dict[str, float]
    max_smd_before: float
    max_smd_after: float


@dataclass
class ControlRow:
    """One measure of one corpus under one control."""

    corpus: str
    control: str
    measure: str
    must: str  # attenuate or stay
    measured: float
    under_control: float
    passed: bool


@dataclass
class DomainRow:
    """How the measuring system behaved on one corpus."""

    corpus: str
    rate: str
    value: float


@dataclass
class RegimeComparison:
    """Everything, with what it was made from."""

    first: str
    references: list[str]
    measured_by: str
    settings: dict[str, Any]
    measures: list[MeasureRow]
    scenes: list[SceneRow]
    balance: list[BalanceRow]
    controls: list[ControlRow]
    domain: list[DomainRow]
    notes: list[str]
    command: str = ""

    def write(self, folder: Path) -> Path:
        """One CSV per table and the JSON that holds everything."""
        folder = Path(folder)
        tables: dict[str, tuple[type[Any], Sequence[Any]]] = {
            "axes": (MeasureRow, self.measures), "scenes": (SceneRow, self.scenes),
            "balance": (BalanceRow, self.balance), "controls": (ControlRow, self.controls),
            "domain": (DomainRow, self.domain),
        }  # fmt: skip
        for name, (kind, rows) in tables.items():
            cells = [flat({k: v for k, v in dataclasses.asdict(row).items() if k not in _OWN_FILES}) for row in rows]
            write_text(folder / f"{name}.csv", csv_text(cells, [each.name for each in dataclasses.fields(kind)]))
        for name in _OWN_FILES:
            lines = [
                {"reference": row.reference, "measure": row.measure} | flat(dataclasses.asdict(each))
                for row in self.measures
                for each in getattr(row, name)
            ]
            write_text(folder / f"{name}.csv", csv_text(lines, ["reference", "measure"]))
        write_text(folder / FILE, json.dumps(plain(dataclasses.asdict(self)), indent=1, allow_nan=False) + "\n")
        return folder

    @classmethod
    def read(cls, folder: Path) -> RegimeComparison:
        path = Path(folder) / FILE
        try:
            return TypeAdapter(cls).validate_python(_with_nan(json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            raise RegimeError(f"{path}: there is no comparison; make it with factorjepa regime compare") from None
        except (ValidationError, ValueError, OSError) as error:
            raise RegimeError(f"{path}: cannot be read as a comparison of regimes; compare again ({error})") from None


_OWN_FILES = ("variations", "without_city")


def _with_nan(value: Any) -> Any:
    """JSON has no NaN: null is where a number is not known."""
    if isinstance(value, dict):
        return {key: _with_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_nan(inner) for inner in value]
    return float("nan") if value is None else value
