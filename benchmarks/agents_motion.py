"""How well can be told where agents will go, by somebody who knows the others and by somebody who does not?

    factorjepa simulate streets --preset dense --clips 3000 --clips-per-source 3 --seed 11 "seconds=[6,7]" fps=4
    python benchmarks/agents_motion.py streets               # one second ahead
    python benchmarks/agents_motion.py streets --context 8   # two seconds

From the simulator's truth up to the context's end: of every agent that is seen there its box, true velocity, the
camera's share of that, and where it has been; of its eight nearest neighbours the same, relative to it. A small network
tells how far off constant velocity the agent will be. Shown the others or not, it has as many parameters and learns
from the same agents; nobody is foretold by a network that has learned from its own street. Beside it stand staying, a
velocity that lasts, and one that fades. `agents_ceiling.py` asks what such foresight is worth to predicted tokens.

Shapes: N agents of all clips, A of one, P neighbours, K tubelets of the future, H tubelets looked back at.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from factorjepa.corpus.access import Corpus
from factorjepa.corpus.manifest import Clip
from factorjepa.corpus.shards import TRUTH, sidecar_path
from factorjepa.corpus.windows import WindowSpec, window_times
from factorjepa.video import frame_index
from factorjepa.world import ClipTruth
from results import publish

TUBELET = 2  # frames
FRAMES, FPS = 16, 4.0  # of a window
LASTS = 2.0  # frames
FORETOLD = {"alone": False, "together": True}  # who tells where agents go: whether the others are shown
NEIGHBOURS, LOOKED_BACK = 8, 3
_OWN, _REACTS = 11 + 3 * LOOKED_BACK, 0.5  # body lengths in a second that others make a difference of
_WIDTH, _EPOCHS, _ROWS = 128, 60, 512

Array = NDArray[np.float32]


class Moving(NamedTuple):
    """The agents of one clip that are seen at the context's end. Lengths are in sides of the picture."""

    own_AX: Array  # what is known of each
    pairs_APX: Array  # of its neighbours, nearest first: the same less its own, and whether there is such a neighbour
    steady_AK2: Array  # how far it would go at its true present velocity
    true_AK2: Array  # how far it goes; NaN where it has left the picture
    reacts_A: NDArray[np.bool_]  # the others make a difference to where it is a second later


def tubelets(numbers: Sequence[int]) -> list[list[int]]:
    return [list(numbers[first : first + TUBELET]) for first in range(0, len(numbers), TUBELET)]


def known(truth: ClipTruth, frame: int) -> NDArray[np.intp]:
    """Observations of the agents that are seen in a frame."""
    observed = truth.observations(frame)
    return observed[truth.visible_pixels[observed] > 0]


def centres(truth: ClipTruth, frames: Sequence[int]) -> dict[int, Array]:
    """Middle of every agent's box, in sides of the picture: mean over the frames in which it is in the picture."""
    found: dict[int, list[Array]] = {}
    for number in frames:
        for row in truth.observations(number).tolist():
            box = truth.box[row].astype(np.float32) / truth.size
            found.setdefault(int(truth.agent[row]), []).append((box[:2] + box[2:]) / 2)
    return {agent: np.mean(places, 0) for agent, places in found.items()}


def moving(truth: ClipTruth, numbers: Sequence[int], context: int) -> Moving:
    """Of a window whose frames have these `numbers` in the ground truth."""
    rows = known(truth, numbers[context - 1])
    agents = truth.agent[rows].tolist()
    parts = tubelets(numbers)
    now = context // TUBELET - 1
    places = [centres(truth, part) for part in parts[max(0, now - LOOKED_BACK) :]]
    *before, here = places[: -(len(parts) - now - 1)]
    ahead = places[len(before) + 1 :]
    at_A2 = np.array([here[agent] for agent in agents]).reshape(-1, 2)
    step = (numbers[1] - numbers[0]) / truth.fps * TUBELET
    box_A4 = truth.box[rows].astype(np.float32) / truth.size
    ego_A2, velocity_A2 = truth.camera_velocity[rows] / truth.size, truth.image_velocity[rows] / truth.size
    past = [
        np.array(
            [(*(at - then[a]), 1.0) if a in then else (0.0, 0.0, 0.0) for a, at in zip(agents, at_A2, strict=True)]
        )
        for then in before
    ]
    shape = [box_A4[:, 2:] - box_A4[:, :2], truncated(truth, rows)]
    own = [at_A2, box_A4[:, 3:], *shape, velocity_A2 * step, ego_A2 * step, *(one.reshape(-1, 3) for one in past)]
    own_AX = np.concatenate(own, 1).astype(np.float32)
    # Distance on the picture, upright lengths twice: the road lies flat.
    apart_AA = np.hypot(
        *(np.subtract.outer(axis, axis) * far for axis, far in zip(own_AX[:, [0, 2]].T, (1, 2), strict=True))
    )
    np.fill_diagonal(apart_AA, np.inf)
    near_AP = np.argsort(apart_AA, 1)[:, :NEIGHBOURS]
    there_AP = np.isfinite(np.take_along_axis(apart_AA, near_AP, 1))
    relative_APX = (own_AX[near_AP] - own_AX[:, None]) * there_AP[..., None]
    pairs_APX = np.zeros((len(agents), NEIGHBOURS, _OWN + 1), np.float32)
    pairs_APX[:, : near_AP.shape[1]] = np.concatenate((relative_APX, there_AP[..., None]), 2)
    gone = np.full(2, np.nan)
    true = [[then.get(a, gone) - at for then in ahead] for a, at in zip(agents, at_A2, strict=True)]
    when = min(round(numbers[context - 1] / truth.fps), len(truth.alone) - 1)  # of the anchors, one a second
    return Moving(
        own_AX,
        pairs_APX,
        velocity_A2[:, None] * step * np.arange(1, len(ahead) + 1, dtype=np.float32)[:, None],
        np.array(true, np.float32).reshape(-1, len(ahead), 2),
        np.nan_to_num(truth.alone[when, agents]) > _REACTS,
    )


