"""Mask-ratio slope: how much worse the prediction becomes as the context is hidden (appendix D).

A model that is bad at full context has a small slope: the curve and its area stand beside it (decision D17).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..scores import DiagnosticInfo
from .asks import Answers, Ask, Predict
from .diagnostic import Diagnostic, Part
from .scene import Scene


class MaskSlope(Diagnostic):
    """eq. beta_n^mask of Future-frame L1; of MSE beside it."""

    info = DiagnosticInfo(
        name="mask_slope",
        title="Mask-ratio slope",
        formula="least-squares slope of Future-frame L1 over the hidden share of the context",
        direction="lower",
        unit="L1 per unit of hidden share, clip",
        status="primary",
        evaluator="frozen pretrained encoder; fixed mask sampler",
        provenance="masks depend on clip and realisation alone and hide the evidence about agents as well",
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        if part.role != "measure":
            return ()
        return [ask for share in self.settings.masks.hidden for ask in self._of(share)]

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        hidden = self.settings.masks.hidden
        curves: dict[str, list[Tensor]] = {"": [], "mse/": []}
        for share in hidden:
            apart = []
            for ask in self._of(share):
                predicted_BtD = answers[ask].tokens_BtD
                apart.append(predicted_BtD - scene.target().to(predicted_BtD))
            curves[""].append(torch.stack([one.abs().mean((1, 2)) for one in apart]).mean(0).double().cpu())
            curves["mse/"].append(torch.stack([one.square().mean((1, 2)) for one in apart]).mean(0).double().cpu())
        for prefix, curve in curves.items():
            curve_RB = torch.stack(curve)
            for share, error_B in zip(hidden, curve_RB, strict=True):
                self.put(scene.clips, f"{prefix}hidden_{share:g}", error_B)
            slope_B = slope(hidden, curve_RB)
            self.put(scene.clips, "pooled" if not prefix else "mse/slope", slope_B)
            self.put(scene.clips, f"alt/{prefix}relative", slope_B / curve_RB[0], "no error at full context")
            self.put(scene.clips, f"alt/{prefix}auc", area(hidden, curve_RB))

    def _of(self, share: float) -> list[Predict]:
        """K realisations; without a mask they are one."""
        realisations = self.settings.masks.realisations if share else 1
        return [Predict(hidden=share, realisation=k) for k in range(realisations)]


def slope(shares: Iterable[float], curve_RB: Tensor) -> Tensor:
    """Least-squares slope of each column."""
    r_R = torch.tensor(list(shares), dtype=curve_RB.dtype)
    apart_R = r_R - r_R.mean()
    return (apart_R[:, None] * (curve_RB - curve_RB.mean(0))).sum(0) / apart_R.square().sum()


def area(shares: Iterable[float], curve_RB: Tensor) -> Tensor:
    """Masking AUC: the mean of the curve over the range of shares, by trapezoids."""
    r_R = torch.tensor(list(shares), dtype=curve_RB.dtype)
    return torch.trapezoid(curve_RB, r_R, dim=0) / (r_R[-1] - r_R[0])
