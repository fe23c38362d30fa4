"""The transport operator: from tokens of any grid to a generator's latents."""

from __future__ import annotations

import pytest
import torch

from factorjepa.errors import RenderingError
from factorjepa.rendering.settings import DecoderSettings
from factorjepa.rendering.transport import Transport, interpolated, positions

SETTINGS = DecoderSettings(width=24, depth=1, heads=2, channels=5)


def transport() -> Transport:
    torch.manual_seed(0)
    return Transport(16, 5, 2, SETTINGS).eval()


@pytest.mark.parametrize(("grid", "size"), [((2, 4, 4), (4, 4)), ((2, 4, 6), (8, 12)), ((1, 3, 5), (3, 5))])
def test_one_operator_serves_every_grid_and_every_size_of_latents(
    grid: tuple[int, int, int], size: tuple[int, int]
) -> None:
    y, r, c = grid
    latents = transport()(torch.randn(3, y * r * c, 16), grid, 2 * y, size)
    assert latents.shape == (3, 2 * y, 5, *size)


def test_a_tubelet_gives_its_frames_in_order_and_a_token_its_own_place() -> None:
    operator = transport()
    for block in operator.blocks:  # no attention: what a token gives depends on that token alone
        torch.nn.init.zeros_(block.self_attn.out_proj.weight)  # type: ignore[union-attr, arg-type]
    tokens = torch.randn(1, 2 * 3 * 4, 16)
    changed = tokens.clone()
    changed[0, 1 * 12 + 2 * 4 + 3] += 1.0  # second tubelet, third row, fourth column
    with torch.no_grad():
        apart = (operator(changed, (2, 3, 4), 4, (3, 4)) - operator(tokens, (2, 3, 4), 4, (3, 4))).abs().sum((0, 2))
    assert {tuple(place) for place in apart.nonzero().tolist()} == {(2, 2, 3), (3, 2, 3)}


def test_the_scale_and_the_offset_of_a_token_do_not_matter() -> None:
    """LN(Y) comes first: no source of latents is favoured by its statistics."""
    tokens = torch.randn(2, 8, 16)
    operator = transport()
    with torch.no_grad():
        torch.testing.assert_close(
            operator(3 * tokens + 2, (2, 2, 2), 4, (2, 2)), operator(tokens, (2, 2, 2), 4, (2, 2)), atol=1e-4, rtol=0
        )


def test_places_and_moments_have_codes_of_their_own() -> None:
    codes = positions((3, 5, 7), 64, torch.device("cpu"))
    assert codes.shape == (105, 64)
    assert (torch.cdist(codes, codes) + 99 * torch.eye(105)).min() > 0.1


def test_interpolation_leaves_what_fits_alone() -> None:
    latents = torch.randn(1, 2, 3, 4, 4)
    assert interpolated(latents, 2, (4, 4)) is latents
    assert interpolated(latents, 3, (8, 8)).shape == (1, 3, 3, 8, 8)


def test_tokens_of_another_backbone_are_refused() -> None:
    with pytest.raises(RenderingError, match=r"reads 8 tokens of width 16 .* not \(8, 24\): .* another backbone"):
        transport()(torch.randn(1, 8, 24), (2, 2, 2), 4, (2, 2))
