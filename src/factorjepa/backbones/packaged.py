"""Weights that come with the package, and where others come from."""

from __future__ import annotations

from pathlib import Path

from .releases import RELEASES, release_of
from .spec import names

_FOLDER = Path(__file__).parents[1] / "weights"


def packaged_weights(arch: str) -> Path | None:
    """The file of an architecture that is shipped (`nano`), or None."""
    path = _FOLDER / f"{arch}.safetensors"
    return path if path.is_file() else None


def how_to_get(arch: str) -> str:
    """The command that makes or fetches the weights of an architecture that is not shipped, and the file it writes."""
    if arch in RELEASES or arch not in names():
        return f"fetch them with `factorjepa weights fetch {release_of(arch).arch}`"
    run = f"runs/{arch}"  # one of our own
    return f"make them on a GPU with `factorjepa pretrain {run} arch={arch}`, which writes {run}/weights.safetensors"
