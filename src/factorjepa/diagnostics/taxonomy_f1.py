"""Taxonomy F1: whether a probe reads from the prediction which kinds of agents are there (appendix D)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..corpus.manifest import Clip
from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers
from .classifier import Classifier, pooled_tokens
from .diagnostic import Part
from .labels import TAXONOMY, tags_of
from .probed import Probed
from .probes import Array
from .scene import Scene
from .settings import EvaluateSettings


class TaxonomyF1(Probed):
    """Rows `tp/c`, `fp/c`, `fn/c` of each clip for every class c that training clips show, in every clip alike.

    A class that no evaluated clip shows keeps its rows: nobody's list of classes is shorter than another's. `chance` is
    what who always says yes scores on these clips.
    """

    info = DiagnosticInfo(
        name="taxonomy_f1",
        title="Taxonomy F1",
        formula="mean over superclasses c of 2 tp_c / (2 tp_c + fp_c + fn_c); who always says yes to a class of "
        "frequency p scores 2 p / (1 + p)",
        direction="higher",
        unit="F1, clip and class",
        status="secondary",
        evaluator="the manifest's tags of dynamic agents; ridge probe on indicators",
        provenance="column `taxonomy` (simulated clips: from ground truth); probe fitted on training clips",
        headline="",
        reduction="macro_f1",
    )

    def __init__(self, settings: EvaluateSettings) -> None:
        super().__init__(settings)
        self._unlabelled: list[Clip] = []  # evaluated clips

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        x = pooled_tokens(answers[PLAIN].tokens_BtD, scene)
        has = [b for b, clip in enumerate(scene.clips) if tags_of(clip) is not None]
        if has:
            self.pools[part.role].add([scene.clips[b] for b in has], x[has], np.zeros((len(has), 0)))
        if part.role == "measure":
            self._unlabelled += [clip for clip in scene.clips if tags_of(clip) is None]

    def finish(self) -> None:
        fit, choose, measure = (self.pools[role] for role in ("fit", "choose", "measure"))
        if self._unlabelled:
            self.absent(f"the manifest has no {TAXONOMY!r}", self._unlabelled)
        classes = sorted({tag for clip in fit.clips for tag in tags_of(clip) or ()})
        if not len(measure):
            return
        if not classes or not len(choose):
            self.absent(f"no training or no validation clip has a {TAXONOMY!r}", measure.clips)
            return
        strange = [clip for clip in measure.clips if set(tags_of(clip) or ()) - set(classes)]
        if strange:
            self.absent("it shows a class that no training clip does, which has no F1", strange)
        shown_fit, shown_choose, shown = (_shown(pool.clips, classes) for pool in (fit, choose, measure))
        probe = Classifier.fit(fit.x, shown_fit, choose.x, shown_choose, self.settings.probes.grid)
        said, there = probe.present(measure.x), shown > 0
        for rows, counted in (("tp", said & there), ("fp", said & ~there), ("fn", ~said & there)):
            for number, name in enumerate(classes):
                self.put(measure.clips, f"{rows}/{name}", counted[:, number].astype(np.float64))
        frequency_K = there.mean(0)
        self.put(measure.clips, CHANCE, np.full(len(measure), (2 * frequency_K / (1 + frequency_K)).mean()))


def _shown(clips: Sequence[Clip], classes: Sequence[str]) -> Array:
    """`[n, K]` which classes the clips show."""
    return np.array([[float(name in (tags_of(clip) or ())) for name in classes] for clip in clips])
