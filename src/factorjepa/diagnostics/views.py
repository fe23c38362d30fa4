"""Ways to show a clip: as it is, or altered. A view alters pixels and, with them, what can be known of the agents.

A view is a value that names itself, so that model and frozen encoder see each view of a batch once. Views of the
context must not read later frames: a prediction must not learn of the future from how its context was altered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..pixels import Frames
from ..teacher.states import EvidenceCells

if TYPE_CHECKING:
    from .scene import Scene


@dataclass(frozen=True)
class View(ABC):
    """Hashable; subclasses are frozen dataclasses."""

    @abstractmethod
    def frames(self, scene: Scene) -> Frames:
        """`uint8 [B, T, H, W, 3]`."""

    def evidence(self, scene: Scene, cells: EvidenceCells) -> EvidenceCells:
        """What of the agents' evidence in the context this view still shows."""
        return cells


@dataclass(frozen=True)
class Original(View):
    """The clip as it is."""

    def frames(self, scene: Scene) -> Frames:
        return scene.frames_BTHW3


ORIGINAL = Original()
