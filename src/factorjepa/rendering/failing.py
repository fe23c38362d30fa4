"""Failures of decoded futures as scores: of every clip and symptom, 1 where it is there and 0 where it is not."""

from __future__ import annotations

from ..decoded import Failure
from ..diagnostics.diagnostic import Part
from ..diagnostics.scene import Scene
from ..scores import DiagnosticInfo
from .diagnostics import NO_DETECTOR, PROVENANCE, DecodedDiagnostic
from .drawn import Drawn, Studio, observed, oracle
from .failure_settings import Attribution, FailureSettings, Symptom
from .failures import find_failures
from .symptoms import Triplet

RULE = FailureSettings()
ANY = "any"


class DecodedFailures(DecodedDiagnostic):
    """Panel B by Panel A. A mean over clips is how often a symptom occurs."""

    info = DiagnosticInfo(
        name="decoded_failures",
        title="Decoded failures",
        formula="share of clips with a symptom that only the prediction shows",
        direction="lower",
        unit="share of clips",
        status="companion",
        evaluator="the failure taxonomy's declared thresholds; the agent detector named in the evaluator",
        provenance=PROVENANCE,
        headline=f"{ANY}/{Attribution.PREDICTION_CONDITIONED.name.lower()}",
    )

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        if self.studio.detector is None:
            self.absent(NO_DETECTOR, scene.clips)
            return
        found = [failures_of(scene, b, self.studio, predicted) for b in range(len(scene))]
        symptoms = [symptom.name.lower() for symptom in Symptom]
        for symptom in (*symptoms, ANY):
            wanted = symptoms if symptom == ANY else [symptom]
            self.put(scene.clips, symptom, [any(one.symptom in wanted for one in clip) for clip in found])
            for attribution in (attribution.name.lower() for attribution in Attribution):
                there = [
                    any(one.symptom in wanted and one.attribution == attribution for one in clip) for clip in found
                ]
                self.put(scene.clips, f"{symptom}/{attribution}", there)


def failures_of(scene: Scene, b: int, studio: Studio, predicted: Drawn) -> list[Failure]:
    """What is wrong with a method's future of one clip, and whether the oracle shows it too."""
    seen, ideal = observed(scene, studio), oracle(scene, studio)
    triplet = Triplet(
        context_3HW=predicted.last_B3HW[b],
        observed_T3HW=seen.pixels_BT3HW[b],
        oracle_T3HW=ideal.pixels_BT3HW[b],
        predicted_T3HW=predicted.pixels_BT3HW[b],
        agents_observed=seen.agents_BT[b],
        agents_oracle=ideal.agents_BT[b],
        agents_predicted=predicted.agents_BT[b],
    )
    return [
        Failure(one.symptom.name.lower(), one.attribution.name.lower(), one.evidence)
        for one in find_failures(triplet, RULE, studio.lpips)
    ]
