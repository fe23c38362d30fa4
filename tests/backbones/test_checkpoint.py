"""Loading: strict, said, safe, and one copy in memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from factorjepa.backbones import Backbone, BackboneSpec, build, load, save
from factorjepa.errors import BackboneError

from .conftest import TINY


def official(path: Path, spec: BackboneSpec = TINY, encoder_key: str = "target_encoder", **extra: Any) -> Backbone:
    """Write a file with the structure of the official ones; the averaged weights differ from the online ones."""
    online, averaged = build(spec, seed=1), build(spec, seed=2)

    def prefixed(module: torch.nn.Module) -> dict[str, torch.Tensor]:
        return {f"module.backbone.{key}": tensor for key, tensor in module.state_dict().items()}

    content = {
        "encoder": prefixed(online.encoder),
        "predictor": prefixed(averaged.predictor),
        "opt": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1e-4}]},
        "scaler": None,
        "epoch": 3,
        "loss": 0.4,
        "batch_size": 8,
        "world_size": 1,
        "lr": 1e-4,
        encoder_key: prefixed(averaged.encoder),
        **extra,
    }
    torch.save(content, path)
    return averaged


def assert_same_weights(actual: Backbone, expected: Backbone) -> None:
    for (key, a), b in zip(actual.state_dict().items(), expected.state_dict().values(), strict=True):
        assert a.equal(b), key


@pytest.mark.parametrize("encoder_key", ["target_encoder", "ema_encoder"])
def test_an_official_file_gives_its_averaged_encoder_and_says_so(tmp_path: Path, encoder_key: str) -> None:
    expected = official(tmp_path / "official.pt", encoder_key=encoder_key)
    loaded = load(tmp_path / "official.pt", TINY)
    assert_same_weights(loaded, expected)
    assert loaded.origin == f"official.pt: {encoder_key}, predictor"


def test_the_released_fixture_loads_as_it_is(fixture_path: Path, released_spec: BackboneSpec, released: Any) -> None:
    loaded = load(fixture_path, released_spec).eval()
    with torch.no_grad():
        torch.testing.assert_close(loaded.encoder(released["x"]), released["full"], rtol=0, atol=1e-4)
    assert "encoder" in loaded.origin


def test_loaded_weights_compute_and_train_and_the_file_stays_as_it_was(tmp_path: Path) -> None:
    official(tmp_path / "official.pt")
    before = (tmp_path / "official.pt").read_bytes()
    loaded = load(tmp_path / "official.pt", TINY)
    loaded.encoder(torch.randn(1, 3, 8, 32, 32)).square().mean().backward()
    torch.optim.SGD(loaded.encoder.parameters(), lr=1.0).step()
    assert (tmp_path / "official.pt").read_bytes() == before


def test_safetensors_round_trip_keeps_weights_spec_and_origin(tmp_path: Path) -> None:
    backbone = build(TINY, seed=4)
    save(backbone, tmp_path / "tiny.safetensors")
    loaded = load(tmp_path / "tiny.safetensors", TINY, dtype=torch.float64)
    assert_same_weights(loaded, backbone.double())
    assert "RANDOM weights (seed 4)" in loaded.origin


def test_saved_weights_can_be_read_by_whoever_reads_other_files_here(tmp_path: Path) -> None:
    save(build(TINY), tmp_path / "tiny.safetensors")
    (tmp_path / "plain").touch()
    assert (tmp_path / "tiny.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_20_files_lose_only_the_position_tables_that_rotary_models_never_read(tmp_path: Path) -> None:
    spec = TINY.replace(
        taps=(3,), rope="tiled", rope_reference=None, modalities=False, tap_norms=False, context_head=False
    )
    source = build(spec)
    encoder = {**source.encoder.state_dict(), "pos_embed": torch.zeros(1, 64, 48)}
    predictor = {**source.predictor.state_dict(), "predictor_pos_embed": torch.zeros(1, 64, 24)}
    torch.save({"target_encoder": encoder, "predictor": predictor}, tmp_path / "v20.pt")
    loaded = load(tmp_path / "v20.pt", spec)
    assert_same_weights(loaded, source)
    assert "pos_embed, predictor_pos_embed" in loaded.origin
    with pytest.raises(BackboneError, match=r"unexpected  encoder\.pos_embed"):
        load(tmp_path / "v20.pt", TINY)


def test_a_wrong_file_shows_what_differs_and_what_it_is(tmp_path: Path) -> None:
    nano = build("nano")
    save(nano, tmp_path / "weights.safetensors")
    with pytest.raises(BackboneError) as caught:
        load(tmp_path / "weights.safetensors", "vjepa2_1_vit_base_384")
    message = str(caught.value)
    assert "missing     encoder.blocks.8.norm1.weight" in message
    assert "misshapen   encoder.img_mod_embed" in message
    assert "expected 1x1x768, file has 1x1x192" in message
    assert "'nano'" in message
    assert len(message.splitlines()) < 25


def test_an_official_file_of_another_size_is_recognised_by_its_shapes(tmp_path: Path) -> None:
    official(tmp_path / "official.pt", build("nano", device="meta").spec)
    with pytest.raises(BackboneError, match=r"Most likely it is 'nano' \(100% of its keys fit\)"):
        load(tmp_path / "official.pt", "vjepa2_1_vit_large_384")


def test_one_missing_key_is_an_error(tmp_path: Path) -> None:
    source = build(TINY)
    encoder = source.encoder.state_dict()
    del encoder["norms_block.3.bias"]
    torch.save({"target_encoder": encoder, "predictor": source.predictor.state_dict()}, tmp_path / "short.pt")
    with pytest.raises(BackboneError, match="1 missing, 0 unexpected, 0 misshapen"):
        load(tmp_path / "short.pt", TINY)


class Payload:
    def __reduce__(self) -> Any:
        return (print, ("this must never run",))


def test_a_file_with_code_is_refused_and_the_code_does_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"target_encoder": {}, "predictor": {}, "extra": Payload()}, tmp_path / "evil.pt")
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Payload(), protocol=2))
    (tmp_path / "raw.safetensors").write_bytes(pickle.dumps(Payload(), protocol=0))
    for name, words in (
        ("evil.pt", r"nothing else is unpickled .*print was not an allowed global by default\)"),
        ("raw.pt", "bare pickle"),
        ("raw.safetensors", "does not begin as safetensors do"),
    ):
        with pytest.raises(BackboneError, match=words):
            load(tmp_path / name, TINY)
    assert "never run" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["cut.pt", "cut.safetensors"])
def test_a_truncated_file_is_called_damaged(tmp_path: Path, name: str) -> None:
    whole = tmp_path / f"whole{Path(name).suffix}"
    if name.endswith(".pt"):
        official(whole)
    else:
        save(build(TINY), whole)
    content = whole.read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(BackboneError, match=rf"{name}: is damaged or incomplete"):
        load(tmp_path / name, TINY)


def test_missing_empty_and_foreign_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="weights list"):
        load(tmp_path / "absent.pt", TINY)
    (tmp_path / "empty.pt").touch()
    with pytest.raises(BackboneError, match="0 bytes"):
        load(tmp_path / "empty.pt", TINY)
    torch.save({"model": {}}, tmp_path / "other.pt")
    with pytest.raises(BackboneError, match="found model"):
        load(tmp_path / "other.pt", TINY)
    (tmp_path / "page.pt").write_text("<!DOCTYPE html>\n<html>Sign in to the network</html>")
    with pytest.raises(BackboneError, match="it is text, beginning '<!DOCTYPE html>"):
        load(tmp_path / "page.pt", TINY)
    with zipfile.ZipFile(tmp_path / "archive.pt", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(BackboneError, match="a zip that torch did not write"):
        load(tmp_path / "archive.pt", TINY)
    torch.save(torch.zeros(3), tmp_path / "tensor.pt")
    with pytest.raises(BackboneError, match="holds a Tensor"):
        load(tmp_path / "tensor.pt", TINY)


@pytest.mark.parametrize("entry", [{"a": 5}, {3: torch.zeros(1)}, {"a": [torch.zeros(1)]}])
def test_an_encoder_that_is_no_state_dict_is_refused(tmp_path: Path, entry: dict[Any, Any]) -> None:
    torch.save({"target_encoder": entry, "predictor": {}}, tmp_path / "odd.pt")
    with pytest.raises(BackboneError, match="its encoder is not a state dict"):
        load(tmp_path / "odd.pt", TINY)


def test_two_tensors_of_one_name_are_not_chosen_between(tmp_path: Path) -> None:
    state = build(TINY).encoder.state_dict()
    state["module.patch_embed.proj.bias"] = state["patch_embed.proj.bias"] + 1
    torch.save({"target_encoder": state}, tmp_path / "twice.pt")
    with pytest.raises(BackboneError, match=r"'patch_embed.proj.bias' twice"):
        load(tmp_path / "twice.pt", TINY, parts="encoder")


def test_quantised_weights_are_not_taken_for_weights(tmp_path: Path) -> None:
    source = build(TINY)
    encoder = {key: tensor.to(torch.int8) for key, tensor in source.encoder.state_dict().items()}
    torch.save({"target_encoder": encoder, "predictor": source.predictor.state_dict()}, tmp_path / "int8.pt")
    with pytest.raises(BackboneError, match=r"(?s)of whole numbers.*quantised"):
        load(tmp_path / "int8.pt", TINY)


def test_a_files_format_is_read_from_its_bytes_not_its_name(tmp_path: Path) -> None:
    source = build(TINY, seed=8)
    save(source, tmp_path / "ours.safetensors")
    (tmp_path / "ours.safetensors").rename(tmp_path / "ours.bin")
    assert_same_weights(load(tmp_path / "ours.bin", TINY), source)


def encoder_alone(path: Path, source: Backbone, form: str) -> Path:
    """The files that people pass around: a training file without its predictor, a bare state dict, a re-save."""
    state = source.encoder.state_dict()
    if form == "safetensors":
        save_file({f"backbone.{key}": tensor for key, tensor in state.items()}, path.with_suffix(".safetensors"))
        return path.with_suffix(".safetensors")
    torch.save({form: state, "epoch": 3} if form != "bare" else state, path)
    return path


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("encoder", "alone.pt: encoder"),
        ("target_encoder", "alone.pt: target_encoder"),
        ("ema_encoder", "alone.pt: ema_encoder"),
        ("model", "alone.pt: bare encoder"),
        ("bare", "alone.pt: bare encoder"),
        ("safetensors", "alone.safetensors: bare encoder"),
    ],
)
def test_a_file_of_the_encoder_alone_serves_where_the_encoder_is_asked_for(
    tmp_path: Path, form: str, said: str
) -> None:
    source = build(TINY, seed=7).eval()
    path = encoder_alone(tmp_path / "alone.pt", source, form)
    loaded = load(path, TINY, parts="encoder").eval()
    assert loaded.origin == said
    video = torch.randn(1, 3, 8, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert loaded.encoder(video).equal(source.encoder(video))
    with pytest.raises(BackboneError, match=r"holds the encoder of this spec and no predictor.*parts=\"encoder\""):
        load(path, TINY)


def test_a_backbone_without_predictor_says_so_when_asked_for_it_and_survives_a_round_trip(tmp_path: Path) -> None:
    source = official(tmp_path / "official.pt")
    loaded = load(tmp_path / "official.pt", TINY, parts="encoder")
    assert loaded.origin == "official.pt: target_encoder"
    assert loaded.encoder.blocks[0].attn.qkv.weight.equal(source.encoder.blocks[0].attn.qkv.weight)
    with pytest.raises(BackboneError, match=r"\(official.pt: target_encoder\) is an encoder alone"):
        loaded.predictor(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    assert not hasattr(loaded, "predictor")
    assert hasattr(source, "predictor")
    save(loaded, tmp_path / "encoder.safetensors")
    again = load(tmp_path / "encoder.safetensors", TINY, parts="encoder")
    assert again.encoder.blocks[0].attn.qkv.weight.equal(source.encoder.blocks[0].attn.qkv.weight)
    with pytest.raises(BackboneError, match="no predictor"):
        load(tmp_path / "encoder.safetensors", TINY)


def test_the_encoder_alone_is_loaded_as_strictly(tmp_path: Path) -> None:
    source = build(TINY)
    state = source.encoder.state_dict()
    del state["norms_block.3.bias"]
    torch.save({"encoder": state, "predictor": {"anything": torch.zeros(1)}}, tmp_path / "short.pt")
    with pytest.raises(BackboneError, match=r"encoder of this spec: 1 missing, 0 unexpected, 0 misshapen keys \(of"):
        load(tmp_path / "short.pt", TINY, parts="encoder")
    with pytest.raises(BackboneError, match="'both' or 'encoder'"):
        load(tmp_path / "short.pt", TINY, parts="predictor")  # type: ignore[arg-type]


MEASURE = """
import sys, torch
torch.set_num_threads(1)
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
from factorjepa.backbones import BackboneSpec, load
path, spec = sys.argv[1], BackboneSpec.from_json(sys.argv[2])
load(sys.argv[3], BackboneSpec.from_json(sys.argv[4]))  # imports and first use are paid before measuring
before = peak()
backbone = load(path, spec)
total = sum(float(p.sum()) for p in backbone.parameters())  # touch every page
size = sum(p.nbytes for p in backbone.parameters())
print((peak() - before) / size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_loading_takes_one_copy_of_the_weights(tmp_path: Path, kind: str) -> None:
    """Peak resident memory of a fresh process, over the bytes of the weights; the file also holds an optimiser."""
    middle = TINY.replace(dim=768, heads=12, mlp_hidden=3072, predictor_dim=384, predictor_heads=12)
    small, large = tmp_path / f"small.{kind}", tmp_path / f"large.{kind}"
    if kind == "pt":
        official(small)
        official(large, middle)
    else:
        save(build(TINY), small)
        save(build(middle), large)
    arguments = [str(large), middle.to_json(), str(small), TINY.to_json()]
    printed = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True, timeout=300
    )
    copies = float(printed.stdout)
    assert 0.8 < copies < 1.35
