"""A seal is broken by other clips, and by nothing that is said of the same ones later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from factorjepa.corpus.manifest import Clip
from factorjepa.corpus.seal import seal, unbroken
from factorjepa.corpus.splits import Split

CLIPS = [
    Clip(f"navapur/s00/v00{n}#0.0", "navapur", "s00", f"navapur/s00/v00{n}", 0, "walk", 0.0, 6.5, 12.0, 128, 128,
         f"clips/{n}.mp4", Split.TRAIN, {"occupancy": 0.1 * n, "source_sha256": f"{n:064x}", "regime": "dense"})
    for n in range(4)
]  # fmt: skip
SEAL = seal(CLIPS)


def said(clip: Clip, **attributes: object) -> Clip:
    known: Mapping[str, object] = {**clip.attributes, **attributes}
    return dataclasses.replace(clip, attributes=known)  # type: ignore[arg-type]


def test_the_same_clips_in_another_order_and_place_with_more_said_about_them_are_the_same() -> None:
    packed = [dataclasses.replace(clip, path=f"shard-000.tar/{clip.path}") for clip in reversed(CLIPS)]
    assert unbroken(SEAL, packed)
    assert unbroken(SEAL, [said(clip, density_stratum="high", site="market", walkers=3) for clip in CLIPS])
    assert unbroken(SEAL, [said(clip, regime="sparse") for clip in CLIPS])  # a word that was corrected


@pytest.mark.parametrize(
    "other",
    [
        CLIPS[:3],
        [*CLIPS[:3], dataclasses.replace(CLIPS[3], split=Split.TEST)],
        [*CLIPS[:3], dataclasses.replace(CLIPS[3], t_end=6.0)],
        [*CLIPS[:3], said(CLIPS[3], occupancy=0.31)],
        [*CLIPS[:3], said(CLIPS[3], source_sha256="f" * 64)],
    ],
)
def test_other_clips_are_not(other: list[Clip]) -> None:
    assert not unbroken(SEAL, other)
