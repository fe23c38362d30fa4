"""How likely a part is an agent: its measures, standardised and weighed.

The numbers are fitted by `benchmarks/fit_regions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .hierarchy import Doubles

EXTREME = 3.0  # spreads from the usual beyond which a measure says no more


@dataclass(frozen=True)
class Weighed:
    """One measure: its usual value and spread over parts; weights of the standardised measure and of its square."""

    usual: float
    spread: float
    weight: float
    square: float


@dataclass(frozen=True)
class Scoring:
    """The log-odds of being an agent."""

    measures: Mapping[str, Weighed]
    products: Mapping[tuple[str, str], float]  # weights of products of two standardised measures
    offset: float

    def log_odds(self, measures: Mapping[str, Doubles]) -> Doubles:
        """Of N parts, `[N]`, from measures `[N]` each; those without a weight are left alone."""
        standard = self.standard(measures)
        odds = np.full(len(next(iter(standard.values()))), self.offset)
        for name, one in self.measures.items():
            odds += (one.weight + one.square * standard[name]) * standard[name]
        for (first, second), weight in self.products.items():
            odds += weight * standard[first] * standard[second]
        return odds

    def standard(self, measures: Mapping[str, Doubles]) -> dict[str, Doubles]:
        """The measures in spreads from the usual."""
        return {
            name: ((measures[name] - one.usual) / one.spread).clip(-EXTREME, EXTREME)
            for name, one in self.measures.items()
        }


def chance(log_odds: Doubles) -> Doubles:
    """Log-odds to a number between 0 and 1."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))


SCORING = Scoring(
    {
        "evidence": Weighed(0.227, 1.006, 0.786, -0.152),
        "evidence over surroundings": Weighed(0.016, 0.484, 0.255, 0.101),
        "motion over surroundings": Weighed(-0.003, 0.244, 0.039, 0.001),
        "looks like what moves": Weighed(-0.107, 0.999, 0.386, 0.063),
        "looks like what moves over surroundings": Weighed(-0.009, 0.291, 0.058, -0.003),
        "colour unlike surroundings": Weighed(0.509, 0.517, 0.464, 0.028),
        "moves unlike surroundings": Weighed(0.055, 0.097, 0.282, -0.061),
        "looks unlike surroundings": Weighed(0.258, 0.214, 0.646, -0.096),
        "along the border": Weighed(0.274, 0.585, -0.203, 0.117),
        "size": Weighed(-5.714, 1.186, 0.462, -0.092),
        "upright": Weighed(0.075, 0.771, 0.633, -0.360),
        "fills its box": Weighed(0.537, 0.165, 0.470, 0.028),
        "bottom": Weighed(0.532, 0.292, -0.177, -0.049),
        "sharp outline": Weighed(2.182, 0.590, 0.203, -0.106),
        "grain": Weighed(1.617, 0.850, 0.198, 0.000),
        "ragged": Weighed(0.130, 0.207, 0.296, 0.024),
    },
    {
        ("size", "bottom"): 0.273,
        ("size", "upright"): -0.186,
    },
    offset=-6.421,
)
