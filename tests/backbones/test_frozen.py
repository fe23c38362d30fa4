"""One interface for frozen encoders: steps in time order, each encoder at its own size, no gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from factorjepa.backbones import build
from factorjepa.backbones.absolute import AbsoluteSpec
from factorjepa.backbones.dinov2 import Dinov2Spec
from factorjepa.backbones.families import build_encoder
from factorjepa.backbones.frozen import FrozenEncoder, encoder_names, open_encoder
from factorjepa.backbones.lejepa import LejepaSpec
from factorjepa.errors import BackboneError
from factorjepa.pixels import normalise

from .conftest import TINY

VIDEO = AbsoluteSpec(dim=24, depth=2, heads=2, patch=8, grid=3, frames=8, tubelet=2)
SPECS = {
    "absolute images": AbsoluteSpec(dim=24, depth=2, heads=2, patch=8, grid=3),
    "dinov2": Dinov2Spec(dim=24, depth=2, heads=2),
    "lejepa": LejepaSpec(dim=24, depth=2, heads=2, side=32),
}


def frames(clips: int = 2, length: int = 8) -> NDArray[np.uint8]:
    return np.random.default_rng(1).integers(0, 256, (clips, length, 32, 40, 3), dtype=np.uint8)


def video_encoders() -> list[FrozenEncoder]:
    return [FrozenEncoder("v1", build_encoder(VIDEO), "random"), FrozenEncoder("v2", build(TINY).encoder, "random")]


def test_weights_that_nobody_ships_or_releases_name_the_command_that_makes_them() -> None:
    with pytest.raises(BackboneError, match=r"small=FILE.*factorjepa pretrain runs/small arch=small"):
        open_encoder("small")


@pytest.mark.parametrize("kind", SPECS)
def test_an_image_encoder_sees_every_frame_by_itself(kind: str) -> None:
    encoder = FrozenEncoder(kind, build_encoder(SPECS[kind]), "random")
    clip = frames()
    tokens = encoder.tokens(clip)
    assert tokens.shape[:2] == (2, 8)
    assert encoder.step == 1
    torch.testing.assert_close(encoder.tokens(clip[:, ::-1]), tokens.flip(1), rtol=0, atol=1e-5)
    torch.testing.assert_close(encoder.tokens(clip[:1, 5:6])[0, 0], tokens[0, 5], rtol=0, atol=1e-5)


def test_a_video_encoder_sees_the_clip_in_tubelets() -> None:
    for encoder in video_encoders():
        clip = frames()
        tokens = encoder.tokens(clip)
        assert tokens.shape[:2] == (2, 4)
        later = clip.copy()
        later[:, 7] = 255 - later[:, 7]
        assert not encoder.tokens(later)[:, 0].allclose(tokens[:, 0])  # time mixes
        with pytest.raises(BackboneError, match="7 frames are not whole steps of 2"):
            encoder.tokens(clip[:, :7])


def test_tokens_are_what_the_model_gives_at_its_own_size() -> None:
    encoder = video_encoders()[0]
    clip = np.random.default_rng(1).integers(0, 256, (1, 8, 24, 24, 3), dtype=np.uint8)
    expected = encoder.model(torch.from_numpy(normalise(clip[0]))[None])[0].reshape(4, 9, 24)
    torch.testing.assert_close(encoder.tokens(clip)[0], expected)
    torch.testing.assert_close(encoder.steps(clip)[0], expected.mean(1))
    torch.testing.assert_close(encoder.pooled(clip)[0], expected.mean((0, 1)))


def test_an_encoder_is_frozen_and_evaluated_without_gradients() -> None:
    encoder = video_encoders()[0]
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    assert not encoder.tokens(frames()).requires_grad
    assert not encoder.model.training


def test_nano_opens_from_the_package_and_others_say_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = open_encoder("nano")
    assert (encoder.name, encoder.side, encoder.dim) == ("nano", (128, 128), 192)
    assert "nano.safetensors" in encoder.origin
    monkeypatch.setenv("FACTORJEPA_WEIGHTS", str(tmp_path))
    with pytest.raises(BackboneError, match="factorjepa weights fetch ijepa_vith14_1k"):
        open_encoder("ijepa_vith14_1k")
    with pytest.raises(BackboneError, match="no released weights are known for 'lejepa_vitl16'"):
        open_encoder("lejepa_vitl16")
    with pytest.raises(BackboneError, match="unknown encoder 'nanu'"):
        open_encoder("nanu")
    assert {"nano", "vjepa1_vit_huge", "dinov2_vitg14_reg"} <= set(encoder_names())


def test_a_released_file_opens_by_name(tmp_path: Path) -> None:
    source = build_encoder("dinov2_vits14", seed=2)
    torch.save(source.state_dict(), tmp_path / "dinov2_vits14_pretrain.pth")
    encoder = open_encoder("dinov2_vits14", tmp_path / "dinov2_vits14_pretrain.pth")
    assert encoder.tokens(frames(1, 1)).shape == (1, 1, 256, 384)


def test_floats_are_refused() -> None:
    with pytest.raises(BackboneError, match=r"expected frames uint8 \[B, T, H, W, 3\], got float32"):
        video_encoders()[0].tokens(frames().astype(np.float32))  # type: ignore[arg-type]
