"""One protocol for every method: the configuration table's Panels A, C and D. Presets lie under `configs/`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import Field

from ..adaptation import Method, method_named
from ..adaptation.prepare import Scope, count_trainable
from ..backbones.spec import BackboneSpec
from ..config import Settings
from ..corpus.windows import WindowSpec
from ..errors import TrainingError
from ..objective import LossWeights
from ..predictors import FactorizedOptions, MonolithicOptions
from ..predictors.interface import Role
from ..words import nearest

# What decides how a run is carried out, not what comes out: a resumed run may change it. `batch` only together with
# the number of processes, so that as many clips meet in a pass: the loader sees to that. Runs of a study are of one.
LAYOUT = ("batch", "workers", "memory_gb", "windows", "recompute", "compile", "keep", "parallel", "log_to")
Coefficient = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PRESET_OF = {
    "nano": "nano", "small": "small", "vjepa2_1_vit_giant_384": "vitg_1b", "vjepa2_1_vit_gigantic_384": "vitG_2b",
}  # fmt: skip


class TrainSettings(Settings):
    """Everything that decides a run. `data`, `targets` and `weights` are paths."""

    data: str
    targets: str | None = None  # packet cache; None: `targets/` in the corpus
    arch: str = "nano"  # a name, or `file`: as the header of our own weights file says
    weights: str | None = None  # None: the weights that come with the package (nano)
    method: str = "factorjepa"
    base: str | None = None  # a finished run of `full`, for the methods that are made from one (WiSE-FT)
    predictor: dict[str, Any] = Field(default={})  # options of the method's predictor to change, e.g. injection
    losses: dict[str, Coefficient] = Field(default={})  # coefficients, where the method has the term: factor=0.2
    seed: int = Field(default=17, ge=0, lt=2**63)
    replication: int = Field(default=0, ge=0)  # which window of each clip
    clips: int | None = Field(default=None, ge=1)  # a stratified subset of this many training clips
    size: int = Field(default=128, ge=16, le=4096)  # pixels
    frames: int = Field(default=16, ge=2)
    fps: float = Field(default=4.0, gt=0)
    context: int = Field(default=12, ge=1)  # frames

    updates: int = Field(default=20_000, ge=1)
    batch: int = Field(default=4, ge=1)  # clips per process and pass; an update takes processes x batch x accumulate
    accumulate: int = Field(default=1, ge=1)  # passes per update
    lr: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    branch_rate: float = Field(default=1.0, gt=0, allow_inf_nan=False)  # of branches that read agents, over lr
    gate_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)  # of gates and edges (None: branch_rate)
    final_lr: float = Field(default=1e-6, ge=0)
    warmup: int = Field(default=1000, ge=0)
    weight_decay: float = Field(default=0.04, ge=0)
    clip: float = Field(default=1.0, gt=0)  # global gradient norm
    momentum: float = Field(default=0.99925, ge=0, le=1)  # of the target encoder
    masks: Literal["blocks", "spread"] = "blocks"  # blocks: both policies for every clip; spread: see `masking`

    trainable_blocks: int = Field(default=1, ge=1)  # K
    lora_rank: int = Field(default=64, ge=1)
    lora_alpha: float = Field(default=128.0, gt=0)
    lora_dropout: float = Field(default=0.05, ge=0, lt=1)
    probe_batches: int = Field(default=8, ge=1)  # of Auto-RGN's gradient-probe pass
    dictionary_clips: int = Field(default=64, ge=1)  # whose tokens the dictionaries start from

    validate_every: int = Field(default=500, ge=1)
    validation_clips: int | None = Field(default=None, ge=1)  # a stratified subset of at most this many
    save_every: int = Field(default=500, ge=1)
    keep: int = Field(default=2, ge=1)  # checkpoints besides the best
    workers: int = Field(default=0, ge=0)  # processes that decode
    memory_gb: float = Field(default=2.0, ge=0)  # of decoded windows to keep, each of training and of validation clips
    windows: str | None = None  # folder of decoded windows that several runs share: see `corpus.decoded_windows`
    # auto: bf16 on a GPU, fp32 on a CPU; tf32: fp32 with products of ten bits on a GPU, and no casts
    precision: Literal["auto", "fp32", "tf32", "bf16"] = "auto"
    frozen_bits: Literal[16, 8] = 16  # 8: blocks that never train multiply in fp8; refused where a GPU cannot
    recompute: bool = False  # activation checkpointing
    compile: bool | None = None  # torch.compile of the blocks; None: on a GPU with Triton
    trunk_cache: str | None = None  # folder for what the frozen blocks make of every clip: see `trunk`
    trunk_dtype: Literal["fp16", "bf16", "fp32"] = "fp16"
    trunk_context: bool = True  # with masks: spread, also of the pass that shows the whole context
    parallel: Literal["auto", "single", "ddp", "fsdp"] = "auto"  # auto: ddp where torchrun has started several
    log_to: tuple[Literal["tensorboard", "wandb"], ...] | None = None  # beside metrics.jsonl; None: what is installed

    @property
    def window(self) -> WindowSpec:
        return WindowSpec(frames=self.frames, fps=self.fps, size=self.size)

    @property
    def trunk_has_context(self) -> bool:
        """Whether a trunk cache serves the pass that shows the whole context, too."""
        return self.masks == "spread" and self.trunk_context

    @property
    def rates(self) -> dict[Role, float]:
        """Of the predictor's parameters, by role, over `lr`."""
        gates = self.branch_rate if self.gate_rate is None else self.gate_rate
        return {"branch": self.branch_rate, "gate": gates}

    @property
    def scope(self) -> Scope:
        return Scope(self.trainable_blocks, (), self.lora_rank, self.lora_alpha, self.lora_dropout)

    def budget(self, spec: str | BackboneSpec) -> int:
        """What FactorJEPA, in the form that this method stands beside, trains under these settings."""
        beside = self.of_method(method_named(self.method).level_with).resolved_method()
        return count_trainable(spec, beside, self.scope)

    def of_method(self, name: str) -> TrainSettings:
        return self.model_copy(update={"method": name})

    def resolved_method(self) -> Method:
        """The method with this run's changes of predictor options and coefficients."""
        method = method_named(self.method)
        terms = [field.name for field in dataclasses.fields(LossWeights)]
        unknown = [f"{term!r}{nearest(term, terms)}" for term in self.losses if term not in terms]
        if unknown:
            raise TrainingError(f"losses: there is no term {', '.join(unknown)}; terms: {', '.join(terms)}")
        # A preset serves every method: it tunes a term, it does not switch one on that the method is defined without.
        scale = dict(method.loss_scale)
        losses: dict[str, Any] = {
            term: value * scale.get(term, 1.0) for term, value in self.losses.items() if getattr(method.losses, term)
        }
        # Nor does it change a predictor's kind: what only the other kind has is left out.
        kinds = (FactorizedOptions, MonolithicOptions)
        others = {field.name for kind in kinds for field in dataclasses.fields(kind)}
        others -= {field.name for field in dataclasses.fields(method.predictor)}
        options = {name: value for name, value in self.predictor.items() if name not in others}
        if options.setdefault("context_frames", self.context) != self.context:
            raise TrainingError(
                f"predictor option context_frames is {options['context_frames']}, and the run's context has "
                f"{self.context} frames: leave it out, it follows the context"
            )
        try:
            return dataclasses.replace(
                method,
                predictor=method.predictor.replace(**options),
                losses=dataclasses.replace(method.losses, **losses),
            )
        except TypeError as error:  # dataclasses.replace names the field it does not know
            raise TrainingError(f"method {self.method!r}: {error}") from None
