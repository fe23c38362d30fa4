"""What a reader must know before the answers: small samples, short or unequal training, scores near chance."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..adaptation import known
from ..adaptation.budget import TOLERANCE
from ..scores import RunInfo
from ..statistics.compare import FEW_CITIES
from ..statistics.deciding import about_seeds, most_freedom
from ..statistics.intervals import expected_coverage
from ..statistics.untested import untested
from ..statistics.verdict import LEAST_CITIES
from ..training.tuning import FROM_FILE
from ..words import apart, counted, listed
from .material import BASELINE, Material
from .numbers import number
from .provenance import settings_of

FEW_CLIPS, FEW_SOURCES, FEW_UPDATES = 100, 20, 1000
UPDATE = "clips per update"
LOOK_BACK = ("recalled", "recall_hidden", "recall_follows", "recall_blind", "carried")
# Settings of a run that a fair comparison keeps equal.
PROTOCOL = (
    "updates", UPDATE, "lr", "branch_rate", "gate_rate", "final_lr", "warmup", "weight_decay", "frozen_bits",
    "size", "frames", "fps", "context", "data", "clips", "weights", *LOOK_BACK, "ranks",
)  # fmt: skip
_PATHS = ("data", "weights")
_NAMED = 4  # methods, before they are counted


class Caution(str):
    """What is said, and then who has what: a page may fold the second."""

    said: str
    who: str

    def __new__(cls, said: str, who: str) -> Caution:
        made = super().__new__(cls, f"{said} {who}")
        made.said, made.who = said, who
        return made


def cautions(material: Material) -> list[str]:
    """Why this sample may be too small to say anything; empty for one that is not."""
    scores = material.scores
    said: list[str] = []
    cities, sources, clips = (len(scores.values(name)) for name in ("city", "source", "clip_id"))
    if cities == 1:
        said.append("All clips come from one city: nothing is decided, because nothing is known about another one.")
    elif cities < FEW_CITIES:
        confidence = float(material.comparison.settings.get("confidence", 0.95))
        covered = expected_coverage(cities, confidence)
        undecided = f" Fewer than {LEAST_CITIES} decide nothing." if cities < LEAST_CITIES else ""
        said.append(
            f"{cities} cities are few: a {confidence:.0%} interval may cover only {covered:.0%}, and p-values are too "
            f"small.{undecided or ' Decisions allow for it.'}"
        )
    if clips < FEW_CLIPS or sources < FEW_SOURCES:
        said.append(f"{counted(clips, 'clip')} of {counted(sources, 'source video')} are a small sample.")
    said += [one for backbone in material.backbones for one in smaller_family(material, backbone)]
    trained = [run for run in scores.runs if _trains(run)]
    said += unfinished(trained)
    if trained:
        said += _few_seeds(material)
    made = max((_updates(material, run) for run in trained), default=0)
    if trained and made < FEW_UPDATES:
        said.append(
            f"Trained for at most {counted(made, 'update')} (the paper: 20,000): what is decided here is about short "
            "training."
        )
    for backbone in material.backbones:
        said += [*unequal_training(material, backbone), *closed_pathways(material, backbone)]
    return said


def unfinished(runs: Iterable[RunInfo]) -> list[str]:
    """Runs that were stopped before their schedule had ended, with a learning rate that was still high."""
    found = []
    for run in runs:
        planned = settings_of(run).get("updates")
        if isinstance(planned, int) and run.updates is not None and run.updates < planned and _trains(run):
            found.append(f"{run.run} made {run.updates} of {counted(planned, 'update')}")
    if not found:
        return []
    which = f"{listed(found[:_NAMED])}{f' and {len(found) - _NAMED} more' if len(found) > _NAMED else ''}"
    return [f"Unfinished: {which}. `factorjepa train … --resume` finishes a run; evaluate it again then."]


def smaller_family(material: Material, backbone: str) -> list[str]:
    """Prespecified tests that are missing: p-values are of a smaller family than was planned."""
    rows = [row for row in material.comparison.contrasts if row.backbone == backbone]
    said, which = untested(rows, {name: info.title for name, info in material.scores.diagnostics.items()})
    if not said:
        return []
    where = f"{backbone}: {said}" if len(material.backbones) > 1 else f"{said[0].upper()}{said[1:]}"
    return [Caution(f"{where}.", f"Not made: {which}.")]


def _few_seeds(material: Material) -> list[str]:
    """What few training seeds keep from being decided, once for all backbones of which the same is to be said."""
    by_words: dict[str, list[str]] = {}
    for backbone in material.backbones:
        if words := _about_seeds(material, backbone):
            by_words.setdefault(words, []).append(backbone)
    if list(by_words.values()) == [material.backbones]:
        return [f"{words[0].upper()}{words[1:]}." for words in by_words]
    return [f"{listed(backbones)}: {words}." for words, backbones in by_words.items()]


def _about_seeds(material: Material, backbone: str) -> str:
    """Nothing where they are enough."""
    trained = {run.method for run in material.scores.runs if run.backbone == backbone and _trains(run)}
    fewest = min((count for method, count in seeds_of(material, backbone).items() if method in trained), default=0)
    rows = [row for row in material.comparison.contrasts if row.backbone == backbone]
    tests = sum(row.family == "primary" and math.isfinite(row.p) for row in rows)
    alpha = float(material.comparison.settings.get("alpha", 0.05))
    return about_seeds(fewest, tests, alpha, most_freedom(rows)) if fewest else ""


def unequal_training(material: Material, backbone: str) -> list[str]:
    """In what the training of the compared runs differs, other than in the method; empty where it does not."""
    by_setting: dict[str, dict[str, list[str]]] = {key: {} for key in PROTOCOL}
    for run in material.scores.runs:
        if run.backbone == backbone and _trains(run):
            used = _own_settings(run) | {"updates": _updates(material, run)}
            if isinstance(used.get("batch"), int):
                used[UPDATE] = _clips_per_update(used, run.processes)
            for key in PROTOCOL:
                if key in used:
                    value = "not set" if used[key] is None else str(used[key])
                    value = seen_from_here(value) if key in _PATHS and used[key] is not None else value
                    by_setting[key].setdefault(value, []).append(run.title)
    tuned = _tuned(material, backbone)
    differences = {
        key: ", ".join(f"{value} ({_few(list(dict.fromkeys(titles)))})" for value, titles in values.items())
        for key, values in by_setting.items()
        if len(values) > 1 and key not in tuned
    }
    where = f" on {backbone}" if len(material.backbones) > 1 else ""
    without = _without(material, tuned)
    fewer = f"; {without}, and so had fewer tries" if without else ""
    said: list[str] = (
        [f"Tuned{where}: validation clips chose {listed(tuned)} for each method, from the same values{fewer}."]
        if tuned
        else []
    )
    if differences:
        who = "; ".join(f"{key}: {values}" for key, values in differences.items())
        settings = listed(list(differences))
        about = f"Unequal training{where}, in {settings}: differences between methods may come from it."
        said.append(Caution(about, f"{who}."))
    return said + _unequal_size(material, backbone, where)


def closed_pathways(material: Material, backbone: str) -> list[str]:
    """Runs whose gates or edges had closed when they ended: what is said of them is not about that part."""
    runs: dict[str, list[RunInfo]] = {}
    for run in material.scores.runs:
        method = known(run.method)
        if run.backbone == backbone and method is not None and method.has_branches:
            runs.setdefault(run.title, []).append(run)
    by_pathway: dict[str, dict[str, list[str]]] = {}
    for title, of_method in runs.items():
        for pathway in dict.fromkeys(pathway for run in of_method for pathway in run.closed or ()):
            count = sum(pathway in (run.closed or ()) for run in of_method)
            share = "" if count == len(of_method) else f" in {count} of {len(of_method)} runs"
            by_pathway.setdefault(pathway, {}).setdefault(share, []).append(title)
    if not by_pathway:
        return []
    unknown = [title for title, of_method in runs.items() if any(run.closed is None for run in of_method)]
    named = "; ".join(
        f"{pathway}: {', '.join(f'{_few(titles)}{share}' for share, titles in shares.items())}"
        for pathway, shares in by_pathway.items()
    )
    where = f" on {backbone}" if len(material.backbones) > 1 else ""
    lacks = f" Not recorded: {_few(unknown)}." if unknown else ""
    said = f"Gates or edges had closed by the end of training{where}: there such a model is its own control."
    return [Caution(said, f"{named}.{lacks}")]


def _unequal_size(material: Material, backbone: str, where: str) -> list[str]:
    """Where methods that ought to be level train more parameters than others: those of ours, controls, the baseline."""
    sizes = {
        run.title: run.trainable
        for run in material.scores.runs
        if run.backbone == backbone and _trains(run)
        and (run.family in ("control", "factorized", "ablation") or run.method == BASELINE)
    }  # fmt: skip
    if not sizes or max(sizes.values()) <= (1 + TOLERANCE) * min(sizes.values()):
        return []
    by_size: dict[str, list[str]] = {}
    for title, size in sorted(sizes.items(), key=lambda one: one[1]):
        by_size.setdefault(f"{size / 1e6:.2f} M", []).append(title)
    named = ", ".join(f"{size} ({_few(titles)})" for size, titles in by_size.items())
    more = max(sizes.values()) / min(sizes.values()) - 1
    about = f"Unequal size{where}: the largest trains {more:.0%} more parameters than the smallest."
    return [Caution(about, f"{named}.")]


def differing(material: Material, backbone: str, a: str, b: str) -> str:
    """Settings of the protocol in which the runs of two methods differ, from `b` to `a`: `lr 0.0006 to 0.002`."""
    used: dict[str, dict[str, set[str]]] = {a: {}, b: {}}
    for run in material.scores.runs:
        if run.backbone == backbone and run.method in used and _trains(run):
            for key, value in _own_settings(run).items():
                used[run.method].setdefault(key, set()).add(str(value))
    both = [key for key in PROTOCOL if key in used[a] and key in used[b] and used[a][key] != used[b][key]]
    return ", ".join(f"{key} {'/'.join(sorted(used[b][key]))} to {'/'.join(sorted(used[a][key]))}" for key in both)


def seen_from_here(path: str) -> str:
    """One name for what runs call `corpus`, `../corpus` or `/here/corpus`, each as it read where it was trained."""
    inside = os.path.relpath(os.path.realpath(path))
    parts = Path(path if inside.startswith(os.pardir) else inside).parts
    return str(Path(*itertools.dropwhile(lambda part: part == os.pardir, parts)))


def _own_settings(run: RunInfo) -> dict[str, object]:
    """Without settings of what its method does not have, and with what its predictor may look at."""
    used, method = settings_of(run), known(run.method)
    idle: frozenset[str] = frozenset()
    if method is not None:
        changed = used.get("predictor")
        options = vars(method.predictor) | (changed if isinstance(changed, dict) else {})
        used = used | {key: options[key] for key in LOOK_BACK}
        if hasattr(method.predictor, "ranks"):
            used = used | {"ranks": list(options["ranks"])}
        idle = method.idle_settings - ({"branch_rate"} if options["recalled"] else set())
    if "branch_rate" in used and used.get("gate_rate") in (None, used["branch_rate"]):
        used = used | {"gate_rate": "that of branches"}
    return {key: value for key, value in used.items() if key not in idle}


def _tuned(material: Material, backbone: str) -> list[str]:
    """Settings in which every run that trained has what validation chose for its method."""
    chosen = {
        one.method: one.values for one in material.tried if one.chosen and one.backbone in ("", FROM_FILE, backbone)
    }
    runs = [run for run in material.scores.runs if run.backbone == backbone and _trains(run)]
    names = dict.fromkeys(name for values in chosen.values() for name in values)
    return [
        name
        for name in names
        if all(run.method in chosen and _as_chosen(run, name, chosen[run.method]) for run in runs)
    ]


def _as_chosen(run: RunInfo, name: str, values: Mapping[str, str]) -> bool:
    """A method that has nothing of that name to set tries no values of it."""
    return name not in values or str(settings_of(run).get(name)) == values[name]


def _without(material: Material, tuned: Sequence[str]) -> str:
    """Who tried no values of something that was tuned, because the method does not have it."""
    lacks: dict[str, list[str]] = {}
    for one in material.tried:
        for name in tuned:
            if name not in one.values:
                lacks.setdefault(name, []).append(material.title_of(one.method))
    return " and ".join(f"{_few(list(dict.fromkeys(titles)))} tried no {name}" for name, titles in lacks.items())


def _clips_per_update(settings: Mapping[str, object], processes: Sequence[int]) -> str:
    """batch x accumulate x processes; where a run went on with more or fewer, one after the other."""
    batch, passes = (int(str(settings.get(name) or 1)) for name in ("batch", "accumulate"))
    return " then ".join(str(batch * passes * one) for one in processes or (1,))


def _few(titles: list[str]) -> str:
    titles, more = list(map(apart, titles)), len(titles) - _NAMED
    return listed(titles) if more <= 1 else f"{', '.join(titles[:_NAMED])} and {more} more"


def _trains(run: RunInfo) -> bool:
    """Not the frozen model, nor one that is interpolated from a run without an update of its own."""
    method = known(run.method)
    return run.trainable > 0 and (method is None or method.trains)


def _updates(material: Material, run: RunInfo) -> int:
    """Updates made, not the checkpoint's: as the scores say, else the run's own record, else as planned."""
    if run.updates is not None:
        return run.updates
    recorded = [one.last for one in material.runs if one.name == run.run]
    planned = settings_of(run).get("updates")
    return recorded[0] if recorded else planned if isinstance(planned, int) else run.step


def near_chance(material: Material, backbone: str) -> list[str]:
    """Diagnostics on which methods are not above what who knows nothing scores, and how many of them."""
    said = []
    for info in material.diagnostics.values():
        chance = material.chance(backbone, info.name)
        rows = [row for row in material.rows(backbone, info.name) if math.isfinite(row.low)]
        sign = 1.0 if info.direction == "higher" else -1.0
        near = [row for row in rows if min(sign * row.low, sign * row.high) <= sign * chance]
        if not near or not math.isfinite(chance):
            continue
        who = f"all {len(rows)} methods" if len(near) == len(rows) > 1 else listed([row.title for row in near[:6]])
        more = f" and {len(near) - 6} more" if len(near) > 6 and len(near) < len(rows) else ""
        why = info.about_chance(chance)
        said.append(f"{info.title} (chance {number(chance, 2)}): {who}{more}.{f' Its {why}.' if why else ''}")
    return said


def seeds_of(material: Material, backbone: str | None = None) -> dict[str, int]:
    """Seeds of every method that trains."""
    found: dict[str, set[int]] = {}
    for run in material.scores.runs:
        if backbone in (None, run.backbone):
            found.setdefault(run.method, set()).add(run.seed)
    return {method: len(seeds) for method, seeds in found.items()}
