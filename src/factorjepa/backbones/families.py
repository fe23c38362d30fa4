"""Encoders that are only looked through: V-JEPA 1, I-JEPA, LeJEPA and DINOv2, by name, strictly loaded, recognised.

They have no predictor here. As everywhere, the model is built on the meta device and takes the file's tensors as its
parameters; every key of the encoder must fit, and what is left out is named in `origin`.
"""

from __future__ import annotations

import functools
import logging
from pathlib import Path

import torch
from torch import Tensor

from ..errors import BackboneError
from ..words import counted, nearest
from . import absolute, dinov2, lejepa
from .absolute import AbsoluteSpec, AbsoluteViT
from .building import with_random_weights
from .dinov2 import Dinov2, Dinov2Spec
from .dinov2_weights import load_dinov2
from .lejepa import Lejepa, LejepaSpec, released_periods
from .reading import Shapes, WeightsFile, open_weights
from .recognition import Differences, agreement, compare, likeliest, table

logger = logging.getLogger(__name__)

Spec = AbsoluteSpec | LejepaSpec | Dinov2Spec
Model = AbsoluteViT | Lejepa | Dinov2

ENCODERS: dict[str, Spec] = {**absolute.SPECS, **lejepa.SPECS, **dinov2.SPECS}

_MASK = ".attn.qkv.bias_mask"
_TRAINING = "cva_module_proj."  # a projector of the training of LeJEPA in timm's layout, kept in its files


def encoder_spec(arch: str | Spec) -> Spec:
    """The spec that `arch` names (or is)."""
    if not isinstance(arch, str):
        return arch
    if arch not in ENCODERS:
        raise BackboneError(f"unknown encoder {arch!r}{nearest(arch, ENCODERS)}; known: {', '.join(ENCODERS)}")
    return ENCODERS[arch]


def build_encoder(arch: str | Spec, *, seed: int = 0, device: torch.device | str | None = None) -> Model:
    """An encoder with random weights: the same for the same spec and seed. `device="meta"` allocates nothing.

    >>> build_encoder("ijepa_vith14_1k")(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 256, 1280])
    """
    spec = encoder_spec(arch)
    return with_random_weights(functools.partial(_make, spec), "encoder", seed, device)


