"""What temporal correspondence of a frozen encoder measures: raw pixels and random weights beside trained ones.

    python benchmarks/correspondence.py CORPUS [--clips 24]

Two pairings of a clip with itself. `even and odd frames`: steps of every other frame, tokens compared at the same
places. `left and right`: the two views that `factorjepa scorecard` matches, where mean tokens less the clip's are
compared. `pixels` has no encoder: colours of an 8 x 8 grid stand for tokens. A pairing that pixels solve says nothing
about an encoder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from factorjepa.backbones import build
from factorjepa.backbones.frozen import FrozenEncoder, open_encoder
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Loader
from factorjepa.corpus.windows import WindowSpec
from factorjepa.diagnostics.correspondence import chance_of_cycle_back, cycle_back, kendall
from factorjepa.diagnostics.looking import STEP, moments, views
from factorjepa.objective import normalised_targets
from factorjepa.pixels import Frames, denormalise

GRID = 8


def colours(frames: Frames) -> Tensor:
    """`[B, T, p, 3]`."""
    B, T, H, W, _ = frames.shape
    cut = frames[:, :, : H // GRID * GRID, : W // GRID * GRID]
    cells = cut.reshape(B, T, GRID, H // GRID, GRID, W // GRID, 3).mean((3, 5))
    return torch.from_numpy(cells.reshape(B, T, -1, 3)).float()


def steps(tokens: Callable[[Frames], Tensor], frames: Frames, normalise: bool) -> Tensor:
    found = tokens(frames)
    found = found.reshape(len(found), frames.shape[1] // STEP, -1, *found.shape[2:]).mean(2)
    return normalised_targets(found) if normalise else found


def apart(a: Tensor, b: Tensor) -> Tensor:
    return torch.stack([(a - one[:, None]).square().flatten(2).mean(2) for one in b.unbind(1)], dim=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--clips", type=int, default=24)
    options = parser.parse_args()
    torch.set_num_threads(1)
    clips = Corpus.open(options.corpus).training()
    clips = clips[: min(options.clips, len(clips))]
    loader = Loader(clips, WindowSpec(size=128), 1, 0, 0, replication=0, shuffle=False)
    frames = np.concatenate([denormalise(batch.video.numpy()) for batch in loader])
    encoders = {
        "pixels": (colours, False),
        "nano, random weights": (FrozenEncoder("nano", build("nano").encoder, "random").tokens, True),
        "nano": (open_encoder("nano").tokens, True),
    }
    print(f"{len(frames)} clips; cycle-back error in steps, Kendall's tau")
    for name, (tokens, normalise) in encoders.items():
        pairs = {
            "even and odd frames": [steps(tokens, frames[:, first::2], normalise) for first in (0, 1)],
            "left and right": [moments(steps(tokens, view, normalise)) for view in views(frames)],
        }
        for pairing, (a, b) in pairs.items():
            distances = apart(a, b)
            chance = chance_of_cycle_back(distances.shape[1])
            print(f"{name:22s} {pairing:20s} {cycle_back(distances).mean():6.3f} (chance {chance:.2f}) "
                  f"{kendall(distances.argmin(2)).mean():6.3f} (chance 0)")  # fmt: skip


if __name__ == "__main__":
    main()
