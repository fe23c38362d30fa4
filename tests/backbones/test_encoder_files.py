"""Files of V-JEPA 1, I-JEPA and LeJEPA: strict, said, recognised by their keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from factorjepa.backbones import load
from factorjepa.backbones.absolute import AbsoluteSpec
from factorjepa.backbones.families import ENCODERS, Spec, build_encoder, load_encoder
from factorjepa.backbones.lejepa import LejepaSpec
from factorjepa.backbones.releases import ENCODERS as RELEASES
from factorjepa.backbones.releases import release_of
from factorjepa.backbones.weights import verify
from factorjepa.errors import BackboneError
from factorjepa.verbs.model import weights_app

VIDEO = AbsoluteSpec(dim=24, depth=2, heads=2, patch=4, grid=3, frames=8, tubelet=2)
TIMM = AbsoluteSpec(dim=24, depth=2, heads=2, patch=4, grid=3, class_token=True)
ROTARY = LejepaSpec(dim=32, depth=2, heads=2, patch=8)


def published(spec: Spec, state: dict[str, Tensor]) -> dict[str, Any]:
    """What the publishers put around an encoder's state dict."""
    if isinstance(spec, LejepaSpec):
        extra = {f"blocks.{n}.attn.qkv.bias_mask": torch.ones(3 * spec.dim) for n in range(spec.depth)}
        extra |= {"mask_token": torch.zeros(1, spec.dim), "rope_embed.periods": torch.ones(spec.head_width // 4)}
        return {f"encoder.model.{key}": tensor for key, tensor in (state | extra).items()} | {
            "proj.0.weight": torch.ones(2)
        }
    if isinstance(spec, AbsoluteSpec) and spec.class_token:
        return {f"backbone.{key}": tensor for key, tensor in state.items()} | {
            "backbone.cva_module_proj.mlp.0.weight": torch.ones(2, 2)
        }
    prefix = "module.backbone." if isinstance(spec, AbsoluteSpec) and spec.frames > 1 else "module."
    online = {f"{prefix}{key}": torch.zeros(1).expand(tensor.shape) for key, tensor in state.items()}
    averaged = {f"{prefix}{key}": tensor for key, tensor in state.items()}
    predictor = {f"{prefix}predictor_norm.weight": torch.ones(3)}
    return {"encoder": online, "target_encoder": averaged, "predictor": predictor, "opt": {"state": {}}, "epoch": 300}


def thin(arch: str) -> dict[str, Tensor]:
    """Keys and shapes of a whole model in kilobytes: every tensor is a view of a single number."""
    state = build_encoder(arch, device="meta").state_dict()
    return {key: torch.zeros(1).expand(tensor.shape) for key, tensor in state.items()}


def test_the_averaged_encoder_is_taken_and_said(tmp_path: Path) -> None:
    source = build_encoder(VIDEO, seed=3).eval()
    torch.save(published(VIDEO, source.state_dict()), tmp_path / "vit.pth.tar")
    loaded = load_encoder(tmp_path / "vit.pth.tar", VIDEO).eval()
    assert loaded.origin == "vit.pth.tar: target_encoder"
    video = torch.randn(1, 3, 8, 12, 12)
    assert loaded(video).equal(source(video))


def test_what_is_not_the_encoder_s_is_left_out_and_said(tmp_path: Path) -> None:
    source = build_encoder(TIMM, seed=3).eval()
    save_file(published(TIMM, source.state_dict()), tmp_path / "lejepa.safetensors")
    loaded = load_encoder(tmp_path / "lejepa.safetensors", TIMM).eval()
    assert "left out, not the encoder's: 1 key, " in loaded.origin
    assert "cva_module_proj" in loaded.origin
    images = torch.randn(1, 3, 12, 12)
    assert loaded(images).equal(source(images))


def test_lejepa_takes_the_masks_of_biases_and_the_periods_of_the_file(tmp_path: Path) -> None:
    source = build_encoder(ROTARY, seed=3).eval().requires_grad_(False)
    for parameter in source.parameters():
        parameter += 0.1
    file = published(ROTARY, source.state_dict())
    keys = slice(ROTARY.dim, 2 * ROTARY.dim)
    file["encoder.model.blocks.1.attn.qkv.bias_mask"][keys] = 0
    file["encoder.model.rope_embed.periods"] = torch.linspace(0.5, 3.0, ROTARY.head_width // 4)
    torch.save(file, tmp_path / "lejepa_l.pt")
    loaded = load_encoder(tmp_path / "lejepa_l.pt", ROTARY).eval()
    assert loaded.origin == "lejepa_l.pt: encoder.model (left out, not the encoder's: 1 key, proj.0.weight first)"
    images = torch.randn(1, 3, 32, 32)
    assert not loaded(images).allclose(source(images), atol=1e-4)
    source.periods = torch.linspace(0.5, 3.0, ROTARY.head_width // 4)  # type: ignore[assignment]
    source.blocks[1].attn.qkv.bias[keys] = 0  # type: ignore[union-attr, index]
    torch.testing.assert_close(loaded(images), source(images))
    file["encoder.model.blocks.0.attn.qkv.bias_mask"][0] = torch.nan
    torch.save(file, tmp_path / "damaged.pt")
    with pytest.raises(BackboneError, match=r"blocks\.0\.attn\.qkv\.bias_mask is not a mask of zeros and ones"):
        load_encoder(tmp_path / "damaged.pt", ROTARY)


@pytest.mark.parametrize("spec", [VIDEO, TIMM, ROTARY], ids=["vjepa1", "timm", "lejepa"])
def test_every_key_too_few_too_many_or_of_another_shape_is_named(tmp_path: Path, spec: Spec) -> None:
    state = dict(build_encoder(spec).state_dict())
    del state["blocks.1.norm2.bias"]
    state |= {"head.weight": torch.zeros(2), "norm.weight": torch.zeros(7)}
    torch.save(published(spec, state), tmp_path / "weights.pt")
    with pytest.raises(BackboneError) as caught:
        load_encoder(tmp_path / "weights.pt", spec)
    message = str(caught.value)
    assert "1 missing, 1 unexpected, 1 misshapen" in message
    for line in (r"missing     blocks.1.norm2.bias", "unexpected  head.weight", "misshapen   norm.weight"):
        assert line in message


def test_a_table_of_another_length_is_misshapen(tmp_path: Path) -> None:
    longer = dataclasses.replace(VIDEO, frames=16)
    torch.save(published(longer, build_encoder(longer).state_dict()), tmp_path / "weights.pt")
    with pytest.raises(BackboneError, match="misshapen   pos_embed  expected 1x36x24, file has 1x72x24"):
        load_encoder(tmp_path / "weights.pt", VIDEO)


@pytest.mark.parametrize(
    ("arch", "holds"),
    [
        ("vjepa1_vit_large", "vjepa1_vit_large"), ("vjepa1_vit_huge_384", "vjepa1_vit_huge_384"),
        ("ijepa_vith14_1k", "ijepa_vith14_1k or ijepa_vith14_22k"), ("ijepa_vitg16_22k", "ijepa_vitg16_22k"),
        ("lejepa_vitl16", "lejepa_vitl16"), ("lejepa_vits16", "lejepa_vits16"),
        ("dinov2_vits14_reg", "dinov2_vits14_reg"),
    ],
)  # fmt: skip
def test_verify_recognises_a_published_file_by_its_keys(tmp_path: Path, arch: str, holds: str) -> None:
    state = thin(arch)
    torch.save(state if arch.startswith("dinov2") else published(ENCODERS[arch], state), tmp_path / "x.pt")
    result = CliRunner().invoke(weights_app, ["verify", str(tmp_path / "x.pt")], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"x.pt: {holds}, an encoder" in result.output


def test_a_file_with_the_name_of_another_release_is_refused(tmp_path: Path) -> None:
    torch.save(published(ENCODERS["vjepa1_vit_large"], thin("vjepa1_vit_large")), tmp_path / "vith16.pth.tar")
    with pytest.raises(BackboneError, match="has the name of vjepa1_vit_huge, but holds vjepa1_vit_large"):
        verify(tmp_path / "vith16.pth.tar")


def test_vjepa1_is_never_taken_for_the_encoder_of_vjepa2(tmp_path: Path) -> None:
    """Their blocks have the same names and shapes; only the table tells them apart."""
    torch.save(published(ENCODERS["vjepa1_vit_large"], thin("vjepa1_vit_large")), tmp_path / "vitl16.pth.tar")
    with pytest.raises(BackboneError, match=r"unexpected  encoder\.pos_embed  file has 1x1568x1024") as caught:
        load(tmp_path / "vitl16.pth.tar", "vjepa2_vit_large", parts="encoder")
    assert "It holds vjepa1_vit_large" in str(caught.value)
    with pytest.raises(BackboneError, match="It holds vjepa1_vit_large: load it as that"):
        load_encoder(tmp_path / "vitl16.pth.tar", "ijepa_vitg16_22k")


def test_every_encoder_but_one_has_an_address() -> None:
    assert ENCODERS.keys() - RELEASES.keys() == {"lejepa_vitl16"}
    assert release_of("vjepa1_vit_huge_384").url == "https://dl.fbaipublicfiles.com/jepa/vith16-384/vith16-384.pth.tar"
    assert release_of("ijepa_vitg16_22k").url == "https://dl.fbaipublicfiles.com/ijepa/IN22K-vit.g.16-600e.pth.tar"
    assert all(release.url.startswith("https://") for release in RELEASES.values())
    assert len({release.file for release in RELEASES.values()}) == len(RELEASES)
