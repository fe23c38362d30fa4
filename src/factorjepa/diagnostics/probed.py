"""What diagnostics share that read something from predictions with a probe: pooled features of all three parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .asks import PLAIN, Ask
from .diagnostic import Diagnostic, Part, Role
from .pooled import Pool
from .settings import EvaluateSettings


class Probed(Diagnostic):
    """The plain prediction of every clip; `finish` fits on the first pool, chooses by the second, answers the third."""

    def __init__(self, settings: EvaluateSettings) -> None:
        super().__init__(settings)
        self.pools: dict[Role, Pool] = {"fit": Pool(), "choose": Pool(), "measure": Pool()}

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN,)
