"""Released DINOv2 weights (`dinov2_vit*14_pretrain.pth`, `dinov2_vit*14_reg4_pretrain.pth`), strictly loaded.

They are plain state dicts. As everywhere here the model is built on the meta device and takes the file's memory-mapped
tensors as its parameters, so that there is one copy; every key must fit, and nothing but tensors is unpickled.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from ..errors import BackboneError
from .checkpoint import WeightsFile, explain, read_tensors, shapes_of
from .dinov2 import SPECS, Dinov2, Dinov2Spec, build_dinov2, dinov2_spec

logger = logging.getLogger(__name__)

BASE_URL = "https://dl.fbaipublicfiles.com/dinov2/"


def released_url(arch: str) -> str:
    """Where the publisher keeps the weights of a named model.

    >>> released_url("dinov2_vitg14_reg")
    'https://dl.fbaipublicfiles.com/dinov2/dinov2_vitg14/dinov2_vitg14_reg4_pretrain.pth'
    """
    spec = dinov2_spec(arch)
    size = arch.removesuffix("_reg")
    return f"{BASE_URL}{size}/{size}{f'_reg{spec.registers}' if spec.registers else ''}_pretrain.pth"


def load_dinov2(
    path: Path | str,
    arch: str | Dinov2Spec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Dinov2:
    """The DINOv2 `arch` with the released weights in `path`; every key must fit. `dtype=None` keeps the file's.

    >>> load_dinov2("dinov2_vitg14_reg4_pretrain.pth", "dinov2_vitg14_reg", dtype=torch.bfloat16)
    """
    spec = dinov2_spec(arch)
    weights = _open(Path(path))
    model = build_dinov2(spec, device="meta")
    expected = shapes_of(model)
    if weights.shapes != expected:
        known = {name: shapes_of(build_dinov2(name, device="meta")) for name in SPECS}
        named = arch if isinstance(arch, str) else next((name for name in SPECS if SPECS[name] == spec), None)
        raise BackboneError(explain(weights, expected, named, known))
    state = {key: weights.read(key).to(device=device, dtype=dtype) for key in expected}
    model.load_state_dict(state, strict=True, assign=True)
    model.origin = weights.origin
    logger.info("weights: %s", weights.origin)
    return model


def _open(path: Path) -> WeightsFile:
    if not path.is_file():
        raise BackboneError(
            f"{path}: no such weights file; the publisher keeps them under {BASE_URL}, for example "
            f"{released_url('dinov2_vits14').removeprefix(BASE_URL)}"
        )
    if path.stat().st_size == 0:
        raise BackboneError(f"{path}: is empty (0 bytes); fetch it again")
    content = read_tensors(path)
    other = sorted(str(key) for key, value in content.items() if not isinstance(value, Tensor))
    if other or not content:
        raise BackboneError(
            f"{path}: is not a plain state dict, as the released DINOv2 files are: found "
            f"{', '.join(other[:6]) or 'nothing'} instead of tensors"
        )
    shapes = {key: tuple(tensor.shape) for key, tensor in content.items()}
    return WeightsFile(path, shapes, content.__getitem__, path.name)
