"""`factorjepa report OUT`: from a folder with scores to a page and its tables.

OUT/scores.parquet  OUT/comparison/ (made if absent or older)  OUT/examples/ (optional)
OUT/decoded/ (optional)
OUT/report/index.html  OUT/report/tables/*.csv

Of several folders, their scores are joined in a new one first.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ..adaptation import METHODS
from ..corpus.composition import Composition, compose
from ..corpus.manifest import Manifest
from ..decoded import FOLDER
from ..diagnostics.evaluation import run_told
from ..errors import FactorJEPAError, ReportError, ScoresError, StorageError, TrainingError
from ..examples import read_examples
from ..scores import Scores
from ..statistics import CompareSettings, Comparison, compare
from ..statistics.comparison import FILE
from ..statistics.contrasts import Contrast
from ..statistics.strata import strata_in, stratified, unmeasured
from ..statistics.variants import with_variants
from ..statistics.verdict import RULE
from ..storage import refuse_unwritable, write_text
from ..training.tuning import TUNING, Tried, read_tried
from ..words import counted, listed
from .curves import Run
from .decoded import SCORES, read_futures, refuse_other_clips
from .material import Decoded, Material, Statement
from .page import page
from .provenance import clips_lacking, corpus_of, steps_of

COMPARISON, REPORT, TABLES, INDEX = "comparison", "report", "tables", "index.html"
_MOST_RUNS = 8  # of a training figure
_SIMULATION = "simulation.yaml"


@dataclass
class Made:
    """What was written, and what a person should hear about it."""

    page: Path
    compared: bool  # whether the comparison was made on the way
    verdict: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_report(
    out: Path,
    runs: Sequence[Path] | None = None,
    data: Path | None = None,
    to: Path | None = None,
    settings: CompareSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Made:
    """Read what there is, compare if need be, write the page. What is missing or unreadable is said on the page."""
    if not Path(out).is_dir():
        raise ReportError(f"{out}: is not a folder; a report is made of the folder that `factorjepa evaluate` wrote")
    _refuse_decoded_alone(Path(out))
    scores = Scores.read(out)
    if not len(scores):
        raise ReportError(f"{out}: scores.parquet holds no scores; evaluate again")
    folder = to or Path(out) / REPORT
    refuse_unwritable(folder)
    if (folder / INDEX).is_file() and "FactorJEPA report" not in (folder / INDEX).read_text("utf-8", "replace")[:4096]:
        raise ReportError(f"{folder / INDEX}: is a page of somebody else's; choose another folder with --out")
    if data is not None and (lacking := clips_lacking(data, scores)):
        raise ReportError(
            f"{data}: is not the corpus of these scores: {counted(len(lacking), 'scored clip')} are not in its "
            f"manifest, for example {lacking[0]!r}; name the one that was evaluated, or leave --data out"
        )
    corpus = data or corpus_of(scores)
    comparison, compared, notes = _comparison(out, scores, corpus, settings, progress)
    scores = _as_compared(scores, comparison)
    folders = _run_folders(out, runs)
    read, unreadable = _runs(folders)
    tried, undone = _tried(folders)
    examples, broken = read_examples(out)
    decoded, undecoded = read_futures(Path(out))
    if decoded.scores and decoded.comparison and not _fits(decoded.comparison, decoded.scores):
        decoded = Decoded(decoded.examples)
        undecoded.append("decoded futures: their comparison was made from other scores; evaluate them again")
    decoded, elsewhere = refuse_other_clips(decoded, scores)
    if decoded.scores and decoded.comparison:
        notes += _add_strata(decoded.comparison, decoded.scores, corpus, Path(out) / FOLDER / COMPARISON)
    notes += [*scores.lacks(), *unreadable, *undone, *broken, *undecoded, *elsewhere]
    material = Material(
        title=_title(Path(out)), scores=scores, comparison=comparison, runs=read, tried=tried, examples=examples,
        decoded=decoded, data=_statement(corpus, required=data is not None),
        steps=steps_of(scores, comparison, corpus), notes=notes,
    )  # fmt: skip
    text = page(material)
    comparison.write(folder / TABLES)
    write_text(folder / TABLES / "cities.csv", _cities(material))
    write_text(folder / INDEX, text)
    return Made(folder / INDEX, compared, [*comparison.verdict, *comparison.notes], notes)


def _title(out: Path) -> str:
    """The folder's name, or that of the study in which its scores lie."""
    folder = out.resolve()
    return folder.parent.name if folder.name == "scores" and folder.parent.name else folder.name


