"""Weights from files: official `.pt` and our safetensors, strictly, and one copy in memory.

The model is built on the meta device and the file's tensors become its parameters, so a 2B model needs its weights
once: official files stay memory-mapped, safetensors are read tensor by tensor. A file is never unpickled beyond
tensors and plain containers, and nothing is ever loaded with `strict=False`: a key that does not fit is an error
that shows which, and what the file most likely is.
"""

from __future__ import annotations

import contextlib
import logging
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BackboneError
from ..storage import atomic_path
from .backbone import Backbone, build
from .spec import BackboneSpec, name_of, names, resolve

logger = logging.getLogger(__name__)

ENCODER_KEYS = ("target_encoder", "ema_encoder", "encoder")  # the averaged weights are the ones to use
_PREFIXES = ("module.", "backbone.", "_orig_mod.")
# 2.0 files carry a sine-cosine table that its rotary models never read.
_UNUSED_IN_20 = frozenset({"pos_embed", "predictor_pos_embed"})
_FORMAT = "factorjepa-backbone"
_ROWS = 6  # of each kind in the table of a wrong file

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class WeightsFile:
    """A weights file opened for reading: tensor shapes at once, tensors on demand."""

    path: Path
    shapes: Shapes  # by `encoder.…` and `predictor.…`
    read: Callable[[str], Tensor]
    origin: str
    declared: str | None = None  # the architecture that our own files name


