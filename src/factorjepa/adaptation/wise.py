"""WiSE-FT (Wortsman et al. 2022): between the pretrained and the fine-tuned encoder, on a straight line in weights."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ..errors import TrainingError
from .method import Method

SHARES = (0.3, 0.5, 0.7)
WISE = tuple(
    Method(
        name=f"wise_{share:g}",
        title=f"WiSE-FT {share:g}",
        family="reference",
        why=f"{share:.0%} of the way from the pretrained to the fully fine-tuned encoder, with the tuned predictor",
        encoder="all",
        interpolation=share,
    )
    for share in SHARES
)


def interpolate(pretrained: Mapping[str, Tensor], adapted: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """`(1 - b) theta_0 + b theta` for every name that both have; computed in the adapted weights' precision."""
    if pretrained.keys() != adapted.keys():
        strange = sorted(pretrained.keys() ^ adapted.keys())[:3]
        raise TrainingError(
            f"WiSE-FT: the two encoders differ in {', '.join(strange)}; were they the same architecture?"
        )
    return {name: tensor.lerp(adapted[name], share) for name, tensor in pretrained.items()}
