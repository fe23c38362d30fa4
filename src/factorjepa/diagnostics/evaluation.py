"""Runs in, `scores.parquet` out: each run goes through one pass over the clips, which feeds all diagnostics.

OUT/scores.parquet                          every run that agrees with the evaluator
OUT/parts/<backbone>-<method>-<seed>.parquet   one run; finished parts are not made again
OUT/parts/<backbone>-<method>-<seed>.json      which weights they are of, and where the run lies
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch

from .. import commands
from ..adaptation.prepare import count_trainable
from ..config import dump
from ..corpus.manifest import MANIFEST, Manifest
from ..corpus.seal import seal
from ..errors import DiagnosticsError, FactorJEPAError, ScoresError
from ..scores import DiagnosticInfo, RunInfo, Scores, runs_in
from ..storage import only_writer, remove_partials, write_text
from ..training.restore import best_step, restore, settings_of
from ..training.run import CONFIG, RunDirectory
from ..training.settings import TrainSettings
from ..words import AT, base_of, listed
from .asks import Answers, Subject
from .diagnostic import ROLES, Diagnostic, Role
from .evaluator import Conditions, Evaluator
from .registry import chosen
from .settings import EvaluateSettings

log = logging.getLogger(__name__)
SCORES, PARTS = "scores.parquet", "parts"
ABSENT = "not available"  # what an identity says of an instrument that nobody gave
_NAMED = 8  # runs in a warning, of which there may be hundreds
Key = tuple[str, str, int]  # backbone, method, seed
Progress = Callable[[int, int, str], object]
Ahead = Callable[[Sequence["Entry"], Path, Progress | None], set[str]]  # gives the folders that it has measured


@dataclass(frozen=True)
class Entry:
    """A run to be evaluated."""

    run: RunDirectory
    settings: TrainSettings
    conditions: Conditions

    @property
    def key(self) -> Key:
        return self.conditions.backbone, self.settings.method, self.settings.seed

    @property
    def name(self) -> str:
        return _stem(self.key)

    def digest(self) -> str:
        """Of the weights that are evaluated and of what they mean."""
        step = best_step(self.run)
        hashed = hashlib.blake2b(f"{step}\n{self.run.config}".encode(), digest_size=8)
        with open(self.run.folder / "checkpoints" / f"step-{step:06d}" / "weights.safetensors", "rb") as opened:
            while block := opened.read(1 << 24):
                hashed.update(block)
        return hashed.hexdigest()


@dataclass(frozen=True)
class Instruments:
    """What an evaluation measures with: the diagnostics, made anew for every run, and what their numbers depend on."""

    infos: Mapping[str, DiagnosticInfo]
    make: Callable[[Evaluator], list[Diagnostic]]
    identity: Mapping[str, str] = field(default_factory=dict)  # besides the evaluator's
    check: Callable[[Evaluator], object] = lambda evaluator: None  # raises what keeps it from measuring
    needs: Mapping[str, str] = field(default_factory=dict)  # diagnostic -> the part of the identity that it needs
    roles: tuple[Role, ...] = ROLES  # the clips that they look at: of others neither files nor packets are needed

    @classmethod
    def chosen(cls, names: Sequence[str] | None) -> Instruments:
        """Diagnostics of the registry, by name; None: all."""
        kinds = chosen(names)
        infos = {one.info.name: one.info for one in kinds}
        return cls(infos, lambda evaluator: [one(evaluator.settings) for one in kinds])

    def added(self, there: Scores, identity: Mapping[str, str]) -> frozenset[str]:
        """Diagnostics that these scores lack only because an instrument was absent that is at hand now."""
        before = there.evaluator
        other = {name for name in before.keys() | identity.keys() if before.get(name) != identity.get(name)}
        new = {name for name in other & {*self.needs.values()} if before.get(name) == ABSENT}
        if other - new or there.diagnostics != self.infos:
            return frozenset()
        return frozenset(diagnostic for diagnostic, needed in self.needs.items() if needed in new)


@dataclass(frozen=True)
class Registered:
    """Instruments of the registry, as another process can be told to make them."""

    names: tuple[str, ...] | None

    def __call__(self) -> Instruments:
        return Instruments.chosen(self.names)


@dataclass
class Evaluated:
    """What an evaluation made."""

    scores: Scores
    path: Path
    again: list[str] = field(default_factory=list)  # runs whose finished part was kept
    failed: dict[str, str] = field(default_factory=dict)  # run -> why it has no scores


def evaluate(
    runs: Sequence[Path],
    out: Path,
    settings: EvaluateSettings,
    device: torch.device,
    data: Path | None = None,
    targets: Path | None = None,
    progress: Progress | None = None,
    instruments: Instruments | None = None,
    ahead: Ahead | None = None,
) -> Evaluated:
    """Evaluate every run; one that fails is named in `failed` and does not keep the others from their scores.

    `ahead` may measure some of them before, in other processes (`several`): their parts are found and kept.
    """
    refuse_foreign(out)
    instruments = instruments or Instruments.chosen(settings.diagnostics)
    made = Evaluated(Scores.of_rows([], dict(instruments.infos), {}, []), out / SCORES)
    entries, made.failed = entries_of(runs, data, targets)
    with only_writer(out, "evaluating"):
        remove_partials(out, deep=False)  # a decoding may be writing into decoded/
        remove_partials(out / PARTS)
        _refuse_half(out, instruments, entries)
        _refuse_taken(out, entries)
        fresh = ahead(entries, out, progress) if ahead is not None else set()
        parts = measured(entries, out, settings, device, instruments, made, progress)
        made.again = [folder for folder in made.again if folder not in fresh]
        if not parts:
            raise DiagnosticsError(f"no run could be evaluated:\n{failures(made.failed)}")
        parts += earlier_parts(out / PARTS, {entry.name for entry in entries}, parts[0])
        made.scores = Scores.joined(parts)
        warn_of_lost(out, made.scores.scored() | {entry.key for entry in entries}, _stem)
        made.scores.write(made.path)
    return made


def measured(
    entries: Sequence[Entry],
    out: Path,
    settings: EvaluateSettings,
    device: torch.device,
    instruments: Instruments,
    made: Evaluated,
    progress: Progress | None = None,
    evaluators: Callable[[Conditions, EvaluateSettings, torch.device, tuple[Role, ...]], Evaluator] = Evaluator,
) -> list[Scores]:
    """The part of each run, measured and written where it was not there; `made` is told what was kept and what failed.

    Whoever calls this holds the folder's lock, or was asked to by who holds it.
    """
    infos, parts, done = dict(instruments.infos), list[Scores](), 0
    for conditions in dict.fromkeys(entry.conditions for entry in entries):
        group = [entry for entry in entries if entry.conditions == conditions]
        try:
            evaluator = evaluators(conditions, settings, device, instruments.roles)
            instruments.check(evaluator)
            identity = {**evaluator.identity(), **instruments.identity}
            shown = clips_shown(evaluator, instruments)
            _refuse_other(out, parts, identity, instruments)
        except FactorJEPAError as error:
            made.failed |= {str(entry.run.folder): str(error) for entry in group}
            continue
        for entry in group:
            folder, start = str(entry.run.folder), done
            try:
                if entry.settings.resolved_method().reads_states:
                    evaluator.refuse_without_packets()
                digest = entry.digest()
                part = earlier_part(out, entry, digest)
                if part is not None and part.evaluator == identity and part.diagnostics == infos:
                    made.again.append(folder)
                else:
                    total = shown * len(entries)

                    def told(clips: int, start: int = start, total: int = total, note: str = entry.name) -> None:
                        if progress is not None:
                            progress(start + clips, total, note)

                    lacking = instruments.added(part, identity) if part is not None else frozenset()
                    found = _measure(entry, evaluator, identity, instruments, device, told, lacking)
                    part = _extended(part, found, lacking) if part is not None and lacking else found
                    _write(out, entry, digest, part)
                parts.append(part)
            except FactorJEPAError as error:
                made.failed[folder] = str(error)
            done = start + shown
    return parts


def failures(failed: Mapping[str, str]) -> str:
    """What went wrong, each reason once, with the runs that it concerns."""
    by_reason: dict[str, list[str]] = {}
    for run, why in failed.items():
        by_reason.setdefault(why, []).append(run)
    return "\n".join(f"{', '.join(runs)}: {why.removeprefix(f'{runs[0]}: ')}" for why, runs in by_reason.items())


def clips_shown(evaluator: Evaluator, instruments: Instruments) -> int:
    """Clips that one run is shown."""
    measures = instruments.make(evaluator)
    return sum(len(scenes) for scenes in evaluator.parts if any(list(one.asks(scenes.part)) for one in measures))


def run_pass(
    subject: Subject, evaluator: Evaluator, diagnostics: Sequence[Diagnostic], told: Callable[[int], object]
) -> None:
    """Show the model every batch of every part once. What several diagnostics ask is answered once."""
    seen = 0
    for scenes in evaluator.parts:
        if not any(list(one.asks(scenes.part)) for one in diagnostics):
            continue
        for scene in scenes:
            asks = {one: list(one.asks(scenes.part)) for one in diagnostics}
            interested = [one for one in diagnostics if asks[one]]
            answers = Answers(subject, scene, (ask for one in interested for ask in asks[one]))
            for one in interested:
                one.see(scenes.part, scene, answers)
            seen += len(scene)
            told(seen)
    for one in diagnostics:
        one.finish()


def entries_of(runs: Sequence[Path], data: Path | None, targets: Path | None) -> tuple[list[Entry], dict[str, str]]:
    """Every run with what it is measured under, and why the others cannot be read.

    Runs that scores could not tell apart, or of different corpora, are refused together.
    """
    entries: list[Entry] = []
    broken: dict[str, str] = {}
    for folder in runs:
        try:
            run = RunDirectory.existing(folder)
            settings = settings_of(run)
        except FactorJEPAError as error:
            broken[str(folder)] = str(error)
            continue
        entry = Entry(run, settings, Conditions.of(settings, data, targets))
        for other in entries:
            if other.key == entry.key:
                raise DiagnosticsError(_indistinct(str(other.run.folder), entry))
        entries.append(entry)
    _refuse_several(sorted({entry.conditions.data for entry in entries}))
    return entries, broken


def _refuse_several(corpora: Sequence[str]) -> None:
    """Nor is one taken where the clips are the same, as in shards packed of a folder: each may have other packets."""
    if len(corpora) < 2:
        return
    first, *others = (seal(Manifest.read(Path(corpus))) for corpus in corpora)
    if all(other == first for other in others):
        raise DiagnosticsError(
            f"the runs were trained on the same clips, under {len(corpora)} paths ({', '.join(corpora)}): say with "
            "--data which to read"
        )
    raise DiagnosticsError(
        f"the runs were trained on different corpora ({', '.join(corpora)}): say with --data on which clips all "
        "are to be measured"
    )


def _measure(
    entry: Entry,
    evaluator: Evaluator,
    identity: dict[str, str],
    instruments: Instruments,
    device: torch.device,
    told: Callable[[int], object],
    only: frozenset[str],
) -> Scores:
    """Of all diagnostics, or of some."""
    restored = restore(entry.run, device)
    measures = [one for one in instruments.make(evaluator) if not only or one.info.name in only]
    run_pass(Subject(restored.learner, evaluator.precision), evaluator, measures, told)
    backbone, method, seed = entry.key
    rows: list[dict[str, Any]] = [
        {
            "backbone": backbone, "method": method, "seed": seed, "city": found.clip.city, "source": found.clip.source,
            "clip_id": found.clip.clip_id, "diagnostic": one.info.name, "variant": found.variant, "value": found.value,
        }
        for one in measures for found in one.found
    ]  # fmt: skip
    learner = restored.learner
    info = RunInfo(
        backbone=backbone, method=method, seed=seed, title=learner.method.title, family=learner.method.family,
        trainable=count_trainable(learner.spec, learner.method, learner.scope), run=entry.run.folder.name,
        config=dump(entry.settings), step=restored.step, seconds=entry.run.process_seconds(),
        trained_by=tuple(commands.recorded(entry.run.folder)), evaluated_by=commands.command(),
        missing=tuple(lack for one in measures for lack in one.missing), updates=entry.run.updates_made(),
        processes=entry.run.processes(), closed=entry.run.closed(), trained_on=entry.run.trained_on(),
        measured_on=entry.conditions.data,
    )  # fmt: skip
    return Scores.of_rows(rows, instruments.infos, identity, [info])


def earlier_part(out: Path, entry: Entry, digest: str) -> Scores | None:
    """The run's part from before, if it is of these weights."""
    path, about = _part(out, entry.name)
    try:
        if json.loads(about.read_text(encoding="utf-8"))["weights"] != digest:
            return None
        return Scores.read(path)
    except (OSError, ValueError, KeyError, ScoresError):
        return None


