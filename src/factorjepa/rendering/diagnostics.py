"""The paper's five measures of decoded futures, and pixel L1, as diagnostics: one pass over the clips feeds all.

Every measure has the same variants: `pooled` (E_e2e: prediction against what came), `oracle` (E_oracle), `gap`
(G_visible, of distances), `deficit` (worse than the oracle by so much), `copy` (the last seen frame as forecast),
`h1`, `h2`, ... (frame by frame) and `dynamic` (where the observed future moves; `dynamic/oracle` beside it).

Shapes: B clips, T future frames, H x W pixels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import cv2
import numpy as np
import torch
from torch import Tensor

from ..diagnostics.asks import Answers, Ask
from ..diagnostics.diagnostic import Diagnostic, Part
from ..diagnostics.scene import Scene
from ..diagnostics.settings import EvaluateSettings
from ..diagnostics.truth import true_frames, truth_of
from ..errors import RenderingError
from ..scores import DiagnosticInfo, Direction, Status
from .drawn import DETECTOR, LPIPS, Drawn, Rendered, Studio, copied, observed, oracle
from .metrics.agents import AgentCounts, Agents, AgentSettings, agent_counts, summed
from .metrics.motion import departing, flow_epe, magnitude_ratio, moving
from .metrics.pixel import pixel_l1, psnr
from .metrics.region import over_clip
from .metrics.ssim import ssim
from .metrics.true_agents import true_agents

_ROUNDING = 1e-6  # of sums over pixels
PROVENANCE = "one decoder per backbone, trained on target-encoder latents of training clips; frozen for every method"
NO_LPIPS = "no weights of LPIPS were given: add --lpips PATH (lpips=PATH of a study)"
NO_DETECTOR = "no agent detector was given: add --detector PATH"


def _info(
    name: str, title: str, formula: str, direction: Direction, unit: str, evaluator: str, status: Status = "secondary"
) -> DiagnosticInfo:
    return DiagnosticInfo(name, title, formula, direction, unit, status, evaluator, PROVENANCE)


class DecodedDiagnostic(Diagnostic):
    """Sees X, O and P of every measured batch."""

    needs: ClassVar[str] = ""  # the instrument of the studio's identity without which there is no score

    def __init__(self, settings: EvaluateSettings, studio: Studio) -> None:
        super().__init__(settings)
        self.studio = studio
        self._ask = Rendered(studio)

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (self._ask,) if part.role == "measure" else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        self.judge(part, scene, observed(scene, self.studio), oracle(scene, self.studio), answers[self._ask])

    @abstractmethod
    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        """State scores of a batch from X, O and P."""


class _Compared(DecodedDiagnostic):
    """A number for each pair of futures and each frame."""

    distance: ClassVar[bool] = (
        True  # whether it says how far two futures are apart, so that P against O means something
    )

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        clips, sign = scene.clips, 1.0 if self.info.direction == "lower" else -1.0
        end_to_end_BT = self.between(predicted, seen)
        best_B = scene.kept((self.info.name, "oracle", self.studio), lambda: over_clip(self.between(ideal, seen)))
        still_B = scene.kept(
            (self.info.name, "copy", self.studio),
            lambda: over_clip(self.between(copied(scene, self.studio), seen)),
        )
        found_B = over_clip(end_to_end_BT)
        self.put(clips, "pooled", found_B)
        self.put(clips, "oracle", best_B)
        self.put(clips, "deficit", sign * (found_B - best_B))
        self.put(clips, "copy", still_B)
        if self.distance:
            gap_B = over_clip(self.between(predicted, ideal))
            self.put(clips, "gap", gap_B)
            self.check(found_B, best_B, gap_B)
        for frame, value_B in enumerate(end_to_end_BT.unbind(1), start=1):
            self.put(clips, f"h{frame}", value_B)
        region_BTHW = self.dynamic(scene, seen)
        nothing = "nothing moves in the future"
        self.put(clips, "dynamic", over_clip(self.between(predicted, seen, region_BTHW)), nothing)
        ideal_B = scene.kept(
            (self.info.name, "dynamic", self.studio), lambda: over_clip(self.between(ideal, seen, region_BTHW))
        )
        self.put(clips, "dynamic/oracle", ideal_B, nothing)

    @abstractmethod
    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        """`[B, T]`; of `first` against `second`."""

    def dynamic(self, scene: Scene, seen: Drawn) -> Tensor:
        """Where something moves, on the pixels that `between` looks at."""
        return moving_pixels(scene, self.studio, seen)

    def check(self, found_B: Tensor, best_B: Tensor, gap_B: Tensor) -> None:
        """What must hold between E_e2e, E_oracle and G_visible."""


class DecodedL1(_Compared):
    """eq. E_oracle, E_e2e, G_visible with pixel L1, for which the triangle inequality holds."""

    info = _info("decoded_l1", "Decoded L1", "mean over pixels of |x_hat - x+|", "lower", "of the range, clip",
                 "none: pixels", "companion")  # fmt: skip

    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        return pixel_l1(first.pixels_BT3HW, second.pixels_BT3HW, region_BTHW)

    def check(self, found_B: Tensor, best_B: Tensor, gap_B: Tensor) -> None:
        refuse_broken_triangle(found_B, best_B, gap_B)


class DecodedPsnr(_Compared):
    """Pixel-level fidelity."""

    info = _info("decoded_psnr", "Decoded PSNR", "-10 log10 of the mean squared error, mean over frames", "higher",
                 "dB, clip", "none: pixels")  # fmt: skip
    distance = False

    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        return psnr(first.pixels_BT3HW, second.pixels_BT3HW, region_BTHW)


class DecodedSsim(_Compared):
    """Local luminance, contrast and structure."""

    info = _info("decoded_ssim", "Decoded SSIM", "SSIM under an 11 x 11 Gaussian window, mean over frames", "higher",
                 "-1 to 1, clip", "none: pixels")  # fmt: skip
    distance = False

    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        return ssim(first.pixels_BT3HW, second.pixels_BT3HW, region_BTHW)


class DecodedLpips(_Compared):
    """Perceptual discrepancy by one fixed pretrained network; absent where its weights are."""

    info = _info("decoded_lpips", "Decoded LPIPS", "LPIPS v0.1 (AlexNet), mean over frames", "lower", "clip",
                 "LPIPS-Alex from the file named in the evaluator")  # fmt: skip
    needs = LPIPS

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        if self.studio.lpips is None:
            self.absent(NO_LPIPS, scene.clips)
        else:
            super().judge(part, scene, seen, ideal, predicted)

    @torch.no_grad()
    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        assert self.studio.lpips is not None
        return self.studio.lpips.frames(first.pixels_BT3HW, second.pixels_BT3HW, region_BTHW)


class DecodedFlow(_Compared):
    """eq. EPE: the motion from the last seen frame to the drawn one against that to the observed one."""

    info = _info("decoded_flow_epe", "Decoded flow EPE", "mean over pixels of |F_hat - F*|", "lower",
                 "sides of the picture, clip", "OpenCV's dense inverse search, not learned")  # fmt: skip

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        super().judge(part, scene, seen, ideal, predicted)
        for variant, drawn in (("magnitude", predicted), ("magnitude/oracle", ideal)):
            ratio_BT = torch.from_numpy(magnitude_ratio(seen.flow_BTss2, drawn.flow_BTss2))
            self.put(scene.clips, variant, over_clip(ratio_BT), "nothing moves in the future")

    def dynamic(self, scene: Scene, seen: Drawn) -> Tensor:
        """Flow lives on the context frame's pixels."""
        return torch.from_numpy(scene.kept(("departing", self.studio), lambda: departing(seen.flow_BTss2).copy()))

    def between(self, first: Drawn, second: Drawn, region_BTHW: Tensor | None = None) -> Tensor:
        region = None if region_BTHW is None else region_BTHW.numpy()
        return torch.from_numpy(flow_epe(second.flow_BTss2, first.flow_BTss2, region))


