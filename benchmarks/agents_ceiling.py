"""What could knowing agents gain? Ever more of the truth about them, shown to one head on frozen features.

    factorjepa simulate streets --preset dense --clips 3000 --clips-per-source 3 --seed 11 "seconds=[6,7]" fps=4
    python benchmarks/agents_ceiling.py streets                                     # 64 px, one second ahead
    python benchmarks/agents_ceiling.py streets --size 128 --context 8 --clips 960  # finer tokens, two seconds
    factorjepa targets streets --split train regions.kind=street                    # and what a teacher sees of them:
    python benchmarks/agents_ceiling.py streets --packets streets/targets

Encoder and query transformer stay as they come, as in `look_back.py`. Every head has the same inputs and as many
parameters; what a rung does not know is zero. What it is told of an agent is read by a branch of its own, which is
silent where nobody is to be and learns with half of it dropped: heads with one branch for everything lost on tokens
without agents, by learning their streets by heart, part of what they gained on the others. Where agents
will go is told by a velocity that fades, or by networks that have learned it on other streets (`agents_motion.py`). No
model that sees the context alone can know what the last two rungs do: they say what knowing motion, interactions and
occlusion ahead would be worth, as far as such a head makes use of it.

Shapes: B clips, A agents, n tokens of a tubelet, t of the future, D width, S pixels a side (of means: sources).
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from agents_motion import TUBELET, by_source, centres, fading, foretold, interval, known, moving, truth_of, tubelets
from factorjepa.corpus.access import Corpus, TrainingClips
from factorjepa.corpus.manifest import Clip
from factorjepa.diagnostics.tokens import SHARE
from factorjepa.teacher.cache import PacketCache, Packets
from factorjepa.teacher.states import GEOMETRY, object_states
from factorjepa.world import ClipTruth
from look_back import Added, Features, features, learn
from results import publish

RUNGS = {  # what a head is shown, and the rung that it is compared with
    "nothing": ("the query alone", ""),
    "own place": ("what its own place last showed (the look back)", "nothing"),
    "taught": ("and the agents that a teacher sees, going on as it saw them go", "own place"),
    "shaped": ("instead those agents' true shapes, going on as the teacher saw them go", "own place"),
    "lately": ("as they truly went from the last frame but one to the last", "shaped"),
    "found": ("at their true present velocity", "lately"),
    "steady": ("instead every agent that is seen, in the same way", "own place"),
    "fading": ("at a velocity that fades", "steady"),
    "foretold": ("as far as a network can tell, from itself and the others", "fading"),
    "moved": ("and where each of them truly goes", "foretold"),
    "seen": ("and what is truly seen of every agent then, newcomers and occlusion included", "moved"),
}
_EVERYBODY = -6  # of what is told of a token: the share of all agents
OF_TEACHER = ("taught", "shaped", "lately", "found")  # rungs that take packets
_HIDDEN = 512
_FINE = 32  # cells a side in which true agents are matched with a teacher's
_DROPPED = 0.5  # of what is told of an agent, in training

Array = NDArray[np.float32]


Covering = tuple[Array, NDArray[np.int64]]  # of one tubelet: the first two of


class Agents(NamedTuple):
    """What is known of the agent that covers most of each future token, and of all of them there."""

    # Its share, everybody's share, how far it will be (2), how far it goes a tubelet now (2), 1 if it was seen
    fields_t7: Array
    who_t: NDArray[np.int64]  # among those known at the context's end; -1 for nobody
    last_An: Array  # what each of those covers in the last context frame


class Watched(NamedTuple):
    """A teacher's agents at the context's end: what each covers of 32 x 32 cells, and how far it goes in a tubelet."""

    cover_Tf: Array
    now_T2: Array

    def of(self, own_Af: Array) -> tuple[NDArray[np.bool_], Array]:
        """Which of the true agents, that cover `own`, it finds (half of each), and how far it saw those go."""
        area_A = own_Af.sum(1)
        found_A = np.minimum(own_Af, np.minimum(self.cover_Tf.sum(0), 1.0)).sum(1) >= 0.5 * area_A
        if not len(self.now_T2):
            return np.zeros(len(own_Af), bool), np.zeros((len(own_Af), 2))
        shared_AT = np.array([np.minimum(own_f, self.cover_Tf).sum(1) for own_f in own_Af])
        return found_A, self.now_T2[shared_AT.reshape(len(own_Af), -1).argmax(1)]


class Street(NamedTuple):
    """A clip's agents by rung, and what all truly cover in the future."""

    rungs: dict[str, Agents]
    covered_t: Array


