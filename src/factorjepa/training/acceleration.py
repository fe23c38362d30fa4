"""How a learner is run on a GPU: frozen blocks in bf16, attention by the fastest kernel, blocks compiled.

None of it changes what is computed, only its rounding. A CPU runs everything as it is written, in fp32.

Compiled is block by block, not the whole model: forty equal blocks are one compilation, passes of another length are
another one, and so are blocks that train. Around the blocks the code stays Python.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator

import torch

from ..backbones.blocks import Block, fastest_attention
from ..backbones.eightbit import EightBitBlock, can_multiply
from ..errors import TrainingError
from ..predictors.branches import GatedAgents, Pairs
from .learner import Learner
from .settings import TrainSettings
from .update import in_bf16

log = logging.getLogger(__name__)

_VARIANTS = 64  # of one compiled block: lengths, widths, with and without gradients, on encoder and predictor


@contextlib.contextmanager
def accelerated(
    learner: Learner, settings: TrainSettings, device: torch.device, whole_weights: bool = True
) -> Iterator[bool]:
    """Run `learner` fast within; its frozen weights stay lowered and its blocks compiled afterwards. Gives whether they
    are compiled.

    Neither is done where weights are cut into slices (FSDP): those are of one kind. With masks of the kind `blocks`
    every pass has one of few lengths, and each is compiled for itself.
    """
    bf16 = in_bf16(settings, device)
    compiled = whole_weights and (can_compile(device) if settings.compile is None else settings.compile)
    if bf16 and whole_weights:
        learner.lower_frozen(torch.bfloat16, settings.frozen_bits)
    if compiled:
        compile_blocks(learner, dynamic=False if settings.masks == "blocks" else None)
    if device.type != "cuda":
        yield compiled
        return
    before = torch.get_float32_matmul_precision()
    # TF32 where everything else is in bf16: what is left in fp32 are products of coordinates with dictionaries and of
    # channels with channels, for which ten bits are enough. Positions are never multiplied as matrices.
    tf32 = settings.precision == "tf32" or (bf16 and whole_weights)
    torch.set_float32_matmul_precision("high" if tf32 else before)
    try:
        with fastest_attention():
            yield compiled
    finally:
        torch.set_float32_matmul_precision(before)


def refuse_bits(settings: TrainSettings, device: torch.device, whole_weights: bool = True) -> None:
    """Before anything is built: eight bits need a GPU that has them, and weights that are not cut into slices."""
    if settings.frozen_bits == 16 or (in_bf16(settings, device) and whole_weights and can_multiply(device)):
        return
    needs = "needs precision=bf16 on a GPU that multiplies fp8 (Ada, Hopper or later)"
    why = needs if whole_weights else "is not for FSDP, which cuts weights into slices"
    raise TrainingError(f"frozen_bits={settings.frozen_bits} {why}; set frozen_bits=16")


def can_compile(device: torch.device) -> bool:
    """Whether to compile where the settings leave it open: on a GPU, where Triton is installed."""
    if device.type != "cuda":
        return False
    if importlib.util.find_spec("triton") is None:
        log.warning("Triton is not installed: blocks are not compiled, training is slower. pip install triton")
        return False
    return True


def _kernels_instead(block: EightBitBlock) -> bool:
    """Whether our kernels serve it: they are faster than compiling it and leave the compiler nothing to do."""
    weight = block.norm1.weight
    return block.has_kernels(weight.device, weight.dtype)


def compile_blocks(learner: Learner, backend: str = "inductor", dynamic: bool | None = None) -> None:
    """Compile what takes the time, in place; parameters keep their names.

    `dynamic` is about the blocks: False compiles for each number of tokens, None for any after the second one. How many
    agents and pairs there are changes from batch to batch, and is always left open.
    """
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
    for module in learner.modules():
        if isinstance(module, EightBitBlock) and _kernels_instead(module):
            continue
        if isinstance(module, Block):
            module.compile(backend=backend, dynamic=dynamic)
        elif isinstance(module, GatedAgents):
            module.compile(backend=backend)
        elif isinstance(module, Pairs):
            module.compile_chunks(backend)
