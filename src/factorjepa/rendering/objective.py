"""L_decode: what a decoder minimises (appendix H, "Decoder Training"). Each term is a pure function.

Shapes: B clips, T frames, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .metrics.ssim import ssim
from .settings import ObjectiveWeights

EPSILON_CHAR = 1e-3
_FLOW_WINDOW = 7  # pixels at the scale at which flow is estimated
_FLOW_SHRINK = 2
_FLOW_DAMPING = 1e-4  # keeps flow at 0 where the picture has no structure

Perceptual = Callable[[Tensor, Tensor], Tensor]  # pictures [N, 3, H, W] -> distance [N]


def decode_loss(
    shown_BT3HW: Tensor,
    future_BT3HW: Tensor,
    last_B3HW: Tensor,
    weights: ObjectiveWeights,
    trained: Callable[[], Tensor],
    perceptual: Perceptual | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The sum and its enabled parts, unweighted. `trained` gives R(Omega)."""
    parts: dict[str, Tensor] = {}
    if weights.pixel:
        parts["pixel"] = charbonnier(shown_BT3HW, future_BT3HW)
    if weights.perceptual:
        assert perceptual is not None, "settings refuse the term without its network"
        parts["perceptual"] = perceptual(shown_BT3HW.flatten(0, 1), future_BT3HW.flatten(0, 1)).mean()
    if weights.structure:
        parts["structure"] = structure(shown_BT3HW, future_BT3HW)
    if weights.motion:
        parts["motion"] = motion(shown_BT3HW, future_BT3HW, last_B3HW)
    if weights.regularisation:
        parts["regularisation"] = trained()
    total = torch.stack([getattr(weights, name) * part for name, part in parts.items()]).sum()
    return total, parts


def charbonnier(shown: Tensor, future: Tensor) -> Tensor:
    """eq. L_char."""
    return (torch.square(shown - future) + EPSILON_CHAR**2).sqrt().mean()


def structure(shown_BT3HW: Tensor, future_BT3HW: Tensor) -> Tensor:
    """eq. L_SSIM = 1 - SSIM."""
    return 1 - ssim(shown_BT3HW, future_BT3HW).mean()


def motion(shown_BT3HW: Tensor, future_BT3HW: Tensor, last_B3HW: Tensor) -> Tensor:
    """eq. L_motion: mean difference of the flow from the last context frame to each drawn and each true frame."""
    last = last_B3HW[:, None].expand_as(future_BT3HW).flatten(0, 1)
    with torch.no_grad():
        true = lucas_kanade(last, future_BT3HW.flatten(0, 1))
    return (lucas_kanade(last, shown_BT3HW.flatten(0, 1)) - true).abs().mean()


def lucas_kanade(before_N3HW: Tensor, after_N3HW: Tensor) -> Tensor:
    """Flow `[N, 2, h, w]` in pixels of the half-size picture: least squares over a window, in closed form.

    Frozen (it has no weights), differentiable, and good for small motion only, which is why it is a training term and
    no evaluator.
    """
    grey = torch.tensor([0.299, 0.587, 0.114], device=before_N3HW.device).view(1, 3, 1, 1)
    a, b = (F.avg_pool2d((x * grey).sum(1, keepdim=True), _FLOW_SHRINK) for x in (before_N3HW, after_N3HW))
    x, y = _slopes((a + b) / 2)
    t = b - a

    def window(value: Tensor) -> Tensor:
        return F.avg_pool2d(value, _FLOW_WINDOW, 1, _FLOW_WINDOW // 2, count_include_pad=False)

    xx, xy, yy = window(x * x) + _FLOW_DAMPING, window(x * y), window(y * y) + _FLOW_DAMPING
    xt, yt = window(x * t), window(y * t)
    determinant = xx * yy - xy * xy
    return torch.cat([(xy * yt - yy * xt) / determinant, (xy * xt - xx * yt) / determinant], 1)


def squared_weights(module: nn.Module) -> Tensor:
    """R(Omega): the mean square of everything that trains."""
    values = [parameter.square().sum() for parameter in module.parameters() if parameter.requires_grad]
    count = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
    return torch.stack(values).sum() / count


def _slopes(x_N1hw: Tensor) -> tuple[Tensor, Tensor]:
    padded = F.pad(x_N1hw, (1, 1, 1, 1), mode="replicate")
    return (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2, (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
