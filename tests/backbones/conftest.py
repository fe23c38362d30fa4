"""Shared by the backbone tests: the released code's own outputs, and sizes small enough for one core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.backbones import BackboneSpec, build

SHARED = Path(__file__).parents[2] / ".." / "shared"

TINY = BackboneSpec(
    dim=48, depth=4, heads=2, mlp_hidden=96, taps=(0, 1, 2, 3), patch=8, tubelet=2, grid=(4, 4), frames=8,
    predictor_dim=24, predictor_depth=2, predictor_heads=2, mask_tokens=2,
)  # fmt: skip


def miniature(
    path: Path, arch: str, *, encoder_key: str = "target_encoder", predictor: bool = True, **more: Any
) -> None:
    """A file with the keys and shapes of an official one in kilobytes: every tensor is a view of a single number."""
    backbone = build(arch, device="meta")

    def thin(module: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {
            f"module.backbone.{key}": torch.zeros(1).expand(tensor.shape) for key, tensor in module.state_dict().items()
        }

    content = {"encoder": thin(backbone.encoder), encoder_key: thin(backbone.encoder), "opt": {"state": {}}, "epoch": 1}
    if predictor:
        content["predictor"] = thin(backbone.predictor)
    torch.save(content | more, path)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def fixture_path() -> Path:
    path = SHARED / "fixtures" / "vjepa21_grid4.pt"
    if not path.is_file():
        pytest.skip("the parity fixture of the released code is not beside this checkout")
    return path


@pytest.fixture(scope="session")
def released(fixture_path: Path) -> dict[str, Any]:
    """Weights, inputs and outputs of the released V-JEPA 2.1 code under random weights."""
    content: dict[str, Any] = torch.load(fixture_path, weights_only=True)
    return content


@pytest.fixture(scope="session")
def released_spec(released: dict[str, Any]) -> BackboneSpec:
    config = released["cfg"]
    return BackboneSpec(
        dim=config["D"], depth=config["DEPTH"], heads=config["HEADS"],
        mlp_hidden=int(config["D"] * config["mlp_ratio"]),
        taps=(2, 5, 8, 11), patch=config["P"], tubelet=config["TUB"], grid=config["px"] // config["P"],
        frames=config["frames"], predictor_dim=config["PD"], predictor_depth=config["PDEPTH"],
        predictor_heads=config["PHEADS"], mask_tokens=8,
    )  # fmt: skip


@pytest.fixture(scope="session")
def asset() -> Any:
    """`asset("video/x.mp4")`: a real file, or a skip that says which one is absent."""

    def find(name: str) -> Path:
        path = SHARED / "assets" / name
        if not path.is_file():
            pytest.skip(f"{name} is not beside this checkout")
        return path

    return find
