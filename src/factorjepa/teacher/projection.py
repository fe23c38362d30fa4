"""Fixed, seeded projections: what makes a target of 256 numbers out of features of any width.

Each matrix depends on (seed, its name, its shape) only and is kept in the cache's header folder, so that a target can
be related to the features it came from for ever.

Shapes: D feature width, E descriptor width, W target width, F width of what is projected.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from ..seeding import stream
from .regions import Floats
from .settings import TargetSettings

LAYOUT_BINS = 4  # a side: where in the picture the layout lies survives pooling
AGENT_BINS = 3
PAIR_BINS = 3
PAIR_WAVES = 64  # random Fourier features of a pair descriptor


@dataclass(frozen=True)
class Projections:
    """All fixed matrices of one teacher."""

    descriptor_DE: Floats  # any descriptor or feature to E, lengths and angles kept as well as E allows
    layout_FW: Floats
    agents_FW: Floats
    interactions_FW: Floats
    waves_FK: Floats  # frequencies and, in the last row, phases of the pair embedding


def make_projections(width: int, settings: TargetSettings, geometry: int, pair: int) -> Projections:
    """The projections for features of `width`, `geometry` fields per agent and `pair` fields per pair."""
    seed, out, inner = settings.projection_seed, settings.width, settings.descriptor_width
    agents = AGENT_BINS**2 * (inner + geometry + 1)
    pairs = PAIR_BINS**2 * (PAIR_WAVES + 1)
    random = stream(seed, "projection", "waves", pair)
    frequencies = random.standard_normal((pair, PAIR_WAVES))
    phases = random.uniform(0.0, 2.0 * np.pi, (1, PAIR_WAVES))
    return Projections(
        descriptor_DE=isometry(seed, "descriptor", width, inner),
        layout_FW=isometry(seed, "layout", LAYOUT_BINS**2 * inner, out),
        agents_FW=isometry(seed, "agents", agents, out),
        interactions_FW=isometry(seed, "interactions", pairs, out),
        waves_FK=np.concatenate((frequencies, phases)).astype(np.float32),
    )


@functools.lru_cache(maxsize=8)  # a second or more to make, and every teacher of a process wants the same
def isometry(seed: int, name: str, rows: int, columns: int) -> Floats:
    """A random `[rows, columns]` matrix that keeps lengths: exactly when it widens, on average when it narrows."""
    square = stream(seed, "projection", name, rows, columns).standard_normal((max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(square)
    basis *= np.sign(np.diagonal(triangle))  # QR leaves signs open; with this the matrix is one of a kind
    wide = basis.T if rows < columns else basis * np.sqrt(rows / columns)
    matrix = np.ascontiguousarray(wide, dtype=np.float32)
    matrix.setflags(write=False)  # it is everybody's
    return matrix


def soft_bins(centres_K2: Floats, bins: int) -> Floats:
    """`[K, bins * bins]` weights that sum to 1: each place belongs to the bins around it, without a jump between."""
    place_K2 = np.clip(centres_K2, 0.0, 1.0) * bins - 0.5
    middles = np.arange(bins)
    hats_K2b = np.maximum(0.0, 1.0 - np.abs(np.clip(place_K2, 0.0, bins - 1.0)[..., None] - middles))
    both = np.einsum("kr,kc->krc", hats_K2b[:, 1], hats_K2b[:, 0])
    return np.asarray(both.reshape(len(centres_K2), -1), np.float32)
