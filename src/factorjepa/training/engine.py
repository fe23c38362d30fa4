"""The one loop that every method runs through: update, average, validate, save, go on.

A run is decided by its settings alone. Killed at any moment and resumed, it gives the same losses to the bit: a
checkpoint holds weights, optimiser, momentum encoder and the loader's place, and everything random is addressed by
seed, step and clip. On many processes (`parallel`) it is the same loop, and the same loss.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..adaptation.autorgn import choose_blocks, relative_gradient_norms
from ..adaptation.budget import levelled
from ..adaptation.reference import FULL
from ..adaptation.wise import interpolate
from ..backbones import Backbone
from ..config import defaults, dump
from ..corpus.access import Corpus
from ..corpus.loader import Batch, EvaluationLoader, Loader
from ..environment import facts
from ..errors import TrainingError
from ..predictors import FactorizedPredictor, StartTokens
from ..teacher.cache import PacketCache, clip_identities
from ..teacher.scales import target_scales
from ..transfer import Later
from ..words import counted
from .acceleration import accelerated
from .batches import Scales, TrainingBatches, training_batch, validation_batches
from .learner import Learner
from .logs import Logs
from .origin import open_backbone
from .parallel import Model, Processes, ReplicatedModel, ShardedModel, load_whole, whole
from .pathways import PATHWAYS, Pathway
from .refusing import accepted, refuse_misfit, refuse_trunk
from .restore import put_back, settings_of
from .run import RunDirectory
from .settings import LAYOUT, TrainSettings
from .start import report_loss, start_tokens
from .step import loss_of
from .trunk import Trunk, lowest_trained, trunk_of
from .update import Outcome, Update, in_bf16, precision
from .validation import Validation, validate

log = logging.getLogger(__name__)

RANK_FALLS = 0.5  # of the first validation's RankMe: below it the representation is collapsing


@dataclasses.dataclass(frozen=True)
class Finished:
    """How a run ended."""

    run: Path
    step: int
    best: int
    validation: Validation
    stopped: bool  # asked to stop before the last update; resume to go on


class Engine:
    """A run of one method. `stop()` may be called from a signal handler: the update is finished and saved first."""

    def __init__(self, settings: TrainSettings, device: torch.device, processes: Processes | None = None) -> None:
        self.settings, self.device = settings, device
        self.processes = processes or Processes(device)
        self.method = accepted(settings, device, self.processes)
        corpus = Corpus.open(Path(settings.data))
        training = corpus.training()
        if settings.clips is not None:
            training = training.subset(settings.clips, settings.seed)
        self.training = training
        validation = corpus.validation()
        if settings.validation_clips is not None:
            validation = validation.subset(min(settings.validation_clips, len(validation)), seed=0)
        rank, world = self.processes.rank, self.processes.world
        if len(training) < world * settings.batch:
            raise TrainingError(
                f"{len(training)} training clips do not fill one pass of {counted(world, 'process', 'processes')} x "
                f"batch={settings.batch}: set batch to {len(training) // world} or less"
            )
        decoded = Path(settings.windows) if settings.windows else None
        self.loader = Loader(
            training, settings.window, settings.batch, settings.seed, settings.workers,
            replication=settings.replication, rank=rank, world=world, memory_gb=settings.memory_gb, decoded=decoded,
        )  # fmt: skip
        self.evaluation = EvaluationLoader(
            validation, settings.window, settings.batch, settings.workers, replication=settings.replication,
            rank=rank, world=world, even=True, memory_gb=settings.memory_gb, decoded=decoded,
        )  # fmt: skip
        self.packets = self.elsewhere = self.validation_packets = None
        self.scales: Scales | None = None
        if self.method.reads_packets:
            cache = PacketCache.open(Path(settings.targets or Path(settings.data) / "targets"))
            cache.refuse_other_window(settings.frames, settings.fps, settings.context)
            self.packets = cache.packets(training, settings.replication).verify()
            if self.method.targets == "misaligned":
                self.elsewhere = cache.packets(training, settings.replication + 1)
            if self.method.reads_states:
                self.validation_packets = cache.packets(validation, settings.replication).verify()
            if self.method.reads_targets:
                self.scales = {name: scale.to(device) for name, scale in target_scales(self.packets).items()}
        self.batches = TrainingBatches(self.loader, self.packets, self.elsewhere, self.method, settings.seed)
        torch.manual_seed(settings.seed)
        backbone = open_backbone(settings.arch, settings.weights, device)
        grid = self.packets.settings.targets.grid if self.packets is not None else None
        refuse_misfit(settings, backbone.spec, grid)
        self.method = levelled(backbone.spec, self.method, settings.scope, settings.budget(backbone.spec))
        self.trunk: Trunk | None = None  # until it is known what trains
        self.learner = self._learner(backbone)
        self.model = Model(self.learner)
        if self.method.interpolation is not None:
            self._interpolate(RunDirectory.existing(Path(str(settings.base))), self.method.interpolation)
        self.optimiser = self._optimiser() if self.method.trains else None
        self.corpus = clip_identities(corpus.manifest)
        self.learnable = corpus.learnable()
        self.trunk = self._trunk()
        self.step = 0
        self.best: tuple[int, Validation] | None = None
        self.first_rank: float | None = None
        self._stopped = False
        self._logs: Logs | None = None  # of the first process
        self._warned: set[Pathway] = set()
        self._name = self.method.name  # the run's, once it has a folder
        self.ahead = device.type == "cuda"  # the host prepares an update while the device makes the one before
        self._pending: Outcome | None = None  # that one
        self._asked: Later | None = None  # whether to stop, of all processes
        self._noted = 0.0  # when an update was logged last, and how long clips were waited for since
        self._waited = 0.0

    def stop(self) -> None:
        self._stopped = True

    def run(
        self,
        out: Path,
        resume: bool,
        progress: Callable[[int, int, str], object] | None = None,
        go: Mapping[str, str] | None = None,
        beside: Sequence[str] = (),
    ) -> Finished:
        """Train to the last update (or until `stop`), validate, select; `progress(step, steps, text)`.

        `go`: what this run shares with those that are trained together with it, for its record; `beside`: settings
        whose paths may have been moved together with the run.
        """
        settings, self._name = self.settings, out.name
        updates = settings.updates if self.method.trains else 0
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)  # this process may have trained other runs before
        with contextlib.ExitStack() as stack:
            run = self._folder(stack, out, resume, go or {}, beside)
            resumed = bool(run.steps())
            if resumed:
                self._load(run)
            if self.trunk is not None:
                stack.enter_context(self.trunk)
            stack.enter_context(self._accelerated())
            self._spread_out()
            if self.processes.first:
                logs = Logs.opened(run, settings.log_to, self.step if resumed else None)
                self._logs = stack.enter_context(logs)
            if not resumed:
                self._validate()
                self._save(run)
            stopped = False  # agreed on by all processes; a signal that comes while they agree counts the next time
            self._noted = time.monotonic()
            for wait, passes in self._updates(updates):
                self._waited += wait
                try:
                    outcome = self._update(passes)
                finally:  # the update before: a GPU has done it meanwhile, and has this one to go on with
                    self._settle(progress)  # where this one fails, that one may be why
                self._pending = outcome
                last = self.step == updates
                validating = self.step % settings.validate_every == 0 or last
                if validating or not self.ahead:
                    self._settle(progress)
                if validating:
                    self._validate()
                    self._noted = time.monotonic()
                stopped = self._agreed_to_stop()
                if self.step % settings.save_every == 0 or last or stopped or self.best_is_now:
                    self._settle(progress)
                    self._save(run)
                    self._noted = time.monotonic()
                if stopped and not last:
                    break
            assert self.best is not None
            step, validation = self.best
            return Finished(run.folder, self.step, step, validation, stopped and self.step < updates)

    def _folder(
        self, stack: contextlib.ExitStack, out: Path, resume: bool, go: Mapping[str, str], beside: Sequence[str]
    ) -> RunDirectory:
        """The run's folder: begun by the first process, only read by the others."""
        known = facts() | {"processes": f"{self.processes.world} ({self.processes.mode})", **go}
        begin = RunDirectory.begin(
            out, dump(self.settings), known, resume, LAYOUT, defaults(TrainSettings), beside, self.learnable
        )
        return self.processes.by_first(lambda: stack.enter_context(begin)) or RunDirectory(out)

    def _accelerated(self) -> contextlib.AbstractContextManager[bool]:
        """Once it is known what trains."""
        return accelerated(self.learner, self.settings, self.device, whole_weights=self.processes.mode != "fsdp")

    def _spread_out(self) -> None:
        """Lay the learner out on the processes, once it is what the run goes on from."""
        if self.optimiser is None or self.processes.mode == "single":
            return
        self.learner.enter(self.method.stage_at(self.step, self.settings.updates)[0])
        if self.processes.mode == "ddp":
            trained = [p for group in self.optimiser.param_groups for p in group["params"]]
            self.model = ReplicatedModel(self.learner, trained)
            return
        state = self.optimiser.state_dict()
        self.model = ShardedModel(self.learner, self.processes)
        self.optimiser = self._optimiser()
        load_whole(self.optimiser, state)

    def _pace(self, since: float, on_gpu: float | None) -> dict[str, float]:
        """How fast an update went: clips of all processes, and on a GPU the most memory that this one has used.

        `since` the last one was logged; `on_gpu`: of these seconds, those of the update itself, where a GPU tells.
        """
        settings = self.settings
        seconds = since - self._waited if on_gpu is None else min(on_gpu, since)
        wait = min(self._waited, max(0.0, since - seconds))  # a host that is ahead waits while the GPU works
        clips = self.processes.world * settings.batch * settings.accumulate
        pace = {"seconds": seconds, "wait": wait, "processes": self.processes.world}
        pace["clips_per_s"] = clips / max(since, 1e-9)
        if self.device.type == "cuda":
            pace["memory_gib"] = torch.cuda.max_memory_allocated(self.device) / 2**30
        return pace

    def _settle(self, progress: Callable[[int, int, str], object] | None) -> None:
        """Log the update that is pending, when it is known what it did; it is refused where that is not finite."""
        outcome, self._pending = self._pending, None
        if outcome is None:
            return
        record, now = outcome.record(), time.monotonic()
        record |= self._pace(now - self._noted, outcome.seconds())
        self._log(record, outcome.step)
        self._warn(record, outcome.step)
        if progress is not None:
            share = record["wait"] / max(now - self._noted, 1e-9)
            text = f"loss {record['loss']:.4f}, {record['clips_per_s']:.3g} clips/s, waiting for data {share:.0%}"
            progress(outcome.step, self.settings.updates, text)
        self._noted, self._waited = now, 0.0

    def _agreed_to_stop(self) -> bool:
        """Whether some process was told to. Of several that are ahead each hears of it an update later."""
        if self.processes.world == 1 or not self.ahead:
            return self.processes.any(self._stopped)
        asked, self._asked = (
            self._asked,
            Later(self.processes.sum(torch.full((), float(self._stopped), device=self.device))),
        )
        return asked is not None and any(asked.read())

    def _log(self, record: dict[str, float], step: int) -> None:
        if self._logs is not None:
            self._logs.log({"step": step, **record})

    @property
    def best_is_now(self) -> bool:
        return self.best is not None and self.best[0] == self.step

    def _updates(self, updates: int) -> Iterator[tuple[float, list[tuple[Batch, int]]]]:
        """The passes of each remaining update, and how long they were waited for."""
        source = iter(self.batches)
        while self.step < updates:
            started = time.monotonic()
            passes = list(itertools.islice(source, self.settings.accumulate))
            yield time.monotonic() - started, passes

    def _update(self, passes: list[tuple[Batch, int]]) -> Outcome:
        assert self.optimiser is not None
        update = self._updating(self.optimiser)
        update.begin(self.step)
        stage = self.learner.stage
        made = (self.batches.complete(batch, stage, self.step, epoch, self.device) for batch, epoch in passes)
        outcome = update(self.step, made, len(passes))
        self.step += 1
        return outcome

    def _optimiser(self) -> torch.optim.Optimizer:
        settings = self.settings
        return self.learner.optimiser(settings.lr, settings.weight_decay, settings.rates)

    def _updating(self, optimiser: torch.optim.Optimizer) -> Update:
        return Update(
            self.settings, self.learner, self.model, optimiser, self.device, self.processes, self.scales, self.trunk
        )

    def _warn(self, record: dict[str, float], step: int) -> None:
        """Gates and edges that no longer open turn the model into its own control: say so once, loudly."""
        for pathway in PATHWAYS:
            if pathway.closed(record) and pathway not in self._warned:
                self._warned.add(pathway)
                log.warning(
                    "%s, step %d: %s is %.2g: this pathway has died and the model is its own control. Lower lr or "
                    "branch_rate, raise the loss that keeps it alive, or keep gate_prior and edge_prior on",
                    self._name, step, pathway.measure, record[pathway.measure],
                )  # fmt: skip

    def _validate(self) -> None:
        batches = validation_batches(self.evaluation, self.validation_packets)
        found = validate(
            self.learner, batches, self.settings.replication, self.device, self._precision(), self.model,
            self.processes, self.trunk,
        )  # fmt: skip
        self._log(found.record(), self.step)
        provisional = self.best is None or (self.best[0] == 0 < self.step)  # where it began is not what was trained
        if provisional or found.better_than(self.best[1] if self.best else None):
            self.best = (self.step, found)
        if self.first_rank is None:
            self.first_rank = found.rank_me
        elif found.rank_me < RANK_FALLS * self.first_rank:
            log.warning(
                "%s, step %d: RankMe of the target tokens fell from %.1f to %.1f: the representation is collapsing. "
                "Lower the encoder's rate or train fewer blocks", self._name, self.step, self.first_rank, found.rank_me,
            )  # fmt: skip

    def _save(self, run: RunDirectory) -> None:
        assert self.best is not None
        first = self.processes.first
        weights = whole(self.learner.weights(), keep=first)
        state = {
            "learner": whole(self.learner.state(), keep=first),
            "optimiser": whole(self.optimiser.state_dict(), keep=first) if self.optimiser else None,
            "loader": self.loader.state_dict(),
            "best": [self.best[0], dataclasses.asdict(self.best[1])],
            "first_rank": self.first_rank,
        }
        if not first or self.step in run.steps():
            return
        run.save(self.step, weights, state)
        if self.best_is_now:
            run.mark_best(self.step)
        run.prune(self.settings.keep)

    def _load(self, run: RunDirectory) -> None:
        self.step = run.steps()[-1]
        weights, state = run.load(self.step, self.device)
        chosen = tuple(state["learner"]["chosen"])
        if chosen != self.learner.scope.chosen:  # a probe pass on another machine may come out otherwise
            self.learner.scope = dataclasses.replace(self.learner.scope, chosen=chosen)
            self.optimiser = self._optimiser()
            self.trunk = self._trunk()
        put_back(self.learner, self.step, self.settings.updates, weights, state["learner"])
        if self.optimiser is not None:
            self.optimiser.load_state_dict(state["optimiser"])
        self.loader.load_state_dict(state["loader"])
        step, values = state["best"]
        self.best = (int(step), Validation(**{**values, "curve": tuple(values["curve"])}))
        self.first_rank = state["first_rank"]
        if self.processes.first:
            run.forget_after(self.step)

    def _learner(self, backbone: Backbone) -> Learner:
        settings, method = self.settings, self.method
        tokens = None
        if getattr(method.predictor, "dictionaries", "random") != "random":
            tokens = self._start_tokens(backbone)
        scope = settings.scope
        if method.encoder == "chosen":
            scope = dataclasses.replace(scope, chosen=self._chosen_blocks(backbone))
        backbone.encoder.recompute = settings.recompute
        learner = Learner(backbone, method, scope, settings.momentum, settings.context, settings.seed, tokens)
        learner.predictor.set_recompute(settings.recompute)
        if tokens is not None and isinstance(learner.predictor, FactorizedPredictor) and self.processes.first:
            report_loss(learner.predictor, tokens)
        return learner.to(self.device)

    def _trunk(self) -> Trunk | None:
        """What the frozen blocks make of the clips, if the settings ask for it to be kept."""
        settings = self.settings
        if settings.trunk_cache is None:
            return None
        if self.processes.mode == "fsdp":
            raise TrainingError(
                "trunk_cache works with whole weights: a process that finds a clip in the cache would leave the others "
                "waiting for its slices. Leave it out, or set parallel=ddp"
            )
        cut = lowest_trained(self.learner.weights(), self.learner.spec.depth)
        if not cut:
            refuse_trunk(self.method)
        clips = [clip.clip_id for loader in (self.loader, self.evaluation) for clip in loader.clips]
        return trunk_of(
            settings, self.learner.encoder, cut, clips, self.corpus, in_bf16(settings, self.device), self.processes.rank
        )

    def _interpolate(self, base: RunDirectory, share: float) -> None:
        """WiSE-FT: the encoder between the pretrained one and the base run's best, the predictor the base run's."""
        method = settings_of(base).method
        if method != FULL.name:
            raise TrainingError(f"{base.folder}: is a run of {method!r}; WiSE-FT starts from one of {FULL.name!r}")
        self.learner.enter(0)  # the momentum encoder and the reference keep the pretrained weights
        adapted = base.weights(device=self.device)
        pretrained = {name: tensor for name, tensor in self.learner.weights().items() if name.startswith("encoder.")}
        encoder = {name: tensor for name, tensor in adapted.items() if name.startswith("encoder.")}
        self.learner.load_weights(adapted | interpolate(pretrained, encoder, share))

    def _start_tokens(self, backbone: Backbone) -> StartTokens:
        """What the dictionaries start from: the future of the first training clips, true and as predicted so far."""
        settings = self.settings
        first = Loader(self.training, settings.window, 1, settings.seed, replication=settings.replication)
        videos = (batch.video(self.device) for batch in itertools.islice(first, settings.dictionary_clips))
        with self._precision():
            return start_tokens(backbone, videos, settings.context)

    def _chosen_blocks(self, backbone: Backbone) -> tuple[int, ...]:
        """Auto-RGN's one fixed gradient-probe pass, with the plain monolithic predictor."""
        settings = self.settings
        probing = Learner(backbone, FULL, settings.scope, settings.momentum, settings.context, settings.seed)
        probing.to(self.device)

        def loss(step: int, batch: Batch) -> Tensor:
            made = training_batch(batch, batch.video(self.device), None, epoch=0)
            with self._precision():
                return loss_of(probing, made, None, settings, step, self.processes)[0]

        batches = enumerate(self._first_batches(settings.probe_batches))
        losses = (functools.partial(loss, *one) for one in batches)
        norms = relative_gradient_norms(backbone.encoder, losses, self.processes)
        chosen = choose_blocks(norms, settings.trainable_blocks)
        log.info("Auto-RGN: blocks %s train; relative gradient norms %s", chosen, [f"{norm:.2g}" for norm in norms])
        return chosen

    def _first_batches(self, count: int) -> Iterator[Batch]:
        """The first batches of the first epoch, without moving the loader."""
        before = self.loader.state_dict()
        yield from itertools.islice(iter(self.loader), min(count, len(self.loader)))
        self.loader.load_state_dict(before)

    def _precision(self) -> torch.autocast:
        return precision(self.settings, self.device)
