"""The frozen trunk, run once per clip: what blocks that never train make of a fixed window is kept and read again.

Below the lowest block that ever trains (the cut), online, momentum and reference encoder are one and the same. A clip's
window is fixed within a replication, so what those blocks make of it is a constant. Two kinds of records hold it:

    target   hidden states of the whole clip after the last block below the cut: `Y*` goes on from there
    context  the same of frames 1-12 alone, with the taps below it: for passes that show the whole context

What is not read but computed: masked passes, in which visible tokens attend to each other alone, and clips in a factor
view or edited, whose pixels are others. The first epoch fills the records as it goes. They are made one clip at a time,
so that a record is the same whichever run, batch or moment made it, and a resumed run the same as an uninterrupted one.

Shapes: B clips, S states, N tokens of the clip, n of the context, D width.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor

from ..backbones.encoder import Encoder
from ..backbones.spec import name_of
from ..errors import TrainingError
from ..transfer import sent
from .settings import TrainSettings
from .trunk_shards import RecordShards

Kind = Literal["target", "context"]
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class TrunkStates:
    """What the blocks below the cut make of a batch."""

    cut: int
    clip_B1ND: Tensor
    context_BSnD: Tensor | None  # None: not kept


class Trunk:
    """The frozen part of an encoder and its records; a context manager, within which made records are kept."""

    def __init__(
        self,
        folder: Path,
        encoder: Encoder,
        cut: int,
        clip_ids: Sequence[str],
        *,
        frames: int,
        context: int,
        size: int,
        whole_context: bool,
        dtype: str = "fp16",
        about: Mapping[str, Any] | None = None,
        rank: int = 0,
        corpus: Mapping[str, str] | None = None,
    ) -> None:
        """`clip_ids` are all that a run will show; `about` says what else decides their windows and states.

        `corpus` has the identity of every clip that there is.
        """
        self.encoder, self.cut, self.clip_ids, self.context = encoder, cut, clip_ids, context
        self._dtype = DTYPES[dtype]
        spec = encoder.spec
        tubelets, rows, columns = encoder.grid_of(torch.empty(1, 3, frames, size, size, device="meta"))
        self.shapes: dict[Kind, tuple[int, int, int]] = {"target": (1, tubelets * rows * columns, spec.dim)}
        if whole_context:
            states = len(encoder.trunk_blocks(cut, levels=True))
            self.shapes["context"] = (states, context // spec.tubelet * rows * columns, spec.dim)
        header = {
            "arch": name_of(spec) or hashlib.blake2b(spec.to_json().encode(), digest_size=8).hexdigest(),
            "weights": weights_identity(encoder, cut), "cut": cut, "frames": frames, "context": context, "size": size,
            "dtype": dtype, **(about or {}),
        }  # fmt: skip
        self.shards = RecordShards(folder, header, rank, corpus)
        self._refuse_full_disk()

    def __enter__(self) -> Trunk:
        self.shards.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shards.__exit__(kind, error, trace)

    def of(self, video: Tensor, clip_ids: Sequence[str], viewed: Sequence[int] = ()) -> TrunkStates:
        """The states of a batch: read, or made and kept; rows in `viewed` show other pixels and are only computed."""
        context = self._states("context", video, clip_ids, viewed) if "context" in self.shapes else None
        return TrunkStates(self.cut, self._states("target", video, clip_ids, viewed), context)

    @property
    def bytes_per_clip(self) -> dict[Kind, int]:
        return {kind: math.prod(shape) * self._dtype.itemsize for kind, shape in self.shapes.items()}

    def bytes_to_come(self) -> int:
        """How much the folder will grow until every clip has its records."""
        return sum(
            size * sum(not self.shards.has(kind, clip_id) for clip_id in self.clip_ids)
            for kind, size in self.bytes_per_clip.items()
        )

    def __str__(self) -> str:
        sizes = " + ".join(
            f"{kind} {'' if shape[0] == 1 else f'{shape[0]} x '}{shape[1]} tokens x {shape[2]} x "
            f"{self._dtype.itemsize} bytes = {_size(self.bytes_per_clip[kind])}"
            for kind, shape in self.shapes.items()
        )
        return (
            f"trunk cache {self.shards.folder}: blocks below {self.cut} of {self.encoder.spec.depth}; "
            f"{len(self.clip_ids)} clips x ({sizes}); {_size(self.bytes_to_come())} still to be written"
        )

    def _states(self, kind: Kind, video: Tensor, clip_ids: Sequence[str], viewed: Sequence[int]) -> Tensor:
        raw = [row for row in range(len(video)) if row not in set(viewed)]
        on_gpu = video.device.type == "cuda"
        stored = torch.empty(len(raw), *self.shapes[kind], dtype=self._dtype, pin_memory=on_gpu)
        for place in self.shards.read(kind, [clip_ids[row] for row in raw], stored):
            clip, clip_id = video[raw[place]], clip_ids[raw[place]]
            stored[place] = record = self.record(kind, clip, clip_id)
            self.shards.add(kind, clip_id, record)
        states = sent(stored, video.device).float()
        if not viewed:
            return states
        rows = sent(torch.tensor([*raw, *viewed]), video.device)
        computed = self._run(kind, video.index_select(0, rows[len(raw) :])).float()
        mixed = states.new_empty(len(video), *self.shapes[kind])
        return mixed.index_copy_(0, rows, torch.cat((states, computed)))

    def record(self, kind: Kind, clip: Tensor, clip_id: str) -> Tensor:
        """What is kept of one clip `[3, T, H, W]`."""
        record = self._run(kind, clip.unsqueeze(0))[0].to(self._dtype).cpu()
        if not record.isfinite().all():
            raise TrainingError(
                f"trunk_cache: clip {clip_id!r} has hidden states beyond what {self._dtype} can hold; set "
                "trunk_dtype=bf16 or fp32"
            )
        return record

    def _run(self, kind: Kind, video: Tensor) -> Tensor:
        """The frozen blocks on whole clips, or on their context frames alone."""
        shown = video if kind == "target" else video[:, :, : self.context]
        return self.encoder.trunk(shown, self.cut, levels=kind == "context")

    def _refuse_full_disk(self) -> None:
        folder = self.shards.folder.absolute()
        place = next(parent for parent in (folder, *folder.parents) if parent.exists())
        free = shutil.disk_usage(place).free
        if self.bytes_to_come() > free:
            raise TrainingError(
                f"{self}, but the disk has {_size(free)} free. Choose another disk, fewer clips (clips=...), "
                "trunk_context=false, or leave trunk_cache out"
            )


def trunk_of(
    settings: TrainSettings, encoder: Encoder, cut: int, clip_ids: Sequence[str], corpus: Mapping[str, str], bf16: bool,
    rank: int = 0,
) -> Trunk:  # fmt: skip
    """The trunk that a run with these settings keeps in its `trunk_cache`."""
    about = {
        "fps": settings.fps, "replication": settings.replication,
        "precision": _precision(settings, bf16),
    }  # fmt: skip
    return Trunk(
        Path(str(settings.trunk_cache)), encoder, cut, clip_ids, frames=settings.frames, context=settings.context,
        size=settings.size, dtype=settings.trunk_dtype, about=about, rank=rank, corpus=corpus,
        whole_context=settings.trunk_has_context,
    )  # fmt: skip


def _precision(settings: TrainSettings, bf16: bool) -> str:
    if not bf16:
        return "tf32" if settings.precision == "tf32" else "fp32"
    return "bf16 trunk" if settings.frozen_bits == 16 else "fp8 trunk"


def lowest_trained(trained: Iterable[str], depth: int) -> int:
    """The lowest encoder block with a weight in `trained`; 0 if the tokeniser trains, `depth` if no block does.

    The norms of taps do not count: records are taken before them.
    """
    names = [name.removeprefix("encoder.") for name in trained if name.startswith("encoder.")]
    blocks = [int(name.split(".")[1]) for name in names if name.startswith("blocks.")]
    others = [name for name in names if not name.startswith(("blocks.", "norm"))]
    return 0 if others else min(blocks, default=depth)


def weights_identity(encoder: Encoder, cut: int) -> str:
    """Sixteen hex digits of every weight that a trunk record depends on."""
    digest = hashlib.blake2b(digest_size=8)
    for name, parameter in encoder.named_parameters():
        part, _, rest = name.partition(".")
        if part.startswith("norm") or (part == "blocks" and int(rest.partition(".")[0]) >= cut):
            continue
        digest.update(f"{name}\t{parameter.dtype}\t{tuple(parameter.shape)}\n".encode())
        digest.update(parameter.detach().contiguous().view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
