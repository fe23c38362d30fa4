"""The commands a newcomer types, end to end on real video and on files with the structure of the official ones."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.numpy import load_file
from typer.testing import CliRunner

from factorjepa.backbones import build, load, save
from factorjepa.backbones.features import principal_colours, sample_times, video_features
from factorjepa.backbones.preprocess import normalise, resize_frames
from factorjepa.errors import BackboneError, VideoError
from factorjepa.verbs.model import features, weights_app
from factorjepa.video import probe, read_frames, write_video

from .conftest import TINY, miniature

app = typer.Typer()
app.add_typer(weights_app)
app.command()(features)


@pytest.fixture
def street(asset: Any) -> Path:
    path: Path = asset("video/sparevideo_montreal_intersection.mp4")
    return path


def invoke(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def test_an_official_file_goes_to_features_with_one_command(street: Path, tmp_path: Path) -> None:
    """Same structure as `vjepa2_1_vitg_384.pt`: prefixes, averaged encoder, optimiser; nano's sizes."""
    source = build("nano", seed=5)
    prefixed = {f"module.backbone.{key}": tensor for key, tensor in source.encoder.state_dict().items()}
    torch.save(
        {
            "encoder": {key: torch.zeros_like(tensor) for key, tensor in prefixed.items()},
            "target_encoder": prefixed,
            "predictor": {f"module.backbone.{key}": tensor for key, tensor in source.predictor.state_dict().items()},
            "opt": {"state": {}, "param_groups": []},
            "epoch": 1,
        },
        tmp_path / "official.pt",
    )
    out = tmp_path / "street.safetensors"
    result = invoke(
        "features", street, "--arch", "nano", "--weights", tmp_path / "official.pt", "--out", out, "--seconds", "6"
    )
    assert result.exit_code == 0
    assert "weights: official.pt: target_encoder\n" in result.output
    assert "RANDOM" not in result.output

    written = load_file(out)
    assert written["features"].shape == (12, 16, 16, 192)  # 24 frames at 4 fps: a window of 16 and one of 8
    assert written["window"].tolist() == [0] * 8 + [1] * 4
    np.testing.assert_allclose(written["seconds"], np.arange(12) * 0.5)

    times = 4.0 + np.arange(8) / 4
    clip = normalise(resize_frames(read_frames(street, times), 128, 128, "protocol"))[None]
    with torch.no_grad():
        expected = source.eval().encoder(clip)[0].view(4, 16, 16, 192)
    np.testing.assert_allclose(written["features"][8:], expected.numpy(), atol=5e-3)

    film = probe(tmp_path / "street.pca.mp4")
    assert (film.width, film.height, film.frames) == (256, 128, 24)
    from PIL import Image

    with Image.open(tmp_path / "street.pca.png") as picture:
        assert picture.size == (8 * 128, 256)


def test_nano_works_out_of_the_box_with_the_weights_of_the_package(street: Path, tmp_path: Path) -> None:
    out = tmp_path / "street.npz"
    result = invoke("features", street, "--out", out, "--seconds", "1", "--released-resize")
    assert result.exit_code == 0
    assert "nano.safetensors (pretrained" in result.output
    with np.load(out) as written:
        about = json.loads(str(written["about"]))
        assert written["features"].shape == (2, 16, 16, 192)
    assert "pretrained" in about["weights"]
    assert about["resize"] == "released"
    with pytest.raises(BackboneError, match="--overwrite"):
        invoke("features", street, "--out", out)


def test_features_of_an_architecture_without_weights_name_the_command_that_makes_them(tmp_path: Path) -> None:
    (tmp_path / "street.mp4").touch()
    with pytest.raises(BackboneError, match=r"--weights FILE, or make .*factorjepa pretrain runs/small arch=small"):
        invoke("features", tmp_path / "street.mp4", "--arch", "small", "--out", tmp_path / "out.npz")


def test_our_own_weights_name_their_architecture(tmp_path: Path) -> None:
    save(build(TINY), tmp_path / "tiny.safetensors")
    frames = np.random.default_rng(0).integers(0, 255, (16, 48, 64, 3), dtype=np.uint8)
    write_video(tmp_path / "noise.mp4", frames, fps=8)
    arguments = ("features", tmp_path / "noise.mp4", "--weights", tmp_path / "tiny.safetensors")
    result = invoke(*arguments, "--out", tmp_path / "f.npz", "--fps", "8")
    assert result.exit_code == 0
    with np.load(tmp_path / "f.npz") as written:
        assert written["features"].shape == (8, 4, 4, TINY.dim)


