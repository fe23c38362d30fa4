"""`scores.parquet`: one row per run, clip, diagnostic and variant. Statistics and report read nothing else.

    backbone  method  seed  city  source  clip_id  diagnostic  variant  value

The file describes itself: its metadata holds what each diagnostic is (direction, unit, status, how clip values become
one number) and which frozen evaluator produced the values. Values of different evaluators never meet in one table.

A diagnostic's headline is one variant (`reduction: mean`), or is computed from the means of several
(`macro_f1`, `leakage`, `explained`: see `Reduction`). Its other variants stand beside it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .errors import ScoresError
from .missing import Missing, told
from .storage import write_atomic

Codes = np.ndarray[Any, np.dtype[np.intp]]

Direction = Literal["lower", "higher"]
Status = Literal["primary", "secondary", "companion", "structure"]
Reduction = Literal["mean", "macro_f1", "leakage", "explained"]
"""How means over clips become a number.

mean: of the headline variant. macro_f1: mean over classes c of 2 tp / (2 tp + fp + fn), from variants `tp/c`, `fp/c`,
`fn/c`. explained: 1 - error/total, from variants `error/x` and `total/x`, one number for each x. leakage: the paper's
Leak(k -> k') from squared errors `k->k'` and `constant->k'`, one number for each pair.
"""

KEY = ("backbone", "method", "seed", "city", "source", "clip_id", "diagnostic", "variant")
DEFICIT = "deficit"  # the variant that says how much worse than the oracle
CHANCE = "chance"  # the variant that says what who knows nothing would score, where that is known
_SURPRISING = 0.6  # of an F1 by chance
ENCODER = "encoder/"  # begins the name of a part of the evaluator that belongs to one backbone
_METADATA = b"factorjepa"
_MOST_KEYS = 2**62  # that a number can tell apart
_WORDS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        *((name, pa.int32() if name == "seed" else _WORDS) for name in KEY),
        ("value", pa.float64()),
    ]
)


@dataclass(frozen=True)
class DiagnosticInfo:
    """What the values of one diagnostic mean."""

    name: str  # future_l1
    title: str  # Future-frame L1
    formula: str
    direction: Direction
    unit: str
    status: Status
    evaluator: str  # the frozen signal it is measured with
    provenance: str  # where the evaluator comes from, and what it never sees
    headline: str = "pooled"  # variant
    reduction: Reduction = "mean"

    def about_chance(self, chance: float) -> str:
        """Why a level of chance is as high as it is, where that surprises; else nothing."""
        if self.reduction == "mean" and chance >= 1.0:
            return "all clips are of one class, so that nothing could be better than chance"
        if self.reduction != "macro_f1" or not chance > _SURPRISING:
            return ""
        return "chance is high because most tags are present in nearly every clip, so naming them all is mostly right"


@dataclass(frozen=True)
class RunInfo:
    """One evaluated run: what a report says about the method beside its scores."""

    backbone: str
    method: str
    seed: int
    title: str
    family: str
    trainable: int  # parameters
    run: str  # its folder's name
    config: str  # resolved, YAML
    step: int  # of the checkpoint
    seconds: float | None = None  # of training, all its processes together, where logged
    trained_by: tuple[str, ...] = ()  # command lines; none: not recorded
    evaluated_by: str = ""  # command line; empty: not recorded
    missing: tuple[Missing, ...] = ()  # scores that cannot be had
    updates: int | None = None  # made in training, of which `step` was chosen; None: not recorded
    processes: tuple[int, ...] = ()  # that made updates; several where a run went on with more or fewer; none: unknown
    closed: tuple[str, ...] | None = None  # pathways that no longer opened when the run ended; None: not recorded
    trained_on: str = ""  # device, how many runs at a time and since when; empty: not recorded
    measured_on: str = ""  # the corpus whose clips it was shown; empty: not recorded

    @property
    def go(self) -> tuple[str, ...]:
        """What it shares with runs that were trained together with it: only their seconds compare."""
        return (*self.trained_by, self.trained_on)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> RunInfo:
        """What `dataclasses.asdict` and JSON made of one."""
        missing = tuple(Missing(**one) for one in record.get("missing", ()))
        listed = {name: tuple(record.get(name, ())) for name in ("trained_by", "processes")}
        closed = None if record.get("closed") is None else tuple(record["closed"])
        return cls(**{**record, **listed, "missing": missing, "closed": closed})


# Words of stored definitions that mean the same today, the first where the future lasts a second.
_ONE_SECOND = ("its displacement within 1 s|_2", "its displacement by the window's end|_2")
_CONTEXT = ("it sees the whole clip, the model frames 1-12", "it sees the whole clip, the model its context")


def _reworded(info: Mapping[str, Any], evaluator: Mapping[str, str]) -> dict[str, Any]:
    """A stored definition in the words of this version."""
    words = dict(info)
    try:
        window = json.loads(evaluator["window"])
        one_second = window["frames"] - window["context"] == window["fps"]
    except (KeyError, ValueError, TypeError):
        one_second = False
    for before, now in (_CONTEXT, *([_ONE_SECOND] if one_second else [])):
        words |= {field: text.replace(before, now) for field, text in words.items() if isinstance(text, str)}
    return words


def _how_windows_differ(first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """What people change most: size, context, frames."""
    try:
        a, b = (json.loads(one["window"]) for one in (first, second))
        told = [f"{name} {a[name]} and {b[name]}" for name in a if name in b and a[name] != b[name]]
    except (KeyError, ValueError, TypeError):
        return ""
    return f". Their windows: {', '.join(told)}" if told else ""


def runs_in(path: Path) -> set[tuple[str, str, int]]:
    """Backbone, method and seed of every run that a file names, its rows unread; none where it cannot be read."""
    try:
        about = json.loads((pq.read_schema(path).metadata or {})[_METADATA])
        return {(str(run["backbone"]), str(run["method"]), int(run["seed"])) for run in about["runs"]}
    except (OSError, pa.ArrowInvalid, ValueError, KeyError, TypeError):
        return set()


class Scores:
    """A table of scores with what it takes to understand it. Immutable."""

    def __init__(
        self,
        table: pa.Table,
        diagnostics: Mapping[str, DiagnosticInfo],
        evaluator: Mapping[str, str],
        runs: Sequence[RunInfo],
    ) -> None:
        self.table = table.select([*KEY, "value"]).cast(SCHEMA).unify_dictionaries()
        self.diagnostics, self.evaluator, self.runs = dict(diagnostics), dict(evaluator), list(runs)
        self._check()

    @classmethod
    def _of_checked(
        cls,
        table: pa.Table,
        diagnostics: Mapping[str, DiagnosticInfo],
        evaluator: Mapping[str, str],
        runs: Sequence[RunInfo],
    ) -> Scores:
        """Of rows that were checked before, and of which none can be twice: a study has millions."""
        made = cls.__new__(cls)
        made.table = table.unify_dictionaries()
        made.diagnostics, made.evaluator, made.runs = dict(diagnostics), dict(evaluator), list(runs)
        return made

    @classmethod
    def of_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        diagnostics: Mapping[str, DiagnosticInfo],
        evaluator: Mapping[str, str],
        runs: Sequence[RunInfo],
    ) -> Scores:
        listed = list(rows)
        columns = {name: [row[name] for row in listed] for name in (*KEY, "value")}
        return cls(pa.table(columns, schema=_plain()), diagnostics, evaluator, runs)

    @classmethod
    def read(cls, path: Path) -> Scores:
        """A file, or `scores.parquet` in a folder."""
        path = Path(path) / "scores.parquet" if Path(path).is_dir() else Path(path)
        try:
            table = pq.read_table(path)
        except FileNotFoundError:
            raise ScoresError(f"{path}: there are no scores; make them with `factorjepa evaluate RUN...`") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise ScoresError(f"{path}: cannot be read as scores ({error}); evaluate again") from error
        metadata = (table.schema.metadata or {}).get(_METADATA)
        if metadata is None or not {*KEY, "value"} <= {*table.column_names}:
            raise ScoresError(f"{path}: is a Parquet file, but not one that `factorjepa evaluate` wrote")
        try:
            about = json.loads(metadata)
            evaluator, runs = about["evaluator"], [RunInfo.of_record(run) for run in about["runs"]]
            diagnostics = {
                name: DiagnosticInfo(**_reworded(info, evaluator)) for name, info in about["diagnostics"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScoresError(
                f"{path}: is damaged or was written by another version ({error}); evaluate again"
            ) from error
        return cls(table, diagnostics, evaluator, runs)

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        """One table of several; refused when they were measured with different evaluators or share a run.

        Each backbone has a frozen encoder of its own (`encoder/<backbone>`): the table lists all of them. A diagnostic
        that only some of them have is one without scores of the others' runs.
        """
        evaluator, diagnostics = dict(parts[0].evaluator), dict(parts[0].diagnostics)
        for other in parts[1:]:
            different = sorted(
                name
                for name in evaluator.keys() | other.evaluator.keys()
                if evaluator.get(name) != other.evaluator.get(name)
                and not (name.startswith(ENCODER) and (name in evaluator) != (name in other.evaluator))
            )
            evaluator |= other.evaluator
            if different:
                raise ScoresError(
                    f"these scores were measured with different evaluators ({', '.join(different)}) and cannot be "
                    "compared: evaluate all runs with the same settings, corpus and version"
                    + _how_windows_differ(parts[0].evaluator, other.evaluator)
                )
            shared = diagnostics.keys() & other.diagnostics.keys()
            if unlike := sorted(name for name in shared if diagnostics[name] != other.diagnostics[name]):
                raise ScoresError(
                    f"these scores define {', '.join(unlike)} differently: evaluate all runs again, with one version"
                )
            diagnostics |= other.diagnostics
        known: set[tuple[str, str, int]] = set()
        for part in parts:
            if both := sorted(known & part.scored()):
                backbone, method, seed = both[0]
                more = f" and {len(both) - 1} more" if len(both) > 1 else ""
                raise ScoresError(
                    f"{method} with seed {seed} on {backbone}{more} would be in the table twice: the same scores were "
                    "given twice, or the run was evaluated twice; leave one of them out"
                )
            known |= part.scored()
        return cls._of_checked(
            pa.concat_tables([part.table for part in parts]),
            diagnostics,
            evaluator,
            [run for part in parts for run in part.runs],
        )

    def write(self, path: Path) -> Path:
        about = {
            "diagnostics": {name: dataclasses.asdict(info) for name, info in self.diagnostics.items()},
            "evaluator": self.evaluator,
            "runs": [dataclasses.asdict(run) for run in self.runs],
        }
        table = self.table.replace_schema_metadata({_METADATA: json.dumps(about).encode()})
        write_atomic(path, lambda temporary: pq.write_table(table, temporary, compression="zstd"))
        return path

    def select(self, **wanted: str | int) -> Scores:
        """Rows whose columns have these values."""
        mask = np.ones(len(self), np.bool_)
        for name, value in wanted.items():
            names, codes = self._codes(name)
            mask &= codes == names.index(value) if value in names else False
        table = self.table.filter(pa.array(mask))
        return Scores._of_checked(table, self.diagnostics, self.evaluator, self.runs)

    def values(self, column: str) -> list[Any]:
        """Distinct values of a column, sorted."""
        found: list[Any] = sorted(pc.unique(self.table[column]).to_pylist())
        return found

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Plain NumPy columns, words as objects."""
        return {name: self.table[name].to_numpy(zero_copy_only=False) for name in self.table.column_names}

    def coded(self, column: str) -> tuple[list[Any], Codes]:
        """The distinct values of a column, sorted, and the position among them of every row's."""
        known, codes = self._codes(column)
        names = self.values(column)
        place = {name: position for position, name in enumerate(names)}
        positions = np.array([place.get(name, -1) for name in known], np.intp)
        return names, positions[codes]

    def means(self, *by: str) -> dict[tuple[str, ...], float]:
        """Plain means over all rows that agree in these columns."""
        rows = self.table.group_by(list(by)).aggregate([("value", "mean")]).to_pylist()
        return {tuple(row[name] for name in by): row["value_mean"] for row in rows}

    def scored(self) -> set[tuple[str, str, int]]:
        """Backbone, method and seed of every run that has a score."""
        rows = self.table.group_by(["backbone", "method", "seed"]).aggregate([]).to_pylist()
        return {(row["backbone"], row["method"], row["seed"]) for row in rows}

    def lacks(self) -> list[str]:
        """Which scores cannot be had, and why: a sentence for each diagnostic and reason. Seeds that agree are one."""
        several = len({run.backbone for run in self.runs}) > 1
        by_method: dict[str, dict[tuple[Missing, ...], list[int]]] = {}
        for run in self.runs:
            name = f"{run.title} on {run.backbone}" if several else run.title
            by_method.setdefault(name, {}).setdefault(run.missing, []).append(run.seed)
        named = {
            name if len(kinds) == 1 else f"{name} (seed {', '.join(map(str, seeds))})": missing
            for name, kinds in by_method.items()
            for missing, seeds in kinds.items()
        }
        return told(named, {name: info.title for name, info in self.diagnostics.items()}, len(by_method))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def _check(self) -> None:
        for info in self.diagnostics.values():
            for field, allowed in (("direction", Direction), ("status", Status), ("reduction", Reduction)):
                if getattr(info, field) not in get_args(allowed):
                    raise ScoresError(f"diagnostic {info.name!r}: {field} {getattr(info, field)!r} is unknown")
        unknown = set(self.values("diagnostic")) - self.diagnostics.keys()
        if unknown:
            raise ScoresError(f"scores of diagnostics that nothing describes: {', '.join(sorted(unknown))}")
        if pc.any(pc.is_inf(self.table["value"])).as_py():
            raise ScoresError("there are infinite scores, of which no mean exists: evaluate again, or leave them out")
        keys = np.zeros(len(self), np.int64)
        for name in KEY:
            names, codes = self._codes(name)
            if (int(keys.max(initial=0)) + 1) * max(len(names), 1) > _MOST_KEYS:
                keys = np.unique(keys, return_inverse=True)[1]
            keys = keys * len(names) + codes
        ordered = np.sort(keys)
        if (again := ordered[1:][ordered[1:] == ordered[:-1]]).size:
            (twice,) = self.table.take([int(np.argmax(keys == again[0]))]).to_pylist()
            raise ScoresError(
                f"two scores for the same thing: {twice['diagnostic']} ({twice['variant']}) of clip "
                f"{twice['clip_id']!r} for {twice['method']} with seed {twice['seed']} on {twice['backbone']}"
            )

    def _codes(self, column: str) -> tuple[list[Any], Codes]:
        """The words that a column may hold, in any order, and which one each row has."""
        held = self.table[column]
        if not pa.types.is_dictionary(held.type):
            names, codes = np.unique(held.to_numpy(), return_inverse=True)
            return names.tolist(), codes
        chunks = held.chunks
        names = chunks[0].dictionary.to_pylist() if chunks else []
        return names, np.concatenate([np.empty(0, np.intp), *(chunk.indices.to_numpy() for chunk in chunks)])


def _plain() -> pa.Schema:
    return pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in SCHEMA])
