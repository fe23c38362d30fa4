"""What makes training fast changes nothing but rounding: frozen blocks in bf16, compiled blocks, states on the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from factorjepa.backbones.eightbit import EightBitBlock, EightBitLinear
from factorjepa.errors import BackboneError, TrainingError
from factorjepa.training.acceleration import accelerated, can_compile, compile_blocks, refuse_bits
from factorjepa.training.engine import Engine
from factorjepa.training.settings import TrainSettings
from factorjepa.training.step import loss_of

Make = Callable[..., TrainSettings]
CPU = torch.device("cpu")


def test_frozen_blocks_are_kept_and_run_in_bf16_and_what_trains_in_fp32(settings: Make) -> None:
    """With fake tensors, which have dtypes and no values: not every CPU can multiply in bf16."""
    engine = Engine(settings(method="factorjepa_raw", trainable_blocks=1), CPU)
    learner = engine.learner
    learner.enter(0)
    learner.lower_frozen(torch.bfloat16)
    for name, parameter in learner.encoder.named_parameters():
        frozen = not name.startswith(("blocks.3.", "norms_block."))
        assert parameter.dtype == (torch.bfloat16 if frozen else torch.float32), name
    assert all(weight.dtype == torch.float32 for weight in learner.weights().values())
    shared = dict(learner.target.encoder.named_parameters())["blocks.0.mlp.fc1.weight"]
    assert shared is learner.encoder.blocks[0].mlp.fc1.weight
    seen: list[torch.dtype] = []
    for block in learner.encoder.blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[0].dtype))
    video = next(engine._first_batches(1)).video()
    learner.future(video[:0])  # the future's index is kept before nothing is real any more
    seen.clear()
    with FakeTensorMode(allow_non_fake_inputs=True), torch.autocast("cpu", torch.bfloat16):
        learner.encoder(video, levels=True).sum().backward()
        assert learner.future(video).dtype == torch.float32
    assert seen == [torch.bfloat16] * 3 + [torch.float32]


def test_eight_bits_are_for_what_never_trains(settings: Make) -> None:
    engine = Engine(settings(method="factorjepa_raw", trainable_blocks=1), CPU)
    learner = engine.learner
    learner.enter(0)
    before = learner.weights().keys()
    learner.lower_frozen(torch.float32, bits=8)  # not every CPU can multiply in bf16
    lowered = [isinstance(block.mlp.fc1, EightBitLinear) for block in learner.encoder.blocks]
    assert lowered == [True] * 3 + [False]
    assert learner.weights().keys() == before
    assert learner.target.encoder.blocks[0].attn.qkv is learner.encoder.blocks[0].attn.qkv
    assert not isinstance(learner.reference.encoder.blocks[0].attn.qkv, EightBitLinear)  # what all are measured by
    learner.lower_frozen(torch.float32, bits=8)  # again changes nothing
    batch = engine.batches.complete(next(engine._first_batches(1)), learner.stage, 0, 0, engine.device)
    loss, _ = loss_of(learner, batch, engine.scales, engine.settings, 0)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learner.encoder.blocks[3].parameters())


def test_records_in_eight_bits_serve_training_and_never_what_measures(settings: Make, tmp_path: Path) -> None:
    keeping = {"trunk_cache": str(tmp_path / "trunk"), "trunk_dtype": "fp32"}
    engine = Engine(settings(method="factorjepa_raw", trainable_blocks=1, **keeping), CPU)
    learner = engine.learner
    learner.enter(0)
    batch = next(engine._first_batches(1))
    video, names = batch.video(), [clip.clip_id for clip in batch.clips]
    exact = learner.yardstick(video)
    learner.lower_frozen(torch.float32, bits=8)
    assert engine.trunk is not None
    with engine.trunk:
        known = engine.trunk.of(video, names)
    assert learner.yardstick(video, known).equal(exact)
    assert torch.allclose(learner.future(video, trunk=known), learner.future(video), atol=1e-5)
    assert not torch.allclose(learner.future(video, trunk=known), exact, atol=1e-3)  # they are rounded


@pytest.mark.parametrize("kernels", [True, False])
def test_blocks_in_eight_bits_are_compiled_where_our_kernels_do_not_serve_them(
    settings: Make, monkeypatch: pytest.MonkeyPatch, kernels: bool
) -> None:
    learner = Engine(settings(method="factorjepa_raw", trainable_blocks=1), CPU).learner
    learner.enter(0)
    learner.lower_frozen(torch.float32, bits=8)
    monkeypatch.setattr(EightBitBlock, "has_kernels", lambda *given: kernels)
    compile_blocks(learner, backend="eager")
    compiled = [block._compiled_call_impl is not None for block in learner.encoder.blocks]
    assert compiled == [not kernels] * 3 + [True]


def test_eight_bits_say_so_where_nothing_stays_frozen(settings: Make, caplog: pytest.LogCaptureFixture) -> None:
    learner = Engine(settings(method="full"), CPU).learner
    learner.enter(0)
    learner.lower_frozen(torch.float32, bits=8)
    assert "frozen_bits=8 changes nothing" in caplog.text
    assert not any(isinstance(module, EightBitLinear) for module in learner.modules())


@pytest.mark.parametrize(("whole_weights", "why"), [(False, "is not for FSDP"), (True, "needs precision=bf16")])
def test_eight_bits_are_refused_where_they_cannot_be(settings: Make, whole_weights: bool, why: str) -> None:
    with pytest.raises(TrainingError, match=why):
        refuse_bits(settings(frozen_bits=8), CPU, whole_weights)
    refuse_bits(settings(), CPU, whole_weights)


def test_eight_bits_without_a_gpu_for_them_are_refused_before_anything_is_built(settings: Make) -> None:
    with pytest.raises(TrainingError, match=r"frozen_bits=8 needs precision=bf16 on a GPU.*set frozen_bits=16"):
        Engine(settings(method="factorjepa_raw", frozen_bits=8), CPU)


def test_what_trains_is_not_lowered(settings: Make) -> None:
    learner = Engine(settings(method="full"), CPU).learner
    learner.enter(0)
    learner.lower_frozen(torch.bfloat16)
    assert {parameter.dtype for parameter in learner.parameters()} == {torch.float32}
    with pytest.raises(BackboneError, match=r"trains: in torch\.bfloat16 its steps would round to nothing"):
        learner.encoder.lower(2, torch.bfloat16)


@pytest.mark.filterwarnings("ignore")  # the tracer's own, about tensors that it looks at
def test_compiled_blocks_give_the_same_loss_and_gradients_whatever_the_crowd(settings: Make) -> None:
    """Traced and run by torch's own operators: what is tested is that nothing of the model is lost in tracing."""
    engine = Engine(settings(method="factorjepa_raw", masks="blocks", batch=2), CPU)
    learner = engine.learner
    learner.enter(0)
    batches = [engine.batches.complete(batch, learner.stage, 0, 0, engine.device) for batch in engine._first_batches(3)]

    def loss_and_gradient(number: int) -> tuple[float, torch.Tensor]:
        learner.zero_grad(set_to_none=True)
        loss, _ = loss_of(learner, batches[number], engine.scales, engine.settings, 0)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item(), torch.cat([p.grad.flatten() for p in learner.parameters() if p.grad is not None])

    before = [loss_and_gradient(number) for number in range(3)]
    compile_blocks(learner, backend="eager", dynamic=False)
    try:
        for number, (loss, gradient) in enumerate(before):
            again, its = loss_and_gradient(number)
            assert again == loss
            assert torch.equal(its, gradient)
    finally:
        torch.compiler.reset()


@pytest.mark.parametrize(("precision", "within"), [("fp32", "highest"), ("tf32", "high")])
def test_tf32_is_asked_for_and_given_back(settings: Make, precision: str, within: str) -> None:
    chosen = settings(method="auto_rgn", precision=precision, compile=False)
    learner = Engine(chosen, CPU).learner
    with accelerated(learner, chosen, torch.device("cuda")) as compiled:
        assert not compiled
        assert torch.get_float32_matmul_precision() == within
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_cpu_compiles_nothing_unless_told() -> None:
    assert not can_compile(CPU)


def test_the_evidence_stays_on_the_host_and_the_targets_go(settings: Make) -> None:
    engine = Engine(settings(method="factorjepa"), CPU)
    batch = engine.batches.complete(next(engine._first_batches(1)), engine.learner.stage, 0, 0, engine.device)
    moved = batch.to(torch.device("meta"))
    assert moved.video.is_meta
    assert moved.targets is not None
    assert moved.targets.layout_BW.is_meta
    assert not moved.targets.cells.agent_C.is_meta
