"""A checkpoint's weights with a seal: the digest of their bytes, which whoever reads them compares.

A file that was cut short cannot be read at all; one in which bytes were altered can, and its scores would be of weights
that nobody trained. The settings of the run lie in it too: a configuration that was edited afterwards would give scores
another name. Files without a seal, of versions before it, are read as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..backbones.reading import SEAL, SETTINGS


def write_sealed(path: Path, weights: Mapping[str, Tensor], settings: str) -> None:
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(held, path, metadata={SEAL: _digest(held), SETTINGS: settings})


def sealed_settings(path: Path) -> str | None:
    """What `write_sealed` was given; None where the file says nothing or cannot be read (weights tell that)."""
    try:
        with safe_open(path, framework="pt") as opened:
            return (opened.metadata() or {}).get(SETTINGS)
    except (OSError, SafetensorError):
        return None


def read_sealed(path: Path, device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Raises ValueError where the weights are not those that were written."""
    with safe_open(path, framework="pt") as opened:
        seal = (opened.metadata() or {}).get(SEAL)
        weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
    if seal is not None and seal != _digest(weights):
        raise ValueError(f"bytes of {path.name} have changed since it was written")
    return {name: tensor.to(device) for name, tensor in weights.items()}


def _digest(weights: Mapping[str, Tensor]) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(weights.items()):
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()
