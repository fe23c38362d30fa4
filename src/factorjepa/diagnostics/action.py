"""Action top-1: whether a probe reads the clip's action from the prediction (appendix D, "Semantic probes").

Where the manifest names no actions, the classes are of motion: how fast the street moves by itself in the future, in
equally frequent bins of the training clips.
"""

from __future__ import annotations

import numpy as np

from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers
from .classifier import Classifier, indicators, pooled_tokens
from .diagnostic import Part
from .flow import future_descriptors
from .labels import ACTION, action_of
from .pooled import Pool
from .probed import Probed
from .probes import Array
from .scene import Scene

_UNSEEN = -1  # a class that no training clip has: nobody can answer it


class ActionTop1(Probed):
    """1 where the probe's first answer is the clip's action; `chance` is the most that one class for all can score."""

    info = DiagnosticInfo(
        name="action_top1",
        title="Action top-1",
        formula="1 if the class that W pool(Y_hat) finds most probable is the clip's, else 0; chance: the commonest "
        "class of the evaluated clips",
        direction="higher",
        unit="accuracy, clip",
        status="secondary",
        evaluator="actions of the manifest, else classes of future motion; ridge probe on indicators",
        provenance="column `action`, or bins of optical flow by training quantiles; probe fitted on training clips",
    )

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        speed_B = future_descriptors(scene)[..., -1].mean(1)
        self.pools[part.role].add(scene.clips, pooled_tokens(answers[PLAIN].tokens_BtD, scene), speed_B)

    def finish(self) -> None:
        fit, choose, measure = (self.pools[role] for role in ("fit", "choose", "measure"))
        named = any(action_of(clip) is not None for clip in fit.clips)
        fit_label, choose_label, label = _named(fit, choose, measure) if named else self._moving(fit, choose, measure)
        known, chosen = ~np.isnan(fit_label), choose_label >= 0
        classes = np.unique(fit_label[known])
        if len(classes) < 2 or not chosen.any():
            self.absent("training clips show fewer than two classes, or validation clips none", measure.clips)
            return
        is_fit, is_choose = (indicators(one.astype(np.intp), int(classes[-1]) + 1)
                             for one in (fit_label[known], choose_label[chosen]))  # fmt: skip
        probe = Classifier.fit(fit.x[known], is_fit, choose.x[chosen], is_choose, self.settings.probes.grid)
        why = f"the manifest has no {ACTION!r}"
        possible = label[~np.isnan(label) & (label != _UNSEEN)].astype(np.intp)
        commonest = np.argmax(np.bincount(possible, minlength=1))
        for variant, answer in (("pooled", probe.top(measure.x)), (CHANCE, commonest)):
            self.put(measure.clips, variant, np.where(np.isnan(label), np.nan, answer == label), why)

    def _moving(self, *pools: Pool) -> tuple[Array, ...]:
        """Classes by how much moves; the edges are quantiles of the first pool. None where nothing tells them apart."""
        classes = self.settings.actions.classes
        edges = np.quantile(pools[0].y, np.arange(1, classes) / classes)
        return tuple(np.searchsorted(edges, pool.y, side="right").astype(np.float64) for pool in pools)


def _named(*pools: Pool) -> tuple[Array, ...]:
    """Numbers of the manifest's actions in the first pool; NaN where it names none."""
    actions = [[action_of(clip) for clip in pool.clips] for pool in pools]
    known = sorted({action for action in actions[0] if action is not None})

    def number(action: str | None) -> float:
        return np.nan if action is None else known.index(action) if action in known else _UNSEEN

    return tuple(np.array([number(action) for action in of_pool], np.float64) for of_pool in actions)
