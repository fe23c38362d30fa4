"""Which commands made what a page shows, as each stage recorded them. What nobody recorded is said to be unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .. import commands
from ..corpus.manifest import MANIFEST, Manifest
from ..errors import FactorJEPAError
from ..scores import RunInfo, Scores
from ..statistics import Comparison
from ..words import counted, listed

_TARGETS = "targets"  # in a corpus, unless a run says otherwise
_MOST_NAMES = 3  # of runs or encoders that one command made


@dataclass(frozen=True)
class Step:
    """A command and what it made; an empty line: nobody knows."""

    made: str
    line: str = ""


def steps_of(scores: Scores, comparison: Comparison, corpus: Path | None) -> list[Step]:
    """In the order of the work; a command that made several things is named once."""
    made: dict[str, list[tuple[str, str]]] = {}  # line -> kind and name

    def by(lines: Sequence[str], kind: str, name: str = "") -> None:
        for line in lines or [""]:
            made.setdefault(line, []).append((kind, name))

    trained = [run for run in scores.runs if run.config]  # a scorecard's encoders are nobody's run
    own = {data.resolve(): data for run in trained if (data := _trained_on(run)) and (data / MANIFEST).is_file()}
    if corpus is not None:
        by(commands.recorded(corpus), "corpus")
        own.pop(corpus.resolve(), None)
    for data in own.values():
        by(commands.recorded(data), "corpus of training")
    packets = [folder for run in trained if (folder := _packets(run)) is not None]
    if corpus is not None and own:
        packets.append(corpus / _TARGETS)
    for folder in {one.resolve(): one for one in packets if one.is_dir()}.values():
        by(commands.recorded(folder), "packets")
    for run in trained:
        by(run.trained_by, "run", run.run)
    for run in scores.runs:
        by([run.evaluated_by] if run.evaluated_by else [], "scores of", run.run if run.config else run.title)
    by([comparison.command] if comparison.command else [], "comparison")
    by([commands.command()] if commands.command() else [], "page")
    known = [Step(_listed(things), line) for line, things in made.items() if line]
    return [*known, *([Step(_listed(made[""]))] if "" in made else [])]


def corpus_of(scores: Scores) -> Path | None:
    """The corpus of the scored clips, where it is still there and has them: that on which runs were measured.

    Scores of before it was recorded are looked up where the runs were trained.
    """
    measured = [Path(run.measured_on) for run in scores.runs if run.measured_on]
    for named in (measured, [data for run in scores.runs if (data := _trained_on(run))]):
        found = {folder.resolve(): folder for folder in dict.fromkeys(named) if _holds(folder, scores)}
        if found:
            return next(iter(found.values())) if len(found) == 1 else None
    return None


def _holds(corpus: Path, scores: Scores) -> bool:
    try:
        return not clips_lacking(corpus, scores)
    except FactorJEPAError:  # it is gone, or named from elsewhere
        return False


def clips_lacking(corpus: Path, scores: Scores) -> list[str]:
    """Scored clips that its manifest does not have: they are of another corpus."""
    return sorted({*scores.values("clip_id")} - {clip.clip_id for clip in Manifest.read(corpus)})


def settings_of(run: RunInfo) -> dict[str, object]:
    """A run's resolved configuration; empty where it cannot be read."""
    try:
        settings = yaml.safe_load(run.config)
    except yaml.YAMLError:
        return {}
    return settings if isinstance(settings, dict) else {}


def _trained_on(run: RunInfo) -> Path | None:
    data = settings_of(run).get("data")
    return Path(data) if isinstance(data, str) else None


def _packets(run: RunInfo) -> Path | None:
    named, corpus = settings_of(run).get("targets"), _trained_on(run)
    return Path(named) if isinstance(named, str) else corpus and corpus / _TARGETS


def _listed(things: Sequence[tuple[str, str]]) -> str:
    """`corpus, run a, scores of a and b`; many of a kind are counted."""
    said = []
    for kind in dict.fromkeys(kind for kind, _ in things):
        names = list(dict.fromkeys(name for of, name in things if of == kind))
        if len(names) > _MOST_NAMES:
            said.append(counted(len(names), "run") if kind == "run" else f"{kind} {counted(len(names), 'run')}")
        elif names == [""]:
            said.append(kind)
        else:
            said.append(f"{kind if len(names) == 1 or kind != 'run' else 'runs'} {listed(names)}")
    return ", ".join(said)
