"""A study: one corpus, several methods and seeds under one protocol, from nothing to a report. Values, no code."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator

from .adaptation import method_named
from .adaptation.reference import FULL
from .backbones.packaged import packaged_weights
from .config import Settings, resolve
from .corpus.access import Corpus
from .corpus.simulated import SimulationPlan, enough_clips, planned, sources_of
from .corpus.splits import Split
from .corpus.windows import WindowSpec
from .diagnostics.settings import EvaluateSettings
from .errors import ConfigError
from .rendering.decoder import load_decoder
from .rendering.settings import DecodeSettings
from .teacher.settings import TeacherSettings
from .training.origin import check_weights
from .training.refusing import accepted, refuse_idle, refuse_misfit
from .training.settings import TrainSettings
from .training.several import Job
from .training.tuning import Candidate
from .words import AT, base_of, listed, nearest
from .world import WorldSettings

Stage = Literal["simulate", "targets", "strata", "tune", "train", "evaluate", "decode", "compare", "report"]
_WINDOW = ("frames", "fps", "context")  # what packets and runs must agree on
_OPTIONS = ("predictor", "losses")  # settings that hold several
_SHARED = (*_WINDOW, "size", "arch", "weights")  # what all runs have, because packets and evaluator are theirs together
# Settings of a single run that a study makes itself -> what to do instead.
_ITS_OWN = {
    "data": "set data",
    "method": "set methods",
    "seed": "set seeds",
    "targets": "leave it out; packets lie in the corpus, and `teacher` says how they are made",
    "base": "leave it out; methods that are made from a run of `full` find the study's",
    "windows": "leave it out; they lie in the study's folder, and windows=false makes none",
}
STAGES: tuple[Stage, ...] = (
    "simulate", "targets", "strata", "tune", "train", "evaluate", "decode", "compare", "report",
)  # fmt: skip


class StudySettings(Settings):
    """What `factorjepa study` does. Lists of `key=value` are handed to the verb of that stage as they are."""

    inside: ClassVar[Mapping[str, Collection[str]]] = {"training": TrainSettings.model_fields.keys() - _ITS_OWN}

    data: str | None = None  # a corpus that is there, of another study or of `ingest` (None: one is simulated)
    world: str = "dense"  # preset of `simulate`
    street: tuple[str, ...] = ()  # settings of `simulate`
    clips: int = Field(default=200, ge=20)
    clips_per_source: int = Field(default=5, ge=1)
    shares: tuple[float, float, float] = (0.8, 0.1, 0.1)  # of the sources, for train, validation and test
    world_seed: int = 7
    dealt_as: int | None = Field(default=None, ge=1)  # a pilot's: splits are those of a corpus of so many clips

    teacher: tuple[str, ...] = ()  # settings of `targets`
    teacher_device: Literal["cpu", "cuda"] | None = None  # a small teacher is faster on all cores than on one GPU

    preset: str = "nano"  # of `train`
    methods: tuple[str, ...] = ("frozen", "auto_rgn", "factorjepa_raw", "factorjepa")
    seeds: tuple[int, ...] = (17, 29, 43)
    training: dict[str, Any] = Field(default={})  # settings of every run
    # Method -> settings of its runs alone. `auto_rgn@long` has those of `auto_rgn` as well, unless it has its own.
    tuned: dict[str, dict[str, Any]] = Field(default={})
    # Setting of training -> values that every method that has it tries with the first seed; validation clips choose.
    tuning: dict[str, tuple[Any, ...]] = Field(default={})
    side_by_side: int | None = Field(default=None, ge=1)  # runs at a time (None: one per core; one on a GPU)
    windows: bool = True  # decode every window once and keep it, for all runs
    # Runs at a time, of methods that need no teacher, and the decoder, while the teacher looks at the clips (0: none).
    # The teacher works on the cores: for a machine with a GPU.
    beside_teacher: int = Field(default=0, ge=0)

    split: Literal["test", "audit", "validation"] = "test"
    tested: int | None = Field(default=None, ge=1)  # a stratified subset of at most this many clips
    measuring: tuple[str, ...] = ()  # settings of `evaluate`
    examples: int = Field(default=3, ge=0)
    decoder: Literal["auto", "packaged", "train", "none"] = "auto"  # who draws futures; train: one on this corpus
    # The methods whose futures are drawn, those of them that the study has (None: all).
    decoded: tuple[str, ...] | None = None
    decoded_clips: int | None = Field(default=None, ge=1)  # of the measured clips (None: all)
    decoding: dict[str, Any] = Field(default={})  # settings of `decode train`
    lpips: str | None = None  # weights of LPIPS; without them it is not available
    detector: str | None = None  # ONNX agent detector of decoded frames (None: the shipped one)
    mixed: bool = True  # the mixed-effects check of `compare`

    @field_validator("decoded")
    @classmethod
    def _somebodys(cls, decoded: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if decoded is not None and not decoded:
            raise ValueError("names no method whose futures are drawn; decoder=none draws none")
        return decoded

    @field_validator("methods", "seeds")
    @classmethod
    def _once(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if not values:
            raise ValueError("names none: a study needs at least one")
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is there more than once")
        return values

    @field_validator("tuning")
    @classmethod
    def _several(cls, tuning: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        few = sorted(
            name for name, values in tuning.items() if len(values) < 2 or len(values) > len(set(map(str, values)))
        )
        if few:
            raise ValueError(f"{', '.join(few)}: two or more different values are needed to choose from")
        return tuning

    def check(self) -> None:
        """What later stages would refuse after hours of work is refused now."""
        for name in (*self.methods, *(self.decoded or ()), *self.tuned):
            method_named(name)
        self._check_own()
        if self.data is not None and self.dealt_as is not None:
            raise ConfigError("dealt_as: the streets of data=CORPUS have their splits already; leave one of them out")
        resolve(WorldSettings, self.world, self.street)
        taught, run = resolve(TeacherSettings, None, self.teaching()), self._run()
        for name in _WINDOW:
            if (given := getattr(taught, name)) != (seen := getattr(run, name)):
                raise ConfigError(
                    f"teacher: {name}={given} is not what the runs see ({seen}): leave it out, or set training.{name}"
                )
        for name in _SHARED:
            own = [method for method, changes in self.tuned.items() if name in changes]
            if own or name in self.tuning:
                where = f"tuned: {own[0]}" if own else "tuning"
                raise ConfigError(
                    f"{where}: {name} is of all runs of a study, as packets and evaluator are: set training.{name}"
                )
        resolve(EvaluateSettings, None, self.measuring, split=self.split, clips=self.tested)
        for name in ("lpips", "detector"):
            path = getattr(self, name)
            if path is not None and not Path(path).is_file():
                raise ConfigError(f"{name}: there is no file {path}")
        if self.data is not None:
            there = {clip.split for clip in Corpus.open(Path(self.data)).manifest}
            if lacks := [str(one) for one in (Split.TRAIN, Split.VALIDATION, Split(self.split)) if one not in there]:
                raise ConfigError(f"data: {self.data} has no {listed(lacks)} clips; give it more sources, or others")
            if not os.access(self.data, os.W_OK):
                raise ConfigError(f"data: {self.data} is read-only, and packets and strata go into it; take a copy")
        tried = [one.job.settings for several in self.candidates(Path(), Path()).values() for one in several]
        self.draws()
        jobs = [job.settings for job in self.jobs(Path(), Path())]
        self._check_variants(jobs)
        for job in jobs:
            refuse_idle(job, self.tuned.get(job.method, {}))
        for name in self.unused():  # may still be wrong
            resolve(TrainSettings, self.preset, data="-", method=name, **self._values(name))
        spec, clips = check_weights(run.arch, run.weights), self._training_clips()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        for job in [*jobs, *tried]:
            method = accepted(job, device)
            refuse_misfit(job, spec, taught.targets.grid if method.reads_packets else None)
            job.budget(spec)
            shown = clips if job.clips is None else job.clips
            if not job.batch <= shown <= clips:
                less = f"clips={shown}" if shown > clips else f"batch={job.batch}"
                raise ConfigError(
                    f"{job.method}: {less} is more than the {min(shown, clips)} clips that there are to train on: set "
                    f"a smaller training.{less.partition('=')[0]}, or more clips"
                )

    def _check_own(self) -> None:
        """Runs that read other packets than the study makes, or start from elsewhere, would not be of this study."""
        places = {"training": self.training, "tuning": self.tuning}
        places |= {f"tuned: {method}": values for method, values in self.tuned.items()}
        for place, values in places.items():
            for name in values:
                if name not in (known := TrainSettings.model_fields):
                    raise ConfigError(
                        f"{place}: {name} is no setting of a run{nearest(name, known)}; there are: {', '.join(known)}"
                    )
        given = {name for values in places.values() for name in values}
        preset = resolve(TrainSettings, self.preset, data="-")
        given |= {name for name in ("targets", "base", "windows") if getattr(preset, name) is not None}
        if own := [f"{name} is the study's own: {instead}" for name, instead in _ITS_OWN.items() if name in given]:
            raise ConfigError(f"training, tuned, tuning or preset: {'. '.join(own)}")

    def _training_clips(self) -> int:
        """At most so many are there, or will be."""
        if self.data is not None:
            return sum(clip.split == Split.TRAIN for clip in Corpus.open(Path(self.data)).manifest)
        return sources_of(self._plan())[Split.TRAIN] * self.clips_per_source

    def _plan(self) -> SimulationPlan:
        world = resolve(WorldSettings, self.world, self.street)
        return planned(world, self.world_seed, self.clips, self.clips_per_source, self.shares, self.dealt_as)

    def check_sources(self, corpus: Path) -> None:
        """Refuse a corpus whose measured clips nothing could be concluded from."""
        sources = {clip.source for clip in Corpus.open(corpus).manifest if clip.split == self.split}
        if len(sources) < 2:
            raise ConfigError(
                f"{corpus}: its {self.split} clips come from one source, from which nothing can be said about another. "
                "Take a corpus of more sources (clips, clips_per_source, shares), or stop with --until evaluate"
            )

    def check_plan(self, compared: bool = True) -> None:
        """Refuse streets, still to be simulated, that no run could train on or that nothing could be concluded from."""
        plan = self._plan()
        given, measured = sources_of(plan), Split(self.split)
        streets = f"clips: {self.clips} in streets of {self.clips_per_source} leave"
        enough = enough_clips(plan, measured if compared else None)
        needed = (Split.TRAIN, Split.VALIDATION, measured)
        if lacks := [str(split) for split in dict.fromkeys(needed) if not given[split]]:
            shared = dict(zip((Split.TRAIN, Split.VALIDATION, Split.TEST), self.shares, strict=True))
            if none := [str(split) for split in dict.fromkeys(needed) if shared.get(split) == 0]:
                more = f"Give {listed(none)} a share: shares={list(self.shares)} are of train, validation and test"
            else:
                more = f"clips={enough} gives every split some" if enough else "set more clips, or other shares"
            what = {"train": "to learn from", "validation": "to choose checkpoints with"}
            missing = listed([f"{split} clips {what.get(split, 'to measure on')}" for split in lacks])
            raise ConfigError(f"{streets} no {missing}. {more}")
        if compared and given[measured] < 2:
            more = f"clips={enough} gives them two" if enough else "set more clips, or other shares"
            raise ConfigError(
                f"{streets} the {self.split} clips fewer than two sources, from which nothing can be said about "
                f"another. {more}; or stop with --until evaluate"
            )

    def _check_variants(self, jobs: Sequence[TrainSettings]) -> None:
        """Any word makes a variant: one that is misspelt, or the same as its method, would not be noticed."""
        if strange := [name for name in self.decoded or () if AT in name and name not in self.methods]:
            raise ConfigError(f"decoded: {listed(strange)} is not among the study's methods")
        ours = {job.method: job for job in jobs if job.seed == self.seeds[0]}
        for name, settings in ours.items():
            base = ours.get(base_of(name))
            if AT in name and base is not None and settings == base.of_method(name):
                raise ConfigError(
                    f"methods: {name} has the settings of {base.method}, and would come out the same; say what it "
                    f"changes, as in tuned={{{name}: {{lr: 0.0003}}}}"
                )

    def draws(self) -> Literal["packaged", "train", "none"]:
        """Who draws: of `auto`, the packaged decoder where it has met the runs' backbone and such windows."""
        settings = self.decode_settings(Path())
        if self.decoder != "auto":
            return self.decoder
        known = settings.weights is None and packaged_weights(f"{settings.arch}.decoder") is not None
        if not known:
            return "train"
        stored = load_decoder(None, settings.arch)
        strange = any(stored.never_met(settings.window(size), settings.context) for size in settings.sizes)
        return "train" if strange else "packaged"

    def decode_settings(self, data: Path) -> DecodeSettings:
        """Of a decoder for the runs' backbone at the size that they see."""
        run = resolve(TrainSettings, self.preset, data=str(data), **self.training)
        values = {"arch": run.arch, "weights": run.weights, "sizes": (run.size,), "frames": run.frames,
                  "fps": run.fps, "context": run.context, **self.decoding}  # fmt: skip
        return resolve(DecodeSettings, None, data=str(data), **values)

    @property
    def beside(self) -> tuple[str, ...]:
        """Settings of runs and decoder whose paths lie in the study's own folder, which may be moved."""
        return ("base", "data") if self.data is None else ("base",)

    def corpus(self, out: Path) -> Path:
        """Folder of the corpus: the one that is there, or else in the study's folder."""
        return out / Path(self.world).stem if self.data is None else Path(self.data)

    def looked_at(self) -> dict[int, list[str]]:
        """Which window of the clips (replication) -> the splits in which the teacher must look at it."""
        measuring = resolve(EvaluateSettings, None, self.measuring)
        found: dict[int, set[str]] = {}
        for window in (0, measuring.replication):  # strata are cut by the first; probes are fitted on the other splits
            found.setdefault(window, set()).update(("train", "validation", self.split))
        for job in self.jobs(Path(), Path()):
            window = job.settings.replication
            found.setdefault(window, set()).update(("train", "validation"))
            if method_named(job.settings.method).targets == "misaligned":
                found.setdefault(window + 1, set()).add("train")
        return {window: [str(split) for split in Split if split in found[window]] for window in sorted(found)}

    def teaching(self) -> list[str]:
        """Settings of `targets`: packets of the window that the runs see, with their context."""
        run = self._run()
        return [*(f"{name}={getattr(run, name)}" for name in _WINDOW), *self.teacher]

    def measured(self, windows: Path | None) -> list[str]:
        """Settings of `evaluate`, with the windows that were decoded before."""
        return [*self.measuring, *([f"windows={windows}"] if windows is not None else [])]

    def methods_decoded(self) -> tuple[str, ...]:
        """Those of the study whose futures are drawn."""
        return tuple(name for name in self.methods if self.decoded is None or name in self.decoded)

    def clips_decoded(self) -> int | None:
        """At most those that are measured."""
        asked = [count for count in (self.decoded_clips, self.tested) if count is not None]
        return min(asked, default=None)

    def shown(self) -> tuple[WindowSpec, int]:
        """What every run sees of a clip: the window's shape, and which one."""
        run = self._run()
        return run.window, run.replication

    def _run(self) -> TrainSettings:
        """What all runs have."""
        return resolve(TrainSettings, self.preset, data="-", **self.training)

    def candidates(self, data: Path, folder: Path, windows: Path | None = None) -> dict[str, list[Candidate]]:
        """Method -> the runs that try what is to be tuned, of those that train."""
        found: dict[str, list[Candidate]] = {}
        for name in self.methods if self.tuning else ():
            grid = self._grid(name)
            if not method_named(name).trains or grid == [{}]:
                continue
            for number, values in enumerate(grid):
                tuned = {name: {**self._own(name), **values}}
                alone = self.model_copy(update={"methods": (name,), "seeds": self.seeds[:1], "tuned": tuned})
                (job,) = alone.jobs(data, folder, windows)
                read = {key: getattr(job.settings, key) for key in values}  # 1e-3 of a YAML file is a word
                job = Job(job.settings, folder / f"{name}-{number}", self.beside)
                found.setdefault(name, []).append(Candidate(read, job))
            tried = [str(candidate.values) for candidate in found[name]]
            if twice := next((one for one in tried if tried.count(one) > 1), None):
                raise ConfigError(f"tuning: {twice} is there more than once")
        return found

    def _grid(self, name: str) -> list[dict[str, Any]]:
        """What a method tries: every combination, but for settings of what it does not have and those of a variant."""
        method = resolve(TrainSettings, self.preset, data="-", method=name, **self._values(name)).resolved_method()
        left_out = {*method.idle_settings, *(self.tuned.get(name, {}) if AT in name else ())}
        tuned = {key: values for key, values in self.tuning.items() if key not in left_out}
        return [dict(zip(tuned, values, strict=True)) for values in itertools.product(*tuned.values())]

    def with_chosen(self, chosen: Mapping[str, Mapping[str, Any]]) -> StudySettings:
        """This study with what validation chose for each method."""
        tuned = {name: {**self._own(name), **chosen.get(name, {})} for name in {*self.tuned, *chosen}}
        return self.model_copy(update={"tuned": tuned})

    def _own(self, name: str) -> dict[str, Any]:
        """Settings of a method's runs alone: a variant's are its method's, but for what it changes."""
        return _joined(self.tuned.get(base_of(name), {}), self.tuned.get(name, {}))

    def _values(self, name: str) -> dict[str, Any]:
        """Settings of a method's runs. Options of its predictor and losses are added to those that all runs have."""
        own, run = self._own(name), self._run()
        return {**self.training, **_joined({key: getattr(run, key) for key in _OPTIONS if key in own}, own)}

    def unused(self) -> list[str]:
        """Methods that `tuned` names, and no run is of."""
        return sorted(self.tuned.keys() - {*map(base_of, self.methods), *self.methods})

    def jobs(self, data: Path, folder: Path, windows: Path | None = None) -> list[Job]:
        """The runs. What does not train needs one seed. `windows` were decoded before."""
        jobs = []
        for name in self.methods:
            method = method_named(name)
            for seed in self.seeds if method.trains or method.interpolation is not None else self.seeds[:1]:
                values = {"windows": windows and str(windows), **self._values(name)}
                if method.interpolation is not None:
                    if FULL.name not in self.methods:
                        raise ConfigError(f"method {name!r} is made from runs of `{FULL.name}`: add that to methods")
                    values["base"] = str(folder / f"{FULL.name}-{seed}")
                settings = resolve(TrainSettings, self.preset, data=str(data), method=name, seed=seed, **values)
                jobs.append(Job(settings, folder / f"{name}-{seed}", self.beside))
        return jobs


def _joined(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with `changes`; of settings that hold several, what is changed is changed and the rest stays."""
    both = {key: (settings[key], changes[key]) for key in settings.keys() & changes.keys()}
    inside = {
        key: {**old, **new} for key, (old, new) in both.items() if isinstance(old, dict) and isinstance(new, dict)
    }
    return {**settings, **changes, **inside}
