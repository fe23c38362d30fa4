"""Generators: ours, the tiny FLUX.2 decoder from its released file, and Cosmos through diffusers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from factorjepa.errors import RenderingError
from factorjepa.rendering.decoder import Decoder, Latents, load_decoder, save_decoder
from factorjepa.rendering.generators.cosmos import Cosmos
from factorjepa.rendering.generators.mini import Mini
from factorjepa.rendering.generators.taef2 import Block, Taef2, read_state
from factorjepa.rendering.settings import DecoderSettings, Update
from factorjepa.video import read_frames

ASSETS = Path(__file__).parents[3] / "shared" / "assets"
LATENTS = Latents("nano", "0123456789abcdef", 16, 8, 2)


@pytest.mark.parametrize("patch", [8, 16])
def test_mini_draws_a_patch_for_every_token(patch: int) -> None:
    frames = Mini(6, (8, 8, 8), patch)(torch.randn(2, 4, 6, 3, 5), 4)
    assert frames.shape == (2, 4, 3, 3 * patch, 5 * patch)
    assert 0 <= frames.min() <= frames.max() <= 1


def test_mini_needs_a_patch_that_is_a_power_of_two() -> None:
    with pytest.raises(RenderingError, match="14 px is no power of two"):
        Mini(6, (8, 8), 14)


@pytest.mark.parametrize(("update", "trained"), [("none", 0), ("output", 36_928 * 3 + 1_731), ("all", 1_338_499)])
def test_the_update_scope_is_what_was_declared(update: Update, trained: int, tmp_path: Path) -> None:
    save_file(Taef2().layers.state_dict(), tmp_path / "taef2.safetensors")
    settings = DecoderSettings(kind="taef2", weights=str(tmp_path / "taef2.safetensors"), update=update, width=24,
                               heads=2, depth=1)  # fmt: skip
    decoder = Decoder(settings, LATENTS)
    assert sum(p.numel() for p in decoder.generator.parameters() if p.requires_grad) == trained
    scope = decoder.scope()
    assert scope["trainable"]["transport"] == sum(p.numel() for p in decoder.transport.parameters())
    assert scope["trainable"].get("generator.layers", 0) == trained
    assert scope["frozen"].get("generator.layers", 0) == 1_338_499 - trained


def test_a_file_that_is_no_taef2_is_refused_with_what_differs(tmp_path: Path) -> None:
    save_file({"1.weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(RenderingError, match=r"other.safetensors: is not a taef2 decoder: it has no '") as error:
        Taef2.load(tmp_path / "other.safetensors")
    lacking = len(Taef2().layers.state_dict()) - 1
    assert f"and {lacking} other differences" in str(error.value)  # those, and one of another shape
    assert len(str(error.value)) < 300
    one_off = {**Taef2().layers.state_dict(), "19.bias": torch.zeros(4)}
    save_file(one_off, tmp_path / "other.safetensors")
    with pytest.raises(RenderingError, match=r"decoder: '19.bias' is \[4\], not \[3\]\. Give the file"):
        Taef2.load(tmp_path / "other.safetensors")
    (tmp_path / "broken.pth").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(RenderingError, match=r"broken.pth: cannot be read as weights"):
        Taef2.load(tmp_path / "broken.pth")
    with pytest.raises(RenderingError, match=r"missing.pth: cannot be read as weights"):
        Taef2.load(tmp_path / "missing.pth")


class _Taef2Encoder(nn.Module):
    """The other half of the released pair, for this test alone."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, padding=1), Block()]
        for scale in range(3):
            layers += [nn.Conv2d(64, 64, 3, padding=1, stride=2, bias=False)]
            layers += [Block(pointwise=scale == 2) for _ in range(3)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(64, 32, 3, padding=1))
        self.layers.load_state_dict(state, strict=True)

    def forward(self, x: Tensor) -> Tensor:
        latents: Tensor = self.layers(x)
        return latents


@pytest.mark.skipif(not ASSETS.is_dir(), reason="real weights and video are not beside this checkout")
def test_the_released_taef2_draws_a_real_street_from_its_own_latents() -> None:
    frame = read_frames(ASSETS / "video" / "opencv4nodejs_people.mp4", np.array([5.0]))[0, 100:324, 300:524]
    picture = torch.from_numpy(frame).permute(2, 0, 1)[None].float() / 255
    encoder = _Taef2Encoder(read_state(ASSETS / "weights" / "taef2_encoder.pth"))
    generator = Taef2.load(ASSETS / "weights" / "taef2_decoder.pth")
    with torch.no_grad():
        drawn = generator(encoder(picture)[None], 1)[0].clamp(0, 1)
    assert -10 * torch.log10(torch.square(drawn - picture).mean()) > 29


@pytest.fixture
def cosmos(tmp_path: Path) -> Path:
    """A tokenizer in diffusers' own layout, tiny and random."""
    from diffusers import AutoencoderKLCosmos

    torch.manual_seed(0)
    AutoencoderKLCosmos(
        encoder_block_out_channels=(8, 16, 16), decode_block_out_channels=(8, 16, 16), latent_channels=4, resolution=64,
        spatial_compression_ratio=8, temporal_compression_ratio=4, num_layers=1, attention_resolutions=(),
    ).save_pretrained(tmp_path / "cosmos")  # type: ignore[no-untyped-call]  # fmt: skip
    return tmp_path / "cosmos"


def test_cosmos_draws_the_last_frames_of_its_causal_stretch(cosmos: Path) -> None:
    from diffusers import AutoencoderKLCosmos

    generator = Cosmos.load(cosmos)
    assert (generator.channels, generator.stride, generator.steps(4)) == (4, 8, 2)
    latents = torch.randn(1, 2, 4, 4, 4)
    whole = AutoencoderKLCosmos.from_pretrained(cosmos)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        drawn = generator(latents, 4)
        wanted = whole.decode(latents.transpose(1, 2)).sample.transpose(1, 2)[:, -4:]
    torch.testing.assert_close(drawn * 2 - 1, wanted)


def test_a_cosmos_decoder_is_trained_through_and_stored_whole(cosmos: Path, tmp_path: Path) -> None:
    settings = DecoderSettings(kind="cosmos", weights=str(cosmos), update="output", width=24, heads=2, depth=1)
    decoder = Decoder(settings, LATENTS)
    tokens = torch.randn(1, 2 * 4 * 4, 16)
    drawn = decoder(tokens, (2, 4, 4))
    drawn.mean().backward()
    assert drawn.shape == (1, 4, 3, 32, 32)
    assert decoder.transport.project_in.weight.grad is not None
    assert set(decoder.scope()["trainable"]) == {"transport", "generator.decoder"}
    path = save_decoder(tmp_path / "decoder.safetensors", decoder, {})
    torch.testing.assert_close(load_decoder(path, "nano").decoder.render(tokens, (2, 4, 4)), drawn.clamp(0, 1).detach())
    with pytest.raises(RenderingError, match="draws frames together"):
        decoder(tokens, (2, 4, 4), [0])


def test_a_folder_that_is_no_cosmos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RenderingError, match=r"has no config.json"):
        Cosmos.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RenderingError, match="cannot be read as a Cosmos tokenizer"):
        Cosmos.load(tmp_path)


def test_settings_that_contradict_each_other_are_refused() -> None:
    for words, values in (
        ("begins from a pretrained file", {"kind": "taef2"}),
        ("takes no weights", {"weights": "x.pth"}),
        ("update must be all", {"update": "none"}),
        ("multiple of 4", {"width": 50}),
    ):
        with pytest.raises(ValueError, match=words):
            DecoderSettings.model_validate(values)
