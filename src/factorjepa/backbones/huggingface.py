"""Weights in the names of Hugging Face transformers (V-JEPA 2, I-JEPA, DINOv2), told in the publishers' names.

The tensors are the same but for two things: queries, keys and values are three tensors there and one here, and the
predictor's mask tokens are one there and several here. A key that is not known keeps its name, so that strict loading
names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

SOURCE = "names of Hugging Face transformers"
_THIRDS = ("query", "key", "value")
_MASK_TOKENS = "predictor.embeddings.mask_tokens"

_OUTSIDE = {
    "encoder.embeddings.patch_embeddings.proj": "encoder.patch_embed.proj",
    "encoder.layernorm": "encoder.norm",
    "predictor.embeddings.predictor_embeddings": "predictor.predictor_embed",
    "predictor.layernorm": "predictor.predictor_norm",
    "predictor.proj": "predictor.predictor_proj",
    "embeddings.patch_embeddings.projection": "encoder.patch_embed.proj",
    "embeddings.position_embeddings": "encoder.pos_embed",
    "embeddings.cls_token": "encoder.cls_token",
    "embeddings.mask_token": "encoder.mask_token",
    "embeddings.register_tokens": "encoder.register_tokens",
    "layernorm": "encoder.norm",
}
_BLOCKS = {"encoder": "encoder.blocks", "predictor": "predictor.predictor_blocks"}
_INSIDE = {
    "attention.output.dense": "attn.proj", "attention.proj": "attn.proj", "layernorm_before": "norm1", "norm1": "norm1",
    "layernorm_after": "norm2", "norm2": "norm2", "mlp.fc1": "mlp.fc1", "intermediate.dense": "mlp.fc1",
    "mlp.fc2": "mlp.fc2", "output.dense": "mlp.fc2", "mlp.weights_in": "mlp.w12", "mlp.weights_out": "mlp.w3",
    "layer_scale1.lambda1": "ls1.gamma", "layer_scale2.lambda1": "ls2.gamma",
}  # fmt: skip
_LAYER = re.compile(r"(encoder|predictor)\.layer\.(\d+)\.(.+)")
_THIRD = re.compile(r"(?:attention\.)?attention\.(query|key|value)")


@dataclass(frozen=True)
class Piece:
    """Where one of our tensors comes from: several of the file's, one above the other, or one row of one."""

    sources: tuple[str, ...]
    row: int | None = None

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        first, *others = (shapes[source] for source in self.sources)
        if self.row is not None:
            return first[1:]
        return (first[0] + sum(other[0] for other in others), *first[1:]) if others else first

    def read(self, tensor: Callable[[str], Tensor]) -> Tensor:
        if self.row is not None:
            return tensor(self.sources[0])[self.row]
        return torch.cat([tensor(one) for one in self.sources]) if len(self.sources) > 1 else tensor(self.sources[0])


def is_huggingface(keys: Iterable[str]) -> bool:
    """Whether a file has these names: its blocks are called layers."""
    return any(_LAYER.fullmatch(key) for key in keys)


def pieces(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Piece]:
    """Our name of everything in a file, and what it is made of."""
    found: dict[str, Piece] = {}
    for key in shapes:
        if key == _MASK_TOKENS:
            found |= {f"predictor.mask_tokens.{row}": Piece((key,), row) for row in range(shapes[key][0])}
        elif third := _third(key):
            whole = tuple(key.replace(f".{third}.", f".{other}.") for other in _THIRDS)
            if any(one not in shapes or shapes[one][1:] != shapes[key][1:] for one in whole):
                found[key] = Piece((key,))
            elif third == _THIRDS[0]:
                found[_renamed(key)] = Piece(whole)
        else:
            found[_renamed(key)] = Piece((key,))
    return found


def _third(key: str) -> str | None:
    """Which of query, key and value it belongs to."""
    layer = _LAYER.fullmatch(key)
    match = _THIRD.match(layer[3]) if layer else None
    return match[1] if match else None


def _renamed(key: str) -> str:
    stem, dot, kind = key.rpartition(".") if key.endswith((".weight", ".bias")) else (key, "", "")
    if layer := _LAYER.fullmatch(stem):
        part, number, inside = layer.groups()
        name = "attn.qkv" if _THIRD.fullmatch(inside) else _INSIDE.get(inside)
        return f"{_BLOCKS[part]}.{number}.{name}{dot}{kind}" if name else key
    return f"{_OUTSIDE[stem]}{dot}{kind}" if stem in _OUTSIDE else key
