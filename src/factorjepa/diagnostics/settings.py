"""Everything that decides what a number of an evaluation means. It is frozen before models are compared."""

from __future__ import annotations

import itertools
from typing import Literal

from pydantic import Field, field_validator

from ..config import Settings

EvaluationSplit = Literal["test", "audit", "validation"]


class MaskSettings(Settings):
    """The masking curve: shares of the context's positions that are hidden, and how many masks are drawn of each."""

    hidden: tuple[float, ...] = (0.0, 0.3, 0.5, 0.7, 0.9)  # R
    realisations: int = Field(default=1, ge=1)  # K; the same for every method

    @field_validator("hidden")
    @classmethod
    def _a_curve(cls, hidden: tuple[float, ...]) -> tuple[float, ...]:
        rising = all(low < high for low, high in itertools.pairwise(hidden))
        if len(hidden) < 2 or hidden[0] != 0.0 or not rising or hidden[-1] >= 1:
            raise ValueError("hidden shares must begin at 0, rise, and stay below 1: at least two of them")
        return hidden


class InterventionSettings(Settings):
    """The intervention generator. Lengths are in sides of the picture."""

    regions: int = Field(default=1, ge=1)  # per clip, each edited in four ways
    least_motion: float = Field(default=0.004, gt=0)  # sides per frame: what moves less than this is no region
    least_side: float = Field(default=0.15, gt=0, le=1)  # of a region's box
    largest_side: float = Field(default=0.4, gt=0, le=1)
    shift: float = Field(default=0.12, gt=0, lt=1)  # by how much `shift` moves a region's content
    epsilon: float = Field(default=0.001, gt=0)  # epsilon_int, of mean absolute change per dimension
    near_zero: float = Field(default=0.01, gt=0)  # a target change below this is next to none
    localised: float = Field(default=0.1, gt=0, le=1)  # share of tokens, those with the largest target change


class MotionSettings(Settings):
    """The motion estimator: dense inverse-search flow, camera motion taken out, pooled on a grid."""

    side: int = Field(default=96, ge=32)  # pixels at which flow is computed
    grid: int = Field(default=4, ge=1)  # cells a side of the descriptor
    bins: int = Field(default=8, ge=4)  # directions


class ProbeSettings(Settings):
    """Fixed-capacity probes: fitted on training clips, their one strength chosen on validation clips."""

    fit_clips: int = Field(default=96, ge=4)  # a stratified subset of at most this many training clips
    choose_clips: int = Field(default=32, ge=1)  # of validation clips
    transformed_clips: int = Field(default=32, ge=4)  # of the training clips: these are shown reversed, riffled, faster
    grid: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)  # lambda, per clip, features standardised


class ActionSettings(Settings):
    """Actions of clips whose manifest names none: classes of motion in the future, equally frequent in training."""

    classes: int = Field(default=4, ge=2)


class RolloutSettings(Settings):
    """Autoregressive prediction: it begins before the context's end, so that there are truths to be measured with."""

    early: int = Field(default=2, ge=1)  # tubelets of the context that a rollout must predict itself
    fit_clips: int = Field(default=16, ge=1)  # training clips from whose tokens the lift is fitted
    strength: float = Field(default=1e-3, gt=0)  # lambda of the ridge that turns predictions into context tokens


class PaceSettings(Settings):
    """Playback pace: how many times faster than it was the context is shown."""

    paces: tuple[int, ...] = (1, 2, 3)

    @field_validator("paces")
    @classmethod
    def _classes(cls, paces: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(paces)) != len(paces) or len(paces) < 2 or min(paces) < 1:
            raise ValueError("paces must be two or more different whole numbers, 1 or more")
        return paces


class EvaluateSettings(Settings):
    """One evaluation. Runs are comparable only if all of this is equal; see `Evaluator.identity`."""

    split: EvaluationSplit = "test"
    replication: int = Field(default=0, ge=0)  # which window of each clip: the same for all runs, however trained
    clips: int | None = Field(default=None, ge=1)  # a stratified subset of at most this many
    diagnostics: tuple[str, ...] | None = None  # names; None: all
    masks: MaskSettings = MaskSettings()
    interventions: InterventionSettings = InterventionSettings()
    motion: MotionSettings = MotionSettings()
    probes: ProbeSettings = ProbeSettings()
    actions: ActionSettings = ActionSettings()
    rollout: RolloutSettings = RolloutSettings()
    pace: PaceSettings = PaceSettings()
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 on a GPU, fp32 on a CPU
    batch: int = Field(default=8, ge=1)  # clips at a time; changes no number beyond rounding
    workers: int = Field(default=0, ge=0)  # processes that decode
    windows: str | None = None  # folder of windows that were decoded before: see `corpus.decoded_windows`
    memory_gb: float = Field(default=2.0, ge=0)  # of each part, kept for the next run; beyond it made again
