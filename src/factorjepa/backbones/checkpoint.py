"""Weights from files: strictly, and one copy in memory.

The model is built on the meta device and the file's tensors become its parameters, so a 2B model needs its weights
once: official files stay memory-mapped, safetensors are read tensor by tensor. Nothing is ever loaded with
`strict=False`: a key that does not fit is an error that shows which, and what the file most likely is (`recognition`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from ..errors import BackboneError
from ..storage import atomic_path
from .backbone import Backbone, build
from .reading import FORMAT, WeightsFile, open_weights
from .recognition import Parts, differences, explain, origin_of, wanted
from .spec import BackboneSpec, name_of, resolve

logger = logging.getLogger(__name__)


def load(
    path: Path | str,
    arch: str | BackboneSpec,
    *,
    parts: Parts = "both",
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Backbone:
    """The backbone `arch` with the weights in `path` (official `.pt` or our safetensors); every key must fit.

    `parts="encoder"` reads the encoder alone, as strictly, whether or not the file holds a predictor; asking such a
    backbone for its predictor is an error. `backbone.origin` says which encoder of the file was taken. `dtype=None`
    keeps the file's.

    >>> load("vjepa2_1_vitg_384.pt", "vjepa2_1_vit_giant_384").origin
    'vjepa2_1_vitg_384.pt: target_encoder, predictor'
    """
    if parts not in ("both", "encoder"):
        raise BackboneError(f"parts must be 'both' or 'encoder', got {parts!r}")
    weights, spec = fitting(path, arch, parts)
    backbone = build(spec, device="meta")
    if parts == "encoder":
        backbone = Backbone(backbone.encoder, None, spec)
    state = {key: weights.read(key).to(device=device, dtype=dtype) for key in wanted(spec, parts)}
    backbone.load_state_dict(state, strict=True, assign=True)
    backbone.origin = origin_of(weights, spec, parts)
    logger.info("weights: %s", backbone.origin)
    return backbone


def fitting(path: Path | str, arch: str | BackboneSpec, parts: Parts = "both") -> tuple[WeightsFile, BackboneSpec]:
    """The opened file and the spec that its every key fits; an error where one does not. No weight is read."""
    spec = resolve(arch)
    weights = open_weights(Path(path))
    if found := differences(weights, spec, parts):
        raise BackboneError(explain(weights, spec, arch if isinstance(arch, str) else name_of(spec), parts, found))
    return weights, spec


def save(backbone: Backbone, path: Path | str) -> None:
    """Write `backbone` (or its encoder, if that is all it has) as safetensors, atomically, with spec and origin."""
    from safetensors.torch import save_file

    metadata = {
        "format": FORMAT,
        "arch": name_of(backbone.spec) or "",
        "spec": backbone.spec.to_json(),
        "origin": backbone.origin,
    }
    tensors = {key: tensor.detach().contiguous() for key, tensor in backbone.state_dict().items()}
    with atomic_path(Path(path)) as temporary:
        save_file(tensors, temporary, metadata=metadata)
