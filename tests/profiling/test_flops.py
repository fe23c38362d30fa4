"""Counts from the spec against torch's own counter, which watches the products that are really done."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from factorjepa.backbones import build
from factorjepa.backbones.spec import resolve
from factorjepa.config import resolve as resolved
from factorjepa.predictors import FactorizedOptions, MonolithicOptions
from factorjepa.profiling.flops import (
    Trained,
    backward_flops,
    block_weights,
    encoder_flops,
    nominal_peak,
    prediction_flops,
    query_flops,
    tokeniser_flops,
    update_flops,
)
from factorjepa.profiling.subject import Subject
from factorjepa.profiling.synthetic import Scenery, training_batches
from factorjepa.training.settings import TrainSettings

GIANT = "vjepa2_1_vit_giant_384"
TOP = Trained(1, block_weights(resolve(GIANT)))  # its last block


def counted(call: Callable[[], object]) -> int:
    """Attention as plain products: the counter does not know the CPU's fused kernel."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    return int(counter.get_total_flops())


def test_the_encoder_costs_what_its_products_cost() -> None:
    encoder = build("tiny").encoder
    video, keep = torch.randn(1, 3, 12, 32, 32), torch.arange(30)[None]
    with torch.no_grad():
        found = counted(lambda: encoder(video, keep, levels=True))
    # All 96 tokens are embedded before 30 of them are kept.
    assert found == encoder_flops(encoder.spec, 30, encoder.spec.depth) + tokeniser_flops(encoder.spec, 96)


def test_q_costs_what_its_products_cost() -> None:
    predictor = build("tiny").predictor
    spec, context, target = predictor.spec, torch.arange(20)[None], torch.arange(96, 128)[None]
    levels = torch.randn(1, 20, spec.levels_width)
    with torch.no_grad():
        found = counted(lambda: predictor.transform(levels, context, target, targets_alone=True))
    assert found == query_flops(spec, 20, 32)


def test_a_tail_spares_what_nobody_reads() -> None:
    encoder, video = build("tiny").encoder, torch.randn(1, 3, 16, 32, 32)
    with torch.no_grad():
        found = counted(lambda: encoder(video, tail=32))
    assert found == encoder_flops(encoder.spec, 128, encoder.spec.depth, 32) + tokeniser_flops(encoder.spec, 128)


@pytest.mark.parametrize("of_last", [(1,), (2,), (3,), (3, 1), (3, 2, 1)])
def test_a_backward_pass_costs_what_its_products_cost(of_last: tuple[int, ...]) -> None:
    """Blocks between the lowest that trains and the last pass gradients on, whether they train or not."""
    encoder, tokens = build("tiny").encoder, 30
    spec, passed = encoder.spec, max(of_last)
    encoder.freeze(spec.depth - passed)
    encoder.requires_grad_(False)
    for number in of_last:
        encoder.blocks[-number].requires_grad_(True)
    weights = len(of_last) * block_weights(spec)
    video, keep = torch.randn(1, 3, 12, 32, 32), torch.arange(tokens)[None]
    forwards = counted(lambda: encoder(video, keep))
    both = counted(lambda: encoder(video, keep).sum().backward())
    assert both - forwards == backward_flops(spec, tokens, passed, weights)


@pytest.mark.parametrize(
    ("method", "options"),
    [("auto_rgn", {}), ("auto_rgn_look", {}), ("lora", {}), ("full", {}), ("factorjepa", {"recalled": True}),
     ("auto_rgn_views", {"recalled": True, "recall_follows": True}),
     ("factorjepa_both_chosen", {}), ("mono_direct_late_chosen", {}), ("factorjepa_early", {}),
     ("no_interaction_path", {}), ("residual_path", {})],
)  # fmt: skip
def test_an_update_of_every_kind_costs_about_what_its_products_cost(method: str, options: dict[str, bool]) -> None:
    """Blocks that gradients only pass through, levelled budgets, a look back; adapters of the predictor count less."""
    words = ["batch=2", "masks=blocks", *(f"predictor.{name}={value}" for name, value in options.items())]
    found, told = counted_and_told(resolved(TrainSettings, "nano", words, data="-", arch="nano", method=method))
    assert (0.85 if method == "lora" else 0.98) * found < told < 1.01 * found


def test_an_update_costs_about_what_its_products_cost(settings: TrainSettings) -> None:
    """Norm-wise maps and gathers as products are left out, and gradients of first inputs are not needed: 15 %."""
    found, told = counted_and_told(settings)
    assert told == pytest.approx(found, rel=0.15)


def counted_and_told(settings: TrainSettings) -> tuple[int, float]:
    scenery = Scenery(agents=6, neighbours=2)
    with Subject.made(settings, torch.device("cpu")) as subject:
        update = subject.update(settings)
        batch = training_batches(settings, subject.grid(settings)[1], scenery, 1)[0]
        update.begin(settings.updates)
        found = counted(lambda: update(settings.updates, [batch], 1))
        told = subject.update_flops(settings, scenery)
        assert told is not None
        return found, told.total * settings.batch


def test_a_cached_context_is_read_where_a_pass_shows_all_of_it() -> None:
    spec = resolve(GIANT)

    def of(cached_context: int | None) -> float:
        return update_flops(
            spec, FactorizedOptions(), TOP, clip=4608, target=1152, visible=(3456, 666), agents=0, pairs=0, cached=1.0,
            cached_context=cached_context,
        ).context  # fmt: skip

    spared = tokeniser_flops(spec, 3456) + encoder_flops(spec, 3456, spec.depth - 1)
    assert of(None) - of(3456) == pytest.approx(spared)


def test_the_giant_needs_what_the_reference_arithmetic_says() -> None:
    """4,608 tokens, 40 blocks of width 1,408 and hidden width 6,144: 13.9 TFLOP for the target alone."""
    flops = update_flops(
        resolve(GIANT), FactorizedOptions(), TOP, clip=4608, target=1152, visible=(1338, 666), agents=16, pairs=96
    )
    assert flops.target == pytest.approx(13.9e12, rel=0.01)
    assert flops.context == pytest.approx(4.7e12, rel=0.03)
    assert 0 < flops.predictor < 0.2 * flops.total


def test_the_cache_spares_the_frozen_blocks_of_the_target_alone() -> None:
    def of(cached: float) -> tuple[float, float, float]:
        flops = update_flops(
            resolve(GIANT), FactorizedOptions(), TOP, clip=4608, target=1152, visible=(1338, 666), agents=0, pairs=0,
            cached=cached,
        )  # fmt: skip
        return flops.target, flops.context, flops.predictor

    whole, half, none = of(0.0), of(0.5), of(1.0)
    assert whole[1:] == half[1:] == none[1:]
    assert half[0] == pytest.approx((whole[0] + none[0]) / 2)
    assert none[0] == encoder_flops(resolve(GIANT), 4608, 1, 1152)


def test_pairs_cost_the_factorized_predictor_and_not_the_plain_one() -> None:
    spec = resolve(GIANT)
    crowded, empty = (prediction_flops(spec, FactorizedOptions(), 3456, 1152, n, 12 * n).predictor for n in (64, 0))
    assert crowded > empty
    plain = [prediction_flops(spec, MonolithicOptions(), 3456, 1152, n, 12 * n).predictor for n in (64, 0)]
    assert plain[0] == plain[1]


def test_the_peak_is_known_by_the_name_of_the_device() -> None:
    assert nominal_peak("NVIDIA H200") == 989e12
    assert nominal_peak("some other machine") is None
