"""The profile: what is said about the clips is so, every case is measured or says why not, and the table shows it."""

from __future__ import annotations

import copy
import json
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from rich.console import Console

from factorjepa.pixels import to_video
from factorjepa.profiling import measuring, training
from factorjepa.profiling.measuring import attempt, profile
from factorjepa.profiling.report import table
from factorjepa.profiling.subject import Subject
from factorjepa.profiling.synthetic import Scenery, target_batch, training_batches
from factorjepa.profiling.timing import Times
from factorjepa.profiling.trace import KINDS, kind_of, summary
from factorjepa.profiling.training import TrainingCase, training_cost
from factorjepa.teacher.states import object_states
from factorjepa.training.settings import TrainSettings

CPU = torch.device("cpu")


@effort(max_examples=15)
@given(agents=st.integers(0, 20), neighbours=st.integers(1, 6), grid=st.sampled_from([4, 8, 24]))
def test_clips_show_as_many_agents_and_pairs_as_is_said(agents: int, neighbours: int, grid: int) -> None:
    scenery = Scenery(agents, neighbours)
    states = object_states(target_batch(2, grid, 16, 12, scenery).cells)
    assert states.valid_BN.sum(1).tolist() == [agents] * 2
    assert states.pair_valid_BP.sum(1).tolist() == [scenery.pairs] * 2


def test_the_share_of_clips_in_a_view_comes_out_over_the_passes(settings: TrainSettings) -> None:
    batches = training_batches(settings, 4, Scenery(2, 1), 10, viewed=0.3)
    assert sum(len(batch.viewed) for batch in batches) == 6
    assert len({clip_id for batch in batches for clip_id in batch.clip_ids}) == 20


def test_clips_come_as_bytes_as_a_loader_sends_them(settings: TrainSettings) -> None:
    (batch,) = training_batches(settings, 4, Scenery(2, 1), 1)
    assert batch.video.dtype == torch.uint8
    there = batch.to(CPU).video
    assert there.shape == (settings.batch, 3, settings.frames, settings.size, settings.size)
    torch.testing.assert_close(there, to_video(batch.video))
    torch.testing.assert_close(batch.to(CPU).to(CPU).video, there)


