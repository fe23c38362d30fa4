"""`compare` and the report's reading of it on scores of a whole study: seconds of each step and the most memory.

    python benchmarks/bench_compare.py [--methods 26] [--clips 645] [--replicates 10000] [--keep FOLDER]

26 methods, of which 25 train with 3 seeds each; 645 clips in 129 sources of 8 cities; 18 diagnostics with the 162
variants that `evaluate` writes on `nano`: 7.9 million rows. Values are noise around a method's level; one clip in
thirty has no value of the variants that need interacting agents, and only the factorized methods have leakage.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from factorjepa.adaptation import METHODS
from factorjepa.report.making import make_report
from factorjepa.scores import DiagnosticInfo, Reduction, RunInfo, Scores
from factorjepa.statistics import CompareSettings, compare
from factorjepa.statistics.strata import stratified

CITIES, PER_SOURCE, SEEDS = 8, 5, (17, 29, 43)
CLASSES = ("animal", "heavy", "intermediate", "light", "cycle", "pedestrian", "two-wheeler")
CHANNELS = ("layout", "agents", "interactions")
PRIMARY: dict[str, tuple[str, ...]] = {
    "future_l1": ("alt/median_token", "alt/mse", "h1", "h2", "own", "teacher_agents", "teacher_interacting"),
    "intervention_l1": (
        "alt/epsilon_0.0001", "alt/epsilon_0.01", "alt/minimum_0.01", "denominator", "retained",
        *(f"edit/{name}" for name in ("fill", "freeze", "occlude", "shift", "swap", "flip", "drop", "pace")),
    ),
    "mask_slope": (
        "alt/auc", "alt/mse/auc", "alt/mse/relative", "alt/relative",
        *(f"{kind}hidden_{share}" for kind in ("", "mse/") for share in (0, 0.3, 0.5, 0.7, 0.9)), "mse/pooled",
    ),
    "motion_cosine": ("alt/squared_error", "chance"),
}  # fmt: skip
SECONDARY: dict[str, tuple[str, ...]] = {
    "future_mse": ("alt/l1", "alt/median_token", "h1", "h2", "own", "teacher_agents", "teacher_interacting"),
    "action_top1": ("chance",),
    "rollout_drift": ("alt/mean", "q1", "q2", "q3", "q4"),
    "horizon_decay": ("alt/early", "early/h1", "early/h2", "early/h3", "early/h4"),
    "exposure_gap": ("free", "taught"),
    "frame_order": ("chance", "reversed"),
    **dict.fromkeys(("arrow_of_time", "temporal_order", "playback_pace", "tcc_cycle_back"), ("chance",)),
    "tcc_kendall_tau": ("alt/matched", "chance"),
}
REDUCED: dict[str, tuple[Reduction, tuple[str, ...]]] = {
    "taxonomy_f1": ("macro_f1", ("chance", *(f"{kind}/{c}" for kind in ("tp", "fp", "fn") for c in CLASSES))),
    "depth": (
        "explained",
        tuple(f"{kind}/{k}/{layer:02d}" for kind in ("error", "total") for k in CHANNELS for layer in range(1, 9)),
    ),
    "leakage": ("leakage", tuple(f"{k}->{other}" for k in (*CHANNELS, "constant") for other in CHANNELS)),
}
Result = TypeVar("Result")


def make(methods: list[str], clips: int) -> Scores:
    random = np.random.default_rng(0)
    sources = -(-clips // PER_SOURCE)
    source_of = np.arange(clips) // PER_SOURCE
    city_of = source_of * CITIES // sources
    infos, keys = {}, []
    for status, named in (("primary", PRIMARY), ("secondary", SECONDARY)):
        for name, variants in named.items():
            infos[name] = DiagnosticInfo(name, name, "", "lower", "", status, "", "")
            keys += [(name, variant) for variant in ("pooled", *variants)]
    for name, (reduction, variants) in REDUCED.items():
        infos[name] = DiagnosticInfo(name, name, "", "higher", "", "structure", "", "", "macro", reduction)
        keys += [(name, variant) for variant in variants]
    runs = [
        RunInfo("nano", m, seed, METHODS[m].title, METHODS[m].family, int(m != "frozen"), f"{m}-{seed}", "", 1, 1.0)
        for m in methods
        for seed in (SEEDS if m != "frozen" else SEEDS[:1])
    ]
    clip_level = random.uniform(0.2, 0.6, clips)
    interacting = random.random(clips) > 1 / 30
    levels = {m: 0.002 * number for number, m in enumerate(methods)}
    parts = []
    for run in runs:
        its = [k for k in keys if k[0] != "leakage" or run.family in ("factorized", "ablation")]
        noise = 0.02 * random.normal(size=(len(its), clips)) + 0.0002 * random.normal(size=(len(its), 1))
        values = clip_level + levels[run.method] + noise
        for place, (name, variant) in enumerate(its):
            if variant == "teacher_interacting":
                values[place, ~interacting] = np.nan
            elif name == "leakage" and "constant" in variant:
                values[place] += 0.5
        parts.append(_part(run, its, values, city_of, source_of))
    return Scores(pa.concat_tables(parts).unify_dictionaries(), infos, {"split": "test"}, runs)


def _part(
    run: RunInfo, keys: list[tuple[str, str]], values: np.ndarray, city_of: np.ndarray, source_of: np.ndarray
) -> pa.Table:
    clips, rows = len(city_of), values.size

    def words(codes: np.ndarray, names: list[str]) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names)

    def named(position: int) -> pa.DictionaryArray:
        names = sorted({key[position] for key in keys})
        return words(np.repeat([names.index(key[position]) for key in keys], clips), names)

    def placed(codes: np.ndarray, form: str) -> pa.DictionaryArray:
        return words(np.tile(codes, len(keys)), [form.format(n) for n in range(codes.max() + 1)])

    return pa.table({
        "backbone": words(np.zeros(rows), [run.backbone]), "method": words(np.zeros(rows), [run.method]),
        "seed": pa.array(np.full(rows, run.seed, np.int32)),
        "city": placed(city_of, "city {}"), "source": placed(source_of, "source {:04d}"),
        "clip_id": placed(np.arange(clips), "clip {:05d}"),
        "diagnostic": named(0), "variant": named(1), "value": values.ravel(),
    })  # fmt: skip


def timed(what: str, work: Callable[[], Result]) -> Result:
    started, before = time.perf_counter(), time.process_time()
    found = work()
    wall, cpu = time.perf_counter() - started, time.process_time() - before
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{what:28s} {wall:7.1f} s {cpu:7.1f} s of a core, {most:.1f} GB so far", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", type=int, default=26)
    parser.add_argument("--clips", type=int, default=645)
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="folder for what is written (default: none is kept)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        path = folder / "scores.parquet"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            timed("make and write", lambda: make(list(METHODS)[: options.methods], options.clips).write(path))
        scores = timed("read scores", lambda: Scores.read(folder))
        print(f"{len(scores):,} rows of {len(scores.runs)} runs")
        scores = timed("join", lambda: Scores.joined([scores]))
        settings = CompareSettings(options.replicates)
        found = timed("compare", lambda: compare(scores, settings))
        level = {clip: ("low", "high")[n % 2] for n, clip in enumerate(scores.values("clip_id"))}
        found.strata = timed("strata", lambda: stratified(scores, {"density_stratum": level}, settings))
        timed("write", lambda: found.write(folder / "comparison"))
        made = timed("report", lambda: make_report(folder))
        print(f"{len(found.scores):,} score rows, {len(found.contrasts):,} contrasts; {made.page.stat().st_size:,} B")


if __name__ == "__main__":
    main()
