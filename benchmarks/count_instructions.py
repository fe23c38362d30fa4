"""Instructions that our Triton kernels take for each number on Hopper GPUs, counted without one.

    pip install triton; python benchmarks/count_instructions.py

Kernels are compiled for sm_90 as they are at ViT-g's widths, with pointers and widths that are multiples of 16, and
disassembled. A kernel whose arithmetic takes longer than its memory's traffic is worth making shorter; one with more
loads than an eighth of its numbers (16 bytes each) does not read as wide as it could.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROWS = {"x": "*bf16", "rows": "*fp8e4nv", "scale": "*fp32", "width": "i32", "largest": "fp32", "smallest": "fp32"}
NORM = {
    "x": "*bf16", "more": "*bf16", "weight": "*bf16", "bias": "*bf16", "total": "*bf16", "rows": "*fp8e4nv",
    "scale": "*fp32", "width": "i32", "eps": "fp32", "largest": "fp32", "smallest": "fp32",
}  # fmt: skip
TURN = {"qkv": "*bf16", "q": "*bf16", "k": "*bf16", "v": "*bf16", "table": "*bf16", "rows": "i32", "period": "i32"}
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?([A-Z][A-Z0-9]*)")


def instructions(kernel: Any, signature: dict[str, str], constants: dict[str, Any], warps: int) -> Counter[str]:
    """By name, of one thread; nothing of them is a loop."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import compiler
    from triton.compiler import ASTSource

    signature = signature | dict.fromkeys(constants, "constexpr")
    wide = [i for i, kind in enumerate(signature.values()) if kind.startswith("*") or kind == "i32"]
    source = ASTSource(kernel, signature, constants, {(i,): [["tt.divisibility", 16]] for i in wide})
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    disassembler = Path(compiler.__file__).parent / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        said = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout
    counts = Counter(INSTRUCTION.findall(said))
    del counts["NOP"]
    return counts


def main() -> int:
    from factorjepa.backbones.eightrows import _normed, _plain
    from factorjepa.backbones.turning import _turn

    head = {"HEADS": 22, "WIDTH": 64, "SIZE": 2048, "TILE": 1}
    cases = {
        "GELU and rows, 6144": (_plain, ROWS, {"GELU": True, "SIZE": 2048, "PARTS": 3}, 8, 6144),
        "rows, 1408": (_plain, ROWS, {"GELU": False, "SIZE": 512, "PARTS": 3}, 4, 1408),
        "sum, norm and rows, 1408": (_normed, NORM, {"ADDS": True, "SIZE": 512, "PARTS": 3}, 4, 1408),
        "queries and keys turned, 2 x 1408": (_turn, TURN, {**head, "COPIES": False}, 4, 2 * 1408),
    }
    print("| kernel | instructions a number | loads a thread | of numbers |\n|---|---|---|---|")
    for name, (kernel, signature, constants, warps, numbers) in cases.items():
        counts, each = instructions(kernel, signature, constants, warps), numbers / (32 * warps)
        print(f"| {name} | {sum(counts.values()) / each:.1f} | {counts['LDG']} | {each:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
