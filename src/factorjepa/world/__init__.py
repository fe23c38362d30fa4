"""Simulated DENSEWORLD: crowded streets with ground truth and counterfactuals."""

from .settings import WorldSettings
from .simulator import SimulatedClip, clip, clips, resimulate
from .truth import ClipTruth

__all__ = ["ClipTruth", "SimulatedClip", "WorldSettings", "clip", "clips", "resimulate"]