class DecodedAgents(DecodedDiagnostic):
    """Which agents a frozen detector finds again. Counts of a clip's frames are added up before F1 is taken."""

    info = _info("decoded_agent_f1", "Decoded agent F1", "2 tp / (2 tp + fp + fn) of agents found in x_hat and in x+",
                 "higher", "0 to 1, clip", "the agent detector named in the evaluator")  # fmt: skip
    needs = DETECTOR
    rule = AgentSettings()

    def judge(self, part: Part, scene: Scene, seen: Drawn, ideal: Drawn, predicted: Drawn) -> None:
        if self.studio.detector is None:
            self.absent(NO_DETECTOR, scene.clips)
            return
        there = [[Agents.of_detections(frame) for frame in clip] for clip in seen.agents_BT]
        found = self._counts(there, predicted)
        best = scene.kept(("agents", self.studio), lambda: self._counts(there, ideal))
        still = scene.kept(("still", self.studio), lambda: self._counts(there, copied(scene, self.studio)))
        nobody = "no agent is found in the observed future"
        values = {
            "pooled": [summed(frames).f1 for frames in found], "oracle": [summed(frames).f1 for frames in best],
            "copy": [summed(frames).f1 for frames in still],
            "recall": [summed(frames).recall for frames in found],
            "precision": [summed(frames).precision for frames in found],
            "recall/small": [summed(frames).small_recall for frames in found],
            "recall/hidden": [summed(frames).hidden_recall for frames in found],
        }  # fmt: skip
        values["deficit"] = (np.array(values["oracle"]) - np.array(values["pooled"])).tolist()
        for frame in range(len(found[0])):
            values[f"h{frame + 1}"] = [frames[frame].f1 for frames in found]
        if part.truth and scene.known.truths is not None:
            true = scene.kept(("true agents", self.studio), lambda: _true_agents(scene))
            values["truth"] = [summed(frames).f1 for frames in self._counts(true, predicted)]
            values["truth/oracle"] = [summed(frames).f1 for frames in self._counts(true, ideal)]
        reasons = {
            "precision": "no agent is found in the decoded future",
            "recall/small": "no small agent is found in the observed future",
            "recall/hidden": "no agent that others hide is found in the observed future",
        }
        for variant, of_clips in values.items():
            self.put(scene.clips, variant, of_clips, reasons.get(variant, nobody))

    def _counts(self, there: list[list[Agents]], drawn: Drawn) -> list[list[AgentCounts]]:
        """Of every clip and frame."""
        return [
            [agent_counts(reference, found, self.rule) for reference, found in zip(a, b, strict=True)]
            for a, b in zip(there, drawn.agents_BT, strict=True)
        ]


