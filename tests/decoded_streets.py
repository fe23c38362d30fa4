"""Decoded futures without a model: simulated streets, blurred as an oracle would, blurred and late as methods would."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from factorjepa.decoded import AGENTS, STATIC, TRUTH, DecodedExample, Failure, RegionError, Strengths
from factorjepa.rendering.panels import common_box
from factorjepa.world import WorldSettings, clip

TITLES = {
    "frozen": "Frozen V-JEPA", "auto_rgn": "Auto-RGN", "factorjepa_raw": "FactorJEPA-RAW", "lora": "LoRA",
    "mono_supervised": "Monolithic + targets", "factorjepa": "FactorJEPA",
}  # fmt: skip
FEW = ("frozen", "auto_rgn", "factorjepa_raw", "factorjepa")
SECONDS = (0.25, 0.5, 0.75, 1.0)


@functools.cache
def street(size: int = 64, seed: int = 3, index: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """A second and a quarter of a simulated clip at 4 fps, and where its agents are."""
    made = clip(WorldSettings(size=size), seed, index)
    shown = list(made.renderer.render(made.trajectory, made.camera, 1.0 + np.arange(5) / 4, truth=True))
    agents = [np.asarray(truth.instances) > 0 for _, truth in shown if truth is not None]
    return np.stack([frame for frame, _ in shown]), np.stack(agents)


def blurred(frames: NDArray[np.uint8], amount: float) -> NDArray[np.uint8]:
    return np.stack([cv2.GaussianBlur(frame, (0, 0), amount * frame.shape[0] / 64) for frame in frames])


def decoded(
    size: int = 64, seed: int = 3, index: int = 0, methods: Sequence[str] = FEW, channels: bool = True
) -> DecodedExample:
    """The methods lag behind the street and blur it, the first most."""
    frames, agents = street(size, seed, index)
    observed, last = frames[1:], frames[0]
    drawn = {}
    for place, method in enumerate(methods):
        late = 0.85 * (1 - place / len(methods))
        mixed = (observed * (1 - late) + frames[:-1] * late).round().astype(np.uint8)
        drawn[method] = blurred(np.roll(mixed, round(late * size / 32), axis=2), 0.8 + 0.7 * late)
    without, influence = {}, {}
    if channels and "factorjepa" in drawn:
        full = drawn["factorjepa"]
        street_only = blurred(np.median(frames, axis=0, keepdims=True).astype(np.uint8).repeat(4, 0), 1.2)
        grey = np.full_like(full, 118)
        without["L"] = np.where(agents[1:, ..., None], full, (full * 0.35 + grey * 0.65).astype(np.uint8))
        without["A"] = np.where(agents[1:, ..., None], street_only, full)
        without["I"] = blurred(np.roll(full, size // 40 or 1, axis=2), 0.9)
        for channel, left in without.items():
            change = np.abs(full.astype(np.float32) - left).sum(-1)
            influence[channel] = change / (1e-8 + change.sum((1, 2), keepdims=True))
    found = {
        "frozen": [
            Failure("agent_omission", "prediction_conditioned", {"recall": 0.31, "recall of the oracle": 0.83}),
            Failure("motion_under_dispersion", "mixed", {"flow ratio": 0.24}),
            Failure("layout_drift", "oracle_present", {"static error": 0.08}),
        ],
        "factorjepa": [Failure("agent_omission", "mixed", {"recall": 0.67})],
    }  # fmt: skip
    return DecodedExample(
        f"mumbai/s0{seed}/v{index:02d}#1.0", SECONDS, last, observed, blurred(observed, 0.7), drawn, TITLES,
        "factorjepa" if without else "", without, influence, agents[1:], common_box(observed, drawn),
        {method: one for method, one in found.items() if method in drawn}, "mini for nano",
        "most agents of the test split", "test", TRUTH,
        {method: [RegionError(AGENTS, 0.2, 0.2, 0.05), RegionError(STATIC, 0.8, 0.08, 0.04)]
         for method in found if method in drawn},
        {method: Failure("lost_detail", "", {"kept": 0.6}, Strengths(0.9, 0.2, 0.2))
         for method in list(drawn)[1:2]},
    )  # fmt: skip
