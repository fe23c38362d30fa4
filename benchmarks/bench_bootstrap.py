"""10,000 bootstrap replicates of every contrast, against a plain loop over replicates in the same run.

    python benchmarks/bench_bootstrap.py [--replicates 10000] [--loops 20]

22 cities x 8 sources x 5 clips, 12 methods x 3 seeds, 15 diagnostics. The plain loop does what the appendix says, one
replicate at a time: draw cities, draw sources within them, take their clips, recompute every method's mean, take the
differences. A second loop averages the clips of each source beforehand. `weights` gives the same and with it jackknife,
source-only and crossed-seed bootstrap; `compare` is the whole command without the mixed-effects check.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

from factorjepa.scores import DiagnosticInfo, RunInfo, Scores
from factorjepa.statistics import CompareSettings, compare
from factorjepa.statistics.contrasts import PRESPECIFIED, extended
from factorjepa.statistics.estimand import Estimator, Request
from factorjepa.statistics.measures import measures_of
from factorjepa.statistics.panel import Panel, panel_of

CITIES, SOURCES, CLIPS, SEEDS, DIAGNOSTICS = 22, 8, 5, (17, 29, 43), 15
METHODS = (
    "frozen", "full", "continual", "lpft", "lora", "dora", "auto_rgn", "factorjepa_raw", "factorjepa",
    "factorjepa_di", "factorjepa_int", "mono_states_late",
)  # fmt: skip
CONTRASTS = [*PRESPECIFIED, *extended(METHODS, {"factorjepa_raw": "factorized", "factorjepa_di": "factorized"})]


def make() -> Scores:
    random = np.random.default_rng(0)
    clips = [(c, v, i) for c in range(CITIES) for v in range(SOURCES) for i in range(CLIPS)]
    names = [f"diagnostic {d:02d}" for d in range(DIAGNOSTICS)]
    infos = {
        n: DiagnosticInfo(n, n, "", "lower", "", "primary" if n < names[4] else "secondary", "", "") for n in names
    }
    runs = [RunInfo("nano", m, s, m, "x", 1, m, "", 1, 1.0) for m in METHODS for s in SEEDS]
    keys = [(m, s, d) for m in METHODS for s in SEEDS for d in names]
    per_key = len(clips)
    columns = {
        "backbone": ["nano"] * (len(keys) * per_key),
        "method": [m for m, _, _ in keys for _ in clips],
        "seed": pa.array([s for _, s, _ in keys for _ in clips], pa.int32()),
        "city": [f"c{c:02d}" for c, _, _ in clips] * len(keys),
        "source": [f"c{c:02d}/v{v}" for c, v, _ in clips] * len(keys),
        "clip_id": [f"c{c:02d}/v{v}#{i}" for c, v, i in clips] * len(keys),
        "diagnostic": [d for _, _, d in keys for _ in clips],
        "variant": ["pooled"] * (len(keys) * per_key),
        "value": (random.normal(size=(len(keys), per_key)) + random.normal(size=per_key)).ravel(),
    }
    return Scores(pa.table(columns), infos, {}, runs)


def looped(panel: Panel, replicates: int, prepared: bool) -> np.ndarray:
    """Contrasts of every diagnostic, one replicate after another, [B, contrasts, diagnostics].

    `prepared` averages seeds and clips of each source once, before the loop.
    """
    random = np.random.default_rng(1)
    place = panel.hierarchy
    values = np.stack([block.values_RNK[:, :, 0] for block in panel.blocks.values()], -1)  # runs, clips, diagnostics
    members = np.split(np.arange(place.sources), place.starts_C[1:])
    clips = np.split(np.arange(panel.clips), panel.clip_starts_V[1:])
    runs = {method: [r for r, (name, _) in enumerate(panel.runs) if name == method] for method in METHODS}
    sources_of = {
        method: np.stack([values[its][:, clips[v]].mean((0, 1)) for v in range(place.sources)])
        for method, its in runs.items()
    }
    found = []
    for _ in range(replicates):
        cities = [members[c] for c in random.integers(0, place.cities, place.cities)]
        drawn = [random.choice(sources, len(sources)) for sources in cities]
        means = {}
        for method, its in runs.items():
            if prepared:
                by_city = [sources_of[method][sources].mean(0) for sources in drawn]
            else:
                of_method = values[its]
                by_city = [np.mean([of_method[:, clips[v]].mean((0, 1)) for v in sources], 0) for sources in drawn]
            means[method] = np.mean(by_city, 0)
        found.append([means[contrast.b] - means[contrast.a] for contrast in CONTRASTS])
    return np.array(found)


def multiplied(panel: Panel, replicates: int) -> np.ndarray:
    """The same from one set of draws, and with it everything else that `compare` reads off them."""
    estimator = Estimator(panel, replicates, 0)
    clips = np.ones(panel.clips, np.bool_).tobytes()
    requests = {method: Request(method, SEEDS, clips) for method in METHODS}
    found = []
    for block in panel.blocks.values():
        measure = measures_of(block.info, block.variants)[0]
        its = estimator.distributions(measure, list(requests.values()))
        effects = [its[requests[c.a]].over(its[requests[c.b]], measure.sign).replicates_B for c in CONTRASTS]
        found.append(np.stack(effects, -1))
    return np.stack(found, -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--loops", type=int, default=20)
    options = parser.parse_args()
    scores = make()
    panel = panel_of(scores, "nano")
    print(f"{len(scores)} scores, {len(METHODS)} methods, {DIAGNOSTICS} diagnostics, {len(CONTRASTS)} contrasts")
    loops = []
    for prepared, replicates in ((False, options.loops), (True, 20 * options.loops)):
        start = time.perf_counter()
        slow = looped(panel, replicates, prepared)
        loops.append((time.perf_counter() - start) / replicates * options.replicates)
    loop = loops[0]
    start = time.perf_counter()
    fast = multiplied(panel, options.replicates)
    product = time.perf_counter() - start
    spread = slow.std(0).mean() / fast.std(0).mean()
    print(f"{options.replicates} replicates; the loops are timed on fewer; their spread is {spread:.2f} of ours")
    print(f"{'plain loop':44s} {loop:8.2f} s    1x")
    print(f"{'loop over source means averaged before':44s} {loops[1]:8.2f} s {loop / loops[1]:4.0f}x")
    print(f"{'weights times source means':44s} {product:8.2f} s {loop / product:4.0f}x")
    start = time.perf_counter()
    compare(scores, CompareSettings(options.replicates, mixed="none"))
    whole = time.perf_counter() - start
    print(f"{'compare, everything but mixed effects':44s} {whole:8.2f} s {loop / whole:4.0f}x")


if __name__ == "__main__":
    main()
