"""Scores as an evaluation writes them, made up: the paper's diagnostics, its variants and methods, nested noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factorjepa.examples import Example, Question
from factorjepa.scores import DiagnosticInfo, RunInfo, Scores

PRIMARY = (
    DiagnosticInfo("future_l1", "Future-frame L1", "mean |Y_hat - Y*|", "lower", "per token dimension", "primary",
                   "frozen pretrained encoder", "pretrained weights"),
    DiagnosticInfo("intervention_l1", "Intervention L1", "mean |dY_hat - dY*| / |dY*|", "lower", "share", "primary",
                   "edits of what moves", "never the teacher"),
    DiagnosticInfo("mask_slope", "Mask-ratio slope", "slope over hidden share", "lower", "L1 per share", "primary",
                   "fixed mask sampler", "masks depend on the clip alone"),
    DiagnosticInfo("motion_cosine", "Motion cosine", "cosine of decoded and true motion", "higher", "cosine",
                   "primary", "inverse-search flow", "ridge probe"),
)  # fmt: skip
OTHERS = (
    DiagnosticInfo("position_readout", "Position read-out", "distance", "lower", "sides", "companion", "", ""),
    DiagnosticInfo("action_top1", "Action top-1", "share", "higher", "share", "secondary", "", ""),
    DiagnosticInfo("temporal_order", "Temporal order", "share", "higher", "share", "secondary", "", ""),
)
LEAKAGE = DiagnosticInfo("leakage", "Channel leakage", "Leak(k -> k')", "lower", "share", "structure", "teacher",
                         "teacher-relative", headline="", reduction="leakage")  # fmt: skip
DEPTH = DiagnosticInfo("depth", "Depth profile", "I_k(l)", "higher", "share", "structure", "teacher",
                       "teacher-relative", headline="", reduction="explained")  # fmt: skip
METHODS = {
    "frozen": ("Frozen V-JEPA", "reference", 1.00, 0),
    "full": ("Full fine-tuning", "reference", 0.93, 1_100_000_000),
    "lora": ("LoRA", "generic", 0.94, 76_000_000),
    "auto_rgn": ("Auto-RGN", "generic", 0.92, 77_000_000),
    "mono_supervised": ("Monolithic + targets", "control", 0.915, 77_300_000),
    "mono_states_both": ("Monolithic + states (both)", "control", 0.885, 77_400_000),
    "factorjepa_raw": ("FactorJEPA-RAW", "factorized", 0.89, 77_500_000),
    "factorjepa": ("FactorJEPA", "factorized", 0.88, 77_500_000),
}
VARIANTS = {
    "factorjepa@slow": ("FactorJEPA @slow", "factorized", 0.9, 1_000_000),
    "factorjepa_both_chosen": ("FactorJEPA, both, chosen blocks", "ablation", 0.86, 77_500_000),
    "factorjepa_chosen": ("FactorJEPA, chosen blocks", "ablation", 0.87, 77_500_000),
    "factorjepa_chosen@look": ("FactorJEPA, chosen blocks @look", "ablation", 0.86, 77_500_000),
    "auto_rgn@look": ("Auto-RGN @look", "generic", 0.92, 77_000_000),
    "auto_rgn_look": ("Auto-RGN + views + look back", "control", 0.91, 77_000_000),
    "auto_rgn_views": ("Auto-RGN + views", "control", 0.915, 77_000_000),
    "auto_rgn_views@look": ("Auto-RGN + views @look", "control", 0.91, 77_000_000),
    "shuffled_targets": ("FactorJEPA, shuffled targets", "ablation", 0.88, 77_500_000),
    "misaligned_targets": ("FactorJEPA, misaligned targets", "ablation", 0.95, 77_500_000),
}
BASE = {"future_l1": 0.38, "intervention_l1": 0.92, "mask_slope": 0.08, "motion_cosine": 0.42, "position_readout": 0.06,
        "action_top1": 0.44, "temporal_order": 0.71}  # fmt: skip
FACTORS = ("layout", "agents", "interactions")
HIDDEN = (0.0, 0.3, 0.5, 0.7, 0.9)


def scores(
    cities: int = 12,
    sources: int = 3,
    clips: int = 2,
    seeds: Sequence[int] = (17, 29, 43),
    backbones: Sequence[str] = ("nano",),
    methods: Sequence[str] = tuple(METHODS),
    structure: bool = True,
    gain: float = 1.0,
    titles: Mapping[str, str] | None = None,
    step: int = 20_000,
    random: int = 0,
) -> Scores:
    """FactorJEPA better on three primary diagnostics, worse on motion; one city turns round. `gain` scales effects."""
    generator = np.random.default_rng(random)
    places = [(f"city{c:02d}", f"city{c:02d}/s0/v{v}", f"city{c:02d}/s0/v{v}#{i}.0") for c in range(cities)
              for v in range(sources) for i in range(clips)]  # fmt: skip
    rows: list[dict[str, Any]] = []
    known = {name: (METHODS | VARIANTS).get(name, (name, "generic", 0.95, 1_000_000)) for name in methods}

    def put(backbone: str, method: str, seed: int, diagnostic: str, variant: str, values: np.ndarray) -> None:
        for (city, source, clip), value in zip(places, values.tolist(), strict=True):
            if np.isfinite(value):
                rows.append({"backbone": backbone, "method": method, "seed": seed, "city": city, "source": source,
                             "clip_id": clip, "diagnostic": diagnostic, "variant": variant,
                             "value": value})  # fmt: skip

    odd = np.array([city == "city03" for city, _, _ in places])
    for number, backbone in enumerate(backbones):
        scale = 1.0 - 0.12 * number
        hard = {name: generator.normal(0, 0.06, len(places)) for name in BASE}
        for method, (_, _, factor, trained) in known.items():
            for seed in seeds if trained else seeds[:1]:
                jitter = generator.normal(0, 0.002)
                for info in (*PRIMARY, *OTHERS):
                    base, better = BASE[info.name], (1 - factor) * gain
                    sign = -1 if info.direction == "lower" else 0.6 if info.name != "motion_cosine" else 1.0
                    if info.name == "motion_cosine" and (method.startswith("factorjepa") or method in VARIANTS):
                        better = 0.03 * gain
                    if info.name == "temporal_order":
                        better = 0.0
                    effect = (
                        sign
                        * better
                        * (1 + 0.03 * generator.normal())
                        * np.where(odd & method.startswith("factor"), 0.6, 1)
                    )
                    noise = generator.normal(0, 0.012, len(places))
                    values = scale * base * (1 + hard[info.name] + effect + noise + jitter)
                    put(backbone, method, seed, info.name, "pooled", values)
                    if info.name == "future_l1":
                        for variant, more in (("h1", 0.9), ("h2", 1.1), ("agents", 1.6), ("interacting", 1.75)):
                            put(backbone, method, seed, info.name, variant, values * more)
                        put(backbone, method, seed, info.name, "alt/median_token", values * 0.95)
                    if info.name == "mask_slope":
                        for share in HIDDEN:
                            put(
                                backbone,
                                method,
                                seed,
                                info.name,
                                f"hidden_{share:g}",
                                0.38 * scale * factor + values * share**2,
                            )
                        put(backbone, method, seed, info.name, "alt/auc", 0.38 * scale * factor + values / 3)
                    if info.name == "intervention_l1":
                        put(backbone, method, seed, info.name, "counterfactual", 1.0 + noise)
                if structure:
                    structure_rows(backbone, method, seed, put, generator, len(places))
    infos = (*PRIMARY, *OTHERS, LEAKAGE, DEPTH) if structure else (*PRIMARY, *OTHERS)
    runs = [
        RunInfo(b, m, s, (titles or {}).get(m, known[m][0]), known[m][1], known[m][3], f"{m}-{s}",
                config_of(m, s, step), step, 3600.0 if known[m][3] else None)
        for b in backbones for m in known for s in (seeds if known[m][3] else seeds[:1])
    ]  # fmt: skip
    evaluator = {"split": "test", "version": "0.1.0"}
    return Scores.of_rows(rows, {info.name: info for info in infos}, evaluator, runs)


def config_of(method: str, seed: int, updates: int) -> str:
    looks_back = "predictor: {recalled: true}\n" if method.endswith("@look") else ""
    return f"method: {method}\nseed: {seed}\nupdates: {updates}\n{looks_back}"


def structure_rows(backbone: str, method: str, seed: int, put: Any, generator: np.random.Generator, count: int) -> None:
    if method.startswith("factorjepa"):
        for own in FACTORS:
            put(backbone, method, seed, "leakage", f"constant->{own}", generator.normal(1.0, 0.05, count))
            for other in FACTORS:
                error = 0.5 if own == other else 0.75 if "agents" in (own, other) else 0.92
                put(backbone, method, seed, "leakage", f"{other}->{own}", generator.normal(error, 0.05, count))
    for position, factor in enumerate(FACTORS):
        for layer in range(1, 7):
            rise = 1 / (1 + np.exp(-(layer - 2 - position))) * (0.55 - 0.1 * position)
            put(backbone, method, seed, "depth", f"error/{factor}/{layer:02d}", generator.normal(1 - rise, 0.04, count))
            put(backbone, method, seed, "depth", f"total/{factor}/{layer:02d}", generator.normal(1.0, 0.02, count))


def example() -> Example:
    """A ball that rolls, with made-up maps and two questions."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[0:64, 0:64]
    balls = [((columns - 10 - 3 * t) ** 2 + (rows - 32) ** 2 < 90) * 255 for t in range(16)]
    frames = np.stack([np.stack([columns * 2, rows * 2, ball], -1) for ball in balls]).astype(np.uint8)

    def random(scale: float) -> np.ndarray:
        return (generator.random((2, 8, 8)) * scale).astype(np.float32)

    return Example(
        "city00/s0/v0#0.0", frames, 12, {name: METHODS[name][0] for name in ("frozen", "auto_rgn", "factorjepa")},
        {"frozen": random(1.0), "auto_rgn": random(0.8), "factorjepa": random(0.6)},
        {"target": random(1.0), "auto_rgn": random(0.9), "factorjepa": random(1.0)}, (1, 3, 4),
        [
            Question("How fast is the marked agent a second from now?", ("standing", "walking", "driving"), 1,
                     {"Auto-RGN": [0.1, 0.3, 0.6], "FactorJEPA": [0.1, 0.7, 0.2]}, "ridge probe"),
            Question("Which way does it turn?", ("left", "straight on", "right"), 0,
                     {"Auto-RGN": [0.6, 0.3, 0.1], "FactorJEPA": [0.2, 0.7, 0.1]}, "ridge probe"),
        ],
        "largest error of FactorJEPA",
    )  # fmt: skip
