"""How often the interval that decides contains the truth, by how the seeds' variance is estimated.

    python benchmarks/seed_pooling.py [--simulations 10000] [--seed 0] [--only TEXT]

Methods are trained with S seeds. A training's value is its method's level, what its seed does to all methods, and noise
with the method's own SD; the contrast is of the first two methods and has no effect. Cities are drawn as well: their
effects are normal with an SD, and their variance comes from C of them (what the bootstrap makes of real cities is
measured by `coverage.py`). Counted per regime for each estimator, in %:

    own        a pair's own seeds: S - 1 degrees of freedom
    moderated  helped by the other methods (`pooling.py`), as `compare` does unless told otherwise
    limma      moderated as limma's eBayes does it: no limit to what the pool counts
    covers     the 95 % interval contains the truth
    tail       p is at most 0.05 / 12, as often as 0.42 % should: what Holm's first step of twelve tests reads
    decides    so it is, where the truth is an effect of so many SDs of one pair's seeds and cities together

Expected of `moderated`: at least 94.0 where methods vary alike, 91.5 where they do not. The exit code is 1 where a
regime falls short. Monte-Carlo error near 95 % with 10,000 simulations: 0.2; of the tail: 0.07.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from factorjepa.statistics.deciding import half_width, tail
from factorjepa.statistics.pooling import Pool, Spread, moderated, pool_of

STEP = 0.05 / 12
ALIKE, UNLIKE = 94.0, 91.5


@dataclass(frozen=True)
class Regime:
    """SDs over seeds, the contrast's two methods first; `by_city` is the SD of the effect between cities."""

    name: str
    sds: tuple[float, ...]
    least: float = UNLIKE
    seeds: int = 3
    cities: int = 8
    by_city: float = 0.0
    effect: float = 6.0


ROOT = float(np.sqrt(3))
REGIMES = (
    Regime("3 methods alike", (1.0,) * 3, ALIKE),
    Regime("4 methods alike", (1.0,) * 4, ALIKE),
    Regime("8 methods alike", (1.0,) * 8, ALIKE),
    Regime("25 methods alike", (1.0,) * 25, ALIKE),
    Regime("4 alike, cities vary too", (1.0,) * 4, ALIKE, by_city=1.0),
    Regime("25 alike, cities vary too", (1.0,) * 25, ALIKE, by_city=1.0),
    Regime("25 alike, 2 seeds", (1.0,) * 25, ALIKE, seeds=2, effect=15.0),
    Regime("25 alike, 5 seeds", (1.0,) * 25, ALIKE, seeds=5, effect=3.0),
    Regime("4, one with 3 x the variance", (ROOT, 1.0, 1.0, 1.0)),
    Regime("25, one with 3 x the variance", (ROOT, *(1.0,) * 24)),
    Regime("4, one with 3 x the SD", (3.0, 1.0, 1.0, 1.0)),
    Regime("4, both with 3 x the SD", (3.0, 3.0, 1.0, 1.0)),
    Regime("25, one with 3 x the SD", (3.0, *(1.0,) * 24)),
    Regime("25, both with 3 x the SD", (3.0, 3.0, *(1.0,) * 23)),
    Regime("25, half with 3 x the SD", (3.0,) * 12 + (1.0,) * 13),
    Regime("25, both with a third of it", (1.0, 1.0, *(3.0,) * 23)),
    Regime("25, both 3 x, cities vary too", (3.0, 3.0, *(1.0,) * 23), by_city=2.0),
    Regime("25, both with 10 x the SD", (10.0, 10.0, *(1.0,) * 23)),
)


def unlimited(own: Spread, pool: Pool, seeds: int) -> Spread:
    """limma's moderated variance."""
    expected, prior = 2 * pool.variance / seeds, min(pool.prior, 1e6)
    together = (own.freedom * own.variance + prior * expected) / (own.freedom + prior)
    return Spread(together, min(own.freedom + prior, pool.freedom))


ESTIMATORS: dict[str, Callable[[Spread, Pool, int], Spread]] = {
    "own": lambda own, pool, seeds: own,
    "moderated": moderated,
    "limma": unlimited,
}


def one(random: np.random.Generator, regime: Regime) -> np.ndarray:
    """Whether it is covered, whether it is in the tail, and whether an effect is decided, of each estimator."""
    values = random.normal(size=(len(regime.sds), regime.seeds)) * np.array(regime.sds)[:, None]
    values += random.normal(size=regime.seeds)  # what a seed does to all
    of_seeds = values[0] - values[1]
    of_cities = regime.by_city * random.normal(size=regime.cities)
    error = float(of_seeds.mean() + of_cities.mean())
    own = Spread(float(of_seeds.var(ddof=1)) / regime.seeds, regime.seeds - 1)
    cities = [Spread(float(of_cities.var(ddof=1)) / regime.cities, regime.cities - 1)] if regime.by_city else []
    pool = pool_of(list(values))
    assert pool is not None
    effect = regime.effect * float(np.sqrt(regime.sds[0] ** 2 + regime.sds[1] ** 2 + regime.by_city**2))
    found = []
    for estimator in ESTIMATORS.values():
        spreads = [*cities, estimator(own, pool, regime.seeds)]
        reach = half_width(spreads, STEP)
        found += [abs(error) <= half_width(spreads, 0.05), abs(error) >= reach, abs(error + effect) >= reach]
        assert (tail(error, spreads) <= STEP) == (abs(error) >= reach)
    return np.array(found, np.float64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="regimes whose name contains this")
    options = parser.parse_args()
    print(f"{options.simulations} simulations; covers, tail and decides in %")
    print(f"{'regime':32s}{''.join(f'{name:>24s}' for name in ESTIMATORS)}  effect  as expected")
    short = False
    for regime in REGIMES:
        if options.only not in regime.name:
            continue
        random = np.random.default_rng(options.seed)
        shares = 100 * np.mean([one(random, regime) for _ in range(options.simulations)], 0)
        as_expected = shares[3] >= regime.least
        short |= not as_expected
        cells = "".join(f"{a:10.1f}{b:7.2f}{c:7.0f}" for a, b, c in shares.reshape(-1, 3))
        print(f"{regime.name:32s}{cells}{regime.effect:8.0f}  {'yes' if as_expected else 'NO'}", flush=True)
    sys.exit(int(short))


if __name__ == "__main__":
    main()