def truncated(truth: ClipTruth, rows: NDArray[np.intp]) -> Array:
    """Whether it touches the picture's border, and its share that is seen, `[A, 2]`."""
    shares = truth.visible_pixels[rows] / np.maximum(truth.amodal_pixels[rows], 1)
    return np.stack((truth.truncated[rows], shares), 1).astype(np.float32)


class Foresight(nn.Module):
    """How far off constant velocity: from the agent itself, and from the sum of what each neighbour makes of it."""

    def __init__(self, ahead: int, others: bool) -> None:
        super().__init__()
        self.others, self.ahead = others, ahead
        self.own = nn.Sequential(nn.Linear(_OWN, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH))
        self.pair = nn.Sequential(nn.Linear(2 * _OWN + 1, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, _WIDTH))
        self.off = nn.Sequential(
            nn.GELU(), nn.Dropout(0.1), nn.Linear(_WIDTH, _WIDTH), nn.GELU(), nn.Linear(_WIDTH, 2 * ahead)
        )
        nn.init.zeros_(self.off[-1].weight)
        nn.init.zeros_(self.off[-1].bias)

    def forward(self, own_NX: Tensor, pairs_NPX: Tensor) -> Tensor:
        """`[N, K, 2]`"""
        pairs_NPX = pairs_NPX if self.others else torch.zeros_like(pairs_NPX)
        both_NPX = torch.cat((own_NX[:, None].expand(-1, pairs_NPX.shape[1], -1), pairs_NPX), 2)
        told_NPW = self.pair(both_NPX) * (pairs_NPX[..., -1:] if self.others else 1 / NEIGHBOURS)
        return self.off(self.own(own_NX) + told_NPW.sum(1)).unflatten(1, (self.ahead, 2))


def foretold(clips: Sequence[Moving], streets: Sequence[str], held_out: NDArray[np.bool_], others: bool) -> list[Array]:
    """How far each agent goes `[A, K, 2]`, told by networks that learned from other streets.

    Those of clips that are `held_out` by all others, of which either half is told by the other half.
    """
    half = np.isin(streets, sorted({one for one, out in zip(streets, held_out, strict=True) if not out})[::2])
    found: list[Array] = [clip.steady_AK2 for clip in clips]
    for told, learned in (
        (held_out, ~held_out),
        (half & ~held_out, ~half & ~held_out),
        (~half & ~held_out, half & ~held_out),
    ):
        network = fit([clips[clip] for clip in np.flatnonzero(learned)], others)
        for clip in np.flatnonzero(told):
            own, pairs = (torch.from_numpy(x) for x in (clips[clip].own_AX, clips[clip].pairs_APX))
            with torch.no_grad():
                found[clip] = clips[clip].steady_AK2 + network(own, pairs).numpy()
    return found


