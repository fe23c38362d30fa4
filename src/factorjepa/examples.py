"""Example clips on disk: what a model saw, what it predicted, where it was wrong, and questions it was asked.

    OUT/examples/<name>/example.json   clip, methods, grid, query token, questions
    OUT/examples/<name>/frames.png     the frames side by side, at most 160 pixels high
    OUT/examples/<name>/maps.npz       error/<method> and similarity/<method>, float32 [h, r, c]

Shapes: T frames, H x W pixels, h future tubelets, r x c token rows and columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import ReportError
from .pixels import resize_to_cover
from .storage import write_atomic, write_text

FOLDER, ABOUT, FRAMES, MAPS = "examples", "example.json", "frames.png", "maps.npz"
TARGET = "target"  # the similarity map of the true tokens stands beside the methods' under this name
TALLEST = 160  # pixels of a kept frame
_MOST_PIXELS = 40_000_000  # of a strip: what is larger was not written here

Frames = NDArray[np.uint8]
Map = NDArray[np.float32]


@dataclass(frozen=True)
class Question:
    """A multiple-choice question about the clip, answered by one probe head over several encoders."""

    question: str  # "How fast is the marked agent a second from now?"
    choices: tuple[str, ...]
    right: int  # position in `choices`
    answers: Mapping[str, Sequence[float]]  # an encoder's title -> probability of each choice
    probe: str = ""  # what the head is and what it was fitted on
    measured: str = ""  # how the right answer is known

    def __post_init__(self) -> None:
        if not 0 <= self.right < len(self.choices):
            raise ReportError(
                f"question {self.question!r}: the right answer is number {self.right} of {len(self.choices)}"
            )
        for encoder, shares in self.answers.items():
            if len(shares) != len(self.choices) or not all(0 <= share <= 1.000001 for share in shares):
                raise ReportError(
                    f"question {self.question!r}: {encoder} must give a probability to each of the "
                    f"{len(self.choices)} choices, not {list(shares)}"
                )


@dataclass(frozen=True)
class Example:
    """One clip. Maps are by method name; errors are means over the width, similarities cosines."""

    clip_id: str
    frames_THW3: Frames
    context: int  # frames that the model saw
    titles: Mapping[str, str] = field(default_factory=dict)  # method -> as tables print it
    errors: Mapping[str, Map] = field(default_factory=dict)  # [h, r, c] each
    similarities: Mapping[str, Map] = field(default_factory=dict)  # [h, r, c], TARGET among them
    query: tuple[int, int, int] | None = None  # tubelet, row, column of the target token that similarities are to
    questions: Sequence[Question] = ()
    note: str = ""  # why this clip: "largest error of FactorJEPA"

    def __post_init__(self) -> None:
        if self.frames_THW3.ndim != 4 or self.frames_THW3.shape[-1] != 3 or self.frames_THW3.dtype != np.uint8:
            raise ReportError(
                f"example {self.clip_id!r}: frames must be bytes [T, H, W, 3], not {self.frames_THW3.shape}"
            )
        if not 0 < self.context <= len(self.frames_THW3):
            raise ReportError(f"example {self.clip_id!r}: {self.context} of {len(self.frames_THW3)} frames are context")
        shapes = {np.shape(one) for one in (*self.errors.values(), *self.similarities.values())}
        if len(shapes) > 1 or any(len(shape) != 3 for shape in shapes):
            raise ReportError(f"example {self.clip_id!r}: maps must share one shape [h, r, c], not {sorted(shapes)}")
        if self.similarities and self.query is None:
            raise ReportError(f"example {self.clip_id!r}: similarities need the query token that they are to")

    def title_of(self, method: str) -> str:
        return self.titles.get(method, method)


class _About(BaseModel):
    """The JSON beside the pictures."""

    model_config = ConfigDict(extra="forbid")

    clip_id: str
    frames: int
    context: int
    titles: dict[str, str] = {}
    query: tuple[int, int, int] | None = None
    questions: list[dict[str, Any]] = []
    note: str = ""


def write_example(folder: Path, example: Example) -> Path:
    """Into `folder`, which is `OUT/examples/<name>`; frames are shrunk to what a page shows."""
    frames = example.frames_THW3
    height = min(TALLEST, frames.shape[1])
    frames = resize_to_cover(frames, height, max(1, round(height * frames.shape[2] / frames.shape[1])))
    strip = Image.fromarray(np.concatenate(list(frames), axis=1))
    write_atomic(folder / FRAMES, lambda temporary: strip.save(temporary, format="PNG", optimize=True))
    maps = {f"error/{name}": one for name, one in example.errors.items()}
    maps |= {f"similarity/{name}": one for name, one in example.similarities.items()}
    arrays: dict[str, Any] = {name: np.asarray(one, np.float32) for name, one in maps.items()}

    def save(temporary: Path) -> None:
        with open(temporary, "wb") as opened:
            np.savez_compressed(opened, **arrays)

    write_atomic(folder / MAPS, save)
    about = _About(
        clip_id=example.clip_id, frames=len(frames), context=example.context, titles=dict(example.titles),
        query=example.query, questions=[_plain(one) for one in example.questions], note=example.note,
    )  # fmt: skip
    write_text(folder / ABOUT, about.model_dump_json(indent=1) + "\n")
    return folder


def read_example(folder: Path) -> Example:
    try:
        about = _About.model_validate_json((folder / ABOUT).read_bytes())
        with Image.open(folder / FRAMES) as strip:
            if math.prod(strip.size) > _MOST_PIXELS or strip.width % about.frames:
                raise ReportError(f"{folder / FRAMES}: is no strip of {about.frames} frames; evaluate again")
            pixels = np.asarray(strip.convert("RGB"))
        maps: dict[str, Map] = {}
        if (folder / MAPS).exists():
            with np.load(folder / MAPS, allow_pickle=False) as stored:
                maps = {name: stored[name].astype(np.float32) for name in stored.files}
        questions = [Question(**{**one, "choices": tuple(one["choices"])}) for one in about.questions]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile, ValidationError) as error:
        raise ReportError(
            f"{folder}: cannot be read as an example ({error}); evaluate again with --examples"
        ) from error
    frames = np.stack(np.split(pixels, about.frames, axis=1))
    return Example(
        about.clip_id, frames, about.context, about.titles, _of(maps, "error/"), _of(maps, "similarity/"), about.query,
        questions, about.note,
    )  # fmt: skip


def read_examples(out: Path) -> tuple[list[Example], list[str]]:
    """All examples of a folder in the order of their names, and what could not be read."""
    found, problems = [], []
    for about in sorted((out / FOLDER).glob(f"*/{ABOUT}")):
        try:
            found.append(read_example(about.parent))
        except ReportError as error:
            problems.append(str(error))
    return found, problems


def _of(maps: Mapping[str, Map], prefix: str) -> dict[str, Map]:
    return {name.removeprefix(prefix): one for name, one in maps.items() if name.startswith(prefix)}


def _plain(question: Question) -> dict[str, Any]:
    shares = {encoder: [float(share) for share in its] for encoder, its in question.answers.items()}
    written: dict[str, Any] = json.loads(json.dumps({**vars(question), "answers": shares}))
    return written
