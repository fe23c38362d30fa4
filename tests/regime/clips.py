"""Made-up corpora: manifests with measures whose truth is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.regime.axes import NAMES
from factorjepa.regime.controls import Control
from factorjepa.regime.domain import BINS, COUNTS, DomainCounts
from factorjepa.regime.population import Population
from factorjepa.regime.settings import Thresholds, grid
from factorjepa.regime.table import COLUMNS, About, RegimeTable

SCENES = ("market", "junction")


def clip(
    number: int, city: int = 0, source: int | None = None, scene: str = "market", seconds: float = 8.0,
    size: tuple[int, int] = (64, 64), split: Split = Split.TRAIN, mode: str = "drive", **attributes: str,
) -> Clip:  # fmt: skip
    name = f"c{city:02d}/s0/v{number if source is None else source}"
    return Clip(
        f"{name}#{number}.0", f"c{city:02d}", f"c{city:02d}/s0", name, number, mode, 0.0, seconds, 12.0, *size,
        f"clips/{number}.mp4", split, {"scene_type": scene, **attributes},
    )  # fmt: skip


def corpus(
    name: str, value: Callable[[np.random.Generator, str], float], cities: int = 8, sources: int = 4, seed: int = 0,
    spread: float = 0.5,
) -> Population:  # fmt: skip
    """Clips of 30 frames; every measure of a source is `value(random, scene)`."""
    random = np.random.default_rng(seed)
    clips = [
        clip(c * sources + v, c, scene=SCENES[v % 2], seconds=float(random.uniform(7, 9)))
        for c in range(cities) for v in range(sources)
    ]  # fmt: skip
    variants = (*grid(Thresholds()), *Control)
    shape = (len(clips), len(variants), len(COLUMNS))
    values = np.array([value(random, str(one.attributes["scene_type"])) for one in clips])
    values = values + spread * random.normal(size=len(clips))
    totals = np.broadcast_to(30 * values[:, None, None], shape).copy()
    for control, measures in ((Control.SPATIAL, ("interaction",)), (Control.TEMPORAL, ("consistency", "contiguity"))):
        for measure in measures:
            totals[:, variants.index(control), COLUMNS.index(measure)] *= 0.5  # as they must
    domain = tuple(DomainCounts(np.ones(len(COUNTS)), np.ones(BINS)) for _ in clips)
    about = About("truth", "made up", Thresholds().model_dump(mode="json"), variants, (), name)
    table = RegimeTable(
        tuple(one.clip_id for one in clips), totals, np.full(shape, 30.0), np.full(len(clips), 30), domain, about
    )
    return Population.of(name, Manifest(clips), table, ("drive",))


def column(name: str) -> int:
    return NAMES.index(name)