def load(
    path: Path | str,
    arch: str | BackboneSpec,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> Backbone:
    """The backbone `arch` with the weights in `path` (official `.pt` or our safetensors); every key must fit.

    `backbone.origin` says which encoder of the file was taken. `dtype=None` keeps the file's.

    >>> load("vjepa2_1_vitg_384.pt", "vjepa2_1_vit_giant_384").origin
    'vjepa2_1_vitg_384.pt: target_encoder, predictor'
    """
    spec = resolve(arch)
    weights = open_weights(Path(path), spec)
    backbone = build(spec, device="meta")
    expected = shapes_of(backbone)
    if weights.shapes != expected:
        raise BackboneError(explain(weights, expected, arch if isinstance(arch, str) else name_of(spec), _known()))
    state = {key: weights.read(key).to(device=device, dtype=dtype) for key in expected}
    backbone.load_state_dict(state, strict=True, assign=True)
    backbone.origin = weights.origin
    logger.info("weights: %s", weights.origin)
    return backbone


def save(backbone: Backbone, path: Path | str) -> None:
    """Write `backbone` as safetensors, atomically, with its spec and origin in the header."""
    from safetensors.torch import save_file

    metadata = {
        "format": _FORMAT,
        "arch": name_of(backbone.spec) or "",
        "spec": backbone.spec.to_json(),
        "origin": backbone.origin,
    }
    tensors = {key: tensor.detach().contiguous() for key, tensor in backbone.state_dict().items()}
    with atomic_path(Path(path)) as temporary, usual_permissions(temporary):
        save_file(tensors, temporary, metadata=metadata)


@contextlib.contextmanager
def usual_permissions(path: Path) -> Iterator[None]:
    """safetensors makes files that only their owner can read; give them what any new file here would have."""
    path.touch()
    mode = path.stat().st_mode
    yield
    path.chmod(mode)


def open_weights(path: Path, spec: BackboneSpec) -> WeightsFile:
    if not path.is_file():
        raise BackboneError(f"{path}: no such weights file; `factorjepa weights list` shows what can be fetched")
    if path.stat().st_size == 0:
        raise BackboneError(f"{path}: is empty (0 bytes); fetch it again")
    return _open_safetensors(path) if path.suffix == ".safetensors" else _open_official(path, spec)


def _open_safetensors(path: Path) -> WeightsFile:
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise BackboneError(f"{path}: cannot be read as safetensors ({error}); fetch or convert it again") from None
    metadata = file.metadata() or {}
    shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    inner = f" ({metadata['origin']})" if metadata.get("origin") else ""
    return WeightsFile(path, shapes, file.get_tensor, f"{path.name}{inner}", metadata.get("arch") or None)


def _open_official(path: Path, spec: BackboneSpec) -> WeightsFile:
    content = read_tensors(path)
    chosen = next((key for key in ENCODER_KEYS if isinstance(content.get(key), Mapping)), None)
    if chosen is None or not isinstance(content.get("predictor"), Mapping):
        found = ", ".join(sorted(map(str, content))[:_ROWS]) or "nothing"
        raise BackboneError(
            f"{path}: has no {'encoder' if chosen is None else 'predictor'}; expected the top-level keys predictor and "
            f"one of {', '.join(ENCODER_KEYS)}, found {found}"
        )
    tensors: dict[str, Tensor] = {}
    unused: list[str] = []
    for part, source in (("encoder", chosen), ("predictor", "predictor")):
        for key, tensor in _stripped(content[source]):
            if not spec.modalities and key in _UNUSED_IN_20:
                unused.append(key)
            else:
                tensors[f"{part}.{key}"] = tensor
    left_out = f" (left out, never read by a rotary model: {', '.join(unused)})" if unused else ""
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    return WeightsFile(path, shapes, tensors.__getitem__, f"{path.name}: {chosen}, predictor{left_out}")


def read_tensors(path: Path) -> Mapping[str, Any]:
    """What a torch file holds, memory-mapped: tensors and plain containers, or an error."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        reason = str(error).strip().splitlines()[0]
        raise BackboneError(
            f"{path}: is not a file of plain tensors, and nothing else is unpickled because that could run code "
            f"({reason}). Fetch the official file again, or save its state dicts alone"
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BackboneError(
            f"{path}: is damaged or incomplete ({reason}); check it with `factorjepa weights verify`"
        ) from None
    if not isinstance(content, Mapping):
        raise BackboneError(f"{path}: holds a {type(content).__name__}, not a checkpoint")
    return content


def _stripped(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for key, tensor in state.items():
        while key.startswith(_PREFIXES):
            key = key.partition(".")[2]
        yield key, tensor


def shapes_of(module: nn.Module) -> Shapes:
    return {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}


def explain(weights: WeightsFile, expected: Shapes, arch: str | None, known: Mapping[str, Shapes]) -> str:
    """What is missing, unexpected and misshapen, a few of each, and which of the `known` the file most likely is."""
    found = weights.shapes
    shared = expected.keys() & found.keys()
    kinds = {
        "missing": {key: f"expected {_text(expected[key])}" for key in expected if key not in found},
        "unexpected": {key: f"file has {_text(found[key])}" for key in found if key not in expected},
        "misshapen": {
            key: f"expected {_text(expected[key])}, file has {_text(found[key])}"
            for key in expected
            if key in shared and expected[key] != found[key]
        },
    }
    counts = ", ".join(f"{len(rows)} {kind}" for kind, rows in kinds.items())
    lines = [f"{weights.path}: does not hold the weights of {arch or 'this spec'}: {counts} keys."]
    width = max(len(key) for rows in kinds.values() for key in list(rows)[:_ROWS] or [""])
    for kind, rows in kinds.items():
        lines += [f"  {kind:<10}  {key:<{width}}  {text}" for key, text in list(rows.items())[:_ROWS]]
        if len(rows) > _ROWS:
            lines.append(f"  {kind:<10}  … and {len(rows) - _ROWS} more")
    return "\n".join([*lines, _advice(weights, arch, known)])


def _advice(weights: WeightsFile, arch: str | None, known: Mapping[str, Shapes]) -> str:
    likely, share = most_likely(weights.shapes, known)
    if weights.declared and weights.declared != arch:
        return f"  The file says that it is {weights.declared!r}: load it as that."
    if likely == arch or share < 0.5:
        return (
            f"  No known architecture fits better (nearest: {likely!r}, {share:.0%} of its keys): the file is of "
            "another model, or its keys were changed after training."
        )
    return f"  Most likely it is {likely!r} ({share:.0%} of its keys fit): load it as that."


def _known() -> dict[str, Shapes]:
    return {name: shapes_of(build(name, device="meta")) for name in names()}


def most_likely(found: Shapes, known: Mapping[str, Shapes]) -> tuple[str, float]:
    """The architecture of `known` whose keys and shapes agree most with `found`, and the share that does."""
    scores = {}
    for name, expected in known.items():
        agreeing = sum(found.get(key) == shape for key, shape in expected.items())
        scores[name] = agreeing / len(expected.keys() | found.keys())
    best = max(scores, key=scores.__getitem__)
    return best, scores[best]


def spec_of(path: Path) -> BackboneSpec | None:
    """The spec in the header of one of our own files; None for any other file."""
    from safetensors import SafetensorError, safe_open

    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError):
        return None
    return BackboneSpec.from_json(metadata["spec"]) if metadata.get("format") == _FORMAT else None


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
