"""`decode train`: a decoder from target-encoder latents of training clips, chosen on validation clips.

It is given a corpus and a backbone, never a run: no world model is at hand that it could favour or change.

    OUT/config.yaml  environment.json  metrics.jsonl  checkpoints/  best    as every run has them
    OUT/decoder.safetensors                                                 the chosen weights with their contract
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import commands
from ..config import dump
from ..corpus.access import Corpus
from ..corpus.loader import Batch, EvaluationLoader, Loader
from ..decoded import DECODER
from ..diagnostics.reference import Precision, Reference
from ..environment import facts
from ..errors import RenderingError
from ..seeding import stream
from ..training.optimiser import adamw, parameter_groups, rate, set_rate
from ..training.origin import open_backbone
from ..training.run import RunDirectory
from .decoder import Decoder, Latents, save_decoder
from .latents import TargetLatents, TargetSource
from .metrics.lpips import Lpips
from .objective import decode_loss, squared_weights
from .settings import DecodeSettings

_LOG_EVERY = 25
CRITERION = "lowest L_decode on validation clips, earliest of equals"  # said before training, never changed by it

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Trained:
    """A finished decoder."""

    path: Path
    step: int
    validation: dict[str, float]


class DecoderTraining:
    """One decoder of one backbone. `update` takes `TargetLatents` of training clips and refuses everything else."""

    def __init__(self, settings: DecodeSettings, device: torch.device) -> None:
        self.settings, self.device = settings, device
        torch.manual_seed(settings.seed)
        backbone = open_backbone(settings.arch, settings.weights, device)
        spec = backbone.spec
        if settings.context % spec.tubelet or settings.frames % spec.tubelet:
            raise RenderingError(
                f"context {settings.context} and frames {settings.frames} must be whole tubelets of {spec.tubelet}"
            )
        precision = Precision(device, device.type == "cuda")
        self.source = TargetSource(Reference(backbone, settings.context, precision), settings.memory_gb)
        latents = Latents(settings.arch, self.source.digest, spec.dim, spec.patch, spec.tubelet)
        self.decoder = Decoder(settings.decoder, latents).to(device)
        self.perceptual = _perceptual(settings, device)
        groups = parameter_groups(self.decoder.named_parameters(), settings.lr, settings.weight_decay)
        self.optimiser = adamw(groups)
        self.step = 0

    def update(self, latents: TargetLatents) -> dict[str, Tensor]:
        """One step on target latents of training clips."""
        self.source.refuse_untrainable(latents)
        settings = self.settings
        set_rate(self.optimiser, rate(self.step, settings.updates, settings.warmup, settings.floor))
        self.decoder.train()
        loss, parts = self._loss(latents, self._drawn(latents.future_BT3HW.shape[1]))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.decoder.parameters(), settings.clip)
        self.optimiser.step()
        self.step += 1
        return {"loss": loss.detach(), **{name: part.detach() for name, part in parts.items()}, "gradient": norm}

    @torch.no_grad()
    def validate(self, held_out: list[TargetLatents]) -> dict[str, float]:
        """Means over validation clips; `psnr` is said beside the criterion, and chooses nothing."""
        self.decoder.eval()
        sums: dict[str, float] = {}
        for latents in held_out:
            loss, parts = self._loss(latents)
            shown = self.decoder(latents.tokens_BtD, latents.grid).clamp(0, 1)
            mse_B = torch.square(shown - latents.future_BT3HW).mean((1, 2, 3, 4))
            found = {"loss": loss, **parts, "psnr": (-10 * torch.log10(mse_B.clamp_min(1e-10))).mean()}
            for name, value in found.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(mse_B)
        count = sum(len(latents.tokens_BtD) for latents in held_out)
        return {f"validation/{name}": total / count for name, total in sums.items()}

    def run(
        self, out: Path, resume: bool = False, progress: Progress | None = None, beside: Sequence[str] = ()
    ) -> Trained:
        """To the last update; a killed run goes on from its last checkpoint with `resume`.

        `beside`: settings whose paths may have been moved together with the run.
        """
        settings = self.settings
        corpus = Corpus.open(Path(settings.data))
        chosen = corpus.validation()
        chosen = chosen.subset(min(settings.validation_clips, len(chosen)), seed=0)
        held_out = [
            self.source.latents(batch, device=self.device)
            for size in settings.sizes
            for batch in EvaluationLoader(chosen, settings.window(size), settings.batch, settings.workers)
        ]
        clips = corpus.learnable()
        with RunDirectory.begin(out, dump(settings), facts(), resume, beside=beside, clips=clips) as run:
            if run.steps():
                self._load(run)
            best = _best(run)
            for batch, mirrored in self._batches(corpus):
                started = time.monotonic()
                parts = self.update(self.source.latents(batch, mirrored, self.device))
                last = self.step == settings.updates
                if self.step % _LOG_EVERY == 0 or last:
                    values = {name: value.item() for name, value in parts.items()}
                    if not all(map(_finite, values.values())):
                        raise RenderingError(f"{out}: the loss is not finite at update {self.step}: lower lr")
                    run.log({"step": self.step, **values, "seconds": time.monotonic() - started})
                if self.step % settings.validate_every == 0 or last:
                    found = self.validate(held_out)
                    run.log({"step": self.step, **found})
                    run.save(self.step, _weights(self.decoder), {"optimiser": self.optimiser.state_dict()})
                    if best is None or found["validation/loss"] < best[1]["validation/loss"]:
                        best = self.step, found
                        run.mark_best(self.step)
                    run.prune(1)
                if progress is not None:
                    progress(self.step, settings.updates)
            assert best is not None, "the last update validates"
            self.decoder.load_state_dict(run.weights(device=self.device))
            path = save_decoder(out / DECODER, self.decoder, self.contract(best[0], best[1], len(chosen)))
        return Trained(path, *best)

    def contract(self, step: int, validation: dict[str, float], clips: int) -> dict[str, Any]:
        """The paper's decoder contract, filled in by what was executed."""
        settings, losses = self.settings, self.settings.losses.model_dump()
        return {
            "latents": f"target encoder of {settings.arch}, frames {settings.context + 1} to {settings.frames} of "
            f"{settings.frames} at {settings.fps:g} fps, affine-free LayerNormed tokens of the last tap",
            "trained on": "target-encoder latents of training clips alone; world models frozen",
            "generator": {"kind": self.decoder.generator.name, "initialised from": self.decoder.generator.origin},
            "update scope": self.decoder.scope(),
            "output": f"{settings.frames - settings.context} RGB frames at {settings.fps:g} fps, clipped to 0-1",
            "objective": {name: weight or "disabled" for name, weight in losses.items()},
            "perceptual network": self.perceptual.name if self.perceptual else "none",
            "criterion": CRITERION,
            "chosen": {"step": step, "validation clips": clips, **validation},
            "settings": settings.model_dump(mode="json", exclude={"data"}),
            "command": commands.command(),
        }  # fmt: skip

    def _drawn(self, frames: int) -> list[int] | None:
        """Which frames this update draws; None: all."""
        count = self.settings.drawn_frames(frames, self.decoder.generator.framewise)
        if count == frames:
            return None
        chosen = stream(self.settings.seed, "drawn", self.step).choice(frames, count, replace=False)
        return sorted(chosen.tolist())

    def _loss(self, latents: TargetLatents, only: list[int] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        shown = self.decoder(latents.tokens_BtD, latents.grid, only)
        future = latents.future_BT3HW if only is None else latents.future_BT3HW[:, only]
        return decode_loss(
            shown, future, latents.last_B3HW, self.settings.losses,
            lambda: squared_weights(self.decoder), self.perceptual,
        )  # fmt: skip

    def _batches(self, corpus: Corpus) -> Iterator[tuple[Batch, bool]]:
        """Of the remaining updates. What an update sees depends on its number alone; sizes take turns by epoch."""
        settings, clips = self.settings, corpus.training()
        batch = min(settings.batch, len(clips))
        turns = [(size, replication) for replication in range(settings.replications) for size in settings.sizes]
        memory = settings.memory_gb / len(turns)
        loaders = [
            Loader(clips, settings.window(size), batch, settings.seed, settings.workers, replication=replication,
                   memory_gb=memory)
            for size, replication in turns
        ]  # fmt: skip
        while self.step < settings.updates:
            epoch, position = divmod(self.step, len(loaders[0]))
            loader = loaders[epoch % len(loaders)]
            loader.epoch, loader.position = epoch, position
            mirrored = settings.mirrored and epoch // len(loaders) % 2 == 1
            for one in loader:
                yield one, mirrored
                if self.step >= settings.updates:
                    return

    def _load(self, run: RunDirectory) -> None:
        self.step = run.steps()[-1]
        run.forget_after(self.step)
        weights, state = run.load(self.step, self.device)
        self.decoder.load_state_dict(weights)
        self.optimiser.load_state_dict(state["optimiser"])


def _best(run: RunDirectory) -> tuple[int, dict[str, float]] | None:
    """The chosen step so far with its validation."""
    if run.best is None:
        return None
    of_step = [one for one in run.metrics() if one["step"] == run.best and "validation/loss" in one]
    return run.best, {name: value for name, value in of_step[-1].items() if name.startswith("validation/")}


def _weights(decoder: Decoder) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu() for name, tensor in decoder.state_dict().items()}


def _perceptual(settings: DecodeSettings, device: torch.device) -> Lpips | None:
    if not settings.losses.perceptual or settings.lpips is None:
        return None
    return Lpips.load(settings.lpips, device=device)


def _finite(value: float) -> bool:
    return value - value == 0.0
