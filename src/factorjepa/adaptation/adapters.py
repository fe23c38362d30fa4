"""LoRA and DoRA on Q, K, V, O and both MLP projections of every block, by `peft`.

The adapters are injected into the modules in place: names, forward passes and the momentum encoder's sharing of frozen
weights stay as they are. V-JEPA stores Q, K and V as one projection, which gets one adapter.
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from ..errors import TrainingError
from .method import Method

PROJECTIONS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")

LORA = Method(
    name="lora",
    title="LoRA",
    family="generic",
    why="generic low-rank adaptation within the same budget",
    encoder="lora",
    predictor_scope="lora",
    matched=True,
)
DORA = Method(
    name="dora",
    title="DoRA",
    family="generic",
    why="LoRA with a trained magnitude for each output, within the same budget",
    encoder="dora",
    predictor_scope="dora",
    matched=True,
)


def inject(module: nn.Module, kind: Literal["lora", "dora"], rank: int, alpha: float, dropout: float) -> None:
    """Freeze `module` and give each of its blocks' projections a low-rank adapter that starts as zero."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise TrainingError(f"{kind} needs the package peft: pip install 'factorjepa[adapters]'") from None
    module.requires_grad_(False)
    config = LoraConfig(
        r=rank,
        lora_alpha=round(alpha),
        lora_dropout=dropout,
        target_modules=rf".*blocks\.\d+\.({'|'.join(name.replace('.', chr(92) + '.') for name in PROJECTIONS)})",
        use_dora=kind == "dora",
    )
    inject_adapter_in_model(config, module)
