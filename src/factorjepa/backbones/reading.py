"""Opening weights files without trusting them: official `.pt`, bare state dicts, safetensors, transformers' names.

What a file is, is read from its first bytes, not from its name. A torch file must be in the zip format (memory-mapped,
tensor by tensor) and is never unpickled beyond tensors and plain containers; anything else is refused unread.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import BackboneError
from .huggingface import SOURCE, is_huggingface, pieces

ENCODER_KEYS = ("target_encoder", "ema_encoder", "encoder")  # the averaged weights are the ones to use
PARTS = ("encoder.", "predictor.")
_PREFIXES = ("module.", "backbone.", "_orig_mod.")
FORMAT = "factorjepa-backbone"
SEAL, SETTINGS = "blake2b", "settings"  # in the header of a run's checkpoint
_FLOATING = {"F64", "F32", "F16", "BF16"}
_SHOWN = 6  # top-level keys named in an error

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class WeightsFile:
    """A weights file opened for reading: tensor shapes at once, tensors on demand."""

    path: Path
    shapes: Shapes  # by `encoder.…` and `predictor.…`; keys of neither kind as they are
    read: Callable[[str], Tensor]
    sources: dict[str, str]  # where each part was taken from, in words: {"encoder.": "target_encoder", …}
    whole_numbers: frozenset[str] = frozenset()  # keys whose tensors are not floating point, which weights are
    header: dict[str, str] = field(default_factory=dict)  # ours: arch, spec, origin
    run: str = ""  # of a run's checkpoint: the run's settings


def open_weights(path: Path) -> WeightsFile:
    """Whatever file of weights this is; an error that says what it is instead."""
    if not path.is_file():
        raise BackboneError(f"{path}: no such weights file; `factorjepa weights list` shows what can be fetched")
    try:
        with open(path, "rb") as file:
            start = file.read(64)
        if start.startswith(b"PK"):
            return _open_torch(path)
        if start[8:9] == b"{":  # safetensors: eight bytes of length, then JSON
            return _open_safetensors(path)
    except OSError as error:
        raise BackboneError(f"{path}: cannot be read ({error.strerror or error})") from None
    raise BackboneError(f"{path}: is not a weights file: {what_instead(path, start)}")


def what_instead(path: Path, start: bytes) -> str:
    """What a file that begins so is, if no file of weights, and what to do."""
    if not start:
        return "it is empty (0 bytes). Fetch it again"
    if path.suffix == ".safetensors":
        return "it does not begin as safetensors do (damaged or incomplete?). Fetch or convert it again"
    if start[0] == 0x80:
        return (
            "it is a bare pickle, and reading one could run code. Only torch's zip format is read: save its state "
            "dicts with torch 1.6 or later"
        )
    text = start.decode(errors="replace")
    if all(letter.isprintable() or letter.isspace() for letter in text):
        return f"it is text, beginning {text[:32]!r}. Fetch it again"
    return "it is neither a torch zip nor safetensors. Fetch it again"


def _open_safetensors(path: Path) -> WeightsFile:
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise BackboneError(
            f"{path}: is damaged or incomplete as safetensors ({error}); fetch or convert it again"
        ) from None
    slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
    if is_huggingface(slices):
        shapes = {key: tuple(one.get_shape()) for key, one in slices.items()}
        odd = frozenset(key for key, one in slices.items() if one.get_dtype() not in _FLOATING)
        return _translated(path, shapes, file.get_tensor, odd)
    stored = _placed(path, slices)
    metadata: dict[str, str] = file.metadata() or {}
    ours = metadata.get("format") == FORMAT
    return WeightsFile(
        path,
        {key: tuple(slices[source].get_shape()) for key, source in stored.items()},
        lambda key: file.get_tensor(stored[key]),
        {} if ours else _bare(stored),
        frozenset(key for key, source in stored.items() if slices[source].get_dtype() not in _FLOATING),
        metadata if ours else {},
        metadata.get(SETTINGS, "") if SEAL in metadata else "",
    )


def _open_torch(path: Path) -> WeightsFile:
    content = read_torch(path)
    chosen = next((key for key in ENCODER_KEYS if isinstance(content.get(key), Mapping)), None)
    if chosen is not None:
        sources = {"encoder.": chosen}
        tensors = _under(path, "encoder.", content[chosen])
        if isinstance(content.get("predictor"), Mapping):
            sources["predictor."] = "predictor"
            tensors |= _under(path, "predictor.", content["predictor"])
    else:
        flat = _bare_tensors(path, content)
        if is_huggingface(flat):
            shapes = {key: tuple(tensor.shape) for key, tensor in flat.items()}
            odd = frozenset(key for key, tensor in flat.items() if not tensor.is_floating_point())
            return _translated(path, shapes, flat.__getitem__, odd)
        tensors = {key: flat[source] for key, source in _placed(path, flat).items()}
        sources = _bare(tensors)
    return WeightsFile(
        path,
        {key: tuple(tensor.shape) for key, tensor in tensors.items()},
        tensors.__getitem__,
        sources,
        frozenset(key for key, tensor in tensors.items() if not tensor.is_floating_point()),
    )


def _translated(
    path: Path, shapes: Shapes, tensor: Callable[[str], Tensor], whole_numbers: frozenset[str]
) -> WeightsFile:
    """A file in the names of transformers, under ours."""
    found = pieces(shapes)
    return WeightsFile(
        path,
        {key: piece.shape(shapes) for key, piece in found.items()},
        lambda key: found[key].read(tensor),
        {part: SOURCE for part in PARTS if any(key.startswith(part) for key in found)},
        frozenset(key for key, piece in found.items() if whole_numbers & {*piece.sources}),
    )


def _bare_tensors(path: Path, content: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The tensors of a file without named parts: at its top, or in the one dict of tensors that it has."""
    for state in (content, *(value for value in content.values() if isinstance(value, Mapping))):
        if flat := {key: tensor for key, tensor in state.items() if _is_named_tensor(key, tensor)}:
            return flat
    found = ", ".join(sorted(map(str, content))[:_SHOWN]) or "nothing"
    raise BackboneError(
        f"{path}: has no encoder; expected the top-level keys {' or '.join(ENCODER_KEYS)} (and predictor), or the "
        f"encoder's own tensors, found {found}"
    )


