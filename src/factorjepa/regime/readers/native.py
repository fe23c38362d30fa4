"""Annotations of a corpus' clips by the name of the file each was cut from: what the check of the teacher reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

from ...corpus.manifest import Clip
from ...corpus.store import TRUTH, open_store, sidecar_path
from ...errors import RegimeError
from ...world import ClipTruth
from ..check import Native
from ..scene import Scene
from ..sources import scene_of_truth
from .bdd100k import read_video
from .coco import read_coco
from .mot import Sequence, read_mot, read_sequence
from .nuscenes import read_nuscenes

_SEQINFO = "seqinfo.ini"
_MOT = ("{}/gt/gt.txt", "{}/gt.txt", "{}.txt", "{}_gt.txt")  # the published layout, then loose files


class _ByFile:
    """Scenes of whole videos; a clip's is the one with the name of its source file."""

    def __init__(self, name: str, find: Callable[[str], Scene | None]) -> None:
        self.name, self._find = name, cache(find)

    def scene(self, clip: Clip) -> tuple[Scene, float] | None:
        found = self._find(PurePosixPath(str(clip.attributes.get("source_file", clip.source))).stem)
        return None if found is None else (found, clip.t_start)


class _Simulated:
    """Ground truth of simulated clips."""

    name = "simulated ground truth"

    def __init__(self, corpus: Path, fps: float) -> None:
        self._store, self._fps = open_store(corpus), fps

    def scene(self, clip: Clip) -> tuple[Scene, float] | None:
        path = sidecar_path(clip.path, TRUTH)
        if not self._store.exists(path):
            return None
        truth = ClipTruth.from_bytes(self._store.read(path), f"clip {clip.clip_id!r}")
        return scene_of_truth(truth, self._fps), 0.0


def open_native(
    layout: str, labels: Path | None, corpus: Path, fps: float | None = None, size: tuple[int, int] | None = None
) -> Native:
    """`fps` and `size` (width, height) are of annotations that do not say so themselves."""
    if layout == "simulated":
        return _Simulated(corpus, 12.0)
    if layout not in FORMATS:
        raise RegimeError(f"annotations {layout!r}: choose one of {', '.join(FORMATS)}")
    if labels is None:
        raise RegimeError(f"--format {layout} needs --labels: where the annotations lie")
    if not labels.exists():
        raise RegimeError(f"{labels}: no such file or folder")
    if layout == "mot":
        return _ByFile(str(labels), _mot(labels, fps, size))
    if layout == "coco":
        if fps is None:
            raise RegimeError("COCO annotations do not say how many frames a second has: give --fps")
        return _ByFile(str(labels), _by_stem(read_coco(labels, fps)).get)
    if layout == "bdd100k":
        return _ByFile(str(labels), _bdd100k(labels))
    return _ByFile(str(labels), {one.name: one.scene for one in read_nuscenes(labels)}.get)


FORMATS = ("mot", "coco", "bdd100k", "nuscenes", "simulated")


def _by_stem(scenes: Mapping[str, Scene]) -> dict[str, Scene]:
    return {PurePosixPath(name).stem: scene for name, scene in scenes.items()}


def _bdd100k(folder: Path) -> Callable[[str], Scene | None]:
    """One file per video, read when its clip is looked at: a split has a thousand."""
    paths = {path.stem: path for path in sorted(folder.rglob("*.json"))} if folder.is_dir() else {folder.stem: folder}
    if not paths:
        raise RegimeError(f"{folder}: holds no .json; name the folder of a split, such as labels/box_track_20/val")
    return lambda stem: read_video(paths[stem]) if stem in paths else None


def _mot(labels: Path, fps: float | None, size: tuple[int, int] | None) -> Callable[[str], Scene | None]:
    """The file itself, or the sequence's folder in the folder of sequences."""

    def find(stem: str) -> Scene | None:
        there = [labels] if labels.is_file() else [labels / pattern.format(stem) for pattern in _MOT]
        path = next((path for path in there if path.is_file()), None)
        if path is None:
            return None
        about = next((one / _SEQINFO for one in (path.parent, path.parent.parent) if (one / _SEQINFO).is_file()), None)
        if about is not None:
            told = read_sequence(about)
        elif fps is not None and size is not None:
            told = Sequence(fps, *size)
        else:
            raise RegimeError(
                f"{path}: has no {_SEQINFO} that says how large its pictures are and how many a second has; give "
                "--size WIDTHxHEIGHT and --fps"
            )
        return read_mot(path, told.width, told.height, told.fps, told.width)

    return find
