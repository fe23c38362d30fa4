"""Small corpora for the tests: flat frames whose grey level tells which frame they are."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.video import write_video

FPS = 8.0
STEP = 3  # grey levels from frame to frame: clips of up to 80 frames stay apart


def make_clip(number: int = 0, split: Split = Split.TRAIN, **changes: object) -> Clip:
    city = {Split.AUDIT: "sagarpur"}.get(split, "navapur")
    source = f"{city}/s01/v{number:02d}"
    clip = Clip(
        clip_id=f"{source}#1.0",
        city=city,
        session="s01",
        source=source,
        shot=1,
        capture_mode=("drive", "walk", "aerial")[number % 3],
        t_start=2.0,
        t_end=8.0,
        fps=FPS,
        width=48,
        height=32,
        path=f"clips/{source}/1-0.mp4",
        split=split,
    )
    return replace(clip, **changes)  # type: ignore[arg-type]


def write_clip(folder: Path, clip: Clip) -> None:
    count = round(clip.seconds * clip.fps)
    shade = shade_of(clip)
    frames = (np.full((clip.height, clip.width, 3), shade + STEP * index, np.uint8) for index in range(count))
    path = folder / clip.path
    write_video(path, frames, clip.fps)
    stem = path.with_suffix("")
    truth = io.BytesIO()
    np.savez(truth, agents=np.arange(5) + shade)
    stem.with_name(stem.name + ".truth.npz").write_bytes(truth.getvalue())
    stem.with_name(stem.name + ".json").write_text(f'{{"clip": "{clip.clip_id}"}}')


def shade_of(clip: Clip) -> int:
    """The first frame's grey level, different for neighbouring clips."""
    return 10 + sum(clip.clip_id.encode()) % 17


def make_corpus(folder: Path, clips: Sequence[Clip]) -> Manifest:
    for clip in clips:
        write_clip(folder, clip)
    manifest = Manifest(clips)
    manifest.write(folder)
    return manifest


def four_splits(train: int = 6, others: int = 2) -> list[Clip]:
    clips = [make_clip(number) for number in range(train)]
    for split in (Split.VALIDATION, Split.TEST, Split.AUDIT):
        clips += [make_clip(len(clips) + number, split) for number in range(others)]
    return clips
