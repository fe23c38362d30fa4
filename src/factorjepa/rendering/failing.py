"""Failures of decoded futures as scores: of every clip and symptom, 1 where it is there and 0 where it is not."""

from __future__ import annotations

from ..decoded import Failure, Strengths
from ..diagnostics.diagnostic import Part
from ..diagnostics.scene import Scene
from ..scores import DiagnosticInfo
from .diagnostics import NO_DETECTOR, PROVENANCE, DecodedDiagnostic
from .drawn import DETECTOR, Drawn, Studio, observed, oracle
from .failure_settings import PANEL_B, Attribution, FailureSettings, Symptom
from .failures import find_failures, strengths_of
from .pair import Future, Pair

RULE = FailureSettings()
ANY, ORACLE = "any", "oracle"  # any of the paper's: blurred scenery, which nearly all show, would say nothing else


class DecodedFailures(DecodedDiagnostic):
    """Panel B by Panel A. A mean over clips is how often a symptom occurs; `/oracle`, how often the oracle shows it."""

    info = DiagnosticInfo(
        name="decoded_failures",
        title="Decoded failures",
        formula="share of clips with a symptom of Panel B that only the prediction shows",
        direction="lower",
        unit="share of clips",
        status="companion",
        evaluator="the failure taxonomy's declared thresholds; the agent detector named in the evaluator",
        provenance=PROVENANCE,
        headline=f"{ANY}/{Attribution.PREDICTION_CONDITIONED.name.lower()}",
    )

    needs = DETECTOR

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        if self.studio.detector is None:
            self.absent(NO_DETECTOR, scene.clips)
            return
        found = [failures_of(scene, b, self.studio, predicted) for b in range(len(scene))]
        best = [[one.name.lower() for one in _of_oracle(scene, b, self.studio)] for b in range(len(scene))]
        symptoms, panel = ([symptom.name.lower() for symptom in some] for some in (Symptom, PANEL_B))
        for symptom in (*symptoms, ANY):
            wanted = panel if symptom == ANY else [symptom]
            self.put(scene.clips, f"{symptom}/{ORACLE}", [any(one in wanted for one in clip) for clip in best])
            self.put(scene.clips, symptom, [any(one.symptom in wanted for one in clip) for clip in found])
            for attribution in (attribution.name.lower() for attribution in Attribution):
                there = [
                    any(one.symptom in wanted and one.attribution == attribution for one in clip) for clip in found
                ]
                self.put(scene.clips, f"{symptom}/{attribution}", there)


def failures_of(scene: Scene, b: int, studio: Studio, predicted: Drawn) -> list[Failure]:
    """What is wrong with a method's future of one clip, and whether the oracle shows it too."""
    pair = _pair(scene, b, studio)
    return [
        Failure(
            one.symptom.name.lower(), one.attribution.name.lower(), one.evidence,
            Strengths(one.predicted, one.oracle, one.shared),
        )
        for one in find_failures(pair, pair.read(_future(predicted, b)), studio.lpips)
    ]  # fmt: skip


def nearest_of(scene: Scene, b: int, studio: Studio, predicted: Drawn) -> Failure | None:
    """The symptom that comes nearest to its threshold without reaching it; None where none shows half of one."""
    pair = _pair(scene, b, studio)
    below = {
        symptom: one for symptom, one in strengths_of(pair, pair.read(_future(predicted, b))).items()
        if RULE.material <= one.predicted < 1.0
    }  # fmt: skip
    if not below:
        return None
    symptom, one = max(below.items(), key=lambda item: item[1].predicted)
    return Failure(symptom.name.lower(), "", one.evidence, Strengths(one.predicted, one.oracle, one.shared))


def _of_oracle(scene: Scene, b: int, studio: Studio) -> list[Symptom]:
    """What the oracle's own future shows, looked at as if it were a prediction."""

    def make() -> list[Symptom]:
        pair = _pair(scene, b, studio)
        return [one.symptom for one in find_failures(pair, pair.oracle)]

    return scene.kept(("symptoms of the oracle", studio, b), make)


def _pair(scene: Scene, b: int, studio: Studio) -> Pair:
    """Once for all methods."""
    seen, ideal = observed(scene, studio), oracle(scene, studio)
    return scene.kept(("pair", studio, b), lambda: Pair(seen.last_B3HW[b], _future(seen, b), _future(ideal, b), RULE))


def _future(drawn: Drawn, b: int) -> Future:
    return Future(drawn.pixels_BT3HW[b], drawn.agents_BT[b], drawn.flow_BTss2[b])
