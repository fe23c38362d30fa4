"""A frozen encoder in a method's place: diagnostics ask for a prediction and are given the encoder's tokens instead.

What a method predicts from, the encoder sees: the context, as it is or as it was altered. Two frames are one step for
every encoder: video encoders give a token for both, of an image encoder's tokens the mean is taken. So probes have as
many features of time from either kind.

Shapes: B clips, T frames, S or n steps, p places, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ..backbones.frozen import FrozenEncoder
from ..backbones.masks import Grid
from ..errors import DiagnosticsError
from ..objective import normalised_targets
from ..pixels import Frames
from .asks import Answers, Ask, Predict, Predicted
from .continuing import Paced
from .correspondence import chance_of_cycle_back, cycle_back, kendall
from .reference import Precision, Reference
from .scene import Scene

STEP = 2  # frames
VIEW = 2 / 3  # of the picture's side, in each of the two views that are matched


class Looker(Reference):
    """The encoder that is looking now, and the grid of its tokens. The scenes are the same for all encoders."""

    def __init__(self, encoder: FrozenEncoder, context: int, precision: Precision) -> None:
        self.context, self.precision = context, precision
        self.use(encoder)

    def use(self, encoder: FrozenEncoder) -> None:
        """From now on."""
        if STEP % encoder.step:
            raise DiagnosticsError(f"{encoder.name}: its tubelets of {encoder.step} frames do not make steps of {STEP}")
        self.frozen, self.encoder = encoder, encoder.model  # type: ignore[assignment]  # any encoder; for the digest

    def grid(self, video: Tensor) -> Grid:
        return video.shape[2] // STEP, *self.frozen.grid

    def context_grid(self, video: Tensor) -> Grid:
        return self.context // STEP, *self.frozen.grid

    def future(self, video: Tensor, early: int = 0) -> Tensor:
        raise DiagnosticsError("a frozen encoder alone predicts nothing: it has no target")

    def steps(self, frames: Frames) -> Tensor:
        """Affine-free LayerNormed tokens `[B, S, p, D]` of `uint8 [B, T, H, W, 3]`, float32 on the CPU."""
        with self.precision():
            tokens = self.frozen.tokens(frames)
        paired = tokens.reshape(len(tokens), frames.shape[1] // STEP, -1, *tokens.shape[2:]).mean(2)
        return normalised_targets(paired).cpu()


class Looked(Answers):
    """The encoder's tokens of what a method would have predicted from."""

    def __init__(self, looker: Looker, scene: Scene, asks: Iterable[Ask[Any]]) -> None:  # no subject answers
        self._answers = {ask: Predicted(looker.steps(_shown(ask, scene)).flatten(1, 2)) for ask in dict.fromkeys(asks)}


def chances_of(scene: Scene) -> tuple[float, float]:
    """What noise scores: seconds, and tau."""
    steps = scene.frames_BTHW3.shape[1] // STEP
    return chance_of_cycle_back(steps) * _seconds(scene), 0.0


def correspondence(looker: Looker, scene: Scene) -> tuple[Tensor, Tensor]:
    """TCC between two views of the same moments, the left and the right of the picture: seconds, and tau, `[B]`.

    The views share a third of the picture, and nothing of it at the same place. So moments are matched by the mean
    squared difference of their mean tokens: what is there must be known again wherever it stands. Each view's mean over
    the clip is taken out: what stands there all the time tells left from right, and no moment from another.
    """
    left_BnD, right_BnD = (moments(looker.steps(view)) for view in views(scene.frames_BTHW3))
    apart_Bnn = (left_BnD[:, :, None] - right_BnD[:, None]).square().mean(3)
    return cycle_back(apart_Bnn) * _seconds(scene), kendall(apart_Bnn.argmin(2))


def moments(tokens_BnpD: Tensor) -> Tensor:
    """Mean token of each step less that of the clip, `[B, n, D]`."""
    mean_BnD = tokens_BnpD.mean(2)
    return mean_BnD - mean_BnD.mean(1, keepdim=True)


def views(frames_BTHW3: Frames) -> tuple[Frames, Frames]:
    """Squares of two thirds of the picture's shorter side, at its left and its right edge; whole steps of frames."""
    _, T, H, W, _ = frames_BTHW3.shape
    side = round(VIEW * min(H, W))
    band = frames_BTHW3[:, : T // STEP * STEP, (H - side) // 2 : (H - side) // 2 + side]
    return band[:, :, :, :side], band[:, :, :, W - side :]


def _shown(ask: Ask[Any], scene: Scene) -> Frames:
    if isinstance(ask, Predict) and not ask.hidden:
        return ask.view.frames(scene)[:, : scene.context]
    if isinstance(ask, Paced):
        return scene.frames_BTHW3[:, ask.frames(scene.context, STEP)]
    raise DiagnosticsError(f"a frozen encoder cannot be asked {ask}")


def _seconds(scene: Scene) -> float:
    """Of a step."""
    return STEP * float(scene.times_BT[0, 1] - scene.times_BT[0, 0])
