"""The trunk's records of all clips at once, before any run needs them: by processes of this machine or a Ray cluster.

A job is the clips of one shard, and whoever does it writes the shard. Which clip goes into which shard depends on what
is missing alone, so the bytes are the same whoever does the work; killed and begun again, it makes what is missing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ..backbones.blocks import fastest_attention
from ..backbones.eightbit import in_eight_bits
from ..corpus.access import Corpus
from ..corpus.decoded_windows import read_window
from ..corpus.manifest import Clip
from ..corpus.splits import Split
from ..engines import Engine as Workforce
from ..engines import in_order
from ..errors import TrainingError
from ..pixels import to_video
from ..teacher.cache import clip_identities
from ..workers import granted_cores
from .engine import Engine
from .origin import open_backbone
from .settings import TrainSettings
from .trunk import Kind, Trunk, trunk_of
from .trunk_shards import SHARD_BYTES
from .update import in_bf16, precision

MOST = 64  # clips of a job: small records would make few and long ones of a corpus

Progress = Callable[[int, int], object]


def fill_trunk(run: Engine, workforce: Workforce, progress: Progress | None = None) -> Trunk:
    """Make the records that the run would keep, those that are missing; `progress(done, total)` counts clips."""
    trunk = run.trunk
    if trunk is None:
        raise TrainingError("there is no trunk to fill: name a folder for it (trunk_cache=...)")
    clips = [clip for loader in (run.loader, run.evaluation) for clip in loader.clips]
    with trunk:
        if not trunk.shards.writes:
            raise TrainingError(f"{trunk.shards.folder}: another process fills it; wait for it")
        orders = list(_orders(run, trunk, clips))
        done = len(clips) - sum(len(order.clips) for order in orders)
        for order, _ in zip(orders, in_order(workforce, make_shard, orders), strict=True):
            done += len(order.clips)
            if progress is not None:
                progress(done, len(clips))
    return trunk


def default_workers(device: torch.device) -> int:
    """All cores; one process for a GPU, which would hold the network once per process."""
    return 1 if device.type == "cuda" else granted_cores()


class Order(NamedTuple):
    """The clips of a shard, and what a worker process needs to know to make it."""

    settings: str  # JSON
    device: str
    cut: int
    clips: tuple[Clip, ...]
    shards: tuple[tuple[Kind, int, tuple[str, ...]], ...]  # kind, number, and of which clips


def _orders(run: Engine, trunk: Trunk, clips: Sequence[Clip]) -> Iterator[Order]:
    settings = run.settings
    names = ("data", "weights", "trunk_cache")
    places = {name: str(Path(place).resolve()) for name in names if (place := getattr(settings, name))}
    text = settings.model_copy(update=places).model_dump_json()
    free = {kind: _free(trunk.shards.numbers(kind)) for kind in trunk.shapes}
    missing = [clip for clip in clips if any(not trunk.shards.has(kind, clip.clip_id) for kind in trunk.shapes)]
    step = max(1, min(MOST, SHARD_BYTES // max(trunk.bytes_per_clip.values())))
    for start in range(0, len(missing), step):
        part = tuple(missing[start : start + step])
        lacking = {
            kind: tuple(clip.clip_id for clip in part if not trunk.shards.has(kind, clip.clip_id))
            for kind in trunk.shapes
        }
        shards = tuple((kind, next(free[kind]), ids) for kind, ids in lacking.items() if ids)
        yield Order(text, str(run.device), trunk.cut, part, shards)


def _free(taken: set[int]) -> Iterator[int]:
    return (number for number in itertools.count() if number not in taken)


def make_shard(order: Order) -> None:
    """Make and write the shards of an order, in this process."""
    shop = _workshop(order.settings, order.device, order.cut)
    trunk, settings = shop.trunk, shop.settings
    records: dict[Kind, dict[str, torch.Tensor]] = {kind: {} for kind, _, _ in order.shards}
    with _one_thread(), shop.running():
        for clip in order.clips:
            frames, _ = read_window(shop.clips[clip.split], clip, settings.window, settings.replication)
            video = to_video(torch.from_numpy(frames)[None].to(shop.device))[0]
            for kind, _, ids in order.shards:
                if clip.clip_id in ids:
                    records[kind][clip.clip_id] = trunk.record(kind, video, clip.clip_id)
    for kind, number, _ in order.shards:
        trunk.shards.save(kind, number, records[kind])


class _Workshop:
    """What a process needs to make records: the clips, and the frozen part of the backbone."""

    def __init__(self, settings: TrainSettings, device: torch.device, cut: int) -> None:
        self.settings, self.device = settings, device
        corpus = Corpus.open(Path(settings.data))
        self.clips = {Split.TRAIN: corpus.training(), Split.VALIDATION: corpus.validation()}
        encoder = open_backbone(settings.arch, settings.weights, device).encoder.requires_grad_(False)
        bf16 = in_bf16(settings, device)
        self.trunk = trunk_of(settings, encoder, cut, (), clip_identities(corpus.manifest), bf16)
        if bf16:
            encoder.lower(cut, torch.bfloat16)
        if bf16 and settings.frozen_bits == 8:
            in_eight_bits([encoder], cut)

    def running(self) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(precision(self.settings, self.device))
        if self.device.type == "cuda":
            stack.enter_context(fastest_attention())
        if self.settings.precision == "tf32":
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("high")
        return stack


@functools.lru_cache(maxsize=1)
def _workshop(settings: str, device: str, cut: int) -> _Workshop:
    """Of this worker process: it holds a network."""
    return _Workshop(TrainSettings.model_validate_json(settings), torch.device(device), cut)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """How sums are split over threads may decide their last bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