def _extended(part: Scores, found: Scores, added: frozenset[str]) -> Scores:
    """A finished part with the scores of diagnostics that could not be had before."""
    (before,), (now,) = part.runs, found.runs
    kept = part.table.filter(pc.invert(pc.is_in(part.table["diagnostic"].cast(pa.string()), pa.array(sorted(added)))))
    missing = tuple(one for one in before.missing if one.diagnostic not in added) + now.missing
    table = pa.concat_tables([kept, found.table]).unify_dictionaries()
    return Scores(table, found.diagnostics, found.evaluator, [dataclasses.replace(now, missing=missing)])


def _indistinct(other: str, entry: Entry) -> str:
    return (
        f"{other} and {entry.run.folder} are both {entry.settings.method} with seed {entry.settings.seed} of "
        f"{entry.conditions.backbone}: scores could not tell them apart. Train one with another seed, or under a name "
        f"of its own: --method {base_of(entry.settings.method)}{AT}other"
    )


def refuse_foreign(out: Path) -> None:
    """Scores lie in a folder of their own."""
    for file, what in ((MANIFEST, "a corpus"), (CONFIG, "a run")):
        if (out / file).is_file():
            raise DiagnosticsError(f"{out}: is {what}; name another folder for the scores, with --out")


def _refuse_taken(out: Path, entries: Sequence[Entry]) -> None:
    """Scores of another run of the same name are not replaced; those of the same folder, trained anew, are."""
    for entry in entries:
        path, about = _part(out, entry.name)
        try:
            told = json.loads(about.read_text(encoding="utf-8"))
            other = run_told(out, told)
            elsewhere = other.resolve() != entry.run.folder.resolve()
            taken = elsewhere and path.is_file() and told["weights"] != entry.digest()
        except (OSError, ValueError, KeyError, TypeError, FactorJEPAError):  # no part, or no run: told where it is read
            continue
        if taken:
            raise DiagnosticsError(
                f"{_indistinct(os.path.relpath(other), entry)}. {out} holds scores of the first: choose another --out, "
                f"or delete {path} to replace them"
            )


