"""What could following the camera gain? Heads on frozen features that look back not only at a token's own place.

    factorjepa simulate streets --preset dense --clips 1500 --clips-per-source 3 --seed 11 "seconds=[6,7]" fps=4
    python benchmarks/camera_ceiling.py streets

As in `look_back.py` encoder and query transformer stay as they come. Besides the token at its own place a head reads,
bilinearly, the one where that place lay in the context's last tubelet: where its query says (learned with the head),
where it would lie had the camera gone on as between its last two frames, and where it truly lay. The simulator knows
the camera; what the ground shows is followed over the ground, what lies above the horizon as if it were far away. No
model that sees the context alone can know the true way: it says what knowing the camera's future would be worth.

Shapes: B clips, n cells of a tubelet, t tokens of the future, D width, F frames.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor, nn

from agents_motion import by_source, interval, truth_of, tubelets
from factorjepa.storage import write_text
from factorjepa.world import ClipTruth
from look_back import Added, Features, features

Array = NDArray[np.float64]

RUNGS = {  # what it is told by: in words, and the rung that it is compared with
    "nothing": ("the query alone", ""),
    "own place": ("look back at its own place", "nothing"),
    "asked": ("and where its query says", "own place"),
    "steady": ("and where it lay, had the camera gone on as it went", "own place"),
    "turned": ("and where it lay by the camera's true turning", "own place"),
    "true": ("and where it truly lay", "own place"),
}
FOLLOWED = ("steady", "turned", "true")
_HIDDEN, _ASKING = 512, 256
_CLIPS = 16  # of a training step
_FAR = 80.0  # m, beyond which the ground is as good as at rest
_LEAST_DEPTH = 0.1  # m
_OUTSIDE = 4.0  # sides of the picture


class Camera(NamedTuple):
    """At one moment: where it is, and its axes to the right, down and forward."""

    position: Array
    axes: Array

    @classmethod
    def between(cls, truth: ClipTruth, frames: Sequence[int]) -> Camera:
        """In the middle of some frames."""
        turned = Rotation.from_matrix(truth.camera_axes[list(frames)]).mean()
        return cls(truth.camera_position[list(frames)].mean(0, dtype=np.float64), turned.as_matrix())

    def onward(self, before: Camera, times: float) -> Camera:
        """Gone on as it went since `before`, so many times as far."""
        turn = Rotation.from_matrix(self.axes @ before.axes.T).as_rotvec()
        axes = Rotation.from_rotvec(times * turn).as_matrix() @ self.axes
        return Camera(self.position + times * (self.position - before.position), axes)


def lay_at(before: Camera, now: Camera, focal: float, rows: int) -> Array:
    """Where what `now` shows in each of `rows` x `rows` cells lay in the picture of `before`, `[n, 2]` in sides."""
    middles = (np.arange(rows) + 0.5) / rows
    across, down = np.meshgrid(middles, middles)
    seen_n3 = np.stack([across - 0.5, down - 0.5, np.full_like(across, focal)], -1).reshape(-1, 3)
    rays_n3 = seen_n3 @ now.axes / np.linalg.norm(seen_n3, axis=1, keepdims=True)
    falls_n = -rays_n3[:, 2]
    far_n = np.divide(now.position[2], falls_n, out=np.full(len(falls_n), np.inf), where=falls_n > 0)
    points_n3 = now.position + rays_n3 * np.minimum(far_n, _FAR)[:, None]
    # What is far away stays in its direction.
    points_n3 += np.where(far_n >= _FAR, 1.0, 0.0)[:, None] * (before.position - now.position)
    x_n, y_n, z_n = ((points_n3 - before.position) @ before.axes.T).T
    place_n2 = np.stack([x_n, y_n], 1) * focal / np.maximum(z_n, _LEAST_DEPTH)[:, None] + 0.5
    return np.where((z_n > _LEAST_DEPTH)[:, None], place_n2, _OUTSIDE)


def followed(truth: ClipTruth, numbers: Sequence[int], context: int, rows: int) -> dict[str, Array]:
    """Where each future token's place lay in the context's last tubelet, `[t, 2]`, by who follows the camera.

    The window's frames have these `numbers` in the ground truth.
    """
    seen = tubelets(list(numbers))
    last, *future = seen[context // len(seen[0]) - 1 :]
    before, focal = Camera.between(truth, last), truth.focal / truth.size
    last_but_one, at_last = (Camera.between(truth, [numbers[context + k]]) for k in (-2, -1))
    found: dict[str, list[Array]] = {name: [] for name in FOLLOWED}
    for frames in future:
        now = Camera.between(truth, frames)
        ahead = (np.mean(frames) - numbers[context - 1]) / (numbers[context - 1] - numbers[context - 2])
        found["true"].append(lay_at(before, now, focal, rows))
        found["turned"].append(lay_at(before, Camera(before.position, now.axes), focal, rows))
        found["steady"].append(lay_at(before, at_last.onward(last_but_one, float(ahead)), focal, rows))
    return {name: np.concatenate(places) for name, places in found.items()}


class Following(nn.Module):
    """Adds to a head what it reads at a token's own place, and where that place lay."""

    def __init__(self, dim: int, width: int, asks: bool) -> None:
        super().__init__()
        self.added = Added(2 * (dim + 1), width, _HIDDEN, dim, narrow=False, handed_on=True)
        self.asking = None
        if asks:
            last = nn.Linear(_ASKING, 2, bias=False)
            nn.init.zeros_(last.weight)
            self.asking = nn.Sequential(nn.Linear(width, _ASKING), nn.GELU(), last)

    def forward(self, query_BtW: Tensor, last_BnX: Tensor, from_Bt2: Tensor, knows: Tensor) -> Tensor:
        """`knows`: of its own place, and of the other one."""
        rows = round(last_BnX.shape[1] ** 0.5)
        if self.asking is not None:
            from_Bt2 = from_Bt2 + self.asking(query_BtW) / rows
        picture = last_BnX.transpose(1, 2).unflatten(2, (rows, rows))
        moved = F.grid_sample(picture, (2 * from_Bt2 - 1)[:, :, None], align_corners=False)[..., 0].transpose(1, 2)
        own = last_BnX.repeat(1, query_BtW.shape[1] // last_BnX.shape[1], 1)
        added: Tensor = self.added(query_BtW, torch.cat((own * knows[0], moved * knows[1]), -1))
        return added


def errors(found: Features, rung: str, from_Bt2: Tensor, pretrained: nn.Linear, steps: int, seed: int) -> Tensor:
    """Mean of each validation clip, after training on the others: `[B]`."""
    torch.manual_seed(seed)
    last_BnX = F.pad(found.levels[:, -1, :, -1].float(), (0, 1), value=1.0)  # 1: is in the picture
    knows = torch.tensor([float(rung != "nothing"), float(rung not in ("nothing", "own place"))])
    head = copy.deepcopy(pretrained)
    added = Following(last_BnX.shape[-1] - 1, found.query.shape[-1], asks=rung == "asked")
    parameters = [*head.parameters(), *added.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)

    def off(clips: Tensor) -> Tensor:
        query = found.query[clips].float()
        made = head(query) + added(query, last_BnX[clips], from_Bt2[clips], knows)
        return (made - found.target[clips].float()).abs().mean((1, 2))

    training = found.training.nonzero()[:, 0]
    rounds = 1 + steps * _CLIPS // len(training)
    order = torch.cat([training[torch.randperm(len(training))] for _ in range(rounds)])
    for step in range(steps):
        loss = off(order[step * _CLIPS : (step + 1) * _CLIPS]).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        return torch.cat([off(clips) for clips in (~found.training).nonzero()[:, 0].split(64)])


def gained(clips_B: Array, before_B: Array | None, first_B: Array, sources: Sequence[str]) -> dict[str, Any]:
    """Mean over sources, and how much less it is than `before` in percent of the query's alone, with an interval."""
    found: dict[str, Any] = {"l1": float(by_source(clips_B[:, None], sources).mean())}
    if before_B is not None:
        scale = 100 / by_source(first_B[:, None], sources).mean()
        gains_S1 = by_source((before_B - clips_B)[:, None], sources) * scale
        found |= {"percent": float(gains_S1.mean()), "interval": interval(gains_S1)[:, 0].tolist()}
    return found


def said(row: Mapping[str, Any]) -> str:
    if "percent" not in row:
        return ""
    low, high = row["interval"]
    return f"{row['percent']:+.2f} % [{low:+.2f}, {high:+.2f}]"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--json", type=Path, help="keep the figures here")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--context", type=int, default=12, help="frames of 16, at 4 a second; the others are predicted")
    parser.add_argument("--clips", type=int, help="of the training clips; a third of their streets is measured")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 29])
    asked = parser.parse_args(arguments)
    found, pretrained = features(asked.corpus, asked.size, asked.context, asked.clips, kept=3)
    rows = round(found.levels.shape[2] ** 0.5)
    ways = [
        followed(*truth_of(asked.corpus, clip, times), asked.context, rows)
        for clip, times in zip(found.clips, found.times.numpy(), strict=True)
    ]
    tubes = found.query.shape[1] // rows**2
    middles = (torch.arange(rows) + 0.5) / rows
    own_t2 = torch.stack(torch.meshgrid(middles, middles, indexing="xy"), -1).flatten(0, 1).repeat(tubes, 1)
    places = {name: torch.from_numpy(np.stack([way[name] for way in ways])).float() for name in FOLLOWED}
    check = (~found.training).numpy()
    sources, modes = (
        np.array([str(getattr(clip, field)) for clip in found.clips])[check] for field in ("source", "capture_mode")
    )
    print(
        f"{asked.size} px, {asked.context} frames seen: {len(found.clips)} clips, {len(sources)} of them from "
        f"{len(set(sources.tolist()))} streets to measure on"
    )
    kinds = sorted(set(modes.tolist()))
    print(f"| a head is shown | L1 | gain | {' | '.join(kinds)} |\n|{'---|' * (3 + len(kinds))}")
    rungs: list[dict[str, Any]] = []
    all_B: dict[str, Array] = {}
    for rung, (words, before) in RUNGS.items():
        from_Bt2 = places.get(rung, own_t2.expand(len(ways), -1, -1))
        seeds_nB = [errors(found, rung, from_Bt2, pretrained, asked.steps, s).double().numpy() for s in asked.seeds]
        all_B[rung] = clips_B = np.mean(seeds_nB, 0)

        def of(chosen: NDArray[np.bool_], clips_B: Array = clips_B, before: str = before) -> dict[str, Any]:
            earlier = all_B[before][chosen] if before else None
            return gained(clips_B[chosen], earlier, all_B["nothing"][chosen], sources[chosen].tolist())

        row = {"rung": rung, **of(np.ones(len(sources), bool)), "modes": {kind: of(modes == kind) for kind in kinds}}
        row["seeds"] = [float(by_source(one_B[:, None], sources.tolist()).mean()) for one_B in seeds_nB]
        rungs.append(row)
        by_mode = " | ".join(said(row["modes"][kind]) for kind in kinds)
        print(f"| {words} | {row['l1']:.4f} | {said(row)} | {by_mode} |", flush=True)
    if asked.json:
        about = {"size": asked.size, "context": asked.context, "steps": asked.steps, "clips": len(sources)}
        write_text(
            asked.json, json.dumps(about | {"streets": len(set(sources.tolist())), "rungs": rungs}, indent=1) + "\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
