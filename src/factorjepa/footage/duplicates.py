"""The same footage twice: re-encoded, resized, cut elsewhere, under another name or in another split.

A clip's signature is a film of 12 x 8 grey cells, four pictures a second. What is compared is how the cells change, not
what they show: two clips of one fixed camera share a background and are no duplicates. `similarity` is the correlation
of those changes at the best alignment in time, over at least half of the shorter clip.

Only clips that have cells in common are compared: rows of a picture, told by which neighbour is brighter, are looked up
like words in an index. Words that a great many clips have tell nothing and are passed over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ..video import Frames

_WIDE, _HIGH = 12, 8
_PER_SECOND = 4.0
_COMMON = 500  # clips that may share a word
_COMPARED = 24  # clips that share most words

Film = NDArray[np.uint8]  # T x 96


def signature(frames: Frames, fps: float) -> bytes:
    """The signature of a clip's `frames [T, H, W, 3]`."""
    count = max(1, int(len(frames) * _PER_SECOND / fps))
    chosen = np.minimum(np.round(np.arange(count) * fps / _PER_SECOND).astype(int), len(frames) - 1)
    greys = [cv2.cvtColor(frames[k], cv2.COLOR_RGB2GRAY) for k in chosen]
    return b"".join(cv2.resize(grey, (_WIDE, _HIGH), interpolation=cv2.INTER_AREA).tobytes() for grey in greys)


def similarity(one: bytes, other: bytes) -> float:
    """-1 to 1; 1 for the same footage."""
    a_TC, b_SC = _changes(one), _changes(other)
    if len(a_TC) > len(b_SC):
        a_TC, b_SC = b_SC, a_TC
    dots_TS = a_TC @ b_SC.T
    a_T, b_S = (a_TC**2).sum(1), (b_SC**2).sum(1)
    short, long = len(a_TC), len(b_SC)
    least = -(-short // 2)
    best = 0.0
    for lag in range(least - short, long - least + 1):  # frame t of the shorter lies on frame t + lag of the longer
        mine = slice(max(0, -lag), min(short, long - lag))
        theirs = slice(mine.start + lag, mine.stop + lag)
        energy = float(np.sqrt(a_T[mine].sum() * b_S[theirs].sum()))
        if energy > 0:
            best = max(best, float(np.trace(dots_TS[mine, theirs])) / energy)
    return best


class Match(NamedTuple):
    """The clip that another one repeats."""

    name: str
    similarity: float


class Catalogue:
    """Clips that are kept, to be asked whether one more is new."""

    def __init__(self) -> None:
        self._films: list[tuple[str, bytes]] = []
        self._words: dict[int, list[int]] = defaultdict(list)

    def nearest(self, film: bytes) -> Match | None:
        """The most similar of the clips that have something in common with this one."""
        shared: Counter[int] = Counter()
        for word in _words(film):
            if len(self._words.get(word, ())) <= _COMMON:
                shared.update(self._words.get(word, ()))
        matches = [
            Match(self._films[k][0], similarity(film, self._films[k][1])) for k, _ in shared.most_common(_COMPARED)
        ]
        return max(matches, key=lambda match: match.similarity, default=None)

    def add(self, name: str, film: bytes) -> None:
        for word in _words(film):
            self._words[word].append(len(self._films))
        self._films.append((name, film))


def _film(data: bytes) -> Film:
    return np.frombuffer(data, np.uint8).reshape(-1, _WIDE * _HIGH)


def _changes(data: bytes) -> NDArray[np.float32]:
    film = _film(data).astype(np.float32)
    film -= film.mean(1, keepdims=True)  # clouds and exposure make unlike streets brighter and darker alike
    return np.asarray(film - film.mean(0))


def _words(data: bytes) -> set[int]:
    """Each row of each picture as a number: which row, and which cell is brighter than its left neighbour."""
    rows_THW = _film(data).reshape(-1, _HIGH, _WIDE)
    bits_THB = rows_THW[..., 1:] > rows_THW[..., :-1]
    values_TH = bits_THB @ (1 << np.arange(_WIDE - 1)) + (np.arange(_HIGH) << _WIDE)
    return set(np.unique(values_TH).tolist())
