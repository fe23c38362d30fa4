"""Random streams addressed by name, so that nothing depends on call order.

`stream(7, "world", "agents", 12)` is the same generator in every process and for every order of calls: the words
and numbers are hashed into the seed.
"""

from __future__ import annotations

import hashlib

import numpy as np


def seed_of(*parts: int | str) -> int:
    """A 128-bit seed from words and numbers; order matters, types matter (1 is not "1")."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(f"{type(part).__name__}:{part}\0".encode())
    return int.from_bytes(digest.digest(), "little")


def stream(*parts: int | str) -> np.random.Generator:
    """The random generator that belongs to this address."""
    return np.random.Generator(np.random.PCG64(seed_of(*parts)))
