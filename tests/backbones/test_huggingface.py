"""Files that Hugging Face transformers writes are read strictly, and compute what transformers computes with them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from factorjepa.backbones import load
from factorjepa.backbones.absolute import AbsoluteSpec
from factorjepa.backbones.dinov2 import PATCH, Dinov2Spec
from factorjepa.backbones.families import Spec, load_encoder
from factorjepa.backbones.recognition import recognise
from factorjepa.errors import BackboneError

from .test_parity_20 import SPEC as VIDEO

transformers = pytest.importorskip("transformers")
DINOV2 = Dinov2Spec(dim=48, depth=2, heads=3, grid=4)
IJEPA = AbsoluteSpec(dim=48, depth=2, heads=4, patch=14, grid=4, mlp_hidden=100)
IMAGES: dict[str, Spec] = {
    "Dinov2": DINOV2,
    "Dinov2 swiglu": dataclasses.replace(DINOV2, swiglu=True),
    "Dinov2WithRegisters": dataclasses.replace(DINOV2, registers=4),
    "IJepa": IJEPA,
}


def written(folder: Path, kind: str, **sizes: Any) -> tuple[Any, Path]:
    """transformers' model with weights that all matter, and the file that it saves itself in."""
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = getattr(transformers, f"{kind}Model")(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    model.save_pretrained(folder)
    return model, folder / "model.safetensors"


def images_of(folder: Path, name: str) -> tuple[Any, Path, Spec]:
    spec, kind = IMAGES[name], name.split()[0]
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "image_size": 4 * PATCH, "patch_size": PATCH}
    if isinstance(spec, Dinov2Spec):
        more = {"num_attention_heads": 3, "use_swiglu_ffn": spec.swiglu}
        more |= {"num_register_tokens": 4} if spec.registers else {}
    else:
        more = {"num_attention_heads": 4, "intermediate_size": 100, "layer_norm_eps": 1e-6}
    return *written(folder, kind, **sizes, **more), spec


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("suffix", ["safetensors", "bin"])
def test_an_image_encoder_computes_what_transformers_computes(tmp_path: Path, name: str, suffix: str) -> None:
    theirs, path, spec = images_of(tmp_path, name)
    if suffix == "bin":
        torch.save(load_file(path), path := tmp_path / "pytorch_model.bin")
    ours = load_encoder(path, spec).eval()
    images = torch.randn(2, 3, 4 * PATCH, 4 * PATCH, generator=torch.Generator().manual_seed(2))
    before = 1 + spec.registers if isinstance(spec, Dinov2Spec) else 0  # class and register tokens
    with torch.no_grad():
        expected = theirs(images).last_hidden_state[:, before:]
        torch.testing.assert_close(ours(images), expected, rtol=0, atol=1e-4)


@torch.no_grad()
def test_vjepa2_with_its_predictor_computes_what_transformers_computes(tmp_path: Path) -> None:
    theirs, path = written(
        tmp_path, "VJEPA2", patch_size=16, crop_size=64, frames_per_clip=8, hidden_size=64, num_attention_heads=2,
        num_hidden_layers=3, pred_hidden_size=48, pred_num_attention_heads=2, pred_num_hidden_layers=2,
    )  # fmt: skip
    ours = load(path, VIDEO).eval()
    assert "names of Hugging Face transformers" in ours.origin
    generator = torch.Generator().manual_seed(6)
    video = torch.randn(1, 3, 8, 64, 64, generator=generator)
    order = torch.randperm(64, generator=generator)[None]
    context, target = order[:, :40].sort().values, order[:, 40:].sort().values
    expected = theirs(pixel_values_videos=video.transpose(1, 2), context_mask=[context], target_mask=[target])
    tokens = ours.encoder(video)
    torch.testing.assert_close(tokens, expected.last_hidden_state, rtol=0, atol=1e-4)
    seen = tokens.gather(1, context[..., None].expand(-1, -1, 64))
    predicted, _ = ours.predictor(seen, context, target)
    torch.testing.assert_close(predicted, expected.predictor_output.last_hidden_state, rtol=0, atol=1e-4)


def test_a_key_that_is_missing_or_foreign_is_named(tmp_path: Path) -> None:
    _, path, spec = images_of(tmp_path, "IJepa")
    state = load_file(path)
    del state["encoder.layer.1.attention.attention.value.bias"]
    save_file({**state, "classifier.weight": torch.zeros(3, 48)}, path)
    with pytest.raises(BackboneError) as caught:
        load_encoder(path, spec)
    assert "missing     blocks.1.attn.qkv.bias" in str(caught.value)
    with pytest.raises(
        BackboneError, match=r"Hugging Face transformers. Of those, V-JEPA 2, I-JEPA and DINOv2 are read"
    ):
        recognise(path)


def test_a_whole_file_of_a_released_size_is_recognised(tmp_path: Path) -> None:
    with torch.device("meta"):
        theirs = transformers.Dinov2Model(transformers.Dinov2Config(
            hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14,
        ))  # fmt: skip
    spelled = (
        (r"^(encoder\.)?layers?\.", "encoder.layer."), (r"attention\.o_proj", "attention.output.dense"),
        (r"attention\.q_proj", "attention.attention.query"), (r"attention\.k_proj", "attention.attention.key"),
        (r"attention\.v_proj", "attention.attention.value"),
    )  # fmt: skip
    state = {}
    for name, tensor in theirs.state_dict().items():  # as files have it, whatever the installed version calls it
        for module, file in spelled:
            name = re.sub(module, file, name)
        state[name] = torch.zeros(1).expand(tensor.shape)
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="It holds dinov2_vits14, an encoder to look through"):
        recognise(tmp_path / "pytorch_model.bin")
