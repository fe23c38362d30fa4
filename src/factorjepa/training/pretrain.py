"""V-JEPA's own objective from random weights on the simulated world: how the shipped `nano` was made.

Every step shows each clip three times: through the two block policies of V-JEPA, and through the future split (the
context is the first three quarters of the clip, thinned to a random share of its positions), so that the predictor
has met the question that this project asks. Targets are the momentum encoder's normalised levels.

Steps take turns. Odd ones see whole frames at half size. Even ones look at a random square of token columns per clip
(`crop`), targets included: attention over all tokens would cost an order of magnitude more; only in the last steps they
see whole frames, as released V-JEPA ends at a higher resolution.

Shapes: B batch, T frames, N tokens, n chosen tokens, W = levels * width.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from ..backbones import build
from ..backbones.blocks import Block
from ..backbones.checkpoint import save
from ..backbones.masks import POLICIES, BlockPolicy, Grid, drawn_masks, future_split, mask_draws
from ..backbones.momentum import MomentumEncoder
from ..backbones.pretraining import CONTEXT_WEIGHT, context_loss, context_weights, normalised_levels, target_loss
from ..config import Settings, defaults, dump
from ..environment import facts
from ..errors import TrainingError
from ..pixels import to_video
from ..seeding import stream
from ..transfer import sent
from ..world import WorldSettings
from .optimiser import adamw, parameter_groups, rate, set_rate
from .pool import WindowPool, Windows
from .run import RunDirectory

LOG_EVERY = 50  # steps
PREPARING = 6  # threads that read windows and draw masks
PASSES = ("small", "large", "future")
HELD_OUT = 10_000_000  # first source of the validation pool: never reached by training


class PretrainSettings(Settings):
    """Everything that decides the weights."""

    arch: str = "nano"
    spec: dict[str, Any] = Field(default={})  # fields of the backbone's spec to change, for example depth
    world: WorldSettings = WorldSettings()
    seed: int = 0
    steps: int = Field(default=6000, ge=1)
    batch: int = Field(default=128, ge=1)
    sources: int = Field(default=5000, ge=1)  # source videos in all, five clips each
    sources_at_start: int = Field(default=200, ge=1)  # a step may draw from this many, and from more as steps go on
    lr: float = Field(default=1e-3, gt=0)
    warmup: int = Field(default=400, ge=0)
    floor: float = Field(default=0.01, ge=0, le=1)  # of the rate at the end
    weight_decay: float = Field(default=0.04, ge=0)
    clip: float = Field(default=1.0, gt=0)  # global gradient norm
    momentum: tuple[float, float] = (0.996, 0.9995)  # of the target encoder, first and last step
    crop: int = Field(default=8, ge=1)  # tokens a side of the squares
    half: bool = True  # odd steps see whole frames at half size
    whole: float = Field(default=0.1, ge=0, le=1)  # share of the steps, the last ones, without squares
    thinned: tuple[float, ...] = (1.0, 0.5, 0.25)  # shares of the context's positions in the future split, by turns
    validate_every: int = Field(default=500, ge=1)
    validation_sources: int = Field(default=40, ge=1)
    save_every: int = Field(default=500, ge=1)
    compile: bool = False  # the blocks, once for each number of tokens: two minutes at the start, then faster (GPU)


@dataclass(frozen=True)
class _Prepared:
    """A batch of windows, and which tokens each pass shows and asks for, numbered within the `seen` grid."""

    video: Tensor  # uint8 [B, T, H, W, 3]
    shrink: int  # 2: to be seen at half size
    mirrored: Tensor  # bool [B]
    everything: Tensor  # int64 [B, n]
    passes: tuple[tuple[Tensor, Tensor], ...]  # context and target, int64 [B, n] each
    grid: Grid  # of the clip
    seen: Grid  # of the part that is looked at
    corner: Tensor  # int64 [B, 2], row and column where it begins

    def pinned(self) -> _Prepared:
        """In memory that a GPU reads by itself: no copy makes the host wait."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        pinned: dict[str, Any] = {name: tensor.contiguous().pin_memory() for name, tensor in tensors.items()}
        passes = tuple((context.pin_memory(), target.contiguous().pin_memory()) for context, target in self.passes)
        return dataclasses.replace(self, **pinned, passes=passes)


