"""Predictors of the future's last-tap tokens: the factorized one and its monolithic controls.

>>> from factorjepa.backbones import build
>>> from factorjepa.predictors import FactorizedPredictor
>>> predictor = FactorizedPredictor.graft(backbone.predictor, target_tokens=tokens)
>>> prediction = predictor(levels, context_index, target_index, states)
>>> prediction.tokens_BtD, prediction.channels.agents
"""

from .agents import no_agents
from .dictionaries import StartTokens, dictionaries_from
from .factorized import FactorizedPredictor
from .interface import LatentPredictor
from .monolithic import MonolithicPredictor
from .options import FactorizedOptions, MonolithicOptions
from .prediction import PerFactor, Prediction

__all__ = [
    "FactorizedOptions",
    "FactorizedPredictor",
    "LatentPredictor",
    "MonolithicOptions",
    "MonolithicPredictor",
    "PerFactor",
    "Prediction",
    "StartTokens",
    "dictionaries_from",
    "no_agents",
]
