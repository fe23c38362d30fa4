"""The packet cache: a folder of shards by replication and split, under a header that says what made them.

    targets/header.json                              settings, their digest, who looked
    targets/projections.safetensors                  the fixed matrices
    targets/replication-0/train-00000.safetensors    packets, 128 to a shard, and which clips they are of

Packets are asked for by a typed set of clips, and only shards of that set's split are opened: whoever holds
`TrainingClips` cannot reach a test target.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import torch
from pydantic import ValidationError
from safetensors.numpy import save as save_arrays

from ..config import explain, flattened
from ..corpus.access import ClipSet
from ..corpus.loader import Batch
from ..corpus.manifest import Clip, Manifest
from ..corpus.splits import Split
from ..errors import TeacherError
from ..storage import write_atomic, write_text
from .batch import TargetBatch, collate
from .packet import Packet
from .packet_shards import FORMAT, Shard
from .projection import Projections
from .settings import TeacherSettings

HEADER = "header.json"
PROJECTIONS = "projections.safetensors"

ClipsType = TypeVar("ClipsType", bound=ClipSet)


class PacketCache:
    """An opened cache folder."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        self.folder, self.header = Path(folder), header
        try:
            self.settings = TeacherSettings.model_validate(header["settings"])
        except ValidationError as error:
            why = explain(error, TeacherSettings, source=str(self.folder / HEADER))
            raise TeacherError(f"{why}\nThese packets were made by another version; make them anew elsewhere") from None

    @classmethod
    def open(cls, folder: Path, settings: TeacherSettings | None = None) -> PacketCache:
        """Open a cache; with `settings`, only if these made it: any difference is an error that names it."""
        header = read_header(Path(folder))
        cache = cls(folder, header)
        if settings is not None:
            refuse_other_settings(Path(folder), cache.settings, settings)
        return cache

    @property
    def teacher(self) -> str:
        """Who looked: features and regions, weights included."""
        return f"{self.header['features']}; regions: {self.header['regions']}"

    def packets(self, clips: ClipsType, replication: int = 0) -> Packets[ClipsType]:
        """The packets of these clips, each in the window of this replication; every one must be there."""
        return Packets(self, clips, replication)

    def refuse_other_window(self, frames: int, fps: float, context: int) -> None:
        """Of a longer context the evidence would show a part of the future that is to be predicted."""
        made = self.settings
        if (made.frames, made.fps, made.context) != (frames, fps, context):
            raise TeacherError(
                f"{self.folder}: packets are of {made.frames} frames at {made.fps:g} fps, {made.context} of them "
                f"context; the runs see {frames} at {fps:g} fps, {context} of them context. Make packets with "
                f"frames={frames} fps={fps:g} context={context} and otherwise the same settings in another folder "
                "(factorjepa targets DATA ... --out FOLDER), and name it (train: targets=FOLDER, evaluate: --targets "
                "FOLDER)"
            )

    def has(self, split: Split, replication: int = 0) -> bool:
        """Whether anything was made for this split."""
        return any(shard_folder(self.folder, replication).glob(f"{split}-*.safetensors"))

    def shards(self, split: Split, replication: int) -> list[Shard]:
        """What there is of one split."""
        paths = sorted(shard_folder(self.folder, replication).glob(f"{split}-*.safetensors"))
        shards = [Shard(path) for path in paths]
        for shard in shards:
            expected = {"digest": self.header["digest"], "split": str(split), "replication": replication}
            if differing := [key for key, value in expected.items() if shard.about.get(key) != value]:
                raise TeacherError(
                    f"{shard.path}: does not belong here: its {differing[0]} is {shard.about.get(differing[0])!r} and "
                    f"not {expected[differing[0]]!r}; delete it and run factorjepa targets again"
                )
        return shards