def join_scores(parts: Sequence[Path], to: Path | None) -> tuple[Path, list[Path]]:
    """The folder in which scores of several are one, for a report of all, and the folders of their runs."""
    if to is None or (to / "parts").exists():
        raise ReportError("a report of several folders needs one of its own, that holds no evaluation: --out FOLDER")
    Scores.joined([Scores.read(part) for part in parts]).write(to / SCORES)
    return to, [folder for part in parts for folder in _run_folders(part, None)]


def _refuse_decoded_alone(out: Path) -> None:
    """Decoded scores are a second look: the page is about the latent ones."""
    if (out / FOLDER / SCORES).exists() and not (out / SCORES).exists():
        raise ReportError(
            f"{out}: holds decoded scores alone. The page is made of latent scores and shows decoded futures beside "
            f"them: run `factorjepa evaluate RUN... --out {out}` on the same runs first"
        )
    if out.name == FOLDER and (out.parent / SCORES).exists():
        raise ReportError(f"{out}: holds decoded scores; make the report of {out.parent}, where they belong")


def _add_strata(found: Comparison, scores: Scores, corpus: Path | None, folder: Path) -> list[str]:
    """Where the corpus was measured after its scores were compared."""
    if found.strata or not (levels := strata_in(corpus, scores)):
        return []
    found.strata = stratified(scores, levels, _settings_of(found))
    found.notes += unmeasured(levels, scores)
    return _not_kept(found, folder)


def _not_kept(found: Comparison, folder: Path) -> list[str]:
    """Keep it beside the scores, and say where that cannot be: the page has tables of its own."""
    try:
        found.write(folder)
    except StorageError as error:
        return [f"{folder}: stays as it was, the page's own tables are newer ({error})"]
    return []


def _comparison(
    out: Path,
    scores: Scores,
    corpus: Path | None,
    settings: CompareSettings | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Comparison, bool, list[str]]:
    """The one beside the scores; made when there is none, or when it is of other scores."""
    folder = Path(out) / COMPARISON
    notes: list[str] = []
    if (folder / FILE).exists() and settings is None:
        try:
            found = Comparison.read(folder)
            newer = (folder / FILE).stat().st_mtime >= (Path(out) / SCORES).stat().st_mtime
            if newer and _fits(found, scores):
                return found, False, _add_strata(found, scores, corpus, folder)
            settings, lost = _settings_for(found, scores)
            without = f" without {listed(lost)}, which the scores no longer hold" if lost else ""
            notes.append(f"{folder}: was made from other scores or by an older rule and has been made again{without}")
        except ScoresError:
            notes.append(f"{folder}: could not be read and has been made again")
    catalogue = {name: method.title for name, method in METHODS.items()}
    made = compare(scores, settings or CompareSettings(), progress, catalogue)
    levels = strata_in(corpus, scores)
    made.strata = stratified(scores, levels, settings)
    made.notes += unmeasured(levels, scores)
    if not_kept := _not_kept(made, folder):
        return made, True, [*notes, *not_kept]
    return Comparison.read(folder), True, notes


_KEPT = ("replicates", "seed", "confidence", "alpha", "common", "mixed", "seed_variance")


def _settings_of(found: Comparison) -> CompareSettings:
    """How its intervals were made."""
    return CompareSettings(**{name: found.settings[name] for name in _KEPT if name in found.settings})


def _settings_for(found: Comparison, scores: Scores) -> tuple[CompareSettings, list[str]]:
    """What it was asked for, of these scores; and what of that they no longer hold."""
    methods, lost = scores.values("method"), []
    also, variants = [], []
    for pair in (Contrast(**one) for one in found.settings.get("also", ())):
        if {pair.a, pair.b} <= {*methods}:
            also.append(pair)
        else:
            lost.append(pair.name)
    for name in found.settings.get("variants", ()):
        try:
            with_variants(scores, [name])
            variants.append(name)
        except ScoresError:
            lost.append(name)
    return dataclasses.replace(_settings_of(found), also=also, variants=variants), lost


def _as_compared(scores: Scores, found: Comparison) -> Scores:
    """With the variants that somebody asked for, which stand beside the diagnostics."""
    return with_variants(scores, found.settings.get("variants", ()))


def _fits(found: Comparison, scores: Scores) -> bool:
    there = {(row.backbone, row.method) for row in found.scores}
    here = {(run.backbone, run.method) for run in scores.runs}
    try:
        same = {row.diagnostic for row in found.scores} <= _as_compared(scores, found).diagnostics.keys()
    except ScoresError:  # a variant that they no longer hold
        return False
    by_today = found.settings.get("decided_by") == RULE
    return found.evaluator == scores.evaluator and same and there == here and by_today


