"""Trains the street detector that comes with the package, and measures it.

    python benchmarks/train_street_detector.py --out src/factorjepa/weights/street_detector.safetensors
    python benchmarks/train_street_detector.py --role regions --out src/factorjepa/weights/street_regions.safetensors

One core, about 20 minutes of its time. Frames and boxes come straight from the simulator: worlds of their own (seeds
below), dense and sparse streets, rendered at 128 px and shown at 64 to 128 px. The threshold is chosen on a second
world, the figures are those of a third. No corpus is read.

Loss: CenterNet's focal loss on a heat map of centres (Gaussians as wide as the boxes), generalised IoU of the boxes and
cross entropy of the superclasses at the cells around each centre.

Legend: B pictures; S pixels a side; g cells a side; N agents of a picture; K superclasses.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor

from factorjepa.config import resolve
from factorjepa.detectors.boxes import Detections
from factorjepa.rendering.metrics.agents import Agents, AgentSettings, agent_counts, areas, matched, summed
from factorjepa.rendering.metrics.true_agents import seen_boxes, superclass_numbers
from factorjepa.seeding import stream
from factorjepa.teacher.street_detector import THRESHOLD, StreetDetector, canvas
from factorjepa.teacher.street_network import CANVAS, STRIDE, StreetNetwork, boxes_of, cell_centres
from factorjepa.world import WorldSettings, clips
from factorjepa.world.population import Population
from factorjepa.world.simulator import CLIPS_PER_SOURCE
from factorjepa.world.taxonomy import KIND_NAMES, SUPERCLASSES

WORLDS = {  # seeds of worlds that no study uses: they teach, choose the threshold, measure
    "judge": (9_000_001, 9_000_002, 9_000_003),  # Agent F1 of decoded frames
    "regions": (9_000_011, 9_000_012, 9_000_013),  # the teacher's regions: nobody is measured by who taught it
}
SPARSE = 4  # every fourth street is a sparse one
SHOTS = (0, 2)  # clips of a source
TIMES = (0.4, 2.1, 3.7)  # s, of a clip
LEAST = 0.001  # share of the picture that must be seen of an agent: who shows less is neither taught nor denied
SIDES = (64, 80, 96, 112, 128)  # px at which pictures are shown
RATE, DECAY, WARM = 4e-3, 1e-2, 100
AVERAGE = 0.998  # of the weights, over steps
BATCH = 32
BLURRED, DARKER = 0.3, 0.35
THRESHOLDS = np.arange(0.15, 0.7, 0.025)


@dataclass(frozen=True)
class Picture:
    """One frame at the canvas's size. `boxes` in [0, 1]."""

    frame: NDArray[np.uint8]
    boxes: NDArray[np.float64]  # [N, 4]
    kinds: NDArray[np.int64]  # [N]
    seen: NDArray[np.float64]  # [N] share of the picture
    hidden: NDArray[np.float64]  # [N] share of the body


def pictures(seed: int, streets: int) -> Iterator[Picture]:
    worlds = [resolve(WorldSettings, name, size=CANVAS) for name in ("dense", "sparse")]
    for street in range(streets):
        settings = worlds[street % SPARSE == SPARSE - 1]
        indices = [street * CLIPS_PER_SOURCE + shot for shot in SHOTS]
        for clip in clips(settings, seed, indices, seconds=[max(TIMES) + 0.3] * len(SHOTS)):
            for frame, truth in clip.renderer.render(clip.trajectory, clip.camera, np.array(TIMES), truth=True):
                assert truth is not None
                yield picture(frame, truth.instances, truth.seen, clip.population)


def picture(frame: Any, instances: Any, seen: Sequence[Any], population: Population) -> Picture:
    pixels = np.bincount(instances.ravel(), minlength=len(seen) + 1)[1:]
    there = np.flatnonzero(pixels)
    kinds = superclass_numbers([KIND_NAMES[population.kind[seen[k].row]] for k in there])
    whole = np.array([seen[k].amodal.sum() for k in there], np.float64)
    boxes = seen_boxes(instances, len(seen))[there]
    return Picture(frame.copy(), boxes, kinds, pixels[there] / instances.size, 1 - pixels[there] / np.maximum(whole, 1))


def shown(frame: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """As a corpus shows it at this size."""
    small = frame if side == CANVAS else cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA)
    return np.asarray(small)


