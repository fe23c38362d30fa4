"""What a diagnostic is: what it asks of a model, and what it makes of the answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..corpus.manifest import Clip
from ..missing import Missing
from ..scores import DiagnosticInfo
from .asks import Answers, Ask
from .scene import Scene
from .settings import EvaluateSettings

Role = Literal["fit", "choose", "measure"]  # training, validation, and the evaluated clips
ROLES: tuple[Role, ...] = ("fit", "choose", "measure")


@dataclass(frozen=True)
class Part:
    """A set of clips in an evaluation: what it is for, and what is known about it."""

    role: Role
    packets: bool  # the teacher has looked at them
    truth: bool  # ground truth is known
    simulated: bool = False  # and the clips can be simulated again


@dataclass(frozen=True)
class Found:
    """One score."""

    clip: Clip
    variant: str
    value: float


class Diagnostic(ABC):
    """One instance measures one run: it sees every batch of every part once and then states its scores.

    A value that is not a number has no row: `missing` says why. So a clip without motion is no score of 0.
    """

    info: ClassVar[DiagnosticInfo]

    def __init__(self, settings: EvaluateSettings) -> None:
        self.settings = settings
        self.found: list[Found] = []
        self._missing: dict[tuple[str, str], set[str]] = {}  # variant and reason -> clips

    @abstractmethod
    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        """Evaluations of the model that it needs on the next batch of this part; none: it does not see the batch."""

    @abstractmethod
    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        """A batch: state its scores with `put`, or keep what `finish` needs (pooled, never whole predictions)."""

    def finish(self) -> None:  # noqa: B027 (most have nothing left to do)
        """After the last batch: fit probes and state what they say."""

    def put(
        self, clips: Sequence[Clip], variant: str, values: Tensor | NDArray[Any] | Sequence[float], why: str = ""
    ) -> None:
        """Scores of clips; where a value is NaN there is none, for the reason `why`."""
        numbers = values.detach().double().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
        for clip, value in zip(clips, numbers.tolist(), strict=True):
            if math.isfinite(value):
                self.found.append(Found(clip, variant, value))
            else:
                self.absent(why or "it is not finite", [clip], variant)

    def absent(self, why: str, clips: Iterable[Clip], variant: str = "") -> None:
        """A variant of these clips (all of them where none is named) cannot be had."""
        self._missing.setdefault((variant, why), set()).update(clip.clip_id for clip in clips)

    @property
    def missing(self) -> list[Missing]:
        """What could not be had, and why."""
        return [Missing(self.info.name, variant, why, len(of)) for (variant, why), of in self._missing.items() if of]
