"""Which clips somebody learned from, in a few digits: another corpus of the same name is told from that one.

Strata, and words that somebody adds or corrects later, are left out: the clips are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from .manifest import Clip

_SOURCE = "source_sha256"


def seal(clips: Sequence[Clip], columns: Sequence[str] | None = None) -> dict[str, Any]:
    """`columns`: the attributes that count; None: what was measured of every clip, and the bytes of its source."""
    if columns is None:
        columns = sorted({name for clip in clips for name, value in clip.attributes.items() if _lasting(name, value)})
    digest = hashlib.blake2b(digest_size=16)
    for clip in sorted(clips, key=lambda clip: clip.clip_id):
        told = (clip.clip_id, clip.t_start, clip.t_end, clip.fps, str(clip.split))
        digest.update(repr((*told, *(clip.attributes.get(name) for name in columns))).encode())
    return {"clips": len(clips), "columns": list(columns), "digest": digest.hexdigest()}


def unbroken(sealed: Mapping[str, Any], clips: Sequence[Clip]) -> bool:
    return seal(clips, sealed["columns"]) == dict(sealed)


def _lasting(name: str, value: object) -> bool:
    return name == _SOURCE or (isinstance(value, int | float) and not isinstance(value, bool))