def test_a_released_architecture_without_weights_is_never_random(
    street: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTORJEPA_WEIGHTS", str(tmp_path))
    with pytest.raises(BackboneError, match="weights fetch vjepa2_1_vit_base_384"):
        invoke("features", street, "--arch", "vjepa2_1_vit_base_384", "--out", tmp_path / "f.npz")


def test_pca_colours_separate_what_features_separate() -> None:
    random = np.random.default_rng(1)
    kinds = random.integers(0, 3, (2, 8, 8))
    centres = random.normal(size=(3, 32)) * 3
    tokens = (centres[kinds] + random.normal(size=(2, 8, 8, 32)) * 0.1).astype(np.float16)
    colours = principal_colours(tokens).astype(float)
    means = [colours[kinds == kind].mean(0) for kind in range(3)]
    spread = max(colours[kinds == kind][:, :2].std(0).max() for kind in range(3))
    assert min(np.linalg.norm(means[a] - means[b]) for a, b in ((0, 1), (0, 2), (1, 2))) > 4 * spread
    assert (principal_colours(tokens) == colours).all()


def test_sampling_stays_inside_the_video_and_gives_whole_tubelets(street: Path) -> None:
    seconds = probe(street).seconds
    for fps in (1.0, 3.7, 4.0, 15.0):
        times = sample_times(street, TINY, fps)
        assert len(times) % 2 == 0
        assert times[-1] < seconds
        read_frames(street, times[-2:])  # decodable
    assert len(sample_times(street, TINY, 4.0, 2.0, 2.0)) == 8
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BackboneError, match="positive"):
            sample_times(street, TINY, wrong)


