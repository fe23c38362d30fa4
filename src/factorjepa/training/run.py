"""A run's folder: what was asked, what happened, and from where to go on.

    config.yaml  environment.json  commands.txt  metrics.jsonl  events/  best -> checkpoints/step-000500
    checkpoints/step-000500/{weights.safetensors,state.pt}

A checkpoint is a folder that is renamed into place when it is whole. After a kill at any moment the last whole one
stands, and `metrics.jsonl` is cut back to it, so that the record of a resumed run is that of an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from torch import Tensor

from .. import commands
from ..corpus.manifest import Clip
from ..corpus.seal import seal, unbroken
from ..errors import TrainingError
from ..storage import PARTIAL, only_writer, refuse_busy, write_text, writing
from .pathways import closed_at_the_end
from .sealed import read_sealed, sealed_settings, write_sealed

CONFIG, ENVIRONMENT, METRICS, EVENTS, CHECKPOINTS, BEST = (
    "config.yaml", "environment.json", "metrics.jsonl", "events", "checkpoints", "best"
)  # fmt: skip
JUDGED_BY = "val/future_l1"  # lower is better: what chooses a run's checkpoint, and settings where validation chooses
LEARNED_FROM = "learned from"  # in the environment: which clips
AT_A_TIME, SINCE = "runs at a time", "since"  # in the environment of a run that was trained together with others
PLACES = ("data", "targets", "weights", "base", "windows", "trunk_cache", "lpips")  # settings that say where things are
Weights = dict[str, Tensor]


class RunDirectory:
    """Open with `begin` (a new run, or the same one again with `resume`) or `existing` (to read)."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self._begun_with: str | None = None  # whatever somebody makes of the file meanwhile

    @classmethod
    @contextlib.contextmanager
    def begin(
        cls, folder: Path, config: str, environment: dict[str, Any], resume: bool, layout: Sequence[str] = (),
        defaults: Mapping[str, Any] | None = None, beside: Sequence[str] = (), clips: Sequence[Clip] = (),
    ) -> Iterator[RunDirectory]:  # fmt: skip
        """The folder for writing, by one process at a time.

        A folder that holds a run is refused unless `resume`, and then only with the same configuration, except for the
        keys of `layout` and for where what lies `beside` it is, and on the same `clips` to learn from. A run that never
        reached its first checkpoint (its settings were refused, say) begins anew.
        """
        run = cls(folder)
        run.refuse_taken(resume)
        started = bool(run.steps())
        with only_writer(run.folder, "training"):
            if started:
                run.refuse_altered(layout, defaults)
                run.refuse_other(config, layout, defaults, beside=beside)
                run.refuse_other_clips(clips)
            else:
                for name in (METRICS, commands.FILE):
                    (run.folder / name).unlink(missing_ok=True)
                shutil.rmtree(run.folder / EVENTS, ignore_errors=True)
                learned = {LEARNED_FROM: seal(clips)} if clips else {}
                write_text(run.folder / ENVIRONMENT, json.dumps(environment | learned, indent=2))
            write_text(run.folder / CONFIG, config)
            run._begun_with = config
            commands.record(run.folder)
            for left_over in (run.folder / CHECKPOINTS).glob(f".*{PARTIAL}"):
                shutil.rmtree(left_over)
            yield run

    def refuse_taken(self, resume: bool) -> None:
        """An error unless a run may begin here. One that never reached its first checkpoint may begin anew."""
        refuse_busy(self.folder, "training")
        started = (self.folder / CONFIG).exists()
        if not started and self.folder.exists() and any(not e.name.startswith(".") for e in self.folder.iterdir()):
            raise TrainingError(f"{self.folder}: is not empty and holds no run; choose an empty folder")
        if self.steps() and not resume:
            raise TrainingError(
                f"{self.folder}: already holds a run; add --resume to go on with it, or choose another folder"
            )

    @classmethod
    def existing(cls, folder: Path) -> RunDirectory:
        run = cls(folder)
        if not (run.folder / CONFIG).is_file():
            if any(run.folder.glob(f"*/{CONFIG}")):
                raise TrainingError(f"{folder}: is not a run, but a folder of runs: name these, for example {folder}/*")
            raise TrainingError(f"{folder}: is not a run (it has no {CONFIG}); train one with `factorjepa train`")
        return run

    @property
    def config(self) -> str:
        return (self.folder / CONFIG).read_text(encoding="utf-8")

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        found = (self.folder / CHECKPOINTS).glob("step-*")
        return sorted(int(path.name.removeprefix("step-")) for path in found)

    def save(self, step: int, weights: Weights, state: dict[str, Any]) -> Path:
        """A checkpoint of `step`, whole or not at all."""
        final = self._checkpoint(step)
        temporary = final.with_name(f".{final.name}{PARTIAL}")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            with writing(final):
                temporary.mkdir(parents=True)
                write_sealed(temporary / "weights.safetensors", weights, self._begun_with or self.config)
                with open(temporary / "state.pt", "wb") as opened:  # a path would not tell why it could not be written
                    torch.save(state, opened)
                shutil.copymode(temporary / "state.pt", temporary / "weights.safetensors")  # was for the owner alone
                for path in (*temporary.iterdir(), temporary):
                    _fsync(path)
                os.rename(temporary, final)
                _fsync(final.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # there only if it failed
        return final

    def load(self, step: int, device: torch.device | str = "cpu") -> tuple[Weights, dict[str, Any]]:
        """What `save` was given."""
        folder = self._checkpoint(step)
        try:
            weights = read_sealed(folder / "weights.safetensors", device)
            state: dict[str, Any] = torch.load(folder / "state.pt", map_location=device, weights_only=True)
        except Exception as error:  # a damaged file fails in many ways, all with the same remedy
            raise TrainingError(
                f"{folder}: cannot be read ({error}); delete this checkpoint to --resume from the one before it, or "
                "train the run again"
            ) from error
        return weights, state

    def weights(self, which: str = BEST, device: torch.device | str = "cpu") -> Weights:
        """The weights of `best`, of `last`, or of a step by number."""
        folder = self._checkpoint(self._step_of(which))
        try:
            return read_sealed(folder / "weights.safetensors", device)
        except (OSError, ValueError, SafetensorError) as error:
            raise TrainingError(f"{folder}: cannot be read ({error}); train the run again") from error

    def mark_best(self, step: int) -> None:
        """Let `best` point to a checkpoint, in one rename."""
        temporary = self.folder / f".{BEST}{PARTIAL}"
        with writing(self.folder / BEST):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(Path(CHECKPOINTS) / f"step-{step:06d}")
            os.replace(temporary, self.folder / BEST)

    @property
    def best(self) -> int | None:
        """The step that `best` points to; None where nothing was chosen yet, or the chosen checkpoint was deleted."""
        link = self.folder / BEST
        return int(os.readlink(link).rpartition("step-")[2]) if link.is_symlink() and link.exists() else None

    def prune(self, keep: int) -> None:
        """Delete all checkpoints but the last `keep` and the best one."""
        for step in self.steps()[:-keep]:
            if step != self.best:
                shutil.rmtree(self._checkpoint(step))

    def log(self, record: dict[str, Any]) -> None:
        path = self.folder / METRICS
        with writing(path), open(path, "a", encoding="utf-8") as opened:
            opened.write(json.dumps(record) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """Everything logged, in order; a last line cut by a kill is left out."""
        path = self.folder / METRICS
        if not path.exists():
            return []
        records = []
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                records.append(json.loads(line))
        return records

    def process_seconds(self) -> float | None:
        """Time spent in updates, summed over the processes that made them; None where nothing was logged."""
        timed = [record for record in self.metrics() if "seconds" in record]
        return sum(record["seconds"] * record.get("processes", self._processes()) for record in timed) or None

    def updates_made(self) -> int | None:
        """The last update on record, whichever checkpoint was the best; None where nothing was logged."""
        return max((int(record["step"]) for record in self.metrics() if "step" in record), default=None)

    def error_before(self) -> float | None:
        """Validation error of the model before its first update; None where it was not logged."""
        began = (record.get(JUDGED_BY) for record in self.metrics() if record.get("step") == 0)
        return next((error for error in began if error is not None), None)

    def processes(self) -> tuple[int, ...]:
        """How many processes made the updates, each number once; empty where nothing was logged."""
        made = (record.get("processes", self._processes()) for record in self.metrics() if "seconds" in record)
        return tuple(dict.fromkeys(made))

    def closed(self) -> tuple[str, ...]:
        """Pathways of the model that had closed when the run ended, in words."""
        return closed_at_the_end(self.metrics())

    def trained_on(self) -> str:
        """The device of the go that began the run, how many runs it trained at a time, and since when."""
        known = self._environment()
        said = (known.get("device"), known.get(AT_A_TIME), known.get(SINCE))
        words = ("{}", "{} at a time", "since {}")
        return ", ".join(word.format(one) for word, one in zip(words, said, strict=True) if one)

    def _processes(self) -> int:
        """How many began the run: for records that do not say how many made an update."""
        try:
            return int(str(self._environment()["processes"]).split()[0])  # "8 (ddp)"
        except (ValueError, KeyError, IndexError):
            return 1

    def _environment(self) -> dict[str, Any]:
        """Empty where nothing can be read."""
        try:
            known = json.loads((self.folder / ENVIRONMENT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def forget_after(self, step: int) -> None:
        """Cut the record back to `step`: what came later will happen again."""
        kept = [record for record in self.metrics() if record["step"] <= step]
        write_text(self.folder / METRICS, "".join(json.dumps(record) + "\n" for record in kept))

    def _checkpoint(self, step: int) -> Path:
        return self.folder / CHECKPOINTS / f"step-{step:06d}"

    def _step_of(self, which: str) -> int:
        steps = self.steps()
        if not steps:
            raise TrainingError(f"{self.folder}: has no checkpoint yet")
        if which == "last":
            return steps[-1]
        step = self.best if which == BEST else int(which)
        if step is None:
            if (self.folder / BEST).is_symlink():
                raise TrainingError(f"{self.folder}: its best checkpoint was deleted: train it again")
            return steps[-1]
        if step not in steps:
            raise TrainingError(
                f"{self.folder}: has no checkpoint of step {which}; there are {', '.join(map(str, steps))}"
            )
        return step

    def refuse_other(
        self,
        config: str,
        layout: Sequence[str],
        defaults: Mapping[str, Any] | None = None,
        advice: str = f"Leave the settings out to resume with those in {CONFIG}, or start a new run in another folder",
        beside: Sequence[str] = (),
    ) -> None:
        """`defaults` are those of settings that a run of an earlier version may not have.

        Paths of `beside` lie in a folder together with the run, which may have been moved, or be named from elsewhere.
        """
        before, now = {**(defaults or {}), **yaml.safe_load(self.config)}, yaml.safe_load(config)
        same = {key for key in beside if _name(before.get(key)) == _name(now.get(key)) is not None}
        changed = [key for key in before | now if before.get(key) != now.get(key) and key not in (*layout, *same)]
        if not changed:
            return
        was, is_now = ("; ".join(f"{key}: {one[key]}" for key in changed if key in one) for one in (before, now))
        raise TrainingError(
            f"{self.folder}: the run was started with another configuration: {was or 'fewer settings'}; now there is "
            f"{is_now or 'fewer settings'}. {advice}"
        )

    def refuse_altered(self, layout: Sequence[str], defaults: Mapping[str, Any] | None = None) -> None:
        """Unless the settings are those under which its last checkpoint was trained; what lies where may have moved.

        A setting that the file has no more is its default. One that is none any more says nothing.
        """
        steps = self.steps()
        told = sealed_settings(self._checkpoint(steps[-1]) / "weights.safetensors") if steps else None
        if told is None:
            return
        had, says = yaml.safe_load(told), {**(defaults or {}), **yaml.safe_load(self.config)}
        changed = [key for key in had if key in says and had[key] != says[key] and key not in (*layout, *PLACES)]
        if changed:
            was, is_now = ("; ".join(f"{key}: {one[key]}" for key in changed) for one in (had, says))
            raise TrainingError(
                f"{self.folder / CONFIG}: was changed after the run was trained: it had {was}, and says {is_now}. Put "
                "it back; other settings are another run, in another folder"
            )

    def refuse_other_clips(self, clips: Sequence[Clip]) -> None:
        """Unless those that the run learned from, its checkpoint chosen by some of them. Runs of before did not say."""
        sealed = self._environment().get(LEARNED_FROM)
        if sealed is not None and not unbroken(sealed, clips):
            raise TrainingError(
                f"{self.folder}: was trained on another corpus, or on this one before it changed: on {sealed['clips']} "
                f"clips for training and validation, and these {len(clips)} are not the same. Train it anew in another "
                "folder, or give it the corpus that it had"
            )


def _name(path: object) -> str | None:
    return Path(path).name if isinstance(path, str) else None


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
