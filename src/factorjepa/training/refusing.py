"""What a run refuses by its settings alone: said before anything is opened, and by a study before its first stage."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..adaptation import Method
from ..adaptation.method import NEW_BRANCHES
from ..adaptation.prepare import ADAPTERS
from ..backbones.masks import future_split
from ..backbones.spec import BackboneSpec, names, resolve
from ..errors import TrainingError
from ..words import listed
from .acceleration import refuse_bits
from .logs import refuse_missing
from .parallel import Processes
from .settings import TrainSettings


def accepted(settings: TrainSettings, device: torch.device, processes: Processes | None = None) -> Method:
    """The method that a run with these settings trains; an error where it could not begin."""
    processes = processes or Processes(device)
    processes.lay_out(settings.parallel)
    refuse_missing(settings.log_to)
    refuse_bits(settings, device, whole_weights=processes.mode != "fsdp")
    method = settings.resolved_method()
    if settings.arch in names():  # of a file the spec is known when it is opened
        refuse_misfit(settings, resolve(settings.arch), None)
    if (method.interpolation is None) != (settings.base is None):
        raise TrainingError(
            f"method {method.name!r} does not start from another run: leave out base=RUN"
            if settings.base
            else f"method {method.name!r} is made from a finished run of `full`: name it with base=RUN"
        )
    if settings.trunk_cache is not None and (not method.trains or method.encoder in ("all", *ADAPTERS)):
        refuse_trunk(method)
    return method


def refuse_idle(settings: TrainSettings, given: Iterable[str]) -> None:
    """What somebody set by name and this method has nothing to set with would pass for a change. Presets may say it."""
    method = settings.resolved_method()
    if idle := sorted(method.idle_settings.intersection(given)):
        more = "; gates are of methods that read agents" if idle == ["gate_rate"] else ""
        if "branch_rate" in idle and method.objective != "released" and method.predictor_scope in NEW_BRANCHES:
            more = ", or give it a branch: predictor.recalled=true is a look back"
        raise TrainingError(
            f"method {settings.method!r} has nothing that {listed(idle)} would change: leave "
            f"{'it' if len(idle) == 1 else 'them'} out{more}"
        )


def refuse_trunk(method: Method) -> None:
    why = "trains the encoder from its first block on" if method.trains else "makes no update"
    raise TrainingError(
        f"method {method.name!r} {why}: there is no trunk to keep. Train it without a trunk cache (in a study, name "
        "trunk_cache under `tuned` for the methods that have a trunk)"
    )


def refuse_misfit(settings: TrainSettings, spec: BackboneSpec, packets: int | None) -> None:
    """What would only show at the first batch: sizes that do not divide, a context without a future.

    `packets` have so many cells a side; None: none are read.
    """
    if settings.context % spec.tubelet:
        raise TrainingError(f"a context of {settings.context} frames is not whole tubelets of {spec.tubelet}")
    grid = spec.grid_of(settings.frames, settings.size, settings.size)
    future_split(grid, settings.context // spec.tubelet)
    if packets is not None and packets % grid[1]:
        raise TrainingError(
            f"packets have a grid of {packets} cells, {settings.size} px give {grid[1]} tokens a side: make packets "
            f"with targets.grid={grid[1]} or a multiple of it, into another folder"
        )