def street(
    truth: ClipTruth,
    numbers: list[int],
    context: int,
    rows: int,
    told: Mapping[str, Array],
    watched: Watched | None = None,
) -> Street:
    """Of a window whose frames have these `numbers` in the ground truth; how far each agent goes is `told` by rung.

    Of the agents that a teacher `watched`, their true shapes go on as it saw them go, or as they truly do.
    """
    before, *future = tubelets(numbers)[context // TUBELET - 1 :]
    step = (numbers[1] - numbers[0]) / truth.fps * TUBELET  # seconds from one tubelet to the next
    last = numbers[context - 1]
    observed = known(truth, last)
    agents = truth.agent[observed]
    shapes_ASS = truth.instances(last)[None] == agents[:, None, None] + 1
    velocity_A2 = truth.image_velocity[observed] / truth.size
    start, shown_at = centres(truth, before), centres(truth, [last])  # of tokens, and of the masks
    now_A2 = velocity_A2 * step
    half = step * (TUBELET - 1) / (2 * TUBELET)  # from the middle of the last tubelet to its last frame
    found_A, watched_A2 = watched.of(_shares(shapes_ASS, _FINE)) if watched is not None else (None, now_A2)
    before_that = centres(truth, [numbers[context - 2]])
    lately_A2 = TUBELET * np.array(
        [shown_at[a] - before_that.get(a, shown_at[a]) for a in agents.tolist()], np.float32
    ).reshape(-1, 2)
    rungs: dict[str, list[Covering]] = {name: [] for name in (*told, "shaped", "lately", "found", "moved", "seen")}
    covered = []
    for k, frames in enumerate(future):
        then = centres(truth, frames)
        stayed_A1 = np.isin(agents, [*then])[:, None]
        true_A2, by_A2 = (
            np.array([then.get(a, at[a]) - at[a] for a in agents.tolist()]).reshape(-1, 2) for at in (start, shown_at)
        )
        for name, far_AK2 in told.items():
            shares_An = _shifted(shapes_ASS, far_AK2[:, k] - velocity_A2 * half, rows)
            rungs[name].append(_most(shares_An, far_AK2[:, k], now_A2, agents, agents))
            if name == "steady" and found_A is not None:
                rungs["found"].append(_most(shares_An * found_A[:, None], far_AK2[:, k], now_A2, agents, agents))
        for name, going_A2 in {"shaped": watched_A2, "lately": lately_A2}.items() if found_A is not None else ():
            shares_An = _shifted(shapes_ASS, going_A2 * (k + 1 - half / step), rows) * found_A[:, None]
            rungs[name].append(_most(shares_An, going_A2 * (k + 1), going_A2, agents, agents))
        shares_An = _shifted(shapes_ASS, by_A2, rows) * stayed_A1
        rungs["moved"].append(_most(shares_An, true_A2, now_A2, agents, agents))
        everybody = np.array(sorted(then), np.int64)
        masks_2ASS = [truth.instances(frame)[None] == everybody[:, None, None] + 1 for frame in frames]
        shares_An = np.mean([_shares(masks_ASS, rows) for masks_ASS in masks_2ASS], 0)
        rungs["seen"].append(_most(shares_An, true_A2, now_A2, everybody, agents))
        covered.append(np.mean([_shares(truth.instances(f)[None] > 0, rows)[0] for f in frames], 0))
    last_An = _shares(shapes_ASS, rows)
    joined = {name: _joined(found, last_An) for name, found in rungs.items() if found}
    return Street(joined, np.concatenate(covered).astype(np.float32))


class Tracks(NamedTuple):
    """A teacher's agents, each by its mask when last seen."""

    shapes_ASS: NDArray[np.bool_]
    velocity_A2: Array  # a frame
    unseen_A1: Array  # frames since
    future: int  # frames

    @classmethod
    def of(cls, packets: Packets[TrainingClips], clip: Clip) -> Tracks:
        packet = packets.of(clip)
        states = object_states(packets.collate([clip]).cells)
        slots_A = states.slot_BN[states.valid_BN].numpy()
        geometry_AG = states.geometry_BNG[states.valid_BN].numpy()
        velocity_A2 = geometry_AG[:, [GEOMETRY.index("velocity_x"), GEOMETRY.index("velocity_y")]]
        unseen_A1 = geometry_AG[:, [GEOMETRY.index("gap")]] * states.context
        seen_in = (states.context - 1 - np.rint(unseen_A1[:, 0])).astype(int).tolist()
        agents = {one: agent for agent, one in enumerate(zip(slots_A.tolist(), seen_in, strict=True))}
        of_R = list(zip(packet.region_track.tolist(), packet.region_frame.tolist(), strict=True))
        shapes_ASS = np.zeros((len(slots_A), int(packet.side), int(packet.side)), bool)
        for region, where, mask in packet.region_masks(np.array([one in agents for one in of_R], bool)):
            shapes_ASS[agents[of_R[region]]][where] |= mask
        return cls(shapes_ASS, velocity_A2, unseen_A1, packet.frames - states.context)

    def now(self, rows: int) -> Array:
        """What each covers at the context's end."""
        return _shifted(self.shapes_ASS, self.velocity_A2 * self.unseen_A1, rows)

    def watched(self) -> Watched:
        return Watched(self.now(_FINE), self.velocity_A2 * TUBELET)


def taught(tracks: Tracks, rows: int) -> Agents:
    """The agents that the teacher's tracks show, going on as it was seen to go."""
    everybody = np.arange(len(tracks.shapes_ASS))
    found = []
    for ahead in range(TUBELET, tracks.future + 1, TUBELET):
        since_A1 = (
            ahead - (TUBELET - 1) / 2 + tracks.unseen_A1
        )  # the mask is of a frame, a token of the tubelet's middle
        shares_An = _shifted(tracks.shapes_ASS, tracks.velocity_A2 * since_A1, rows)
        far_A2, now_A2 = tracks.velocity_A2 * ahead, tracks.velocity_A2 * TUBELET
        found.append(_most(shares_An, far_A2, now_A2, everybody, everybody))
    return _joined(found, tracks.now(rows))


def _joined(found: list[Covering], last_An: Array) -> Agents:
    fields, who = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Agents(fields, who, last_An)


def _shares(masks_ASS: NDArray[np.bool_], rows: int) -> Array:
    """Share of each token that a mask covers, `[A, n]`."""
    pixels = masks_ASS.shape[-1] // rows
    blocks = masks_ASS.reshape(len(masks_ASS), rows, pixels, rows, pixels)
    return blocks.mean((2, 4), dtype=np.float32).reshape(len(masks_ASS), rows * rows)


def _shifted(masks_ASS: NDArray[np.bool_], by_A2: Array, rows: int) -> Array:
    """Shares of tokens after each mask was moved, `by` in sides of the picture."""
    side = masks_ASS.shape[-1]
    moved = np.zeros_like(masks_ASS)
    for mask, into, (x, y) in zip(masks_ASS, moved, np.rint(by_A2 * side).astype(int).tolist(), strict=True):
        if abs(x) < side and abs(y) < side:
            kept = mask[max(0, -y) : side - max(0, y), max(0, -x) : side - max(0, x)]
            into[max(0, y) : side - max(0, -y), max(0, x) : side - max(0, -x)] = kept
    return _shares(moved, rows)


def _most(
    shares_An: Array, by_A2: Array, now_A2: Array, agents: NDArray[np.int64], known: NDArray[np.int64]
) -> Covering:
    """Of the agent that covers most of each token; `by` and `now` are of `known` ones, seen at the context's end."""
    cells = shares_An.shape[1]
    if not len(agents):
        return np.zeros((cells, 7), np.float32), np.full(cells, -1)
    place = {agent: number for number, agent in enumerate(known.tolist())}
    at = np.array([place.get(agent, -1) for agent in agents.tolist()])
    most, share = shares_An.argmax(0), shares_An.max(0)
    who = np.where(share > 0, at[most], -1)
    going_A4 = np.concatenate((by_A2.reshape(-1, 2), now_A2.reshape(-1, 2)), 1)
    going = np.concatenate((going_A4, np.zeros((1, 4))))[who]
    everybody = np.minimum(shares_An.sum(0), 1.0)
    fields = np.concatenate((np.stack((share, everybody), 1), going, (who >= 0)[:, None]), 1)
    return fields.astype(np.float32), who


def shown(found: Features, streets: list[Street], rung: str) -> Tensor:
    """What a head is told of each token beside its query, `[B, t, 3D + 8]`: in half precision, there are millions."""
    last_BnD = found.levels[:, -1, :, -1]
    batch, cells, dim = last_BnD.shape
    rows, tokens = round(cells**0.5), found.query.shape[1]
    told = torch.zeros(batch, tokens, 3 * dim + 8, dtype=torch.float16)
    if rung == "nothing":
        return told
    told[..., :dim] = last_BnD.repeat(1, tokens // cells, 1)
    if rung == "own place":
        return told
    middles = (torch.arange(rows) + 0.5) / rows
    place_t2 = torch.stack(torch.meshgrid(middles, middles, indexing="xy"), -1).flatten(0, 1).repeat(tokens // cells, 1)
    for b, one in enumerate(streets):
        agents = one.rungs[rung]
        fields_t7, who_t = torch.from_numpy(agents.fields_t7), torch.from_numpy(agents.who_t)
        picture = F.pad(last_BnD[b].float(), (0, 1), value=1.0).T.reshape(1, dim + 1, rows, rows)
        from_t2 = place_t2 - fields_t7[:, 2:4]
        brought = F.grid_sample(picture, (2 * from_t2 - 1)[None, None], align_corners=False)[0, :, 0].T
        cover_An = torch.from_numpy(agents.last_An)
        looks_AD = cover_An @ last_BnD[b].float() / cover_An.sum(1, keepdim=True).clamp(min=1e-3)
        looks_tD = torch.cat((looks_AD, torch.zeros(1, dim)))[who_t]  # -1: nobody
        told[b, :, dim:] = torch.cat((brought * (who_t >= 0)[:, None], looks_tD, fields_t7), 1).half()
    return told


class Told(nn.Module):
    """A branch that reads the token's own place, and one that reads the agent that is to be there, if there is any."""

    def __init__(self, own: int, agents: int, width: int, out: int) -> None:
        super().__init__()
        self.widths, self.dropped = [own, agents], nn.Dropout(_DROPPED)
        self.own, self.agents = (
            Added(fields, width, _HIDDEN, out, narrow=False, handed_on=True) for fields in self.widths
        )

    def forward(self, query: Tensor, told: Tensor) -> Tensor:
        own, agents = told.split(self.widths, -1)
        anybody = agents[..., [_EVERYBODY]] > 0
        added: Tensor = self.own(query, own) + self.agents(query, self.dropped(agents)) * anybody
        return added


def errors(found: Features, told: Tensor, pretrained: nn.Linear, steps: int, seed: int) -> Tensor:
    """Of every token of the validation clips, after training on the others: `[B, t]`."""
    torch.manual_seed(seed)
    head, own = copy.deepcopy(pretrained), found.levels.shape[-1]
    added = Told(own, told.shape[-1] - own, found.query.shape[-1], found.target.shape[-1])
    learn(head, added, tuple(x[found.training].flatten(0, 1) for x in (found.query, told, found.target)), steps)
    added.eval()
    with torch.no_grad():
        rows = zip(*(x[~found.training] for x in (found.query, told, found.target)), strict=True)
        return torch.stack([(head(q) + added(q, given.float()) - y).abs().mean(-1) for q, given, y in rows])


def of_clips(errors_Bt: Tensor, covered_Bt: Tensor) -> Array:
    """Mean over a clip's tokens, and over those where agents truly are (NaN where there are none): `[B, 2]`."""
    agents_Bt = covered_Bt >= SHARE
    return torch.stack((errors_Bt.mean(1), (errors_Bt * agents_Bt).sum(1) / agents_Bt.sum(1)), 1).numpy()


def gained(clips_B2: Array, before_B2: Array | None, sources: NDArray[np.str_]) -> dict[str, Any]:
    """Means over sources of the errors of some clips, and how much less they are than `before`, with an interval."""
    found: dict[str, Any] = {"l1": np.nanmean(by_source(clips_B2, sources), 0).tolist()}
    if before_B2 is not None:
        gains_S2 = by_source(before_B2 - clips_B2, sources)
        found |= {"gain": np.nanmean(gains_S2, 0).tolist(), "interval": interval(gains_S2).T.tolist()}
    return found


def cells(row: dict[str, Any]) -> list[str]:
    """Error and gain, of all tokens and of those with agents."""
    gains = [
        f"{gain:+.4f} [{low:+.4f}, {high:+.4f}]"
        for gain, (low, high) in zip(row.get("gain", ()), row.get("interval", ()), strict=True)
    ] or ["", ""]
    return [part for error, gain in zip(row["l1"], gains, strict=True) for part in (f"{error:.4f}", gain)]


def _packets(folder: Path, corpus: Path, most: int | None, context: int) -> Packets[TrainingClips]:
    """Of the clips that `features` takes."""
    clips, cache = Corpus.open(corpus).training(), PacketCache.open(folder)
    if cache.settings.context != context:
        raise SystemExit(f"{folder}: the teacher saw {cache.settings.context} frames: targets with context={context}")
    return cache.packets(clips if most is None else clips.subset(most, 0))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--json", type=Path, help="keep the figures here")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--context", type=int, default=12, help="frames of 16, at 4 a second; the others are predicted")
    parser.add_argument(
        "--clips", type=int, help="of the training clips (default: all); a third of their streets is measured"
    )
    parser.add_argument("--packets", type=Path, help="of a teacher that looked at the same windows: a rung of its own")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 29])
    asked = parser.parse_args(arguments)
    found, pretrained = features(asked.corpus, asked.size, asked.context, asked.clips, kept=3)
    side = round(found.levels.shape[2] ** 0.5)
    packets = _packets(asked.packets, asked.corpus, asked.clips, asked.context) if asked.packets else None
    check = ~found.training
    windows = list(zip(found.clips, found.times.numpy(), strict=True))
    going = [moving(*truth_of(asked.corpus, clip, times), asked.context) for clip, times in windows]
    everywhere = [clip.source for clip in found.clips]
    told = {"steady": [clip.steady_AK2 for clip in going]}
    told["fading"] = [fading(clip.steady_AK2) for clip in going]
    told["foretold"] = foretold(going, everywhere, check.numpy(), others=True)
    streets = []
    for number, (clip, times) in enumerate(windows):
        of_clip = {rung: far[number] for rung, far in told.items()}
        truth, numbers = truth_of(asked.corpus, clip, times)
        if packets is None:
            streets.append(street(truth, numbers, asked.context, side, of_clip))
            continue
        assert np.array_equal(packets.of(clip).times, times), "the teacher looked at other frames"
        tracks = Tracks.of(packets, clip)
        streets.append(street(truth, numbers, asked.context, side, of_clip, tracks.watched()))
        streets[-1].rungs["taught"] = taught(tracks, side)
    covered_Bt = torch.from_numpy(np.stack([one.covered_t for one in streets]))[check]
    sources, modes = (
        np.array([str(getattr(clip, field)) for clip in found.clips])[check.numpy()]
        for field in ("source", "capture_mode")
    )
    share = float((covered_Bt >= SHARE).float().mean())
    print(
        f"{asked.size} px, {asked.context} frames seen: {len(found.clips)} clips, {len(sources)} of them from "
        f"{len(set(sources.tolist()))} streets to measure on, where agents cover {share:.1%}"
    )
    print("| a head is shown | L1 | gain | on agents | gain there |\n|---|---|---|---|---|")
    rungs: list[dict[str, Any]] = []
    all_B2: dict[str, Array] = {}
    for rung, (words, before) in RUNGS.items():
        if rung in OF_TEACHER and packets is None:
            continue
        given = shown(found, streets, rung)
        seeds_nB2 = [of_clips(errors(found, given, pretrained, asked.steps, s), covered_Bt) for s in asked.seeds]
        all_B2[rung] = clips_B2 = np.mean(seeds_nB2, 0)
        row = {"rung": rung, **gained(clips_B2, all_B2.get(before), sources)}
        row["seeds"] = [np.nanmean(by_source(one_B2, sources), 0).tolist() for one_B2 in seeds_nB2]
        row["modes"] = {
            mode: gained(clips_B2[own], all_B2[before][own] if before else None, sources[own])
            for mode in sorted(set(modes.tolist()))
            for own in [modes == mode]
        }
        rungs.append(row)
        print(f"| {words} | {' | '.join(cells(row))} |", flush=True)
    print(f"\n| of clips filmed | {' | '.join(f'{mode}: gain | on agents' for mode in rungs[0]['modes'])} |")
    for row in rungs[1:]:
        gains = [cells(one)[place] for one in row["modes"].values() for place in (1, 3)]
        print(f"| {RUNGS[row['rung']][0]} | {' | '.join(gains)} |")
    figures = {
        "size": asked.size,
        "context": asked.context,
        "steps": asked.steps,
        "clips": len(sources),
        "streets": len(set(sources.tolist())),
        "agents": share,
        "rungs": rungs,
    }
    publish(figures, asked.json)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
