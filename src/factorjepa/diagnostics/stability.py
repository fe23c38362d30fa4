"""Rollout-drift slope, L1-vs-dt decay and exposure-bias gap: how predictions hold out (appendix D, "Rollout and horizon
stability").

A model that is bad from the start has nothing to lose: the curves and their means stand beside the slopes.

Shapes: B clips, h horizons, t target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..scores import DiagnosticInfo
from .asks import PLAIN, Answers, Ask
from .continuing import FromEarly
from .diagnostic import Diagnostic, Part
from .mask_slope import slope
from .rollout import Rolled, RolloutDiagnostic
from .scene import Scene

_EVALUATOR = "frozen pretrained encoder, affine-free LayerNormed tokens"


class RolloutDrift(RolloutDiagnostic):
    """Slope of e_n^(q) over q: q1, q2, ... are the tubelets from where the rollout begins to the window's end."""

    info = DiagnosticInfo(
        name="rollout_drift",
        title="Rollout-drift slope",
        formula="least-squares slope over q of the L1 of tubelet q, predicted from its predecessors' predictions",
        direction="lower",
        unit="L1 per step, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance="begins `rollout.early` (2) tubelets before the context's end; predictions are lifted to context "
        "tokens by a ridge that is fitted on training clips with the method's own encoder",
    )

    def rolled(self, scene: Scene, rolled: Rolled) -> None:
        curve_hB = horizon_errors(rolled.steps_BtD, scene, self.settings.rollout.early)
        for q, error_B in enumerate(curve_hB, start=1):
            self.put(scene.clips, f"q{q}", error_B)
        self.put(scene.clips, "pooled", slope(range(1, len(curve_hB) + 1), curve_hB))
        self.put(scene.clips, "alt/mean", curve_hB.mean(0))


class ExposureGap(RolloutDiagnostic):
    """eq. g_n^exp. What a lift costs is in both errors: see `taught` beside Future-frame L1."""

    info = DiagnosticInfo(
        name="exposure_gap",
        title="Exposure-bias gap",
        formula="Future-frame L1 after the context's last tubelets were predicted less the same after they were told",
        direction="lower",
        unit="per token dimension, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance="both conditions are lifted alike and see the frames before these tubelets, and object states of "
        "these frames alone",
    )

    def rolled(self, scene: Scene, rolled: Rolled) -> None:
        free_B, taught_B = (horizon_errors(one, scene).mean(0) for one in (rolled.free_BtD, rolled.taught_BtD))
        self.put(scene.clips, "pooled", free_B - taught_B)
        self.put(scene.clips, "free", free_B)
        self.put(scene.clips, "taught", taught_B)


class HorizonDecay(Diagnostic):
    """Rise of the future-frame L1 with the time that is predicted ahead.

    `alt/early` is the same over more horizons: from the first frames alone to the window's end.
    """

    info = DiagnosticInfo(
        name="horizon_decay",
        title="L1-vs-dt decay",
        formula="least-squares slope of the L1 of each future tubelet over the time of its middle",
        direction="lower",
        unit="L1 per second, clip",
        status="secondary",
        evaluator=_EVALUATOR,
        provenance="all horizons are predicted in one go from the context",
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN, FromEarly(self.settings.rollout.early)) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        early = self.settings.rollout.early
        step = tubelet_seconds(scene)
        for variant, ask, before in (("pooled", PLAIN, 0), ("alt/early", FromEarly(early), early)):
            curve_hB = horizon_errors(answers[ask].tokens_BtD, scene, before)
            why = "one horizon alone has no slope"
            self.put(scene.clips, variant, slope([step * h for h in range(len(curve_hB))], curve_hB), why)
            if before:
                for h, error_B in enumerate(curve_hB, start=1):
                    self.put(scene.clips, f"early/h{h}", error_B)


def horizon_errors(tokens_BtD: Tensor, scene: Scene, early: int = 0) -> Tensor:
    """L1 of each predicted tubelet, `[h, B]` in double precision; `early` of them belong to the context."""
    target_BtD = scene.target(early=early).to(tokens_BtD)
    horizons = scene.grid[0] - scene.context_grid[0] + early
    error_Bt = (tokens_BtD - target_BtD).abs().mean(-1).double()
    return error_Bt.reshape(len(scene), horizons, -1).mean(2).T.cpu()


def tubelet_seconds(scene: Scene) -> float:
    """How much time a tubelet covers."""
    frames = scene.frames_BTHW3.shape[1] // scene.grid[0]
    return float(frames * (scene.times_BT[0, 1] - scene.times_BT[0, 0]))