def _is_named_tensor(key: object, value: object) -> bool:
    return isinstance(key, str) and isinstance(value, Tensor)


def read_torch(path: Path) -> Mapping[Any, Any]:
    """What a torch file holds, memory-mapped: tensors and plain containers, or an error."""
    if not zipfile.is_zipfile(path):  # the list of a zip's contents is at its end
        raise BackboneError(f"{path}: is damaged or incomplete (its end is missing); fetch it again")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        raise BackboneError(
            f"{path}: is not a file of plain tensors, and nothing else is unpickled because that could run code "
            f"({_reason(error)}). Fetch the official file again, or save its state dicts alone"
        ) from None
    except Exception as error:  # whatever a damaged or hostile file makes the reader raise
        raise BackboneError(f"{path}: is damaged, or a zip that torch did not write ({_reason(error)})") from None
    if not isinstance(content, Mapping):
        raise BackboneError(f"{path}: holds a {type(content).__name__}, not a checkpoint")
    return content


def _reason(error: Exception) -> str:
    """The line of torch's long messages that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if "WeightsUnpickler error:" in line), lines[0] if lines else "")
    telling = telling.partition("WeightsUnpickler error:")[2].strip() or telling or type(error).__name__
    return telling.partition(". ")[0]  # what follows is advice to allow it


def _under(path: Path, part: str, state: Mapping[Any, Any]) -> dict[str, Tensor]:
    for key, value in state.items():
        if not _is_named_tensor(key, value):
            raise BackboneError(
                f"{path}: its {part[:-1]} is not a state dict: it maps {key!r} to a {type(value).__name__}, not a name "
                "to a tensor"
            )
    return {f"{part}{key}": state[source] for key, source in _stripped(path, state).items()}


def _placed(path: Path, keys: Iterable[str]) -> dict[str, str]:
    """Our name of each key of a flat file; a file without our parts is taken for a bare encoder."""
    stripped = _stripped(path, keys)
    if any(key.startswith(PARTS) for key in stripped):
        return stripped
    return {f"encoder.{key}": source for key, source in stripped.items()}


def _stripped(path: Path, keys: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for source in keys:
        key = source
        while key.startswith(_PREFIXES):
            key = key.partition(".")[2]
        if key in names:
            raise BackboneError(f"{path}: holds {key!r} twice, as {names[key]!r} and {source!r}: which one is meant?")
        names[key] = source
    return names


def _bare(keys: Collection[str]) -> dict[str, str]:
    return {part: f"bare {part[:-1]}" for part in PARTS if any(key.startswith(part) for key in keys)}