@pytest.fixture
def found(settings: TrainSettings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(training, "WARMUP", 1)
    told: list[str] = []
    seen: list[tuple[int, int, str]] = []
    with Subject.made(settings, CPU) as subject:
        found = profile(
            subject, Scenery(5, 2), warmup=1, runs=2, updates=1, tell=lambda known: told.append(json.dumps(known)),
            progress=lambda *at: seen.append(at),
        )  # fmt: skip
    assert [done for done, _, _ in seen] == [0, 1, 2, 3, 4, 5]
    assert {total for _, total, _ in seen} == {5}
    assert seen[0][2] == "training, no cache"
    assert seen[-2][2] == "latency, end to end"
    assert len(told) == len(found["training"]) + len(found["latency"])
    return found


def test_methods_whose_blocks_gradients_choose_are_profiled_too(settings: TrainSettings) -> None:
    with Subject.made(settings.of_method("auto_rgn"), CPU) as subject:
        cost = training_cost(subject, TrainingCase(Scenery(2, 1), updates=1))
    assert cost.clips == 2
    assert cost.record["gradient"] > 0


def test_a_profile_measures_every_case_and_shows_it(found: dict[str, Any]) -> None:
    assert len(found["training"]) == 3
    for row in found["training"].values():
        assert row["clips_per_s"] > 0
        assert math.isfinite(row["loss"])
        assert row["gpu_hours"] == pytest.approx(20_000 * 128 / row["clips_per_s"] / 3600)
        assert 0 < row["agents_seen"] <= 5
    uncached, cached, viewed = found["training"].values()
    targets = [row["tflop_per_clip"]["target"] for row in (cached, viewed, uncached)]
    assert targets == sorted(set(targets))
    assert len(targets) == 3
    assert set(found["latency"]) == {"eager", "end to end"}
    whole = found["latency"]["end to end"]
    assert min(whole[part] for part in ("median_ms", "decode_ms", "preprocess_ms")) > 0
    console = Console(width=200)
    with console.capture() as shown:
        console.print(table(found))
    text = shown.get()
    assert f"{uncached['clips_per_s']:.2f} clips/s" in text
    assert "5 agents and 10 pairs a clip" in text
    assert "paper's ceiling" not in text
    assert "MFU" not in text


def test_where_the_paper_has_a_ceiling_it_stands_beside_what_was_measured(found: dict[str, Any]) -> None:
    """The figures are a CPU's; what a GPU adds to them is set by hand."""
    large = copy.deepcopy(found)
    large["conditions"]["arch"] = "vjepa2_1_vit_giant_384"
    large["latency"]["eager"]["mfu"] = 0.22
    first = next(iter(large["training"].values()))
    first["peak_gib"] = 36.6
    console = Console(width=160)
    with console.capture() as shown:
        console.print(table(large))
    text = shown.get()
    assert "paper's ceiling" in text
    assert re.search(r"latency, eager +[\d.]+ ms +160 ms +p95 [\d.]+ ms of 2 runs; MFU 22%", text)
    assert re.search(r"canonical run +\d+ GPU-hours +70 GPU-hours", text)
    assert re.search(r"peak memory +36.6 GiB +52 GiB", text)
    assert "MFU: arithmetic that is needed, as a share of the peak in bf16" in text


@pytest.mark.parametrize("method", ["frozen", "wise_0.5"])
def test_of_a_method_that_is_not_trained_the_latency_is_told(settings: TrainSettings, method: str) -> None:
    with Subject.made(settings.of_method(method), CPU) as subject:
        found = profile(subject, Scenery(2, 1), warmup=0, runs=1, updates=1)
    assert found["training"] == {}
    assert found["latency"]["eager"]["median_ms"] > 0
    console = Console(width=160)
    with console.capture() as shown:
        console.print(table(found))
    assert re.search(r"training +- +nothing of this method is trained", shown.get())


def test_arithmetic_of_v_jepas_own_objective_is_not_made_up(settings: TrainSettings, monkeypatch: Any) -> None:
    monkeypatch.setattr(training, "WARMUP", 0)
    with Subject.made(settings.of_method("continual"), CPU) as subject:
        found = training_cost(subject, TrainingCase(Scenery(2, 1), updates=1)).as_json()
    assert found["clips_per_s"] > 0
    assert (found["tflop_per_clip"], found["mfu"]) == (None, None)


def test_a_case_that_fails_is_noted_and_does_not_stop_the_others(settings: TrainSettings, monkeypatch: Any) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no decoder here")

    monkeypatch.setattr(training, "WARMUP", 0)
    monkeypatch.setattr(measuring, "end_to_end_latency", broken)
    with Subject.made(settings.model_copy(update={"method": "factorjepa_raw"}), CPU) as subject:
        found = profile(subject, Scenery(2, 1), warmup=0, runs=1, updates=1)
    assert found["latency"]["end to end"] == {"error": "RuntimeError: no decoder here"}
    assert "median_ms" in found["latency"]["eager"]
    rows: dict[str, Any] = {}
    attempt(rows, "fine", lambda: {"value": 1})
    assert rows == {"fine": {"value": 1}}


def test_settings_of_a_case_may_differ_from_the_subjects(settings: TrainSettings, monkeypatch: Any) -> None:
    monkeypatch.setattr(training, "WARMUP", 0)
    case = TrainingCase(Scenery(3, 1), updates=1)
    with Subject.made(settings, CPU) as subject:
        small, large = (
            sum(training_cost(subject, case, size=size, batch=1).as_json()["tflop_per_clip"].values())
            for size in (32, 64)
        )
    assert large > 4 * small


def test_the_ninety_fifth_percentile_is_a_measured_time() -> None:
    assert Times(tuple(float(n) for n in range(1, 101))).p95 == 95.0
    assert Times((2.0,)).p95 == Times((2.0,)).median == 2.0


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", "attention"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNT", "products"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", "optimiser"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("triton_per_fused_add_native_layer_norm_3", "fused elementwise"),
        ("_turn_back", "fused elementwise"),
        ("_normed", "fused elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4>", "elementwise"),
    ],
)
def test_kernels_are_sorted_by_what_they_do(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_what_kernels_leave_of_the_time_is_idle() -> None:
    found = summary({"nvjet_a": (600.0, 3), "triton_b": (300.0, 2)}, wall_us=1000.0, most=1)
    assert found["shares"]["idle"] == pytest.approx(0.1)
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert set(found["shares"]) == {*KINDS, "idle"}
    assert [row["name"] for row in found["kernels"]] == ["nvjet_a"]
