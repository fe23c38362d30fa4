"""DINOv2 files: strict, said, safe, and one copy in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import factorjepa
from factorjepa.backbones.dinov2 import Dinov2Spec, build_dinov2
from factorjepa.backbones.dinov2_weights import load_dinov2, released_url
from factorjepa.errors import BackboneError

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "bench_features.py"
SMALL = Dinov2Spec(dim=48, depth=3, heads=3, registers=4, swiglu=True)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dinov2") / "small_reg4_pretrain.pth"
    torch.save(build_dinov2(SMALL, seed=3).state_dict(), path)
    return path


def test_a_released_kind_of_file_gives_its_weights_and_says_so(small_file: Path) -> None:
    loaded, source = load_dinov2(small_file, SMALL), build_dinov2(SMALL, seed=3)
    for (key, actual), expected in zip(loaded.state_dict().items(), source.state_dict().values(), strict=True):
        assert actual.equal(expected), key
    assert loaded.origin == "small_reg4_pretrain.pth"
    images = torch.randn(1, 3, 56, 42)
    assert loaded(images).equal(source(images))


def test_the_file_is_converted_to_the_precision_asked_for(small_file: Path) -> None:
    assert {parameter.dtype for parameter in load_dinov2(small_file, SMALL, dtype=torch.bfloat16).parameters()} == {
        torch.bfloat16
    }


@pytest.mark.parametrize(
    ("arch", "expected"),
    [
        ("dinov2_vits14_reg", "missing     register_tokens"),
        ("dinov2_vitb14", "misshapen   cls_token"),
        ("dinov2_vitg14", "missing     blocks.0.mlp.w12.weight"),
    ],
)
def test_a_wrong_size_shows_what_differs_and_what_the_file_is(tmp_path: Path, arch: str, expected: str) -> None:
    torch.save(build_dinov2("dinov2_vits14").half().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(BackboneError) as caught:
        load_dinov2(tmp_path / "weights.pth", arch)
    message = str(caught.value)
    assert expected in message
    assert "Most likely it is 'dinov2_vits14' (100% of its keys fit)" in message
    assert len(message.splitlines()) < 25


def test_one_key_too_few_or_too_many_is_an_error(tmp_path: Path) -> None:
    state = build_dinov2(SMALL).state_dict()
    del state["mask_token"]
    torch.save(state, tmp_path / "short.pth")
    with pytest.raises(BackboneError, match="1 missing, 0 unexpected, 0 misshapen"):
        load_dinov2(tmp_path / "short.pth", SMALL)
    torch.save({**build_dinov2(SMALL).state_dict(), "head.weight": torch.zeros(2)}, tmp_path / "long.pth")
    with pytest.raises(BackboneError, match="0 missing, 1 unexpected, 0 misshapen"):
        load_dinov2(tmp_path / "long.pth", SMALL)


class Payload:
    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


def test_code_in_a_file_does_not_run_and_other_checkpoints_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"cls_token": Payload()}, tmp_path / "evil.pth")
    with pytest.raises(BackboneError, match="nothing else is unpickled"):
        load_dinov2(tmp_path / "evil.pth", SMALL)
    assert "never run" not in capsys.readouterr().out
    torch.save({"teacher": {"cls_token": torch.zeros(1)}, "epoch": 3}, tmp_path / "training.pth")
    with pytest.raises(BackboneError, match=r"not a plain state dict.*found epoch, teacher"):
        load_dinov2(tmp_path / "training.pth", SMALL)
    with pytest.raises(BackboneError, match=r"dinov2_vits14_pretrain\.pth"):
        load_dinov2(tmp_path / "absent.pth", SMALL)


def test_the_publishers_addresses() -> None:
    base = "https://dl.fbaipublicfiles.com/dinov2"
    assert released_url("dinov2_vitb14") == f"{base}/dinov2_vitb14/dinov2_vitb14_pretrain.pth"
    assert released_url("dinov2_vitg14_reg") == f"{base}/dinov2_vitg14/dinov2_vitg14_reg4_pretrain.pth"


def test_the_derived_small_model_loads_strictly_and_in_fp32(asset: Any) -> None:
    path = asset("weights/dinov2_vits14_derived_fp16.pth")
    model = load_dinov2(path, "dinov2_vits14", dtype=torch.float32).eval()
    stored = torch.load(path, weights_only=True, mmap=True)
    assert model.blocks[8].mlp.fc1.weight.dtype == torch.float32
    assert model.blocks[8].mlp.fc1.weight.equal(stored["blocks.8.mlp.fc1.weight"].float())
    with pytest.raises(BackboneError, match="Most likely it is 'dinov2_vits14'"):
        load_dinov2(path, "dinov2_vits14_reg")


MEASURE = """
import sys, torch
torch.set_num_threads(1)
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
from factorjepa.backbones.dinov2 import Dinov2Spec
from factorjepa.backbones.dinov2_weights import load_dinov2
load_dinov2(sys.argv[1], Dinov2Spec(dim=48, depth=1, heads=3))  # imports and first use are paid before measuring
before = peak()
model = load_dinov2(sys.argv[2], Dinov2Spec(dim=768, depth=4, heads=12))
total = sum(float(p.sum()) for p in model.parameters())  # touch every page
print((peak() - before) / sum(p.nbytes for p in model.parameters()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_loading_takes_one_copy_of_the_weights(tmp_path: Path) -> None:
    """Peak resident memory of a fresh process, over the bytes of the weights."""
    torch.save(build_dinov2(Dinov2Spec(dim=48, depth=1, heads=3)).state_dict(), tmp_path / "small.pth")
    torch.save(build_dinov2(Dinov2Spec(dim=768, depth=4, heads=12)).state_dict(), tmp_path / "large.pth")
    words = [str(tmp_path / "small.pth"), str(tmp_path / "large.pth")]
    assert 0.8 < float(_python("-c", MEASURE, *words)) < 1.35


BARE = """
import sys
for name in ("pydantic", "av", "cv2", "typer", "rich"):
    sys.modules[name] = None  # importing it now raises ImportError
"""


def test_the_benchmark_needs_little_and_prints_a_ratio_of_equal_models() -> None:
    pytest.importorskip("transformers")
    words = ["--size", "56", "--runs", "1", "--warmup", "0", "--device", "cpu", "--threads", "1"]
    start = f"import runpy; sys.path.insert(0, {str(BENCHMARK.parent)!r}); sys.argv[1:] = {words!r}; "
    code = BARE + start + f"runpy.run_path({str(BENCHMARK)!r}, run_name='__main__')"
    line = json.loads(_python("-c", code).splitlines()[-1])
    assert [row["way"] for row in line["rows"]] == ["transformers", "ours"]
    assert line["largest_difference"] < 1e-4
    assert min(row["frames_per_second"] for row in line["rows"]) > 0


def _python(*words: str) -> str:
    source = str(Path(factorjepa.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
