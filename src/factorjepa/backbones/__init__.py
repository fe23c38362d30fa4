"""V-JEPA backbones: exact, strictly loaded, light enough to build on.

>>> from factorjepa.backbones import build
>>> backbone = build("nano")
>>> tokens = backbone.encoder(video)                 # [B, 3, T, H, W] -> [B, N, D]
>>> levels = backbone.encoder(video, levels=True)    # [B, N, 4D]
"""

from .backbone import Backbone, build
from .spec import BackboneSpec, names

__all__ = ["Backbone", "BackboneSpec", "build", "names"]