def _refuse_half(out: Path, instruments: Instruments, entries: Sequence[Entry]) -> None:
    """An instrument that was absent is for all scored runs: the others would be left behind without it."""
    try:
        there = Scores.read(out / SCORES)
    except ScoresError:
        return
    identity = instruments.identity
    new = sorted(
        name for name in {*instruments.needs.values()} if there.evaluator.get(name) == ABSENT != identity.get(name)
    )
    if new and (others := sorted(there.scored() - {entry.key for entry in entries})):
        named = ", ".join(f"{method} with seed {seed} on {backbone}" for backbone, method, seed in others)
        raise DiagnosticsError(
            f"{out}: holds scores of more runs ({named}), measured without {' and '.join(new)}. Scores are added to "
            "all of them or to none: name these runs, too"
        )


def _refuse_other(out: Path, parts: Sequence[Scores], identity: dict[str, str], instruments: Instruments) -> None:
    """Scores by another evaluator are not overwritten: they took long to make. Nor could they join with `parts`.

    Those that only lack an instrument are completed.
    """
    mine = Scores.of_rows([], instruments.infos, identity, [])
    for part in parts[:1]:
        _refuse_unlike(part, mine)
    try:
        there = Scores.read(out / SCORES)
    except ScoresError:
        return
    if instruments.added(there, identity):
        return
    try:
        _refuse_unlike(there, mine)
    except ScoresError as error:
        raise DiagnosticsError(
            f"{out}: holds scores of another evaluation: {error}. Choose another --out, or delete that folder"
        ) from None


