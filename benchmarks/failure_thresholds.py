"""How strongly the oracle itself shows each symptom of the failure taxonomy, on validation clips. No method takes part.

A threshold of `FailureSettings` is what was declared before any decoded frame was seen. Where the oracle reaches it in
more than one clip of ten, it is the least multiple (in halves) that the oracle reaches in one of ten or fewer.

    factorjepa simulate streets "seconds=[5,6]" --clips 160 --clips-per-source 1 --shares 0.1 0.9 0.0 --seed 4002
    python benchmarks/failure_thresholds.py streets [--decoder FOLDER]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import EvaluationLoader
from factorjepa.diagnostics.reference import Precision, Reference
from factorjepa.rendering.decoder import load_decoder
from factorjepa.rendering.drawn import as_bytes
from factorjepa.rendering.failure_settings import FailureSettings
from factorjepa.rendering.failures import strengths_of
from factorjepa.rendering.latents import TargetSource
from factorjepa.rendering.metrics.motion import to_bytes
from factorjepa.rendering.pair import Future, Pair
from factorjepa.rendering.settings import DecodeSettings
from factorjepa.teacher.street_detector import StreetDetector
from factorjepa.training.origin import open_backbone

DECLARED = {"omitted": 0.1, "omitted_per_frame": 0.5}  # of the thresholds that the oracle raised since
QUANTILES = (0.5, 0.75, 0.9, 0.95, 1.0)
MULTIPLES = (1.0, 1.5, 2.0, 2.5, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--decoder", type=Path)
    asked = parser.parse_args()
    device, settings = torch.device("cpu"), DecodeSettings(data=str(asked.corpus), sizes=(64,))
    stored, detector = load_decoder(asked.decoder, settings.arch, device), StreetDetector.load(device=device)
    backbone = open_backbone(settings.arch, settings.weights, device)
    source = TargetSource(Reference(backbone, settings.context, Precision(device, False)), memory_gb=0)
    rows = {"declared thresholds": FailureSettings(**DECLARED), "thresholds now": FailureSettings()}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in rows}
    clips = Corpus.open(asked.corpus).validation()
    for batch in EvaluationLoader(clips, settings.window(64), 8, workers=0):
        latents = source.latents(batch)
        drawn = torch.from_numpy(as_bytes(stored.decoder.render(latents.tokens_BtD, latents.grid)))
        oracle_BT3HW = drawn.permute(0, 1, 4, 2, 3).float() / 255
        for last, x, o in zip(latents.last_B3HW, latents.future_BT3HW, oracle_BT3HW, strict=True):
            observed, oracle = (Future(frames, detector(to_bytes(frames))) for frames in (x, o))
            for name, rule in rows.items():
                pair = Pair(last, observed, oracle, rule)
                for symptom, strength in strengths_of(pair, pair.oracle).items():
                    found[name].setdefault(symptom, []).append(strength.predicted)
    print(f"{len(clips)} validation clips; the oracle's strength in thresholds, quantiles")
    for name, symptoms in found.items():
        print(
            f"\n{name:28}"
            + "".join(f"{f'{100 * q:g} %':>8}" for q in QUANTILES)
            + "   clips that reach"
            + "".join(f"{f'x {m:g}':>7}" for m in MULTIPLES)
        )
        for symptom, values in symptoms.items():
            quantiles = "".join(f"{value:8.2f}" for value in np.quantile(values, QUANTILES))
            reached = "".join(f"{100 * np.mean(np.array(values) >= m):5.0f} %" for m in MULTIPLES)
            print(f"{symptom:28}{quantiles}{'':19}{reached}")


if __name__ == "__main__":
    main()
