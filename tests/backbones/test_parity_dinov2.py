"""What we compute with DINOv2 weights is what transformers' independent models compute."""

from __future__ import annotations

import dataclasses
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from factorjepa.backbones.dinov2 import PATCH, SPECS, Dinov2, Dinov2Spec, build_dinov2
from factorjepa.errors import BackboneError

pytest.importorskip("transformers")
REFERENCE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "bench_features.py"), run_name="reference")
TOLERANCE = 1e-4

SMALL = Dinov2Spec(dim=48, depth=3, heads=3, grid=7)
KINDS = {
    "plain": SMALL,
    "registers": dataclasses.replace(SMALL, registers=4),
    "swiglu": dataclasses.replace(SMALL, swiglu=True),
    "swiglu and registers": dataclasses.replace(SMALL, swiglu=True, registers=4),
}


def lively(spec: Dinov2Spec) -> Dinov2:
    """Random weights in which every parameter matters: fresh scales of 1 and biases of 0 would hide a mistake."""
    model = build_dinov2(spec).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def bicubic(table: NDArray[np.float64], size: int, scale: float) -> NDArray[np.float64]:
    """Keys' cubic (a = -0.75) along both sides of `[M, M, D]`; cell i of the result lies at (i + 0.5) / scale - 0.5."""

    def matrix() -> NDArray[np.float64]:
        side = len(table)
        rows = np.zeros((size, side))
        for i in range(size):
            x = (i + 0.5) / scale - 0.5
            for k in range(int(np.floor(x)) - 1, int(np.floor(x)) + 3):
                d = abs(x - k)
                a = -0.75
                near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
                rows[i, np.clip(k, 0, side - 1)] += near if d <= 1 else far
        return rows

    return np.einsum("im,jn,mnd->ijd", matrix(), matrix(), table)


@pytest.mark.parametrize("kind", KINDS)
def test_last_block_equals_transformers_at_the_size_of_the_table(kind: str) -> None:
    ours = lively(KINDS[kind])
    size = SMALL.grid * PATCH
    theirs = REFERENCE["transformers_model"](ours.spec, size).eval()
    theirs.load_state_dict(REFERENCE["to_transformers"](ours.state_dict(), theirs.state_dict()), strict=True)
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(images).last_hidden_state
        actual = ours(images, class_token=True)
    torch.testing.assert_close(actual[:, :1], expected[:, :1], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(actual[:, 1:], expected[:, 1 + ours.spec.registers :], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(ours(images), actual[:, 1:], rtol=0, atol=0)


@pytest.mark.parametrize(("height", "width"), [(4, 4), (11, 11), (7, 5)])
def test_with_registers_other_sizes_equal_transformers(height: int, width: int) -> None:
    """transformers resamples these positions itself, antialiased as released."""
    ours = lively(KINDS["registers"])
    theirs = REFERENCE["transformers_model"](ours.spec, SMALL.grid * PATCH).eval()
    theirs.load_state_dict(REFERENCE["to_transformers"](ours.state_dict(), theirs.state_dict()), strict=True)
    images = torch.randn(1, 3, height * PATCH, width * PATCH, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state[:, 5:], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("side", [4, 6, 8, 16])
def test_without_registers_positions_are_resampled_with_the_released_offset(side: int) -> None:
    """transformers leaves the offset of 0.1 out, so it gets the positions from a cubic written down here."""
    ours = lively(KINDS["plain"])
    table = ours.pos_embed[0, 1:].double().numpy().reshape(SMALL.grid, SMALL.grid, -1)
    resampled = torch.from_numpy(bicubic(table, side, (side + 0.1) / SMALL.grid)).float().reshape(1, side**2, -1)
    theirs = REFERENCE["transformers_model"](ours.spec, side * PATCH).eval()
    state = {**ours.state_dict(), "pos_embed": torch.cat((ours.pos_embed[:, :1], resampled), dim=1)}
    theirs.load_state_dict(REFERENCE["to_transformers"](state, theirs.state_dict()), strict=True)
    images = torch.randn(1, 3, side * PATCH, side * PATCH, generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state[:, 1:], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_an_earlier_block_is_normalised_by_the_final_norm(block: int) -> None:
    ours = lively(KINDS["swiglu and registers"])
    size = SMALL.grid * PATCH
    theirs = REFERENCE["transformers_model"](ours.spec, size).eval()
    theirs.load_state_dict(REFERENCE["to_transformers"](ours.state_dict(), theirs.state_dict()), strict=True)
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        hidden = theirs(images, output_hidden_states=True).hidden_states[block + 1]
        torch.testing.assert_close(ours(images, block=block), theirs.layernorm(hidden)[:, 5:], rtol=0, atol=TOLERANCE)


def test_the_real_small_size_equals_transformers_at_224_px() -> None:
    ours = build_dinov2("dinov2_vits14_reg").eval()
    theirs = REFERENCE["transformers_model"](ours.spec, 518).eval()
    theirs.load_state_dict(REFERENCE["to_transformers"](ours.state_dict(), theirs.state_dict()), strict=True)
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images).last_hidden_state[:, 5:], rtol=0, atol=TOLERANCE)


# Of the released files, counted once from their published sizes: 22.06, 86.58, 304.37 and 1136.48 million, and four
# registers more.
PARAMETERS = {
    "dinov2_vits14": 22_056_576, "dinov2_vitb14": 86_580_480, "dinov2_vitl14": 304_368_640,
    "dinov2_vitg14": 1_136_480_768,
}  # fmt: skip


@pytest.mark.parametrize("arch", SPECS)
def test_parameters_are_as_many_as_released_and_as_in_transformers(arch: str) -> None:
    ours = build_dinov2(arch, device="meta")
    theirs: Any = REFERENCE["transformers_model"](ours.spec, 518, "meta")
    count = sum(parameter.numel() for parameter in ours.parameters())
    assert count == sum(parameter.numel() for parameter in theirs.parameters())
    assert count == PARAMETERS[arch.removesuffix("_reg")] + ours.spec.registers * ours.spec.dim


def test_sizes_and_blocks_that_do_not_exist_are_errors() -> None:
    model = build_dinov2(SMALL)
    with pytest.raises(BackboneError, match=r"whole patches of 14 px, got \[1, 3, 100, 98\]"):
        model(torch.zeros(1, 3, 100, 98))
    with pytest.raises(BackboneError, match="no block 3; they are 0 to 2"):
        model(torch.zeros(1, 3, 98, 98), block=3)
    with pytest.raises(BackboneError, match="did you mean 'dinov2_vits14_reg'"):
        build_dinov2("dinov2_vits14_reg4")