def refuse_broken_triangle(found_B: Tensor, best_B: Tensor, gap_B: Tensor) -> None:
    """E_e2e <= G_visible + E_oracle holds for pixel L1: where it does not, the three are not of one triplet."""
    broken = found_B > gap_B + best_B + _ROUNDING
    if bool(broken.any()):
        clip = int(broken.nonzero()[0])
        raise RenderingError(
            f"end-to-end error {found_B[clip]:.6f} exceeds the visible gap {gap_B[clip]:.6f} plus the oracle's error "
            f"{best_B[clip]:.6f}: these futures do not belong together"
        )


def moving_pixels(scene: Scene, studio: Studio, seen: Drawn) -> Tensor:
    """What moves on its own in each frame of the observed future, `bool [B, T, H, W]`."""

    def make() -> Tensor:
        H, W = scene.frames_BTHW3.shape[2:4]
        masks_BTss = moving(seen.last_B3HW, seen.pixels_BT3HW).astype(np.uint8)
        flat = masks_BTss.reshape(-1, *masks_BTss.shape[2:])
        resized = np.stack([cv2.resize(one, (W, H), interpolation=cv2.INTER_NEAREST) for one in flat])
        return torch.from_numpy(resized.reshape(*masks_BTss.shape[:2], H, W).astype(bool))

    return scene.kept(("moving", studio), make)


def _true_agents(scene: Scene) -> list[list[Agents]]:
    """Of every clip and future frame, by ground truth."""
    clips = range(len(scene))
    return [true_agents(truth_of(scene, b), true_frames(scene, b)[scene.context :]) for b in clips]