@pytest.fixture
def short(tmp_path: Path) -> Path:
    """Two seconds at 8 fps."""
    path = tmp_path / "short.mp4"
    write_video(path, np.random.default_rng(0).integers(0, 255, (16, 48, 64, 3), dtype=np.uint8), fps=8)
    return path


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("--start", "100"), r"is 2\.00 s long and ends before --start 100; choose a smaller one$"),
        (("--start", "1.8"), r"from 1\.8 s to 2\.00 s .* raise --fps above 7\.27 or lower --start$"),
        (("--start", "1", "--seconds", "0.2"), r"from 1 s to 1\.20 s .* raise --fps above 7\.27 or raise --seconds$"),
        (("--fps", "1e12"), "a lower --fps"),
    ],
)
def test_input_that_cannot_be_encoded_gets_advice_that_helps_and_no_warning_about_weights(
    short: Path, options: tuple[str, ...], advice: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises((BackboneError, VideoError), match=advice):
        invoke("features", short, "--out", short.with_name("f.npz"), *options)
    assert "RANDOM" not in capfd.readouterr().err


@pytest.mark.parametrize(("folder", "example"), [(False, r"feat\.safetensors"), (True, r"feat/short\.safetensors")])
def test_a_name_without_a_suffix_is_told_which_file_it_could_be(short: Path, folder: bool, example: str) -> None:
    out = short.with_name("feat")
    if folder:
        out.mkdir()
    with pytest.raises(BackboneError, match=rf"--out names a file, \.safetensors or \.npz, for example .*{example}$"):
        invoke("features", short, "--out", out)


def test_the_fps_that_is_advised_works(short: Path) -> None:
    assert len(sample_times(short, TINY, 7.28, 1.8)) == 2


def test_the_video_is_looked_at_before_the_weights(short: Path) -> None:
    (short.parent / "huge.pt").write_text("gigabytes")
    with pytest.raises(VideoError, match="ends before"):
        invoke("features", short, "--arch", "nano", "--weights", short.parent / "huge.pt", "--start", "9")


def test_a_file_of_the_encoder_alone_goes_to_features_and_is_recognised_without_a_name(
    short: Path, tmp_path: Path
) -> None:
    source = build("nano", seed=5).eval()
    torch.save({"encoder": source.encoder.state_dict()}, tmp_path / "mine.pt")
    result = invoke("features", short, "--weights", tmp_path / "mine.pt", "--out", tmp_path / "f.npz", "--seconds", "1")
    assert result.exit_code == 0
    assert "weights: mine.pt: encoder\n" in result.output
    clip = normalise(resize_frames(read_frames(short, np.arange(4) / 4), 128, 128, "protocol"))[None]
    with torch.no_grad():
        expected = source.encoder(clip)[0].view(2, 16, 16, 192)
    with np.load(tmp_path / "f.npz") as written:
        np.testing.assert_allclose(written["features"], expected.numpy(), atol=5e-3)


def test_features_too_large_for_memory_are_refused_before_work_starts(street: Path) -> None:
    huge = build("vjepa2_1_vit_gigantic_384", device="meta", grid=(2000, 2000))
    with pytest.raises(BackboneError, match="--seconds"):
        video_features(street, huge)


def test_weights_are_listed_with_addresses_and_honest_about_checksums(tmp_path: Path) -> None:
    result = invoke("weights", "list", "--folder", tmp_path)
    assert result.exit_code == 0
    assert "https://dl.fbaipublicfiles.com/vjepa2/vjepa2_1_vitG_384.pt" in result.output
    assert "1905 M    7.62 GB             -  https" in result.output  # parameters, and as fp32 safetensors
    for name, size in (("vitl.pt", 200_000_000), (".vith.pt.download", 100_000_000)):
        with open(tmp_path / name, "wb") as file:
            file.truncate(size)  # sparse: the size is all that is looked at
    again = invoke("weights", "list", "--folder", tmp_path).output
    assert "0.2 GB  https://dl.fbaipublicfiles.com/vjepa2/vitl.pt" in again
    assert "part: 0.1 GB  https://dl.fbaipublicfiles.com/vjepa2/vith.pt" in again
    assert "neither file sizes nor checksums" in result.output


def test_verify_exits_with_one_when_a_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    miniature(path, "vjepa2_1_vit_large_384")
    first = invoke("weights", "verify", path)
    assert "weights.pt: vjepa2_1_vit_large_384, encoder and predictor" in first.output
    assert "recorded now" in first.output
    assert "agrees with the recorded one" in invoke("weights", "verify", path).output
    assert invoke("weights", "verify", path, "--sha256", "0" * 64).exit_code == 1
    miniature(path, "vjepa2_1_vit_large_384", epoch=2)
    changed = invoke("weights", "verify", path)
    assert changed.exit_code == 1
    assert "DIFFERS from the recorded one" in changed.output


def test_verify_takes_a_checksum_that_the_user_knows(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    miniature(path, "nano")
    known = hashlib.sha256(path.read_bytes()).hexdigest()
    assert "agrees with the one given" in invoke("weights", "verify", path, "--sha256", known.upper()).output
    with pytest.raises(BackboneError, match="64 hexadecimal digits"):
        invoke("weights", "verify", path, "--sha256", "abc")


def test_convert_command_writes_what_load_reads(tmp_path: Path) -> None:
    source = build("nano", seed=6)
    state = {"target_encoder": source.encoder.state_dict(), "predictor": source.predictor.state_dict()}
    torch.save(state, tmp_path / "mine.pt")
    result = invoke("weights", "convert", tmp_path / "mine.pt")  # recognised by its keys
    assert "target_encoder" in result.output
    loaded = load(tmp_path / "mine.safetensors", "nano")
    assert loaded.encoder.patch_embed.proj.weight.equal(source.encoder.patch_embed.proj.weight)
    with pytest.raises(BackboneError, match="exists already"):
        invoke("weights", "convert", tmp_path / "mine.pt", "--arch", "nano")


def test_convert_of_an_encoder_alone_must_be_asked_for(tmp_path: Path) -> None:
    miniature(tmp_path / "mine.pt", "nano", predictor=False)
    with pytest.raises(BackboneError, match="convert --encoder-only"):
        invoke("weights", "convert", tmp_path / "mine.pt")
    assert invoke("weights", "convert", tmp_path / "mine.pt", "--encoder-only").exit_code == 0
    assert "encoder alone" in invoke("weights", "verify", tmp_path / "mine.safetensors").output


def test_sizes_that_share_their_keys_must_be_told_apart_by_the_user(tmp_path: Path) -> None:
    miniature(tmp_path / "mine.pt", "vjepa2_vit_giant_384")
    with pytest.raises(BackboneError, match=r"could be vjepa2_vit_giant or vjepa2_vit_giant_384 .* with --arch"):
        invoke("weights", "convert", tmp_path / "mine.pt")


@pytest.mark.parametrize(
    "command", [("features",), *(("weights", verb) for verb in ("list", "fetch", "verify", "convert"))]
)
def test_every_command_shows_an_example(command: tuple[str, ...]) -> None:
    assert "Example:  factorjepa" in invoke(*command, "--help").output