def load_encoder(
    path: Path | str,
    arch: str | Spec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Model:
    """The encoder `arch` with the released weights in `path`; every key must fit. `dtype=None` keeps the file's.

    >>> load_encoder("vitl16.pth.tar", "vjepa1_vit_large").origin
    'vitl16.pth.tar: target_encoder'
    """
    spec = encoder_spec(arch)
    if isinstance(spec, Dinov2Spec):
        return load_dinov2(path, spec, device=device, dtype=dtype)
    weights = open_weights(Path(path))
    named = arch if isinstance(arch, str) else next((name for name in ENCODERS if ENCODERS[name] == spec), "this spec")
    if found := differences(weights, spec):
        whole = table(Path(path), f"the encoder of {named}", len(_expected(spec)), found)
        raise BackboneError(f"{whole}\n  {_advice(weights, named)}")
    prefix = _prefix(spec)
    state = {key: weights.read(f"{prefix}{key}") for key in _expected(spec)}
    model = build_encoder(spec, device="meta")
    if isinstance(model, Lejepa):
        state, periods = _as_computed(weights, state, prefix)
        model.periods = (released_periods(model.spec) if periods is None else periods).to(device)
    state = {key: tensor.to(device=device, dtype=dtype) for key, tensor in state.items()}
    model.load_state_dict(state, strict=True, assign=True)
    model.origin = _origin(weights, spec)
    logger.info("weights: %s", model.origin)
    return model


def fitting(weights: WeightsFile) -> tuple[str, ...]:
    """The encoders whose every key an opened file fits; several, where sizes share every shape."""
    alike = {  # a look at one key, before anything is built
        name: spec
        for name, spec in ENCODERS.items()
        if weights.shapes.get(f"{_prefix(spec)}patch_embed.proj.bias") == (spec.dim,)
    }
    return tuple(name for name, spec in alike.items() if not differences(weights, spec))


def differences(weights: WeightsFile, spec: Spec) -> Differences:
    """Empty when every key of the encoder fits; else the kinds that occur, with a line for each key."""
    prefix = _prefix(spec)
    found = {
        key.removeprefix(prefix): shape
        for key, shape in weights.shapes.items()
        if key.startswith(prefix) and not _left_out(key.removeprefix(prefix), spec)
    }
    whole_numbers = frozenset(key.removeprefix(prefix) for key in weights.whole_numbers)
    expected, optional = _expected(spec), _optional(spec)
    return compare(expected | {key: shape for key, shape in optional.items() if key in found}, found, whole_numbers)


def parameters(arch: str) -> int:
    """How many weights an encoder has."""
    return sum(tensor.numel() for tensor in build_encoder(arch, device="meta").parameters())


def _make(spec: Spec, origin: str) -> Model:
    if isinstance(spec, AbsoluteSpec):
        return AbsoluteViT(spec, origin)
    return Lejepa(spec, origin) if isinstance(spec, LejepaSpec) else Dinov2(spec, origin)


@functools.lru_cache(maxsize=32)
def _expected(spec: Spec) -> Shapes:
    """Every key of a spec's state dict with its shape; not to be changed."""
    state = build_encoder(spec, device="meta").state_dict()
    return {key: tuple(tensor.shape) for key, tensor in state.items()}


def _optional(spec: Spec) -> Shapes:
    """Keys that a file may hold beside the weights; what becomes of them, `lejepa` says."""
    if not isinstance(spec, LejepaSpec):
        return {}
    masks: Shapes = {f"blocks.{number}{_MASK}": (3 * spec.dim,) for number in range(spec.depth)}
    return {**masks, "rope_embed.periods": (spec.head_width // 4,), "mask_token": (1, spec.dim)}


def _prefix(spec: Spec) -> str:
    """What stands before the encoder's keys in an opened file."""
    return "encoder.model." if isinstance(spec, LejepaSpec) else "encoder."


def _left_out(key: str, spec: Spec) -> bool:
    return isinstance(spec, AbsoluteSpec) and spec.class_token and key.startswith(_TRAINING)


def _as_computed(
    weights: WeightsFile, state: dict[str, Tensor], prefix: str
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Biases with their masks multiplied in, and the file's periods, if it has them."""
    for key in state:
        mask_key = f"{prefix}{key}_mask"
        if not key.endswith(".attn.qkv.bias") or mask_key not in weights.shapes:
            continue
        mask = weights.read(mask_key)
        if not bool(((mask == 0) | (mask == 1)).all()):
            raise BackboneError(f"{weights.path}: {mask_key} is not a mask of zeros and ones: the file is damaged")
        state[key] = state[key] * mask.to(state[key].dtype)
    periods = f"{prefix}rope_embed.periods"
    return state, weights.read(periods).float() if periods in weights.shapes else None


def _origin(weights: WeightsFile, spec: Spec) -> str:
    """For logs and reports: the file, and which of its contents were taken."""
    prefix = _prefix(spec)
    apart = [key for key in weights.shapes if not key.startswith((prefix, "predictor."))]
    apart += [key for key in weights.shapes if _left_out(key.removeprefix(prefix), spec)]
    taken = prefix.rstrip(".") if isinstance(spec, LejepaSpec) else weights.sources.get("encoder.", "encoder")
    left_out = f" (left out, not the encoder's: {counted(len(apart), 'key')}, {apart[0]} first)" if apart else ""
    return f"{weights.path.name}: {taken}{left_out}"


def _advice(weights: WeightsFile, asked: str) -> str:
    """Which encoder the file most likely is: one that it fits, or the one whose keys and shapes agree most."""
    if fits := fitting(weights):
        return f"It holds {' or '.join(fits)}: load it as that."
    shares: dict[str, float] = {}
    for name, spec in ENCODERS.items():
        prefix = _prefix(spec)
        found = {key.removeprefix(prefix): shape for key, shape in weights.shapes.items() if key.startswith(prefix)}
        shares[name] = agreement(_expected(spec), found)
    return likeliest(shares, asked, "encoder")
