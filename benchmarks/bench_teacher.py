"""How good the teacher's regions and tracks are, beside background subtraction + IoU tracking in the same run.

    python benchmarks/bench_teacher.py --clips 20 --mot DIR --features classical dinov2 --arch dinov2_vits14 \\
        --weights FILE.pth --layer 8 --proposals unsupervised detector truth --detector FILE.onnx --cache DIR

`--corpus` is a simulated corpus, of which the audit clips are used; `--clips` simulates one of the two cities that
`fit_regions.py` leaves alone; `--mot` is a folder of `NAME.mp4` and `NAME_gt.txt` in MOT17's layout. Windows are 16
frames at 4 fps of the centre square, and each is measured by itself. Unsupervised regions are made once with each of
the `--features`, others with the last. `--proposals` also takes `module:factory`, called with the region settings. The
baseline column holds, row by row, the better of plain and camera-stabilised background subtraction.

Rows: precision, recall and F1 of retained regions at IoU 0.5 (visible masks in simulation, boxes on footage); the
same F1 of regions in tracklets; IDF1; fragmentations and identity switches, as counts and per 100 true regions found,
that is per 25 seconds that a true agent is followed (a method that finds nobody breaks no track); the share of true
tracks found at least four fifths and at least a fifth of their time, and fragmentations per track of the latter;
Spearman correlation with the truth, over matched regions, of an agent's visibility in a frame (Psi_V; for the baseline
its area over the largest along its tracklet) and, for all, of that ratio alone; precision, recall and F1 of interaction
edges (the candidate pairs of Psi_I; for the baseline all that come as near). Agents below the minimum area or less than
a quarter visible are not asked for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

import cv2
import numpy as np
import torch

from factorjepa.config import resolve
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.storage import write_text
from factorjepa.teacher.features import open_features
from factorjepa.teacher.interactions import psi_interactions
from factorjepa.teacher.observe import observe, open_proposals
from factorjepa.teacher.packet import projections_for
from factorjepa.teacher.proposals import Proposals
from factorjepa.teacher.quality import (
    Identities,
    Rates,
    edge_rates,
    identities,
    match,
    overlaps,
    rank_correlation,
    region_rates,
)
from factorjepa.teacher.regions import Evidence, Region, Tracklet
from factorjepa.teacher.settings import FeatureSettings, RegionSettings, TargetSettings, TeacherSettings
from factorjepa.teacher.trajectories import trajectories
from factorjepa.teacher.truth import TruthProposals
from factorjepa.teacher.visibility import psi_visibility
from factorjepa.world import WorldSettings
from teacher_baseline import components, iou_tracks, stabilised_foreground
from teacher_windows import CachedFeatures, Window, mot_windows, simulated_windows

BASELINES = ("MOG2", "MOG2, stabilised")
LOWER_IS_BETTER = ("fragmentations", "switches")
Visibilities = Sequence[Sequence[float]]  # of each region of each tracklet
Pairs = Collection[tuple[int, int]]  # of tracklets
HELD_OUT = ("gulmohar", "pahargaon")  # cities that no constant is fitted on


@dataclass(frozen=True)
class Found:
    """What one method says about a window."""

    regions: Sequence[Sequence[Region]]
    tracklets: Sequence[Tracklet]
    visible: Visibilities
    pairs: Pairs
    side: int  # of the mask grid


@dataclass
class Score:
    """Counts of one method, summed over windows."""

    regions: Rates = field(default_factory=Rates)
    tracked: Rates = field(default_factory=Rates)
    identities: Identities = field(default_factory=Identities)
    visibility: list[tuple[float, float, float]] = field(default_factory=list)  # judged, by area alone, true
    edges: Rates = field(default_factory=Rates)
    edges_known: bool = False
    windows: int = 0
    seconds: float = 0.0  # of one core

    def rows(self) -> dict[str, float]:
        found = max(self.tracked.hits, 1) / 100
        who = self.identities
        followed = who.mostly + who.partly
        rows = {
            "region precision": self.regions.precision,
            "region recall": self.regions.recall,
            "region F1": self.regions.f1,
            "tracked region F1": self.tracked.f1,
            "IDF1": self.identities.rates.f1,
            "fragmentations, count": who.fragmentations,
            "switches, count": who.switches,
            "fragmentations per 100 found": self.identities.fragmentations / found,
            "switches per 100 found": self.identities.switches / found,
            "tracks mostly followed": who.mostly / max(who.tracks, 1),
            "tracks followed": followed / max(who.tracks, 1),
            "fragmentations per track followed": who.fragmentations / followed if followed else math.nan,
            "regions matched": self.tracked.hits,
        }
        if self.visibility:
            judged, by_area, true = map(list, zip(*self.visibility, strict=True))
            rows["visibility rank correlation"] = rank_correlation(judged, true)
            rows["visibility by area alone"] = rank_correlation(by_area, true)
        if self.edges_known:
            rows |= {f"edge {name}": getattr(self.edges, name) for name in ("precision", "recall", "f1")}
        return rows | {"seconds per window": self.seconds / max(self.windows, 1)}


def judge(score: Score, window: Window, found: Found) -> None:
    """Add one window of one method to its score."""
    tracklets, side = found.tracklets, found.side
    for here, true in zip(found.regions, window.true, strict=True):
        iou, share = overlaps(here, true, side)
        score.regions += region_rates(match(iou, share, true.ignored), true.ignored)
    in_frame: list[list[tuple[int, Region, tuple[float, float]]]] = [[] for _ in window.true]
    for number, tracklet in enumerate(tracklets):
        judged = zip(found.visible[number], area_over_largest(tracklet), strict=True)
        for t, region, visibility in zip(tracklet.frames, tracklet.regions, judged, strict=True):
            in_frame[t].append((number, region, visibility))
    frames = []
    votes: dict[int, Counter[int]] = defaultdict(Counter)
    for here_tracked, true in zip(in_frame, window.true, strict=True):
        iou, share = overlaps([region for _, region, _ in here_tracked], true, side)
        matches = match(iou, share, true.ignored)
        score.tracked += region_rates(matches, true.ignored)
        for k, agent in matches.pairs.tolist():
            votes[here_tracked[k][0]][int(true.ids[agent])] += 1
            score.visibility.append((*here_tracked[k][2], float(true.visible[agent])))
        kept = np.flatnonzero(~matches.excused)
        asked = np.flatnonzero(~true.ignored)
        frames.append(([here_tracked[k][0] for k in kept], true.ids[asked].tolist(), iou[np.ix_(kept, asked)]))
    score.identities += identities(frames)
    if window.edges is not None:
        score.edges_known = True
        score.edges += judged_edges(window, found.pairs, votes)
    score.windows += 1


def seen_by_teacher(evidence: Evidence, settings: TargetSettings) -> Found:
    """The evidence with Psi_V of each region of each tracklet and the candidate pairs of Psi_I."""
    width = evidence.features.shape[-1]
    plain = np.eye(width, dtype=np.float32)
    tracks = trajectories(evidence.tracklets, evidence.frames, evidence.side, plain)
    visibility = psi_visibility(evidence, tracks, settings.min_reliability)
    visible = [visibility.frames_KT[k, list(one.frames)].tolist() for k, one in enumerate(evidence.tracklets)]
    sure_K = np.ones(len(evidence.tracklets), np.float32)
    projections = projections_for(width, TeacherSettings(targets=settings))
    pairs_P2 = psi_interactions(tracks, sure_K, visibility, projections, settings).pairs_P2
    pairs = {(min(pair), max(pair)) for pair in pairs_P2.tolist()}
    return Found(evidence.regions, evidence.tracklets, visible, pairs, evidence.side)


def area_over_largest(tracklet: Tracklet) -> list[float]:
    most = max(region.pixels for region in tracklet.regions)
    return [region.pixels / most for region in tracklet.regions]


def near_pairs(tracklets: Sequence[Tracklet], side: int, near: float) -> Pairs:
    """Seen together, at some moment with their centres within `near`."""
    centres = []
    for tracklet in tracklets:
        boxes = [np.array(region.box(side)) for region in tracklet.regions]
        centres.append({t: (box[:2] + box[2:]) / 2 for t, box in zip(tracklet.frames, boxes, strict=True)})
    return [
        (i, j)
        for i, j in combinations(range(len(tracklets)), 2)
        if any(np.hypot(*(centres[i][t] - centres[j][t])) <= near for t in centres[i].keys() & centres[j].keys())
    ]


def judged_edges(window: Window, pairs: Pairs, votes: dict[int, Counter[int]]) -> Rates:
    """Candidate pairs against the true ones among agents that are asked for."""
    asked = set(chain.from_iterable(true.ids[~true.ignored].tolist() for true in window.true))
    true_edges = {edge for edge in window.edges or () if edge <= asked}
    found: set[frozenset[int] | tuple[int, int]] = set()
    for i, j in pairs:
        named = [votes[k].most_common(1)[0][0] if votes[k] else None for k in (i, j)]
        # A pair with a stranger in it is a false edge under a name of its own; two tracks of one agent are none.
        if None in named:
            found.add((-1 - i, -1 - j))
        elif named[0] != named[1]:
            found.add(frozenset(n for n in named if n is not None))
    return edge_rates(found, true_edges)


def baseline(window: Window, settings: TeacherSettings, stabilised: bool) -> Found:
    video = window.video
    numbers = video.numbers(window.times)
    if stabilised:
        masks = stabilised_foreground(video.frames, video.motion, numbers, video.info.fps)
    else:
        masks = video.foreground[numbers]
    regions = [components(mask, settings.regions.min_area) for mask in masks]
    tracklets = iou_tracks(regions, settings.tracks)
    visible, side = [area_over_largest(one) for one in tracklets], video.frames.shape[1]
    return Found(regions, tracklets, visible, near_pairs(tracklets, side, settings.targets.pair_distance), side)


def proposer(kind: str, settings: RegionSettings) -> Callable[[Window], Proposals | None]:
    """Proposals for a window by name; None where this kind has nothing to say about it."""
    if kind == "truth":

        def true(window: Window) -> Proposals | None:
            return None if window.truth is None else TruthProposals(window.truth, window.times, settings)

        return true
    if ":" in kind:
        module, factory = kind.split(":")
        fixed: Proposals = getattr(importlib.import_module(module), factory)(settings)
    else:
        fixed = open_proposals(settings.model_copy(update={"kind": kind}))
    return lambda window: fixed


def measure(windows: Iterable[Window], settings: TeacherSettings, options: argparse.Namespace) -> dict[str, Score]:
    """Scores by method, baselines included."""
    described_by = {
        kind: CachedFeatures(open_features(feature_settings(options, kind)), options.cache) for kind in options.features
    }
    last = options.features[-1]
    columns = [
        (f"{source}, {kind}" if source == "unsupervised" else source, kind, proposer(source, settings.regions))
        for source in options.proposals
        for kind in (options.features if source == "unsupervised" else [last])
    ]
    scores: dict[str, Score] = defaultdict(Score)
    for window in windows:
        described = {kind: features(window.frames) for kind, features in described_by.items()}
        for column, kind, source in columns:
            if (proposals := source(window)) is None:
                continue
            started = time.process_time()
            evidence = observe(window.frames, settings, described_by[kind], proposals, described[kind])
            scores[column].seconds += time.process_time() - started
            judge(scores[column], window, seen_by_teacher(evidence, settings.targets))
        for name in BASELINES:
            started = time.process_time()
            found = baseline(window, settings, stabilised=name != "MOG2")
            scores[name].seconds += time.process_time() - started
            judge(scores[name], window, found)
        print(f"{window.name}: " + ", ".join(f"{k} {s.regions.f1:.3f}" for k, s in scores.items()), file=sys.stderr)
    return dict(scores)


def table(scores: dict[str, Score]) -> str:
    """Rows: quantity; columns: method. The baseline is the better variant, row by row."""
    methods = [name for name in scores if name not in BASELINES]
    rows = {name: score.rows() for name, score in scores.items()}
    lines = ["| | " + " | ".join([*methods, "baseline"]) + " |", "|---" * (len(methods) + 2) + "|"]
    for quantity in max(rows.values(), key=len):  # a method that finds nobody has no visibility to correlate
        better = min if quantity.startswith(LOWER_IS_BETTER) else max
        values = [value for name in BASELINES if not math.isnan(value := rows[name].get(quantity, math.nan))]
        cells = [rows[name].get(quantity, math.nan) for name in methods]
        cells.append(better(values) if values and quantity != "seconds per window" else math.nan)
        lines.append(f"| {quantity} | " + " | ".join("-" if math.isnan(v) else f"{v:.3f}" for v in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, help="simulated corpus with audit clips")
    parser.add_argument("--clips", type=int, help="simulate this many clips of held-out cities")
    parser.add_argument("--mot", type=Path, help="folder of NAME.mp4 and NAME_gt.txt")
    parser.add_argument("--features", nargs="+", default=["classical"], choices=("dinov2", "nano", "classical"))
    parser.add_argument("--arch", default="dinov2_vits14")
    parser.add_argument("--weights")
    parser.add_argument("--layer", type=int)
    parser.add_argument("--size", type=int, default=518, help="largest side of the window's square in pixels")
    parser.add_argument("--proposals", nargs="*", default=["unsupervised"], help="unsupervised detector truth mod:make")
    parser.add_argument("--detector", help="ONNX file")
    parser.add_argument("--set", nargs="*", default=[], help="teacher settings, e.g. tracks.max_cost=0.9")
    parser.add_argument("--every", type=int, default=1, help="use every N-th simulated window")
    parser.add_argument("--mot-every", type=int, default=1, help="use every N-th window of footage")
    parser.add_argument("--cache", type=Path, help="folder that keeps features between runs")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(2)
    cv2.setNumThreads(1)
    features = feature_settings(options, options.features[-1])
    regions = RegionSettings(detector=options.detector)
    settings = resolve(TeacherSettings, None, options.set, features=features.model_dump(), regions=regions.model_dump())
    with tempfile.TemporaryDirectory() as temporary:
        corpus = options.corpus
        if options.clips is not None:
            corpus = held_out_corpus(Path(temporary), options.clips)
        groups: dict[str, Iterable[Window]] = {}
        if corpus is not None:
            groups["simulated"] = simulated_windows(corpus, settings, options.every)
        if options.mot is not None:
            groups["real"] = mot_windows(options.mot, settings, options.mot_every)
        results = {}
        for group, windows in groups.items():
            scores = measure(windows, settings, options)
            print(f"\n{group}, {scores[BASELINES[0]].windows} windows\n\n{table(scores)}\n")
            results[group] = {name: {"windows": s.windows} | s.rows() for name, s in scores.items()}
    if options.out is not None:
        record = {"command": " ".join(sys.argv), "settings": settings.model_dump(mode="json"), "results": results}
        write_text(options.out, json.dumps(record, indent=1))


def feature_settings(options: argparse.Namespace, kind: str) -> FeatureSettings:
    if kind == "classical":
        return FeatureSettings(kind="classical", size=options.size)
    return FeatureSettings.model_validate(
        {"kind": kind, "arch": options.arch, "weights": options.weights, "layer": options.layer, "size": options.size}
    )


def held_out_corpus(folder: Path, count: int) -> Path:
    """Dense clips of the held-out cities, all of them audit clips."""
    world = resolve(WorldSettings, "dense", [f"cities={list(HELD_OUT)}"])
    simulate_corpus(
        folder / "corpus", SimulationPlan(seed=1234, clips=count, audit_cities=HELD_OUT, world=world), workers=1
    )
    return folder / "corpus"


if __name__ == "__main__":
    main()
