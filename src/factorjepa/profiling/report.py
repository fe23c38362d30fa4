"""A profile as a table and as JSON: measured figures beside the paper's ceilings, which are not measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from ..environment import facts
from ..training.settings import TrainSettings
from ..words import counted
from .synthetic import Scenery


@dataclass(frozen=True)
class Ceilings:
    """Panel E's execution ceilings for an architecture: one of latency, hours and GiB a GPU by method."""

    latency_ms: float
    methods: dict[str, tuple[float, float]]


PAPER = {
    "vjepa2_1_vit_giant_384": Ceilings(160.0, {
        "full": (96.0, 64.0), "lora": (56.0, 44.0), "dora": (60.0, 46.0), "auto_rgn": (60.0, 48.0),
        "factorjepa_raw": (64.0, 50.0), "factorjepa": (70.0, 52.0),
    }),
    "vjepa2_1_vit_gigantic_384": Ceilings(230.0, {
        "full": (160.0, 78.0), "lora": (96.0, 54.0), "dora": (100.0, 56.0), "auto_rgn": (104.0, 60.0),
        "factorjepa_raw": (112.0, 62.0), "factorjepa": (120.0, 64.0),
    }),
}  # fmt: skip


def conditions(settings: TrainSettings, scenery: Scenery, compiled: bool) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "arch": settings.arch, "method": settings.method, "size": settings.size, "frames": settings.frames,
        "context": settings.context, "masks": settings.masks, "trainable_blocks": settings.trainable_blocks,
        "batch": settings.batch, "accumulate": settings.accumulate, "precision": settings.precision,
        "frozen_bits": settings.frozen_bits, "recompute": settings.recompute, "compiled": compiled,
        "agents": scenery.agents, "pairs": scenery.pairs, "predictor": settings.predictor,
        "environment": facts(),
    }  # fmt: skip


def table(profile: dict[str, Any]) -> Table:
    """`profile` as `profile()` collects it: sections that are missing were not measured."""
    about = profile["conditions"]
    ceiling = PAPER.get(about["arch"])
    hours, gib = ceiling.methods.get(about["method"], (None, None)) if ceiling else (None, None)
    title = (
        f"{about['arch']}, {about['method']}: {about['size']} px, {about['frames']} frames, {about['agents']} agents "
        f"and {about['pairs']} pairs a clip, {about['environment']['device']}"
    )
    rows: list[tuple[str, str, str, str]] = []
    for way, found in profile.get("latency", {}).items():
        if "median_ms" in found:
            most = f"{ceiling.latency_ms:g} ms" if ceiling and way != "end to end" else ""
            rows.append((f"latency, {way}", f"{found['median_ms']:.1f} ms", most, _latency_note(found)))
    for way, found in profile.get("training", {}).items():
        if "clips_per_s" in found:
            rows.append((f"training, {way}", f"{found['clips_per_s']:.2f} clips/s", "", _training_note(found)))
            if found["peak_gib"] is None:  # a CPU: nobody would train there for 20,000 updates
                continue
            most = f"{hours:g} GPU-hours" if hours else ""
            run = f"20,000 updates of 128 clips, {about['batch']} clips a pass"
            rows.append(("  canonical run", f"{found['gpu_hours']:.0f} GPU-hours", most, run))
            most = f"{gib:g} GiB" if gib else ""
            rows.append(("  peak memory", f"{found['peak_gib']:.1f} GiB", most, "after five updates"))
    if profile.get("training") == {}:
        rows.append(("training", "-", "", "nothing of this method is trained"))
    for section in ("latency", "training"):
        for way, found in profile.get(section, {}).items():
            if "error" in found:
                rows.append((f"{section}, {way}", "failed", "", found["error"]))
    made = Table(box=box.SIMPLE, pad_edge=False, title=title, title_justify="left", caption_justify="left")
    if any("MFU" in row[-1] for row in rows):
        made.caption = "MFU: arithmetic that is needed, as a share of the peak in bf16"
    columns = (("", "left"), ("measured", "right"), ("paper's ceiling", "right"), ("", "left"))
    shown = [number for number, (heading, _) in enumerate(columns) if ceiling or heading != "paper's ceiling"]
    for number in shown:
        made.add_column(columns[number][0], justify=columns[number][1])  # type: ignore[arg-type]
    for row in rows:
        made.add_row(*(row[number] for number in shown))
    return made


def _latency_note(found: dict[str, Any]) -> str:
    note = f"p95 {found['p95_ms']:.1f} ms of {counted(found['runs'], 'run')}"
    if "decode_ms" in found:
        return f"{note}; decoding {found['decode_ms']:.0f} ms, preprocessing {found['preprocess_ms']:.0f} ms"
    return note + (f"; MFU {found['mfu']:.0%}" if found["mfu"] is not None else "")


def _training_note(found: dict[str, Any]) -> str:
    parts = [f"{sum(found['tflop_per_clip'].values()):.3g} TFLOP a clip"] if found["tflop_per_clip"] else []
    if found["mfu"] is not None:
        parts.append(f"MFU {found['mfu']:.0%}")
    if found["agents_seen"] is not None:
        parts.append(f"under the masks {found['agents_seen']:.1f} agents, {found['pairs_seen'] or 0:.0f} pairs")
    return "; ".join(parts)
