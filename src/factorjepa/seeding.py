"""Random streams addressed by name, so that nothing depends on call order.

`stream(7, "world", "agents", 12)` is the same generator in every process and for every order of calls: the words
and numbers are hashed into the seed.
"""

from __future__ import annotations

import hashlib
import operator
from typing import SupportsIndex

import numpy as np


def seed_of(*parts: SupportsIndex | str) -> int:
    """A 128-bit seed from words and whole numbers; order matters, and 1 is not "1" (but is `np.int64(1)`)."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = f"str:{part}" if isinstance(part, str) else f"int:{operator.index(part)}"
        digest.update(f"{len(text)}:{text}".encode())
    return int.from_bytes(digest.digest(), "little")


def stream(*parts: SupportsIndex | str) -> np.random.Generator:
    """The random generator that belongs to this address."""
    return np.random.Generator(np.random.PCG64(seed_of(*parts)))
