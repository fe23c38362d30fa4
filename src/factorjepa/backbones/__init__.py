"""V-JEPA backbones: exact, strictly loaded, light enough to build on.

>>> from factorjepa.backbones import build, load
>>> backbone = load("vjepa2_1_vitg_384.pt", "vjepa2_1_vit_giant_384")   # or build("nano"): random weights
>>> tokens = backbone.encoder(video)                 # [B, 3, T, H, W] -> [B, N, D]
>>> levels = backbone.encoder(video, levels=True)    # [B, N, 4D]
>>> future, context = backbone.predictor(levels, context_index, target_index)
"""

from .backbone import Backbone, build
from .checkpoint import load, save
from .spec import BackboneSpec, names

__all__ = ["Backbone", "BackboneSpec", "build", "load", "names", "save"]
