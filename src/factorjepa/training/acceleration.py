"""How a learner is run on a GPU: frozen blocks in bf16, attention by the fastest kernel, blocks compiled.

None of it changes what is computed, only its rounding. A CPU runs everything as it is written, in fp32.

Compiled is block by block, not the whole model: forty equal blocks are one compilation, masks of another length are a
second one with a free length, and stages that train other blocks a third. Around the blocks the code stays Python.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator

import torch

from ..backbones.blocks import Block, fastest_attention
from ..predictors.branches import GatedAgents, Pairs
from .learner import Learner

log = logging.getLogger(__name__)

_VARIANTS = 64  # of one compiled block: lengths, widths, with and without gradients, on encoder and predictor


@contextlib.contextmanager
def accelerated(learner: Learner, device: torch.device, *, bf16: bool, compiled: bool) -> Iterator[None]:
    """Run `learner` fast within; its frozen weights stay in bf16 and its blocks compiled afterwards."""
    if bf16:
        learner.lower_frozen(torch.bfloat16)
    if compiled:
        compile_blocks(learner)
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    # TF32 where everything else is in bf16: what is left in fp32 are products of coordinates with dictionaries and of
    # channels with channels, for which ten bits are enough. Positions are never multiplied as matrices.
    torch.set_float32_matmul_precision("high" if bf16 else before)
    try:
        with fastest_attention():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def can_compile(device: torch.device) -> bool:
    """Whether to compile where the settings leave it open: on a GPU, where Triton is installed."""
    if device.type != "cuda":
        return False
    if importlib.util.find_spec("triton") is None:
        log.warning("Triton is not installed: blocks are not compiled, training is slower. pip install triton")
        return False
    return True


def compile_blocks(learner: Learner, backend: str = "inductor") -> None:
    """Compile what takes the time, in place; parameters keep their names."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _VARIANTS)
    for module in learner.modules():
        if isinstance(module, Block | GatedAgents):
            module.compile(backend=backend)
        elif isinstance(module, Pairs):
            module.compile_chunks(backend)
