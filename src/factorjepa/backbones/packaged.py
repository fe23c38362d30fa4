"""Weights that come with the package: what works without a download."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "weights"


def packaged_weights(arch: str) -> Path | None:
    """The file of an architecture that is shipped (`nano`), or None."""
    path = _FOLDER / f"{arch}.safetensors"
    return path if path.is_file() else None