class Packets(Generic[ClipsType]):
    """Packets of a set of clips, in its order. Loader workers may have a copy: it is small."""

    def __init__(self, cache: PacketCache, clips: ClipsType, replication: int) -> None:
        self.settings, self.clips, self.replication = cache.settings, clips, replication
        self._shards = cache.shards(clips.split, replication)
        self._where = {
            clip_id: (number, row)
            for number, shard in enumerate(self._shards)
            for row, clip_id in enumerate(shard.clips)
        }
        missing = [clip.clip_id for clip in clips if clip.clip_id not in self._where]
        if missing:
            raise TeacherError(
                f"{cache.folder}: {len(missing)} of {len(clips)} {clips.split} clips have no packet for replication "
                f"{replication}, for example {missing[0]!r}; run factorjepa targets with --split {clips.split} "
                f"--replication {replication} to make them"
            )

    def __len__(self) -> int:
        return len(self.clips)

    def verify(self) -> Self:
        """Compare every shard with the checksum taken when it was written: seconds for thousands of packets."""
        for shard in self._shards:
            shard.verify()
        return self

    def __getitem__(self, index: int) -> Packet:
        return self.of(self.clips[index])

    def of(self, clip: Clip) -> Packet:
        """The clip's packet, as views of the file."""
        try:
            number, row = self._where[clip.clip_id]
        except KeyError:
            raise TeacherError(
                f"clip {clip.clip_id!r} has no {self.clips.split} packet of replication {self.replication}"
            ) from None
        return self._shards[number].packet(row)

    def collate(self, clips: Sequence[Clip]) -> TargetBatch:
        """The targets and evidence of `clips`, in their order."""
        return collate([self.of(clip) for clip in clips], self.settings)

    def for_batch(self, batch: Batch) -> TargetBatch:
        """The targets and evidence of a loader's batch, which must show the very frames that the teacher saw."""
        packets = [self.of(clip) for clip in batch.clips]
        for clip, packet, times in zip(batch.clips, packets, batch.times, strict=True):
            if not torch.equal(times, torch.tensor(packet.times)):
                raise TeacherError(
                    f"clip {clip.clip_id!r}: the loader shows {len(times)} frames from {float(times[0]):.3f} s on, the "
                    f"teacher saw {len(packet.times)} from {float(packet.times[0]):.3f} s on; give the loader the "
                    f"teacher's window ({self.settings.frames} frames at {self.settings.fps:g} fps) and "
                    f"replication {self.replication}"
                )
        return collate(packets, self.settings)


def read_header(folder: Path) -> dict[str, Any]:
    path = folder / HEADER
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise TeacherError(f"{path}: has format {header['format']}, this version reads {FORMAT}; make them anew")
        made_by = {key: header[key] for key in ("settings", "digest", "features", "regions")}
    except FileNotFoundError:
        raise TeacherError(
            f"{folder}: holds no {HEADER}, so there are no packets; make them with factorjepa targets DATA"
        ) from None
    except OSError as error:
        raise TeacherError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError) as error:
        raise TeacherError(f"{path}: is damaged ({error}); make the packets anew in another folder") from None
    return {**header, **made_by}


def write_header(folder: Path, header: dict[str, Any], projections: Projections) -> None:
    """The projections first: a folder with a header has both."""
    _write_projections(folder, projections)
    write_text(folder / HEADER, json.dumps({"format": FORMAT, **header}, indent=1) + "\n")


def mend_projections(folder: Path, projections: Projections) -> None:
    """Of a folder that has been begun: a file that was lost or altered since is written again.

    Packets hold projected numbers; the file is for whoever wants to project others.
    """
    if (folder / HEADER).exists():
        path = folder / PROJECTIONS
        if not path.is_file() or path.read_bytes() != _stored(projections):
            _write_projections(folder, projections)


def _write_projections(folder: Path, projections: Projections) -> None:
    data = _stored(projections)
    write_atomic(folder / PROJECTIONS, lambda temporary: temporary.write_bytes(data))


def _stored(projections: Projections) -> bytes:
    return save_arrays({field.name: getattr(projections, field.name) for field in fields(projections)})


def refuse_other_settings(folder: Path, made: TeacherSettings, asked: TeacherSettings) -> None:
    """Raise an error that lists the settings in which the two differ."""
    old, new = flattened(made.model_dump(mode="json")), flattened(asked.model_dump(mode="json"))
    differing = [
        f"{key} is {old.get(key)!r} there and {new.get(key)!r} here" for key in new if old.get(key) != new[key]
    ]
    if differing:
        raise TeacherError(
            f"{folder}: was made with other settings: {'; '.join(differing)}. Repeat its settings, or choose "
            "another folder with --out"
        )


def corpus_identity(manifest: Manifest) -> str:
    """Sixteen hex digits that change when a clip, its place in the source, its rate or its split does."""
    return _identity(manifest)


def clip_identities(clips: Iterable[Clip]) -> dict[str, str]:
    """The same of each clip by itself: a corpus that grows has other clips as well, and these as they were."""
    return {clip.clip_id: _identity([clip]) for clip in clips}


def _identity(clips: Iterable[Clip]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for clip in clips:
        digest.update(f"{clip.clip_id}\t{clip.t_start!r}\t{clip.t_end!r}\t{clip.fps!r}\t{clip.split}\n".encode())
    return digest.hexdigest()


def shard_folder(folder: Path, replication: int) -> Path:
    return folder / f"replication-{replication}"
