"""What a reader must know before the answers: small samples, short or unequal training, scores near chance."""

from __future__ import annotations

import math

from ..statistics.compare import FEW_CITIES
from ..statistics.intervals import expected_coverage
from ..statistics.verdict import LEAST_CITIES
from ..words import counted, listed
from .material import Material
from .numbers import number

FEW_CLIPS, FEW_SOURCES, FEW_UPDATES = 100, 20, 1000


def cautions(material: Material) -> list[str]:
    """Why this sample may be too small to say anything; empty for one that is not."""
    scores, said = material.scores, []
    cities, sources, clips = (len(scores.values(name)) for name in ("city", "source", "clip_id"))
    if cities == 1:
        said.append("All clips come from one city: nothing is decided, because nothing is known about another one.")
    elif cities < FEW_CITIES:
        confidence = float(material.comparison.settings.get("confidence", 0.95))
        covered = expected_coverage(cities, confidence)
        undecided = f" Fewer than {LEAST_CITIES} decide nothing." if cities < LEAST_CITIES else ""
        said.append(
            f"{cities} cities are few: a {confidence:.0%} interval may cover only {covered:.0%}, and p-values are too "
            f"small.{undecided}"
        )
    if clips < FEW_CLIPS or sources < FEW_SOURCES:
        said.append(f"{counted(clips, 'clip')} of {counted(sources, 'source video')} are a small sample.")
    trained = [run for run in scores.runs if run.trainable > 0]
    if trained and max(seeds_of(material).values()) == 1:
        said.append("One training seed per method: differences between training runs are not seen.")
    steps = max((run.step for run in trained), default=0)
    if trained and steps < FEW_UPDATES:
        said.append(
            f"Trained for at most {counted(steps, 'update')}: this shows that everything runs, not which method is "
            "better."
        )
    return said


def near_chance(material: Material, backbone: str) -> list[str]:
    """Diagnostics on which methods are not above what who knows nothing scores, and how many of them."""
    said = []
    for info in material.diagnostics.values():
        chance = material.chance(backbone, info.name)
        rows = [row for row in material.rows(backbone, info.name) if math.isfinite(row.low)]
        sign = 1.0 if info.direction == "higher" else -1.0
        near = [row for row in rows if min(sign * row.low, sign * row.high) <= sign * chance]
        if not near or not math.isfinite(chance):
            continue
        who = f"all {len(rows)} methods" if len(near) == len(rows) > 1 else listed([row.title for row in near[:6]])
        more = f" and {len(near) - 6} more" if len(near) > 6 and len(near) < len(rows) else ""
        said.append(f"{info.title} (chance {number(chance, 2)}): {who}{more}.")
    return said


def seeds_of(material: Material, backbone: str | None = None) -> dict[str, int]:
    """Seeds of every method that trains."""
    found: dict[str, set[int]] = {}
    for run in material.scores.runs:
        if backbone in (None, run.backbone):
            found.setdefault(run.method, set()).add(run.seed)
    return {method: len(seeds) for method, seeds in found.items()}