def fit(clips: Sequence[Moving], others: bool, seed: int = 0) -> Foresight:
    torch.manual_seed(seed)
    own_NX, pairs_NPX, steady_NK2, true_NK2 = (
        torch.from_numpy(np.concatenate(x)) for x in list(zip(*clips, strict=True))[:4]
    )
    off_NK2 = true_NK2 - steady_NK2
    there_NK2 = ~off_NK2.isnan()
    network = Foresight(off_NK2.shape[1], others).train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=0.02)
    steps = max(1, _EPOCHS * len(own_NX) // _ROWS)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for step in range(steps):
        rows = torch.randint(len(own_NX), (_ROWS,), generator=torch.Generator().manual_seed(step))
        wrong = F.l1_loss(network(own_NX[rows], pairs_NPX[rows]), off_NK2[rows].nan_to_num(), reduction="none")
        loss = (wrong * there_NK2[rows]).sum() / there_NK2[rows].sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
    return network.eval()


def by_source(clips_BX: Array, sources: Sequence[str]) -> Array:
    """Means of the clips of each source `[S, X]`: every source counts alike, as in `compare`."""
    names = np.array(sources)
    return np.stack([_mean(clips_BX[names == name]) for name in sorted(set(sources))])


def _mean(values: Array) -> Array:
    """Over the first axis, of what is there: NaN where nothing is."""
    there = ~np.isnan(values)
    total = np.where(there, values, 0).sum(0) / np.maximum(there.sum(0), 1)
    return np.where(there.any(0), total, np.nan).astype(np.float32)


def interval(gains_SX: Array, replicates: int = 2000) -> Array:
    """95 % of the means over sources drawn anew, `[low or high, X]`."""
    draws = np.random.default_rng(0).integers(len(gains_SX), size=(replicates, len(gains_SX)))
    return np.nanpercentile(np.nanmean(gains_SX[draws], 1), [2.5, 97.5], axis=0)


def errors(clips: Sequence[Moving], told: Sequence[Array]) -> Array:
    """How far off in the last tubelet, in percent of the picture's side: of all agents and of those that react."""
    found = []
    for clip, told_AK2 in zip(clips, told, strict=True):
        off_A = 100 * np.hypot(*(told_AK2 - clip.true_AK2)[:, -1].T)
        found.append(
            _mean(np.stack((off_A, np.where(clip.reacts_A, off_A, np.nan)), 1)) if len(off_A) else np.full(2, np.nan)
        )
    return np.array(found, np.float32)


def truth_of(corpus: Path, clip: Clip, times: Array) -> tuple[ClipTruth, list[int]]:
    """With the numbers that the window's frames have in it."""
    truth = ClipTruth.from_bytes((corpus / sidecar_path(clip.path, TRUTH)).read_bytes(), clip.clip_id)
    return truth, np.minimum(frame_index(times, truth.fps), truth.frames - 1).tolist()


def fading(steady_AK2: Array) -> Array:
    """How far velocities lead that fall to 1 / e in `LASTS` frames."""
    frames_K = TUBELET * np.arange(1, steady_AK2.shape[1] + 1, dtype=np.float32)
    return steady_AK2 * (LASTS * (1 - np.exp(-frames_K / LASTS)) / frames_K)[:, None]


def held_out(sources: Sequence[str], kept: int = 3) -> NDArray[np.bool_]:
    """One source in `kept`, to measure on."""
    return np.isin(sources, sorted(set(sources))[::kept])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--json", type=Path, help="keep the figures here")
    parser.add_argument("--context", type=int, default=12, help="frames of 16, at 4 a second; the others are predicted")
    asked = parser.parse_args(arguments)
    found = Corpus.open(asked.corpus).training()
    clips = [moving(*truth_of(asked.corpus, clip, window_times(clip, WindowSpec())), asked.context) for clip in found]
    sources = [clip.source for clip in found]
    out = held_out(sources)
    measured, streets = ([one for one, kept in zip(x, out, strict=True) if kept] for x in (clips, sources))
    told = {"nobody: it stays": [0 * clip.steady_AK2 for clip in measured]}
    told["constant velocity"] = [clip.steady_AK2 for clip in measured]
    told[f"a velocity that fades in {LASTS:g} frames"] = [fading(clip.steady_AK2) for clip in measured]
    for name, others in FORETOLD.items():
        told[name] = [one for one, kept in zip(foretold(clips, sources, out, others), out, strict=True) if kept]
    agents, reacting = sum(len(clip.reacts_A) for clip in measured), sum(int(clip.reacts_A.sum()) for clip in measured)
    seconds = (FRAMES - asked.context) / FPS
    print(f"{seconds:g} s ahead: {agents} agents of {len(set(streets))} streets, {reacting} of whom react to others")
    print("| who tells | off by, % of the picture's side | less than the one before | of those that react | less |")
    print("|---|---|---|---|---|")
    figures: list[dict[str, Any]] = []
    before: Array | None = None
    for name, who in told.items():
        wrong_S2 = by_source(errors(measured, who), streets)
        row: dict[str, Any] = {"told_by": name, "off": np.nanmean(wrong_S2, 0).tolist()}
        cells = ["", ""]
        if before is not None:
            row |= {
                "gain": np.nanmean(before - wrong_S2, 0).tolist(),
                "interval": interval(before - wrong_S2).T.tolist(),
            }
            both = zip(row["gain"], row["interval"], strict=True)
            cells = [f"{gain:+.3f} [{low:+.3f}, {high:+.3f}]" for gain, (low, high) in both]
        print(f"| {name} | {row['off'][0]:.3f} | {cells[0]} | {row['off'][1]:.3f} | {cells[1]} |", flush=True)
        before = wrong_S2
        figures.append(row)
    publish({"context": asked.context, "agents": agents, "reacting": reacting, "who": figures}, asked.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
