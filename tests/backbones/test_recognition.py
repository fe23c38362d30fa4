"""A wrong file says what it is: files with the released keys and shapes, and files that users take for them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from factorjepa.backbones import build, load, save
from factorjepa.backbones.recognition import recognise
from factorjepa.backbones.releases import CATALOGUE
from factorjepa.backbones.weights import verify
from factorjepa.errors import BackboneError

from .conftest import TINY, miniature


def refusal(path: Path, arch: str, **options: Any) -> str:
    with pytest.raises(BackboneError) as caught:
        load(path, arch, **options)
    message = str(caught.value)
    assert len(message.splitlines()) < 22
    assert max(map(len, message.splitlines()[1:-1])) < 120
    return message


def numbers(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(1).expand(shape)


@pytest.mark.parametrize("release", CATALOGUE.values(), ids=lambda release: release.file)
def test_every_released_structure_loads_strictly_and_is_recognised(tmp_path: Path, release: Any) -> None:
    path = tmp_path / release.file
    miniature(path, release.arch, encoder_key="ema_encoder" if "_dist_" in release.file else "target_encoder")
    loaded = load(path, release.arch)
    assert sum(p.numel() for p in loaded.parameters()) == sum(
        p.numel() for p in build(release.arch, device="meta").parameters()
    )
    shared = {"vjepa2_vit_giant", "vjepa2_vit_giant_384"}  # the same keys and shapes; every other has its own
    assert set(recognise(path).names) == (shared if release.arch in shared else {release.arch})
    assert release.arch in verify(path).holds


def test_a_20_file_given_as_21_is_named_with_both_input_sizes(tmp_path: Path) -> None:
    miniature(tmp_path / "file.pt", "vjepa2_vit_giant")
    content = torch.load(tmp_path / "file.pt", weights_only=True)
    content["target_encoder"]["module.backbone.pos_embed"] = numbers((1, 2048, 1408))
    torch.save(content, tmp_path / "file.pt")
    message = refusal(tmp_path / "file.pt", "vjepa2_1_vit_giant_384", parts="encoder")
    assert "12 missing, 3 unexpected, 0 misshapen keys (of 494)" in message
    assert "missing     encoder.img_mod_embed                expected 1x1x1408" in message
    assert "unexpected  encoder.norm.weight                  file has 1408" in message
    assert "Most likely it is 'vjepa2_vit_giant' or 'vjepa2_vit_giant_384' (100% of its keys fit)" in message


@pytest.mark.parametrize("predictor", [True, False])
def test_a_smaller_size_given_as_a_larger_is_named_also_without_predictor(tmp_path: Path, predictor: bool) -> None:
    miniature(tmp_path / "file.pt", "vjepa2_1_vit_large_384", predictor=predictor)
    message = refusal(tmp_path / "file.pt", "vjepa2_1_vit_gigantic_384")
    assert "misshapen   encoder.patch_embed.proj.bias        expected 1664, file has 1024" in message
    assert "Most likely it is 'vjepa2_1_vit_large_384' (100% of its keys fit)" in message


HUGGING_FACE = {
    "embeddings.cls_token": (1, 1, 768),
    "embeddings.patch_embeddings.projection.weight": (768, 3, 14, 14),
    **{f"encoder.layer.{i}.attention.attention.query.weight": (768, 768) for i in range(12)},
    **{f"encoder.layer.{i}.norm1.weight": (768,) for i in range(12)},
}
PLAIN_VIT = {
    "cls_token": (1, 1, 768),
    "patch_embed.proj.weight": (768, 3, 14, 14),
    **{f"blocks.{i}.attn.qkv.weight": (2304, 768) for i in range(12)},
    **{f"blocks.{i}.ls1.gamma": (768,) for i in range(12)},
}


def test_other_models_state_dicts_are_shown_and_said_to_be_others(tmp_path: Path) -> None:
    path = tmp_path / "dino.pt"
    torch.save({key: numbers(shape) for key, shape in HUGGING_FACE.items()}, path)
    message = refusal(path, "vjepa2_1_vit_base_384", parts="encoder")
    assert "unexpected  encoder.cls_token" in message
    assert "Hugging Face transformers. Of those, V-JEPA 2, I-JEPA and DINOv2 are read, whole" in message
    torch.save({"model": {key: numbers(shape) for key, shape in PLAIN_VIT.items()}}, path)
    message = refusal(path, "vjepa2_1_vit_base_384", parts="encoder")
    assert "unexpected  encoder.blocks.0.ls1.gamma" in message
    assert "expected 768x3x2x16x16, file has 768x3x14x14" in message
    assert "No known architecture fits better (nearest: 'vjepa2_1_vit_base_384'" in message
    torch.save({"a": numbers((3,))}, path)
    assert "resembles no architecture known here" in refusal(path, "nano")


@pytest.mark.parametrize("content", ["text", "empty", "other tensors", "half a file", "a key short", "another size"])
def test_verify_records_nothing_that_is_not_whole_weights(tmp_path: Path, content: str) -> None:
    path = tmp_path / "vitl.pt"
    miniature(path, "vjepa2_vit_large")
    whole = path.read_bytes()
    if content == "text":
        path.write_text("not weights")
    elif content == "empty":
        path.write_bytes(b"")
    elif content == "other tensors":
        torch.save({"a": torch.zeros(3)}, path)
    elif content == "half a file":
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "a key short":
        state = torch.load(path, weights_only=True)
        del state["predictor"]["module.backbone.predictor_norm.bias"]
        torch.save(state, path)
    else:
        miniature(path, "vjepa2_1_vit_large_384")
    with pytest.raises(BackboneError, match="No checksum was recorded"):
        verify(path)
    assert [file.name for file in tmp_path.iterdir()] == ["vitl.pt"]
    path.write_bytes(whole)
    assert verify(path).trust == "first use"


def with_header(path: Path, **changes: Any) -> Path:
    """One of our own files whose header lies."""
    save(build(TINY), path)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    spec = json.loads(header["__metadata__"]["spec"]) | changes
    header["__metadata__"]["spec"] = json.dumps(spec)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"depth": 10**9, "taps": [10**9 - 1]}, "larger than the file"),
        ({"dim": 6 * 10**17, "heads": 10**16}, "larger than the file"),
        ({"grid": [10**9, 10**9]}, "larger than the file"),
        ({"dim": "wide"}, "not valid"),
        ({"surprise": 1}, "not valid"),
        ({"heads": 5}, "not valid .*head width"),
        ({"dim": 96}, "does not hold the weights of this spec"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_built(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BackboneError, match=words):
        recognise(with_header(tmp_path / "file.safetensors", **changes))


def test_our_own_file_of_any_spec_is_recognised_by_its_header(tmp_path: Path) -> None:
    save(build(TINY), tmp_path / "tiny.safetensors")
    found = recognise(tmp_path / "tiny.safetensors")
    assert (found.spec, found.names, found.parts) == (TINY, (), "both")
    assert str(found) == "a spec of its own (in its header), encoder and predictor"