def _run_folders(out: Path, named: Sequence[Path] | None) -> list[Path]:
    """The folders named, those the scores' parts tell of, or those in OUT/runs."""
    if named:
        return list(named)
    told = []
    for about in sorted((Path(out) / "parts").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # then it is drawn when named
            told.append(run_told(Path(out), json.loads(about.read_text(encoding="utf-8"))))
    return [folder for folder in told if folder.is_dir()] or sorted(
        config.parent for config in (Path(out) / "runs").glob("*/config.yaml")
    )


def _tried(folders: Sequence[Path]) -> tuple[list[Tried], list[str]]:
    """What a study let its methods try, beside the folder of its runs."""
    found: list[Tried] = []
    problems = []
    for study in dict.fromkeys(folder.resolve().parent.parent for folder in folders):
        try:
            found += read_tried(study / TUNING)
        except (TrainingError, OSError, ValueError) as error:
            problems.append(f"what was tuned: {error}")
    return found, problems


def _runs(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """One run per method, in the order given; what cannot be drawn is said."""
    found: dict[str, Run] = {}
    problems = []
    for folder in folders:
        try:
            run = Run.read(folder)
        except FactorJEPAError as error:
            problems.append(f"training curve: {error}")
            continue
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            yaml.YAMLError,
        ) as error:  # a damaged record fails in many ways
            problems.append(f"training curve: {folder}: its record cannot be read ({error})")
            continue
        found.setdefault(run.method.name, run)
    kept = list(found.values())
    if len(kept) > _MOST_RUNS:
        problems.append(f"training curve: {len(kept) - _MOST_RUNS} of {len(kept)} methods are left out")
    return kept[:_MOST_RUNS], problems


def _statement(corpus: Path | None, required: bool) -> Statement:
    """Where the pictures come from, and what is known about the people in them."""
    if corpus is None:
        return Statement([
            "The corpus was not at hand when this page was made (name it with --data), so nothing is said about its "
            "footage. "
            "Before you share pictures from this page, find out whether people in them can be recognised.",
        ])  # fmt: skip
    try:
        composition = compose(Manifest.read(corpus))
    except FactorJEPAError:
        if required:
            raise
        return Statement([f"The corpus {corpus} could not be read."])
    if (corpus / _SIMULATION).is_file():
        origin = (
            "Every frame was rendered by the simulated DENSEWORLD. No person was filmed, and the cities are invented."
        )
    else:
        origin = f"The frames are footage of real places. {_privacy(composition)}"
    total, parts = composition.total, composition.splits.items()
    rows = [
        ("corpus", corpus.name),
        ("clips", f"{total.clips:,} of {total.sources:,} source videos, {total.hours:.1f} hours"),
        ("cities", ", ".join(composition.cities)),
        ("splits", "; ".join(f"{name} {part.clips:,} clips, {part.sources:,} sources" for name, part in parts)),
        ("capture", ", ".join(f"{mode} {amount.clips:,}" for mode, amount in composition.capture_modes.items())),
    ]  # fmt: skip
    split = "A source video lies in one split only; test and audit targets are never shown to training."
    return Statement([origin, split], rows)


def _privacy(composition: Composition) -> str:
    """What the clips say of themselves: ingest notes whether faces and plates were filtered."""
    said = composition.tags.get("privacy", {})
    if set(said) == {"on"} and sum(said.values()) == composition.total.clips:
        return "Faces and number plates that were found were blurred before anything was written; detectors miss some."
    if "off" in said:
        return (
            "Faces and number plates were NOT blurred: privacy was switched off when the corpus was made. People in "
            "pictures on this page may be recognisable."
        )
    return (
        "The manifest does not say whether faces and number plates were made unrecognisable: find out before you share "
        "pictures from this page."
    )


def _cities(material: Material) -> str:
    """The total contrast in each city."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["backbone", "contrast", "a", "b", "diagnostic", "city", "effect"])
    for row in material.comparison.contrasts:
        if row.contrast == "total" and row.status == "primary":
            effects = material.city_effects(row.backbone, row.a, row.b, row.diagnostic)
            for city, effect in sorted(effects.items()):
                writer.writerow([row.backbone, row.contrast, row.a, row.b, row.diagnostic, city, f"{effect:.10g}"])
    return text.getvalue()
