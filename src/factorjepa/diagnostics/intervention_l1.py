"""Intervention L1: does the prediction change as the future does when a region is edited? (appendix D)

Shapes: B clips, t target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..scores import DiagnosticInfo
from .altered import Edited, Source
from .asks import Answers, Ask, Predict
from .diagnostic import Diagnostic, Part
from .interventions import EDITS
from .resimulation import COUNTERFACTUAL, RENDERED, removed_agents
from .scene import Scene
from .views import ORIGINAL, View


@dataclass(frozen=True)
class Response:
    """How one intervention changed prediction and target, clip by clip; mean absolute changes per dimension."""

    error_B: Tensor  # |dY_hat - dY*|
    effect_B: Tensor  # |dY*|
    change_B: Tensor  # |dY_hat|
    local_error_B: Tensor  # the first two on the tokens whose target changes most
    local_effect_B: Tensor
    there_B: Tensor  # bool, whether the clip has the intervention

    def normalised(self, epsilon: float) -> Tensor:
        """eq. e_{n,a}^int."""
        return self.error_B / (epsilon + self.effect_B)


class InterventionL1(Diagnostic):
    """Mean over a clip's retained interventions. A clip without any has no score: the paper's formula would say 0.

    Predicting no change scores 1 (but for epsilon), and a change at the wrong place more: what is missing and what is
    too much both count. `true_region` follows an agent, so it asks where the agent goes; `true_region_held` does not.
    """

    info = DiagnosticInfo(
        name="intervention_l1",
        title="Intervention L1",
        formula="mean over edits a of |dY_hat_a - dY*_a|_1 / (eps + |dY*_a|_1)",
        direction="lower",
        unit="share of the target's change, clip",
        status="primary",
        evaluator="edits of what moves by optical flow; frozen pretrained encoder",
        provenance="the generator sees the flow of the context alone, never the teacher; counterfactuals take out the "
        "agent that others depended on most in the context",
    )

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        if part.role != "measure":
            return ()
        views: list[View] = [ORIGINAL, *self._views("flow")]
        if part.truth:
            views += self._views("truth")
        if part.simulated:
            views += [RENDERED, COUNTERFACTUAL]
        return [Predict(view) for view in views]

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        settings = self.settings.interventions
        flow = [self._edited(scene, answers, view) for view in self._views("flow")]
        none = "nothing moves by itself"
        retained_B = torch.stack([one.there_B for one in flow]).sum(0)
        self.put(scene.clips, "retained", retained_B)
        self._mean(scene, "pooled", flow, [one.normalised(settings.epsilon) for one in flow], none)
        self._mean(scene, "numerator", flow, [one.error_B for one in flow], none)
        self._mean(scene, "denominator", flow, [one.effect_B for one in flow], none)
        self._mean(scene, "near_zero", flow, [(one.effect_B < settings.near_zero).double() for one in flow], none)
        self._companions(scene, "", flow, none)
        for kind in EDITS:
            of_kind = [one for one, view in zip(flow, self._views("flow"), strict=True) if view.kind == kind]
            self._mean(scene, f"edit/{kind}", of_kind, [one.normalised(settings.epsilon) for one in of_kind], none)
        for factor in (0.1, 10.0):
            epsilon = settings.epsilon * factor
            self._mean(scene, f"alt/epsilon_{epsilon:g}", flow, [one.normalised(epsilon) for one in flow], none)
        moving = [_with(one, one.effect_B >= settings.near_zero) for one in flow]
        values = [one.normalised(settings.epsilon) for one in moving]
        self._mean(scene, f"alt/minimum_{settings.near_zero:g}", moving, values, "no edit changes the target enough")
        if part.truth:
            true = [self._edited(scene, answers, view) for view in self._views("truth")]
            self._mean(scene, "true_region", true, [o.normalised(settings.epsilon) for o in true], "no agent is seen")
            self._companions(scene, "true_region_", true, "no agent is seen")
            held = [
                self._response(scene, answers, ORIGINAL, view, one.there_B, still)
                for view, still, one in zip(self._views("truth"), self._views("held"), true, strict=True)
            ]
            why, values = "no agent is seen", [one.normalised(settings.epsilon) for one in held]
            self._mean(scene, "true_region_held", held, values, why)
        if part.simulated:
            there = torch.tensor([agent is not None for agent in removed_agents(scene)])
            one = self._response(scene, answers, RENDERED, COUNTERFACTUAL, there)
            self._mean(scene, "counterfactual", [one], [one.normalised(settings.epsilon)], "no agent is seen")
            self._companions(scene, "counterfactual_", [one], "no agent is seen")

    def _companions(self, scene: Scene, prefix: str, responses: Sequence[Response], why: str) -> None:
        """Where it matters most, and by how much the prediction reacts at all (decision D17)."""
        epsilon = self.settings.interventions.epsilon
        local = [one.local_error_B / (epsilon + one.local_effect_B) for one in responses]
        self._mean(scene, f"{prefix}localised", responses, local, why)
        size = [one.change_B / (epsilon + one.effect_B) for one in responses]
        self._mean(scene, f"{prefix}magnitude", responses, size, why)

    def _mean(
        self, scene: Scene, variant: str, responses: Sequence[Response], values: Sequence[Tensor], why: str
    ) -> None:
        """eq. e_n^int: over the interventions that the clip has; none has no value."""
        there_aB = torch.stack([one.there_B for one in responses])
        sums_B = torch.where(there_aB, torch.stack(list(values)).double(), 0.0).sum(0)
        self.put(scene.clips, variant, sums_B / there_aB.sum(0), why)

    def _edited(self, scene: Scene, answers: Answers, view: Edited) -> Response:
        return self._response(scene, answers, ORIGINAL, view, torch.from_numpy(view.there(scene)))

    def _response(
        self, scene: Scene, answers: Answers, before: View, after: View, there_B: Tensor, became: View | None = None
    ) -> Response:
        """eq. dY_hat_{n,a} and dY*_{n,a}. `became` is another future of the same edited context."""
        predicted = answers[Predict(after)].tokens_BtD - answers[Predict(before)].tokens_BtD
        target = (scene.target(became or after) - scene.target(before)).to(predicted)
        error_Bt, effect_Bt = (predicted - target).abs().mean(-1), target.abs().mean(-1)
        count = max(1, round(self.settings.interventions.localised * effect_Bt.shape[1]))
        most_Bk = effect_Bt.topk(count, dim=1).indices
        return Response(
            error_B=error_Bt.mean(1).cpu(),
            effect_B=effect_Bt.mean(1).cpu(),
            change_B=predicted.abs().mean((1, 2)).cpu(),
            local_error_B=error_Bt.gather(1, most_Bk).mean(1).cpu(),
            local_effect_B=effect_Bt.gather(1, most_Bk).mean(1).cpu(),
            there_B=there_B,
        )

    def _views(self, source: Source) -> list[Edited]:
        regions = range(self.settings.interventions.regions)
        return [Edited(kind, region, source) for region in regions for kind in EDITS]


def _with(response: Response, keep_B: Tensor) -> Response:
    return Response(**{**vars(response), "there_B": response.there_B & keep_B})
