"""Decoded futures on disk: what was seen, what came, what the oracle and each method draw of it, and where they fail.

    OUT/decoded/<name>/decoded.json   clip, methods, contour and zoom box, failures
    OUT/decoded/<name>/frames.npz     uint8 [T, H, W, 3] by name: observed, oracle, last, method/<m>,
                                      without/<k>; influence/<k> float32 [T, H, W]; agents bool [T, H, W]
    OUT/decoded/<name>/future.gif     all of them side by side, as they move

Shapes: T future frames, H x W pixels.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from .config import first_problem
from .errors import ReportError
from .storage import write_atomic, write_text

FOLDER, ABOUT, FRAMES, GIF = "decoded", "decoded.json", "frames.npz", "future.gif"
DECODER = "decoder.safetensors"  # in a folder of `decode train`
TRUTH, TEACHER = "ground truth", "the teacher's regions, which miss agents and take scenery for some"
AGENTS, MOVING, STATIC = "agents", "moving", "static"  # regions that share the picture out
CHANNELS = {"L": "layout", "A": "agents", "I": "interactions"}  # k of factor removal

Frames = NDArray[np.uint8]


def apart(first: Frames, second: Frames) -> NDArray[np.float64]:
    """Pixel L1 of two pictures or films, mean over colours, in shares of the range."""
    return np.asarray(np.abs(first.astype(np.int16) - second).mean(-1) / 255)


class Strengths(NamedTuple):
    """Of a symptom, in thresholds: from 1 on it is there."""

    predicted: float
    oracle: float
    shared: float  # of the prediction's, what the oracle shows already: the same agents or places


@dataclass(frozen=True)
class Failure:
    """A symptom of Panel B with its attribution of Panel A, and the numbers it was judged by."""

    symptom: str  # agent_omission
    attribution: str  # oracle_present, prediction_conditioned, mixed
    evidence: Mapping[str, float] = field(default_factory=dict)
    strength: Strengths | None = None


@dataclass(frozen=True)
class RegionError:
    """Pixel L1 in one part of the picture, in shares of the range: of the prediction and of the oracle, against X."""

    region: str  # AGENTS, MOVING, STATIC
    area: float  # share of the picture
    predicted: float
    oracle: float


@dataclass(frozen=True)
class DecodedExample:
    """One clip. Every picture went through the same decoder, clipping and range."""

    clip_id: str
    seconds: tuple[float, ...]  # ahead of the last seen frame, of each future frame
    last_HW3: Frames  # the last frame that the models saw
    observed_THW3: Frames
    oracle_THW3: Frames  # the decoder's picture of the true latents
    methods: Mapping[str, Frames]  # name -> frames, in the order to be shown
    titles: Mapping[str, str]
    removed_from: str = ""  # the method whose channels `without` leaves out
    without: Mapping[str, Frames] = field(default_factory=dict)  # L, A, I -> its future without that channel
    influence: Mapping[str, NDArray[np.float32]] = field(
        default_factory=dict
    )  # L, A, I -> [T, H, W], sums to 1 a frame
    agents_THW: NDArray[np.bool_] | None = None  # of the observed future: the contour of every panel
    box: tuple[int, int, int, int] | None = None  # left, top, right, bottom in pixels: where methods disagree most
    failures: Mapping[str, Sequence[Failure]] = field(default_factory=dict)  # by method
    decoder: str = ""  # as the scores' evaluator names it: "mini for nano, 0123456789abcdef"
    note: str = ""  # why this clip
    split: str = ""
    agents_by: str = ""  # who says where agents are: TRUTH or TEACHER
    errors: Mapping[str, Sequence[RegionError]] = field(default_factory=dict)  # by method
    nearest: Mapping[str, Failure] = field(default_factory=dict)  # by method without failures: what it shows of one

    def __post_init__(self) -> None:
        shape = self.observed_THW3.shape
        for name, frames in {"oracle": self.oracle_THW3, **self.methods, **self.without}.items():
            if frames.shape != shape or frames.dtype != np.uint8:
                raise ReportError(f"decoded {self.clip_id!r}: {name} must be bytes {shape}, not {frames.shape}")
        if self.last_HW3.shape != shape[1:] or len(self.seconds) != shape[0]:
            raise ReportError(f"decoded {self.clip_id!r}: the last seen frame or the times do not fit {shape}")
        agents = {} if self.agents_THW is None else {"agents": self.agents_THW}
        for name, values in {**self.influence, **agents}.items():
            if values.shape != shape[:3]:
                raise ReportError(f"decoded {self.clip_id!r}: {name} must be {shape[:3]}, not {values.shape}")
        if self.without and self.removed_from not in self.methods:
            raise ReportError(
                f"decoded {self.clip_id!r}: channels were left out of {self.removed_from!r}, no method of it"
            )
        if self.box is not None:
            left, top, right, bottom = self.box
            if not (0 <= left < right <= shape[2] and 0 <= top < bottom <= shape[1]):
                raise ReportError(
                    f"decoded {self.clip_id!r}: the box {self.box} does not lie in a picture of {shape[1:3]}"
                )

    def title_of(self, method: str) -> str:
        return self.titles.get(method, method)

    def contour(self) -> str:
        """What the white line is; empty where there is none."""
        if self.agents_THW is None:
            return ""
        return f"White: agents of the observed future{f', by {self.agents_by}' if self.agents_by else ''}."

    def changes(self) -> str:
        """How much each channel matters at all, in words. Empty where none was left out."""
        if not self.without:
            return ""
        shares = [f"{CHANNELS[k]} {100 * self._change_T(k).mean():.1f} %" for k in CHANNELS if k in self.without]
        return f"Mean change of a pixel without a channel, of the range: {', '.join(shares)}."

    def change_maps(self) -> dict[str, NDArray[np.float32]]:
        """How much a pixel changes without each channel, `[T, H, W]` of the range: influence times the mean change.

        Influence itself sums to 1 however little a channel does, so maps of two channels could not be compared.
        """
        pixels = self.last_HW3.shape[0] * self.last_HW3.shape[1]
        return {
            k: (values * pixels * self._change_T(k)[:, None, None]).astype(np.float32)
            for k, values in self.influence.items()
            if k in self.without
        }

    def _change_T(self, k: str) -> NDArray[np.float64]:
        """Mean change of a pixel without the channel, of the range, frame by frame."""
        return np.asarray(apart(self.methods[self.removed_from], self.without[k]).mean((1, 2)))


class _About(BaseModel):
    """The JSON beside the pictures."""

    model_config = ConfigDict(extra="forbid")

    clip_id: str
    seconds: tuple[float, ...]
    methods: list[str]
    titles: dict[str, str]
    removed_from: str = ""
    agents_by: str = ""
    box: tuple[int, int, int, int] | None = None
    failures: dict[str, list[Failure]] = {}
    errors: dict[str, list[RegionError]] = {}
    nearest: dict[str, Failure] = {}
    decoder: str = ""
    split: str = ""
    note: str = ""


def write_decoded(folder: Path, example: DecodedExample) -> Path:
    """Into `folder`, which is `OUT/decoded/<name>`."""
    arrays: dict[str, Any] = {
        "last": example.last_HW3, "observed": example.observed_THW3, "oracle": example.oracle_THW3,
        **{f"method/{name}": frames for name, frames in example.methods.items()},
        **{f"without/{k}": frames for k, frames in example.without.items()},
        **{f"influence/{k}": values.astype(np.float32) for k, values in example.influence.items()},
    }  # fmt: skip
    if example.agents_THW is not None:
        arrays["agents"] = example.agents_THW

    def save(temporary: Path) -> None:
        with open(temporary, "wb") as opened:
            np.savez_compressed(opened, **arrays)

    write_atomic(folder / FRAMES, save)
    about = _About(
        clip_id=example.clip_id, seconds=example.seconds, methods=list(example.methods), titles=dict(example.titles),
        removed_from=example.removed_from, agents_by=example.agents_by, box=example.box, decoder=example.decoder,
        split=example.split, note=example.note,
        failures={method: [_finite(one) for one in found] for method, found in example.failures.items()},
        nearest={method: _finite(one) for method, one in example.nearest.items()},
        errors={method: list(found) for method, found in example.errors.items()},
    )  # fmt: skip
    write_text(folder / ABOUT, about.model_dump_json(indent=1) + "\n")
    return folder


def read_decoded(folder: Path) -> DecodedExample:
    try:
        about = _About.model_validate_json((folder / ABOUT).read_bytes())
        with np.load(folder / FRAMES, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return DecodedExample(
            about.clip_id, about.seconds, arrays["last"], arrays["observed"], arrays["oracle"],
            {name: arrays[f"method/{name}"] for name in about.methods}, about.titles, about.removed_from,
            _of(arrays, "without/"), _of(arrays, "influence/"), arrays.get("agents"), about.box,
            about.failures, about.decoder, about.note, about.split, about.agents_by, about.errors,
            about.nearest,
        )  # fmt: skip
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise ReportError(f"{folder}: cannot be read as a decoded future ({reason}); render it again") from error


def drawn_by(out: Path) -> list[tuple[str, str]]:
    """Decoder and split of every example in OUT/decoded that can be read; its pictures are not."""
    found = []
    for about in sorted((out / FOLDER).glob(f"*/{ABOUT}")):
        with contextlib.suppress(OSError, ValidationError):
            one = _About.model_validate_json(about.read_bytes())
            found.append((one.decoder, one.split))
    return found


def read_all_decoded(out: Path) -> tuple[list[DecodedExample], list[str]]:
    """All of a folder in the order of their names, and what could not be read."""
    found, problems = [], []
    for about in sorted((out / FOLDER).glob(f"*/{ABOUT}")):
        try:
            found.append(read_decoded(about.parent))
        except ReportError as error:
            problems.append(str(error))
    return found, problems


def _finite(one: Failure) -> Failure:
    """JSON has no NaN: a number that cannot be had is left out."""
    return replace(one, evidence={name: float(value) for name, value in one.evidence.items() if math.isfinite(value)})


def _of(arrays: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): one for name, one in arrays.items() if name.startswith(prefix)}