def augmented(one: Picture, rng: np.random.Generator) -> tuple[Tensor, NDArray[np.float64]]:
    """`[3, S, S]` and its boxes: mirrored, smaller, blurred, in other light."""
    frame, boxes = one.frame, one.boxes
    if rng.random() < 0.5:
        frame, boxes = frame[:, ::-1], np.stack([1 - boxes[:, 2], boxes[:, 1], 1 - boxes[:, 0], boxes[:, 3]], axis=1)
    values = canvas(shown(np.ascontiguousarray(frame), int(rng.choice(SIDES)))[None])[0].numpy().transpose(1, 2, 0)
    if rng.random() < BLURRED:
        values = cv2.GaussianBlur(values, (0, 0), rng.uniform(0.4, 1.5))
    gain = np.exp(rng.uniform(-DARKER, DARKER, 1) + rng.uniform(-0.1, 0.1, 3)).astype(np.float32)
    values = (values * gain + np.float32(rng.uniform(-0.08, 0.08))).clip(0, 1)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1))), boxes


def targets(one: Picture, boxes: NDArray[np.float64]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Heat, where it teaches, boxes in pixels, superclass and weight of every cell `[g, g]`.

    Far agents first: whoever stands lower in the picture is nearer and takes the cell.
    """
    cells = CANVAS // STRIDE
    columns, rows = cell_centres(cells)
    heat, teaches = torch.zeros(cells, cells), torch.ones(cells, cells)
    box, kind, weight = (
        torch.zeros(4, cells, cells),
        torch.zeros(cells, cells, dtype=torch.long),
        torch.zeros(cells, cells),
    )
    for k in np.argsort(boxes[:, 3]):
        left, top, right, bottom = (boxes[k] * CANVAS).tolist()
        across, down = max(0.18 * (right - left), 0.5 * STRIDE), max(0.18 * (bottom - top), 0.5 * STRIDE)
        x, y = (left + right) / 2, (top + bottom) / 2
        near = torch.exp(-(((columns - x) / across) ** 2 + ((rows - y) / down) ** 2) / 2)
        peak = (min(int(y / STRIDE), cells - 1), min(int(x / STRIDE), cells - 1))
        if one.seen[k] < LEAST:
            teaches[near > 0.3] = 0
            teaches[peak] = 0
            continue
        near[peak] = 1.0
        heat = torch.maximum(heat, near)
        around = near > 0.4
        box[:, around] = torch.tensor([left, top, right, bottom])[:, None]
        kind[around], weight[around] = int(one.kinds[k]), near[around] / near[around].sum().clamp(min=1)
    teaches[heat == 1] = 1
    return heat, teaches, box, kind, weight


def loss_of(network: StreetNetwork, batch: Sequence[Tensor]) -> Tensor:
    seen, heat, teaches, box, kind, weight = batch
    centre_Bgg, kinds_BKgg, reach_B4gg = network(seen)
    agents = (heat == 1).sum().clamp(min=1)
    sure, unsure = F.logsigmoid(centre_Bgg), F.logsigmoid(-centre_Bgg)
    chance = centre_Bgg.sigmoid()
    focal = torch.where(heat == 1, (1 - chance) ** 2 * sure, (1 - heat) ** 4 * chance**2 * unsure)
    total = weight.sum().clamp(min=1)
    overlap = (weight * (1 - generalised_iou(boxes_of(reach_B4gg), box))).sum() / total
    named = (weight * F.cross_entropy(kinds_BKgg, kind, reduction="none")).sum() / total
    return -(teaches * focal).sum() / agents + 2.0 * overlap + 0.3 * named


def generalised_iou(first: Tensor, second: Tensor) -> Tensor:
    """Of boxes along axis 1."""
    inner = [torch.maximum(first[:, :2], second[:, :2]), torch.minimum(first[:, 2:], second[:, 2:])]
    outer = [torch.minimum(first[:, :2], second[:, :2]), torch.maximum(first[:, 2:], second[:, 2:])]
    shared, around = (inner[1] - inner[0]).clamp(min=0).prod(1), (outer[1] - outer[0]).prod(1).clamp(min=1e-6)
    both = sum((b[:, 2:] - b[:, :2]).clamp(min=0).prod(1) for b in (first, second)) - shared
    return shared / both.clamp(min=1e-6) - (around - both) / around


def train(pool: Sequence[Picture], steps: int, seed: int) -> StreetNetwork:
    torch.manual_seed(seed)
    network = StreetNetwork().to(memory_format=torch.channels_last)  # a third faster on a CPU
    network.head[-1].bias.data[0] = -3.0  # few cells hold a centre
    average = torch.optim.swa_utils.AveragedModel(
        network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(AVERAGE), use_buffers=True
    )
    optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda k: min((k + 1) / WARM, 0.5 + 0.5 * np.cos(np.pi * k / steps))
    )
    rng, begun, losses = stream(seed, "views"), time.monotonic(), []
    order = itertools.chain.from_iterable(rng.permutation(len(pool)) for _ in itertools.count())
    for step in range(1, steps + 1):
        chosen = [pool[next(order)] for _ in range(BATCH)]
        rows = []
        for one in chosen:
            seen, boxes = augmented(one, rng)
            rows.append((seen, *targets(one, boxes)))
        optimiser.zero_grad(set_to_none=True)
        seen, *taught = (torch.stack(column) for column in zip(*rows, strict=True))
        loss = loss_of(network, [seen.contiguous(memory_format=torch.channels_last), *taught])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 10.0)
        optimiser.step()
        schedule.step()
        average.update_parameters(network)
        losses.append(loss.item())
        if step % 100 == 0 or step == steps:
            rate = step / (time.monotonic() - begun)
            print(f"step {step}/{steps}  loss {np.mean(losses[-100:]):.3f}  {rate:.2f} steps/s", flush=True)
    return average.module


def found_in(detector: StreetDetector, pool: Sequence[Picture], side: int) -> list[Detections]:
    return [
        one
        for first in range(0, len(pool), 64)
        for one in detector.look(np.stack([shown(p.frame, side) for p in pool[first : first + 64]]))
    ]


def agents_of(one: Picture) -> Agents:
    return Agents(Detections(one.boxes, np.ones(len(one.kinds)), one.kinds), one.hidden)


def score(pool: Sequence[Picture], found: Sequence[Detections], threshold: float, settings: AgentSettings) -> Any:
    return summed(
        agent_counts(agents_of(one), here.take(here.scores >= threshold), settings)
        for one, here in zip(pool, found, strict=True)
    )


def choose(detector: StreetDetector, pool: Sequence[Picture]) -> float:
    """The threshold with the best mean F1 at 64 and 128 px."""
    found = {side: found_in(detector, pool, side) for side in (64, 128)}
    values = [np.mean([score(pool, found[s], t, AgentSettings()).f1 for s in found]) for t in THRESHOLDS]
    return round(float(THRESHOLDS[int(np.argmax(values))]), 3)


def report(detector: StreetDetector, pool: Sequence[Picture]) -> None:
    print(f"{len(pool)} pictures of streets that were never taught, threshold {detector.threshold:g}")
    print("px   smallest  F1     precision recall small  hidden by class superclass right agents")
    for side in (64, 96, 128):
        found = [one.take(one.scores >= detector.threshold) for one in found_in(detector, pool, side)]
        for smallest in (0.002, 0.004, 0.008, 0.016):
            settings = AgentSettings(smallest=smallest)
            counts = score(pool, found, 0.0, settings)
            named = score(pool, found, 0.0, AgentSettings(smallest=smallest, by_class=True))
            right = superclass_right(pool, found, settings)
            print(
                f"{side:<4} {smallest:<9} {counts.f1:.3f}  {counts.precision:.3f}     {counts.recall:.3f}  "
                f"{counts.small_recall:.3f}  {counts.hidden_recall:.3f}  {named.f1:.3f}    {right:.3f}            "
                f"{counts.tp + counts.fn}"
            )


def superclass_right(pool: Sequence[Picture], found: Sequence[Detections], settings: AgentSettings) -> float:
    """Share of the agents found whose superclass is told rightly."""
    same = []
    for one, here in zip(pool, found, strict=True):
        pairs = matched(agents_of(one).found, here, settings.iou, by_class=False)
        large = areas(one.boxes[pairs[:, 0]]) >= settings.smallest
        same.append((one.kinds[pairs[:, 0]] == here.kinds[pairs[:, 1]])[large])
    return float(np.concatenate(same).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--streets", type=int, default=1600, help="that teach; six pictures of each")
    parser.add_argument("--measure", action="store_true", help="the file as it is, without training")
    parser.add_argument("--role", choices=list(WORLDS), default="judge", help="whose worlds it sees")
    options = parser.parse_args()
    teaching, choosing, measuring = WORLDS[options.role]
    torch.set_num_threads(1)
    if not options.measure:
        begun = time.monotonic()
        pool = list(pictures(teaching, options.streets))
        print(
            f"{len(pool)} pictures of {len(SUPERCLASSES)} superclasses in {time.monotonic() - begun:.0f} s", flush=True
        )
        network = train(pool, options.steps, teaching).eval().half().float()  # as it is stored
        network = network.to(memory_format=torch.contiguous_format)
        threshold = choose(StreetDetector(network, 0.0, "new"), list(pictures(choosing, 80)))
        weights = {
            name: value.half() if value.is_floating_point() else value for name, value in network.state_dict().items()
        }
        save_file(weights, options.out, {THRESHOLD: f"{threshold:g}"})
        print(f"{sum(p.numel() for p in network.parameters())} parameters, {options.out.stat().st_size} bytes")
    report(StreetDetector.load(options.out), list(pictures(measuring, 120)))


if __name__ == "__main__":
    main()
