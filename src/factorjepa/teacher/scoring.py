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
        "evidence": Weighed(0.424, 1.135, 0.655, -0.215),
        "evidence over surroundings": Weighed(0.128, 0.690, 0.120, -0.039),
        "evidence is uneven": Weighed(0.322, 0.185, 0.397, -0.149),
        "motion": Weighed(-0.050, 0.942, 0.312, -0.067),
        "motion over surroundings": Weighed(-0.010, 0.246, -0.149, 0.089),
        "change": Weighed(0.248, 1.244, -0.025, -0.079),
        "change over surroundings": Weighed(0.111, 0.783, -0.308, 0.119),
        "change is uneven": Weighed(0.388, 0.328, 0.473, -0.152),
        "looks like what moves": Weighed(0.382, 1.129, -0.053, 0.084),
        "looks like what moves over surroundings": Weighed(0.072, 0.498, -0.163, 0.039),
        "looks like what moves unevenly": Weighed(0.273, 0.202, 0.582, -0.235),
        "colour unlike surroundings": Weighed(0.680, 0.582, 0.195, 0.009),
        "moves unlike surroundings": Weighed(0.053, 0.096, 0.216, -0.048),
        "looks unlike surroundings": Weighed(0.299, 0.229, 0.110, -0.004),
        "along the border": Weighed(0.287, 0.607, -0.070, 0.122),
        "evidence ends above": Weighed(0.187, 0.787, 0.231, -0.041),
        "evidence ends below": Weighed(0.130, 0.822, 0.292, -0.085),
        "evidence ends beside": Weighed(-0.110, 0.783, 0.271, 0.052),
        "change ends above": Weighed(0.160, 0.885, 0.076, 0.020),
        "change ends below": Weighed(0.083, 0.895, 0.005, 0.056),
        "change ends beside": Weighed(-0.115, 0.939, 0.081, 0.013),
        "looks like what moves ends above": Weighed(0.119, 0.656, 0.129, 0.022),
        "looks like what moves ends below": Weighed(0.069, 0.690, 0.213, 0.053),
        "looks like what moves ends beside": Weighed(-0.186, 0.608, 0.276, -0.047),
        "size": Weighed(-5.575, 1.235, 0.095, -0.041),
        "upright": Weighed(0.056, 0.764, 0.642, -0.440),
        "fills its box": Weighed(0.528, 0.170, 0.613, -0.013),
        "bottom": Weighed(0.500, 0.280, -0.060, -0.050),
        "sharp outline": Weighed(2.465, 0.462, 0.461, -0.224),
        "grain": Weighed(1.597, 0.919, -0.081, -0.049),
        "ragged": Weighed(0.125, 0.212, -0.026, -0.046),
        "halves differ": Weighed(1.110, 0.753, -0.017, -0.050),
        "differs from its other half": Weighed(1.352, 0.786, 0.403, -0.063),
    },
    {
        ("size", "bottom"): 0.429,
        ("size", "upright"): -0.313,
    },
    offset=-5.476,
)
