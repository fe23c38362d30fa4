"""One corpus as a comparison sees it: its clips, their sums, and which source and cluster each belongs to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..corpus.manifest import Clip, Manifest
from ..errors import RegimeError
from ..words import counted
from .scene import Array, Ints
from .table import RegimeTable

Cluster = Literal["city", "session", "source"]


@dataclass(frozen=True)
class Population:
    """C clips; V sources, sorted by cluster."""

    name: str
    clips: tuple[Clip, ...]
    totals_CVM: Array
    terms_CVM: Array
    frames_C: Array
    table: RegimeTable
    source_C: Ints  # number of the source
    cluster_V: Ints  # number of the cluster, ascending
    clusters: tuple[str, ...]  # names
    cluster: Cluster

    @classmethod
    def of(
        cls, name: str, manifest: Manifest, table: RegimeTable, modes: Collection[str], cluster: Cluster = "city"
    ) -> Population:
        """The clips of these capture modes. `cluster` is what is drawn first: cities, sessions (logs) or sources."""
        chosen = [clip for clip in manifest if clip.capture_mode in modes]
        if not chosen:
            there = ", ".join(sorted({clip.capture_mode for clip in manifest})) or "none"
            raise RegimeError(f"{name}: has no {' or '.join(modes)} clips; it has: {there}. Choose with --mode")
        row_of = {clip_id: row for row, clip_id in enumerate(table.clip_ids)}
        if missing := [clip.clip_id for clip in chosen if clip.clip_id not in row_of]:
            raise RegimeError(
                f"{name}: {counted(len(missing), 'clip')} of the manifest are not in its measures, for example "
                f"{missing[0]!r}; run factorjepa regime measure again"
            )
        rows = np.array([row_of[clip.clip_id] for clip in chosen])
        # A source belongs to one city and session; the name of the cluster first, so that sources are sorted by it.
        keys = sorted({(str(getattr(clip, cluster)), clip.source) for clip in chosen})
        clusters = sorted({key[0] for key in keys})
        number = {source: index for index, (_, source) in enumerate(keys)}
        return cls(
            name, tuple(chosen), table.totals_CVM[rows], table.terms_CVM[rows], table.frames_C[rows], table,
            np.array([number[clip.source] for clip in chosen], np.int64),
            np.array([clusters.index(key[0]) for key in keys], np.int64), tuple(clusters), cluster,
        )  # fmt: skip

    @property
    def sources(self) -> int:
        return len(self.cluster_V)

    def scenes(self, names: list[str]) -> Ints:
        """The number of each clip's scene type among `names`, [C]."""
        return np.array([names.index(str(clip.attributes["scene_type"])) for clip in self.clips], np.int64)


def refuse_incomparable(populations: Collection[Population]) -> None:
    """All must have gone through the same measuring system with the same thresholds."""
    first, *others = populations
    for other in others:
        for field, word in (("source", "measured by"), ("measured_by", "measured by"), ("thresholds", "measured with"),
                            ("variants", "measured with the variants")):  # fmt: skip
            one, two = getattr(first.table.about, field), getattr(other.table.about, field)
            if one != two:
                raise RegimeError(
                    f"{first.name} was {word} {one}, {other.name} {two}: the protocol must be the same for "
                    "all. Measure them again alike"
                )
