"""L_decode: each term against its equation, and what a weight of zero means."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from factorjepa.rendering.objective import (
    EPSILON_CHAR,
    charbonnier,
    decode_loss,
    lucas_kanade,
    motion,
    squared_weights,
    structure,
)
from factorjepa.rendering.settings import ObjectiveWeights

torch.manual_seed(0)
SHOWN, FUTURE, LAST = torch.rand(2, 3, 3, 16, 16), torch.rand(2, 3, 3, 16, 16), torch.rand(2, 3, 16, 16)


def no_weights() -> Tensor:
    raise AssertionError("a disabled term is not computed")


def test_the_pixel_term_is_its_equation() -> None:
    literal = [
        ((a - b) ** 2 + EPSILON_CHAR**2) ** 0.5
        for a, b in zip(SHOWN.double().flatten().tolist(), FUTURE.double().flatten().tolist(), strict=True)
    ]
    assert float(charbonnier(SHOWN.double(), FUTURE.double())) == pytest.approx(sum(literal) / len(literal))


def test_equal_futures_cost_next_to_nothing() -> None:
    assert float(charbonnier(FUTURE, FUTURE)) == pytest.approx(EPSILON_CHAR)
    assert float(structure(FUTURE, FUTURE)) == pytest.approx(0, abs=1e-5)
    assert float(motion(FUTURE, FUTURE, LAST)) == 0


def test_the_flow_of_the_motion_term_finds_a_small_shift() -> None:
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")

    def picture(shift: float) -> Tensor:
        waves = torch.sin((x - shift) / 4) + torch.cos((y + 0.5 * (x - shift)) / 5)
        return (0.5 + 0.2 * waves).expand(1, 3, 48, 48)

    flow = lucas_kanade(picture(0), picture(1.0))[0, :, 4:-4, 4:-4].mean((1, 2))
    assert flow.tolist() == pytest.approx([0.5, 0.0], abs=0.06)  # pixels of the half-size picture


def test_terms_of_weight_zero_are_not_computed_and_not_named() -> None:
    loss, parts = decode_loss(SHOWN, FUTURE, LAST, ObjectiveWeights(structure=0.0), no_weights)
    assert set(parts) == {"pixel"}
    torch.testing.assert_close(loss, charbonnier(SHOWN, FUTURE))


def test_the_sum_is_of_weighted_terms() -> None:
    weights = ObjectiveWeights(pixel=2.0, perceptual=0.5, structure=0.25, motion=0.1, regularisation=0.01)
    loss, parts = decode_loss(
        SHOWN, FUTURE, LAST, weights, lambda: torch.tensor(7.0), lambda a, b: torch.square(a - b).mean((1, 2, 3))
    )
    assert set(parts) == set(ObjectiveWeights.model_fields)
    assert float(loss) == pytest.approx(sum(getattr(weights, name) * float(part) for name, part in parts.items()))


def test_every_term_tells_the_decoder_where_to_go() -> None:
    shown = SHOWN.clone().requires_grad_()
    for term in (charbonnier(shown, FUTURE), structure(shown, FUTURE), motion(shown, FUTURE, LAST)):
        (gradient,) = torch.autograd.grad(term, shown)
        assert gradient.abs().sum() > 0


def test_the_regulariser_counts_what_trains_only() -> None:
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    nn.init.constant_(module[0].weight, 3.0)  # type: ignore[arg-type]
    module[1].requires_grad_(False)
    assert squared_weights(module).item() == pytest.approx(9.0)


def test_an_objective_without_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="every term of the objective is disabled"):
        ObjectiveWeights(pixel=0, structure=0)
