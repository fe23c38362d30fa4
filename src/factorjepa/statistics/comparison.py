"""What `compare` found, and how it is kept: CSV files for people, comparison.json for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..config import first_problem
from ..errors import ScoresError
from ..storage import write_text
from .cells import csv_text, flat, plain
from .explaining import LADDERS, Explained, Ladder, explained
from .rows import ContrastRow, ParetoRow, RankRow, ScoreRow, StratumRow

FILE = "comparison.json"


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
    strata: list[StratumRow] = field(default_factory=list)  # where clips have strata

    def write(self, folder: Path) -> Path:
        """One CSV per table, one of all sensitivities, `verdict.txt`, and the JSON that holds everything."""
        folder = Path(folder)
        tables: dict[str, tuple[type[Any], Sequence[Any]]] = {
            "scorecard": (ScoreRow, self.scores),
            "contrasts": (ContrastRow, self.contrasts),
            "ranks": (RankRow, self.ranks),
            "pareto": (ParetoRow, self.pareto),
            "strata": (StratumRow, self.strata),
            **{ladder.name: (Explained, self.explained(ladder)) for ladder in LADDERS},
        }
        for name, (kind, rows) in tables.items():
            cells = [flat(dataclasses.asdict(row)) for row in rows]
            write_text(folder / f"{name}.csv", csv_text(cells, [one.name for one in dataclasses.fields(kind)]))
        place = ("backbone", "contrast", "diagnostic")
        seen = [
            {name: getattr(row, name) for name in place} | flat(dataclasses.asdict(each))
            for row in self.contrasts
            for each in row.sensitivities
        ]
        write_text(folder / "sensitivities.csv", csv_text(seen, list(place)))
        write_text(folder / "verdict.txt", "\n".join([*self.verdict, *self.notes]) + "\n")
        write_text(folder / FILE, self.json())
        return folder

    def explained(self, ladder: Ladder = LADDERS[0]) -> list[Explained]:
        """What explains a gain, or what each part is worth, of every backbone."""
        backbones = dict.fromkeys(row.backbone for row in self.contrasts)
        families = {row.method: row.family for row in self.scores}
        return [row for backbone in backbones for row in explained(self.contrasts, backbone, ladder, families)]

    def asked_for(self, row: ContrastRow) -> bool:
        """Whether somebody named its two methods, either way round, in whichever family it was tested."""
        return {row.a, row.b} in [{one["a"], one["b"]} for one in self.settings.get("also", ())]

    def json(self) -> str:
        return json.dumps(plain(dataclasses.asdict(self)), indent=1, allow_nan=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Comparison:
        path = Path(folder) / FILE if Path(folder).is_dir() else Path(folder)
        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except FileNotFoundError:
            raise ScoresError(f"{path}: there is no comparison; make it with `factorjepa compare SCORES`") from None
        except (ValidationError, OSError) as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
            raise ScoresError(f"{path}: cannot be read as a comparison ({reason}); compare again") from error