class Pretraining:
    """A run in a folder (see `run.py`), with the finished backbone in `weights.safetensors`."""

    def __init__(self, out: Path, settings: PretrainSettings, device: torch.device) -> None:
        self.out, self.settings, self.device = Path(out), settings, device
        self.backbone = build(settings.arch, seed=settings.seed, device=device, **settings.spec)
        spec = self.backbone.spec
        self.target = MomentumEncoder(self.backbone.encoder, settings.momentum[0])
        named = self.backbone.named_parameters()
        self.optimiser = adamw(parameter_groups(named, settings.lr, settings.weight_decay))
        self.grid = (spec.tubelets, *[_patches(settings, spec.patch)] * 2)
        self.context_tubelets = spec.tubelets * 3 // 4
        self.step = 0
        if settings.compile:
            torch._dynamo.config.recompile_limit = 64  # one graph for each number of tokens
            for part in (self.backbone.encoder, self.target.encoder, self.backbone.predictor):
                for block in part.modules():
                    if isinstance(block, Block):
                        block.compile(dynamic=False)

    def run(
        self, pool_folder: Path, workers: int, resume: bool, progress: Callable[[int, int], object] | None = None
    ) -> dict[str, float]:
        """Train to the last step; returns the last validation."""
        settings = self.settings
        frames, world, seed = self.backbone.spec.frames, settings.world, settings.seed
        with RunDirectory.begin(self.out, dump(settings), facts(), resume, (), defaults(PretrainSettings)) as run:
            if run.steps():
                self._load_state(run)
            held = settings.validation_sources
            with WindowPool(pool_folder, world, seed, held, workers, frames, first=HELD_OUT) as validation:
                held_out = [validation.windows(source) for source in range(held)]
            started, first = time.monotonic(), self.step
            with WindowPool(pool_folder, world, seed, settings.sources, workers, frames) as pool:
                for batch in self._batches(pool):
                    parts = self._update(batch)
                    last = self.step == settings.steps
                    looked_at = (LOG_EVERY, settings.validate_every, settings.save_every)
                    if any(self.step % every == 0 for every in looked_at) and not torch.isfinite(parts["loss"]):
                        raise TrainingError(
                            f"{self.out}: the loss is not finite at step {self.step}; the last checkpoint is sound: "
                            "start anew with a lower lr"
                        )
                    if self.step % LOG_EVERY == 0 or last:
                        speed = (self.step - first) * settings.batch / (time.monotonic() - started)
                        run.log({"step": self.step, **{k: v.item() for k, v in parts.items()}, "clips_per_s": speed})
                    if self.step % settings.validate_every == 0 or last:
                        run.log({"step": self.step, **self.validate(held_out)})
                    if self.step % settings.save_every == 0 or last:
                        self._save_state(run)
                    if progress is not None:
                        progress(self.step, settings.steps)
            self._save_weights()
            return self.validate(held_out)

    def _batches(self, pool: WindowPool) -> Iterator[_Prepared]:
        """Batches of the remaining steps, prepared some threads ahead; what a batch holds depends on its step alone."""
        with ThreadPoolExecutor(PREPARING) as preparing:
            ahead: deque[Future[_Prepared]] = deque()
            steps = iter(range(self.step, self.settings.steps))
            try:
                for step in itertools.chain(steps, itertools.repeat(None, 2 * PREPARING)):
                    if step is not None:
                        ahead.append(preparing.submit(self._batch, pool, step))
                    if ahead and (step is None or len(ahead) > 2 * PREPARING):
                        yield ahead.popleft().result()
            finally:
                preparing.shutdown(wait=False, cancel_futures=True)

    def _batch(self, pool: WindowPool, step: int) -> _Prepared:
        settings = self.settings
        grown = settings.sources_at_start + (settings.sources - settings.sources_at_start) * step / settings.steps
        random = stream(settings.seed, "pretrain", step)
        video = torch.from_numpy(pool.batch(settings.batch, max(1, min(settings.sources, int(grown))), random))
        mirrored = torch.from_numpy(random.random(settings.batch) < 0.5)
        shrink = 2 if settings.half and step % 2 else 1
        tubelets, rows, columns = grid = (self.grid[0], self.grid[1] // shrink, self.grid[2] // shrink)
        side = min(settings.crop, rows, columns)
        square = shrink == 1 and step < (1 - settings.whole) * settings.steps
        seen = (tubelets, side, side) if square else grid
        corner = torch.from_numpy(
            random.integers([rows - seen[1] + 1, columns - seen[2] + 1], size=(settings.batch, 2))
        )
        contexts = [self._drawn(policy, seen, random) for policy in POLICIES]
        turn = step // 2 if settings.half else step
        kept = max(1, round(settings.thinned[turn % len(settings.thinned)] * seen[1] * seen[2]))
        contexts.append(self._drawn(POLICIES[0], (self.context_tubelets, *seen[1:]), random, kept))
        future = future_split(seen, self.context_tubelets).target.expand(settings.batch, -1)
        targets = [*(hidden_tokens(context, seen) for context in contexts[:-1]), future]
        everything = torch.arange(seen[0] * seen[1] * seen[2]).expand(settings.batch, -1)
        passes = tuple(zip(contexts, targets, strict=True))
        prepared = _Prepared(video, shrink, mirrored, everything, passes, grid, seen, corner)
        return prepared.pinned() if self.device.type == "cuda" else prepared

    def _drawn(self, policy: BlockPolicy, grid: Grid, random: np.random.Generator, kept: int | None = None) -> Tensor:
        draws = random.random((self.settings.batch, mask_draws(policy, grid[1] * grid[2])))
        return drawn_masks(policy, draws, grid, kept)

    def _update(self, batch: _Prepared) -> dict[str, Tensor]:
        settings, width = self.settings, self.backbone.spec.levels_width
        set_rate(self.optimiser, rate(self.step, settings.steps, settings.warmup, settings.floor))
        self.backbone.train()
        x = to_video(sent(batch.video, self.device))
        x = torch.where(sent(batch.mirrored, self.device)[:, None, None, None, None], x.flip(-1), x)
        if batch.shrink > 1:
            x = F.avg_pool3d(x, (1, batch.shrink, batch.shrink))
        corner = sent(batch.corner, self.device)
        parts: dict[str, Tensor] = {}

        def on_device(index: Tensor) -> tuple[Tensor, Tensor]:
            """Tokens by their number within what is seen, and within the whole clip."""
            index = sent(index, self.device)
            return index, placed(index, batch.seen, corner, batch.grid)

        with self._precision():
            levels = self.target(x, on_device(batch.everything)[1], True)
            wanted = normalised_levels(levels.float(), self.backbone.spec.dim)
        total = torch.zeros((), device=self.device)
        for number, (name, (context, target)) in enumerate(zip(PASSES, batch.passes, strict=True)):
            (near, far), (near_target, far_target) = on_device(context), on_device(target)
            with self._precision():
                tokens = self.backbone.encoder(x, far, True)
                predicted, reread = self.backbone.predictor(tokens, far, far_target, grid=batch.grid, mask_token=number)
            weight = context_weights(near, near_target, batch.seen[1], batch.seen[2])
            answer = wanted.gather(1, near_target[..., None].expand(-1, -1, width))
            parts[name] = target_loss(predicted.float(), answer)
            seen = wanted.gather(1, near[..., None].expand(-1, -1, width))
            parts[f"{name}_context"] = context_loss(reread.float(), seen, weight)
            total = total + (parts[name] + CONTEXT_WEIGHT * parts[f"{name}_context"]) / len(PASSES)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        parts["gradient"] = torch.nn.utils.clip_grad_norm_(self.backbone.parameters(), settings.clip)
        self.optimiser.step()
        self.step += 1
        start, end = settings.momentum
        self.target.update(start + (end - start) * self.step / settings.steps)
        return {"loss": total.detach(), **{key: value.detach() for key, value in parts.items()}}

    def validate(self, held_out: list[Windows]) -> dict[str, float]:
        """Future-frame L1 of held-out windows, beside what copying the last context frame and a mean would give.

        Everything through the momentum encoder, which is the one that is kept: mean |prediction - target| over the
        future tokens of the last level, affine-free LayerNormed. `half_*`: the same at half size.
        """
        found = self._errors(held_out, 1)
        if self.settings.half:
            found |= {f"half_{name}": value for name, value in self._errors(held_out, 2).items()}
        return found

    @torch.no_grad()
    def _errors(self, held_out: list[Windows], shrink: int) -> dict[str, float]:
        self.backbone.eval()
        dim, asked = self.backbone.spec.dim, PASSES.index("future")
        grid = (self.grid[0], self.grid[1] // shrink, self.grid[2] // shrink)
        split = future_split(grid, self.context_tubelets)
        frame = grid[1] * grid[2]
        predicted_all, wanted_all, copied_all = [], [], []
        for windows in held_out:
            if not len(windows):
                continue
            x = F.avg_pool3d(to_video(torch.from_numpy(windows).to(self.device)), (1, shrink, shrink))
            context, target = (part.to(self.device).expand(len(x), -1) for part in split)
            with self._precision():
                wanted = normalised_levels(self.target(x, None, True).float(), dim)[..., -dim:]
                tokens = self.target(x, context, True)
                predicted, _ = self.backbone.predictor(tokens, context, target, grid=grid, mask_token=asked)
            last = normalised_levels(tokens.float(), dim)[:, -frame:, -dim:]
            predicted_all.append(predicted.float()[..., -dim:].cpu())
            wanted_all.append(wanted[:, split.target.to(self.device)].cpu())
            copied_all.append(last.repeat(1, grid[0] - self.context_tubelets, 1).cpu())
        predicted, wanted, copied = (torch.cat(part) for part in (predicted_all, wanted_all, copied_all))
        mean = wanted.mean(dim=0, keepdim=True)  # of these very windows: a mean predictor cannot do better
        variance = torch.linalg.svdvals(wanted.flatten(0, 1)[::17] - wanted.flatten(0, 1).mean(0)).square()
        share = variance / variance.sum()
        return {
            "future_l1": (predicted - wanted).abs().mean().item(),
            "copy_l1": (copied - wanted).abs().mean().item(),
            "mean_l1": (mean - wanted).abs().mean().item(),
            "effective_rank": torch.exp(-(share * share.clamp_min(1e-12).log()).sum()).item(),
            "windows": float(len(wanted)),
        }

    def _precision(self) -> torch.autocast:
        """bf16 where it is fast and safe; fp32 on CPUs, where bf16 matrix products can be illegal instructions."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _save_state(self, run: RunDirectory) -> None:
        run.save(
            self.step,
            self.backbone.state_dict(),
            {"target": self.target.owned_state(), "optimiser": self.optimiser.state_dict()},
        )
        run.prune(keep=1)

    def _load_state(self, run: RunDirectory) -> None:
        self.step = run.steps()[-1]
        weights, state = run.load(self.step, self.device)
        self.backbone.load_state_dict(weights)
        self.target.load_owned_state(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])
        run.forget_after(self.step)

    def _save_weights(self) -> None:
        """The momentum encoder and the predictor in half precision: what is shipped.

        No image was ever shown, so the image path gets the video path's weights: an image is a video that stands still.
        """
        spec = self.backbone.spec
        kept = build(spec, device=self.device)
        kept.encoder.load_state_dict(self.target.encoder.state_dict())
        kept.predictor.load_state_dict(self.backbone.predictor.state_dict())
        if spec.modalities:
            video, image = kept.encoder.patch_embed.proj, kept.encoder.patch_embed_img.proj
            with torch.no_grad():
                image.weight.copy_(video.weight.sum(dim=2, keepdim=True))
                image.bias.copy_(video.bias)  # type: ignore[union-attr, arg-type]
                for part in (kept.encoder, kept.predictor):
                    part.img_mod_embed.copy_(part.video_mod_embed)
        kept.origin = f"pretrained for {self.step} steps on the {self.settings.world.regime} world"
        save(kept.half(), self.out / "weights.safetensors")


def _patches(settings: PretrainSettings, patch: int) -> int:
    """Of a side of the windows: they need not be as large as the backbone is made for."""
    if settings.world.size % (2 * patch if settings.half else patch):
        advice = ", and of half of it too (or set half=false)" if settings.half else ""
        raise TrainingError(
            f"world.size={settings.world.size}: windows are whole patches of {patch} pixels; take a multiple{advice}"
        )
    return settings.world.size // patch


def hidden_tokens(context_Bn: Tensor, grid: Grid) -> Tensor:
    """The tokens of the grid that are not in the context, ascending `[B, N - n]`."""
    tokens = grid[0] * grid[1] * grid[2]
    hidden = torch.ones(len(context_Bn), tokens, dtype=torch.bool).scatter_(1, context_Bn, False)
    return hidden.nonzero()[:, 1].view(len(context_Bn), -1)


def placed(index_Bn: Tensor, seen: Grid, corner_B2: Tensor, grid: Grid) -> Tensor:
    """Tokens numbered within a square of the grid, by their number in the whole grid."""
    _, rows, columns = seen
    time, row, column = index_Bn // (rows * columns), index_Bn // columns % rows, index_Bn % columns
    return (time * grid[1] + row + corner_B2[:, :1]) * grid[2] + column + corner_B2[:, 1:]
