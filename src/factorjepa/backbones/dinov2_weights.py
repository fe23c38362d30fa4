"""Released DINOv2 weights (`dinov2_vit*14_pretrain.pth`, `dinov2_vit*14_reg4_pretrain.pth`), strictly loaded.

They are plain state dicts; transformers' `model.safetensors` of the same models is read as well. As everywhere here the
model is built on the meta device and takes the file's memory-mapped tensors as its parameters, so that there is one
copy; every key must fit, and nothing but tensors is unpickled.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import Tensor

from ..errors import BackboneError
from .dinov2 import SPECS, Dinov2, Dinov2Spec, build_dinov2, dinov2_spec
from .huggingface import is_huggingface
from .reading import Shapes, open_weights, read_torch
from .recognition import agreement, compare, likeliest, table
from .releases import release_of

logger = logging.getLogger(__name__)


def released_url(arch: str) -> str:
    """Where the publisher keeps the weights of a named model.

    >>> released_url("dinov2_vitg14_reg")
    'https://dl.fbaipublicfiles.com/dinov2/dinov2_vitg14/dinov2_vitg14_reg4_pretrain.pth'
    """
    dinov2_spec(arch)  # an unknown name is an error of its own
    return release_of(arch).url


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
    tensors = _open(Path(path))
    found = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    expected = _shapes(spec)
    if differing := compare(expected, found):
        named = arch if isinstance(arch, str) else next((name for name in SPECS if SPECS[name] == spec), "this spec")
        what = f"the weights of {named}"
        raise BackboneError(f"{table(Path(path), what, len(expected), differing)}\n  {_advice(found, named)}")
    model = build_dinov2(spec, device="meta")
    state = {key: tensors[key].to(device=device, dtype=dtype) for key in expected}
    model.load_state_dict(state, strict=True, assign=True)
    model.origin = Path(path).name
    logger.info("weights: %s", model.origin)
    return model


def _shapes(spec: Dinov2Spec) -> Shapes:
    state = build_dinov2(spec, device="meta").state_dict()
    return {key: tuple(tensor.shape) for key, tensor in state.items()}


def _advice(found: Shapes, asked: str) -> str:
    """Which DINOv2 the file most likely is: the one whose keys and shapes agree most."""
    return likeliest({name: agreement(_shapes(spec), found) for name, spec in SPECS.items()}, asked, "architecture")


def _open(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise BackboneError(
            f"{path}: no such weights file; the publisher keeps them, for example at {released_url('dinov2_vits14')}"
        )
    if path.stat().st_size == 0:
        raise BackboneError(f"{path}: is empty (0 bytes); fetch it again")
    with open(path, "rb") as file:
        zipped = file.read(2) == b"PK"
    content = read_torch(path) if zipped else {}
    if not zipped or is_huggingface(map(str, content)):
        weights = open_weights(path)
        return {key.removeprefix("encoder."): weights.read(key) for key in weights.shapes}
    other = sorted(str(key) for key, value in content.items() if not isinstance(value, Tensor))
    if other or not content:
        raise BackboneError(
            f"{path}: is not a plain state dict, as the released DINOv2 files are: found "
            f"{', '.join(other[:6]) or 'nothing'} instead of tensors"
        )
    return dict(content)
