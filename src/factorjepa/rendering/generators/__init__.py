"""G_psi: generators of pictures, one file each, behind one interface."""

from __future__ import annotations

from ...errors import RenderingError
from ..settings import DecoderSettings
from .generator import Generator
from .mini import Mini


def open_generator(settings: DecoderSettings, patch: int, *, pretrained: bool = True) -> Generator:
    """The generator of these settings. Without `pretrained` its weights will come from a decoder's file."""
    if settings.kind == "mini":
        return Mini(settings.channels, settings.widths, patch)
    assert settings.weights is not None
    if settings.kind == "taef2":
        from .taef2 import Taef2

        return Taef2.load(settings.weights) if pretrained else Taef2()
    if settings.kind == "cosmos":
        from .cosmos import Cosmos

        return Cosmos.load(settings.weights)
    raise RenderingError(f"there is no generator {settings.kind!r}")