def _refuse_unlike(one: Scores, other: Scores) -> None:
    """Of one folder all scores are of the same diagnostics by the same evaluator."""
    Scores.joined([one, other])
    first, second = (scores.diagnostics.keys() for scores in (one, other))
    if differ := sorted(first ^ second):
        raise ScoresError(f"diagnostics are not the same: {listed(differ)} in one of the two evaluations alone")


def _write(out: Path, entry: Entry, digest: str, part: Scores) -> None:
    path, about = _part(out, entry.name)
    part.write(path)
    known = {"weights": digest, "run": str(entry.run.folder), "folder": _folder(out, entry)}
    write_text(about, json.dumps(known, indent=1))


def _folder(out: Path, entry: Entry) -> str:
    """Where the run lies from the scores: the same wherever both are moved to, and from wherever one asks."""
    return os.path.relpath(entry.run.folder.resolve(), out.resolve())


def run_told(out: Path, told: Mapping[str, Any]) -> Path:
    """The run's folder, by what a part of the scores in `out` tells; parts of before had it as somebody typed it."""
    return Path(os.path.normpath(out.resolve() / told["folder"])) if "folder" in told else Path(told["run"])


def earlier_parts(folder: Path, besides: set[str], like: Scores) -> list[Scores]:
    """Parts that lie in the folder from before, if they were measured by the same evaluator."""
    found = []
    for path in sorted(folder.glob("*.parquet")):
        if path.stem in besides:
            continue
        try:
            part = Scores.read(path)
            _refuse_unlike(like, part)
            found.append(part)
        except ScoresError as error:
            log.warning("%s is left out of %s: %s", path.name, SCORES, error)
    return found


def warn_of_lost(out: Path, known: set[Key], stem: Callable[[Key], str]) -> None:
    """Name what the scores had and lose now because its part was deleted; `stem` is what a part is called."""
    parts = [out / PARTS / f"{stem(key)}.parquet" for key in sorted(runs_in(out / SCORES) - known)]
    if lost := [part.stem for part in parts if not part.exists()]:  # why others are left out was said
        more = [f"{len(lost) - _NAMED} more"] if len(lost) > _NAMED else []
        log.warning(
            "%s loses the scores of %s: no such part in %s any more; evaluate again to have them back",
            out / SCORES, listed([*lost[:_NAMED], *more]), out / PARTS,
        )  # fmt: skip


def _stem(key: Key) -> str:
    """What the files of a run's part are called."""
    backbone, method, seed = key
    return re.sub(r"[^\w.]+", "_", backbone) + f"-{method}-{seed}"


def _part(out: Path, name: str) -> tuple[Path, Path]:
    return out / PARTS / f"{name}.parquet", out / PARTS / f"{name}.json"
