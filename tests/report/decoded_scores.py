"""Scores of decoded futures with known means, as `decode evaluate` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from decoded_streets import FEW, TITLES, decoded
from factorjepa.decoded import write_decoded
from factorjepa.missing import Missing
from factorjepa.scores import DiagnosticInfo, RunInfo, Scores
from factorjepa.statistics import CompareSettings, compare

_ABOUT = {
    "decoded_l1": ("Decoded L1", "lower", 0.05), "decoded_psnr": ("PSNR", "higher", 24.0),
    "decoded_ssim": ("SSIM", "higher", 0.8), "decoded_flow_epe": ("Flow EPE", "lower", 1.2),
    "decoded_agent_f1": ("Agent F1", "higher", 0.7),
}  # fmt: skip
SYMPTOMS = (
    "layout_drift", "agent_omission", "agent_duplication", "interaction_inconsistency", "motion_under_dispersion",
    "appearance_substitution", "unsupported_content",
)  # fmt: skip


def scores(methods: Sequence[str] = FEW, cities: int = 8, clips: int = 2) -> Scores:
    """Each method a tenth of the oracle's value behind it, less by its place; nobody has LPIPS."""
    generator = np.random.default_rng(5)
    infos = {
        name: DiagnosticInfo(name, title, "mean", direction, "", "secondary", "", "")  # type: ignore[arg-type]
        for name, (title, direction, _) in _ABOUT.items()
    }
    infos["decoded_failures"] = DiagnosticInfo(
        "decoded_failures", "Failures", "share of clips", "lower", "share", "secondary", "", "", "any"
    )
    rows: list[dict[str, Any]] = []
    for city in range(cities):
        for clip in range(clips):
            town = f"city{city:02d}"  # as the latent scores call it
            place = {"city": town, "source": f"{town}/s0/v0", "clip_id": f"{town}/s0/v0#{clip}.0"}
            hard = 1 + 0.05 * generator.normal()
            for k, method in enumerate(methods):
                run = {"backbone": "nano", "method": method, "seed": 17, **place}

                def put(diagnostic: str, variant: str, value: float, run: dict[str, Any] = run) -> None:
                    rows.append({**run, "diagnostic": diagnostic, "variant": variant, "value": float(value)})

                for name, (_, direction, base) in _ABOUT.items():
                    sign = 1 if direction == "lower" else -1
                    deficit = base * 0.1 * (1 - k / len(methods))
                    put(name, "oracle", base * hard)
                    put(name, "copy", base * hard + sign * 0.2 * base)
                    put(name, "pooled", base * hard + sign * deficit)
                    put(name, "deficit", deficit)
                    put(name, "gap", 1.3 * deficit)
                    for frame in (1, 2, 10):
                        put(name, f"h{frame}", base * hard + sign * deficit * frame)
                    put(name, "dynamic", base * hard + sign * 2 * deficit)
                failed = False
                for number, symptom in enumerate(SYMPTOMS):
                    there = (city + clip + number) % (k + 2) == 0
                    failed |= there
                    which = ("oracle_present", "prediction_conditioned", "mixed")[(city + number) % 3]
                    put("decoded_failures", symptom, there)
                    put("decoded_failures", f"{symptom}/oracle", city == number)
                    for attribution in ("oracle_present", "prediction_conditioned", "mixed"):
                        put("decoded_failures", f"{symptom}/{attribution}", there and attribution == which)
                put("decoded_failures", "any", failed)
    lacks = (Missing("decoded_lpips", "", "no weights were given", cities * clips),)
    runs = [RunInfo("nano", m, 17, TITLES[m], "", 1, m, "", 10, missing=lacks) for m in methods]
    return Scores.of_rows(rows, infos, {"split": "test", "version": "0.1.0", "decoder": "mini for nano"}, runs)


def write_futures(
    out: Path, sizes: Sequence[int] = (64,), methods: Sequence[str] = FEW, measured: bool = True
) -> Scores | None:
    """OUT/decoded as `decode render` and `decode evaluate` leave it."""
    for k, size in enumerate(sizes):
        write_decoded(out / "decoded" / f"{k:02d}", decoded(size, seed=5, index=7 * (k + 1), methods=methods))
    if not measured:
        return None
    made = scores(methods)
    made.write(out / "decoded" / "scores.parquet")
    compare(made, CompareSettings(replicates=500, mixed="none")).write(out / "decoded" / "comparison")
    return made
