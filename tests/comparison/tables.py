"""Scores with a known make-up: nested noise that all methods share, and what each method adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factorjepa.scores import DiagnosticInfo, RunInfo, Scores

FUTURE = DiagnosticInfo("future_l1", "Future-frame L1", "", "lower", "L1", "primary", "", "")
SLOPE = DiagnosticInfo("mask_slope", "Mask-ratio slope", "", "lower", "L1", "primary", "", "")
MOTION = DiagnosticInfo("motion_cosine", "Motion cosine", "", "higher", "cosine", "primary", "", "")
ACTION = DiagnosticInfo("action_top1", "Action top-1", "", "higher", "share", "secondary", "", "")

Row = dict[str, Any]


def places(cities: int, sources: int, clips: int) -> list[tuple[str, str, str]]:
    return [
        (f"c{c:02d}", f"c{c:02d}/v{v}", f"c{c:02d}/v{v}#{i}")
        for c in range(cities)
        for v in range(sources)
        for i in range(clips)
    ]


def rows_of(
    shifts: Mapping[str, float],
    cities: int = 10,
    sources: int = 3,
    clips: int = 2,
    seeds: Sequence[int] = (17, 29),
    infos: Sequence[DiagnosticInfo] = (FUTURE,),
    variants: Sequence[str] = ("pooled",),
    noise: float = 0.02,
    shared: float = 1.0,
    backbone: str = "nano",
    random: int = 0,
) -> list[Row]:
    """Every clip is hard or easy for all methods (`shared`); each method has its own small noise and its shift."""
    generator = np.random.default_rng(random)
    where = places(cities, sources, clips)
    found = []
    for info in infos:
        hard = 5 + shared * generator.normal(size=len(where))
        for method, shift in shifts.items():
            for seed in seeds:
                for variant in variants:
                    values = hard + shift + noise * generator.normal(size=len(where))
                    found += [
                        {
                            "backbone": backbone, "method": method, "seed": seed, "city": city, "source": source,
                            "clip_id": clip, "diagnostic": info.name, "variant": variant, "value": float(value),
                        }
                        for (city, source, clip), value in zip(where, values, strict=True)
                    ]  # fmt: skip
    return found


def scores_of(
    rows: Sequence[Row], infos: Sequence[DiagnosticInfo] = (FUTURE,), trainable: Mapping[str, int] | None = None
) -> Scores:
    runs = sorted({(row["backbone"], row["method"], row["seed"]) for row in rows})
    about = [
        RunInfo(b, m, s, m.title(), "family", (trainable or {}).get(m, 10), f"{m}-{s}", "{}", 1, 3600.0)
        for b, m, s in runs
    ]
    return Scores.of_rows(rows, {info.name: info for info in infos}, {"target": "x"}, about)
