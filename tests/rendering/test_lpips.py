"""LPIPS-Alex: a slow literal transcription, file layouts, and known properties with the real weights."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from factorjepa.errors import RenderingError
from factorjepa.rendering.metrics.lpips import Lpips

REAL = Path(__file__).parents[3] / "shared" / "assets" / "weights" / "lpips_alex_backbone_and_lin.pth"
PUBLISHED = 0.260194  # what the package `lpips` 0.1.4 says of the picture below and its mirror image
SHAPES = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3), 10: (256, 256, 3, 3)}
SLICES = {0: 1, 3: 2, 6: 3, 8: 4, 10: 5}


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    """Random weights in the layout `features.*`, `lin*`."""
    generator = torch.Generator().manual_seed(0)
    made: dict[str, Tensor] = {}
    for k, (place, shape) in enumerate(SHAPES.items()):
        made[f"features.{place}.weight"] = (
            torch.randn(shape, generator=generator) * (2 / shape[1] / shape[2] ** 2) ** 0.5
        )
        made[f"features.{place}.bias"] = 0.1 * torch.randn(shape[0], generator=generator)
        made[f"lin{k}.model.1.weight"] = torch.rand((1, shape[0], 1, 1), generator=generator)
    return made


@pytest.fixture(scope="module")
def file(state: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lpips") / "alex.pth"
    torch.save(state, path)
    return path


def pictures(seed: int = 0, side: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first = torch.rand(2, 3, side, side, generator=generator)
    return first, (first + 0.3 * torch.randn(2, 3, side, side, generator=generator)).clamp(0, 1)


def literal(state: dict[str, Tensor], first: Tensor, second: Tensor) -> float:
    """One pair `[3, H, W]`, layer by layer and place by place, as the published code defines it."""
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    x, y = (((2 * p - 1) - shift.view(3, 1, 1)) / scale.view(3, 1, 1) for p in (first, second))
    total = 0.0
    for k, place in enumerate(SHAPES):
        if k in (1, 2):
            x, y = (F.max_pool2d(v[None], 3, 2)[0] for v in (x, y))
        weight, bias = state[f"features.{place}.weight"], state[f"features.{place}.bias"]
        stride, padding = ((4, 2), (1, 2), (1, 1), (1, 1), (1, 1))[k]
        x, y = (F.conv2d(v[None], weight, bias, stride, padding)[0].clamp(min=0) for v in (x, y))
        head, layer = state[f"lin{k}.model.1.weight"].flatten(), 0.0
        for row in range(x.shape[1]):
            for column in range(x.shape[2]):
                a, b = x[:, row, column], y[:, row, column]
                a, b = a / (a.square().sum().sqrt() + 1e-10), b / (b.square().sum().sqrt() + 1e-10)
                layer += float((head * (a - b) ** 2).sum())
        total += layer / (x.shape[1] * x.shape[2])
    return total


def test_it_equals_a_literal_transcription(state: dict[str, Tensor], file: Path) -> None:
    first, second = pictures()
    wanted = [literal(state, a, b) for a, b in zip(first, second, strict=True)]
    assert Lpips.load(file)(first, second).tolist() == pytest.approx(wanted, rel=1e-4)


def test_frames_are_those_of_single_pictures_and_regions_ask_only_there(file: Path) -> None:
    lpips = Lpips.load(file)
    first, second = pictures()
    assert torch.allclose(lpips.frames(first[None], second[None])[0], lpips(first, second))
    region = torch.zeros(1, 2, 64, 64, dtype=torch.bool)
    region[0, 0, :32] = True
    inside = lpips.frames(first[None], second[None], region)
    assert inside[0, 0] > 0
    assert inside[0, 1].isnan()


def test_all_layouts_of_the_weights_give_the_same_numbers(state: dict[str, Tensor], file: Path, tmp_path: Path) -> None:
    package = {
        f"net.slice{SLICES[int(k.split('.')[1])]}.{k.removeprefix('features.')}" if k.startswith("features") else k: v
        for k, v in state.items()
    }
    package |= {f"lins.{k}.model.1.weight": state[f"lin{k}.model.1.weight"] for k in range(5)}
    package["scaling_layer.shift"] = torch.tensor([-0.030, -0.088, -0.188]).view(1, 3, 1, 1)
    package["scaling_layer.scale"] = torch.tensor([0.458, 0.448, 0.450]).view(1, 3, 1, 1)
    torch.save(package, tmp_path / "package.pth")
    torch.save({k: v for k, v in state.items() if k.startswith("lin")}, tmp_path / "heads.pth")
    trunk = {k: v for k, v in state.items() if k.startswith("features")} | {"classifier.1.bias": torch.zeros(3)}
    torch.save(trunk, tmp_path / "trunk.pth")
    wanted = Lpips.load(file)(*pictures())
    assert torch.equal(Lpips.load(tmp_path / "package.pth")(*pictures()), wanted)
    both = Lpips.load(tmp_path / "heads.pth", tmp_path / "trunk.pth")
    assert torch.equal(both(*pictures()), wanted)
    assert "heads.pth" in both.name and "trunk.pth" in both.name  # noqa: PT018


def test_it_computes_where_its_weights_are_and_not_where_the_pictures_lie(file: Path) -> None:
    pictures = torch.rand(2, 3, 64, 64)
    assert Lpips.load(file, device="meta")(pictures, pictures).device.type == "meta"


def test_the_name_tells_network_and_file(file: Path) -> None:
    assert Lpips.load(file).name.startswith("LPIPS-Alex v0.1, alex.pth (sha256 ")


def test_it_teaches_pictures_and_never_learns(file: Path) -> None:
    lpips = Lpips.load(file)
    first, second = pictures()
    drawn = first.clone().requires_grad_()
    lpips(drawn, second).sum().backward()
    assert drawn.grad is not None
    assert drawn.grad.isfinite().all()
    black = torch.zeros_like(first).requires_grad_()  # features that are zero have no direction
    lpips(black, torch.zeros_like(first)).sum().backward()
    assert black.grad is not None
    assert black.grad.isfinite().all()
    assert not any(p.requires_grad for p in lpips.parameters())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda s: s.pop("features.8.bias"), "missing: trunk.3.bias"),
        (lambda s: s.update({"features.1.weight": torch.zeros(1)}), r"unexpected: features\.1\.weight"),
        (lambda s: s.update({"lin2.model.1.weight": torch.zeros(1, 5, 1, 1)}), r"heads\.2\.weight is \[1, 5, 1, 1\]"),
        (lambda s: s.update({"lins.0.model.1.weight": torch.zeros(1, 64, 1, 1)}), "twice, differently"),
        (lambda s: s.update({"scaling_layer.scale": torch.ones(1, 3, 1, 1)}), "not that of LPIPS 0.1"),
        (lambda s: [s.pop(k) for k in [*s] if k.startswith("features")], "the linear heads alone"),
        (lambda s: [s.pop(k) for k in [*s] if k.startswith("lin")], r"AlexNet alone\. LPIPS needs .* `lin0` to `lin4`"),
        (lambda s: [s.pop(k) for k in [*s]] and s.update(odd=torch.zeros(1)), r"unexpected: odd\. LPIPS needs"),
    ],
)
def test_other_weights_are_refused_with_the_reason(state, tmp_path: Path, change, said: str) -> None:  # type: ignore[no-untyped-def]
    altered = dict(state)
    change(altered)
    torch.save(altered, tmp_path / "odd.pth")
    with pytest.raises(RenderingError, match=said):
        Lpips.load(tmp_path / "odd.pth")


def _unlike_weights(folder: Path, file: Path) -> dict[str, str]:
    """Files of every other kind, and what is said of each."""
    (folder / "note.txt").write_text("hello\n")  # as a pickle, a KeyError
    (folder / "page.pth").write_text("<!DOCTYPE html>")
    (folder / "empty.pth").touch()
    (folder / "folder").mkdir()
    (folder / "cut.pth").write_bytes(file.read_bytes()[:5000])
    save_file({"a": torch.zeros(1000)}, folder / "other.safetensors")
    (folder / "cut.safetensors").write_bytes((folder / "other.safetensors").read_bytes()[:500])
    (folder / "odd.pkl").write_bytes(pickle.dumps({"a": Path()}, protocol=2))
    torch.save([1, 2], folder / "list.pth")
    torch.save({"state_dict": {"a": torch.zeros(1)}}, folder / "nested.pth")
    torch.save({0: torch.zeros(1)}, folder / "numbered.pth")
    torch.save(torch.nn.Linear(2, 2), folder / "module.pth")
    torch.save({"blocks.0.weight": torch.zeros(1)}, folder / "model.pth")
    return {
        "none.pth": "there is no such file of weights",
        "folder": "is a folder, not a file",
        "note.txt": "it is text, beginning 'hello",
        "page.pth": "it is text, beginning '<!DOCTYPE",
        "empty.pth": "it is empty (0 bytes). Fetch it again",
        "cut.pth": "its end is missing); fetch it again",
        "cut.safetensors": "is damaged or incomplete as safetensors",
        "other.safetensors": "unexpected: a. LPIPS needs",
        "odd.pkl": "a damaged pickle, or one of something else than tensors",
        "list.pth": "holds a list",
        "nested.pth": "it maps 'state_dict' to a dict",
        "numbered.pth": "it maps 0 to a Tensor, not a name",
        "module.pth": "is not a file of plain tensors",
        "model.pth": "heads.3.weight and 11 more; unexpected: blocks.0.weight. LPIPS needs",
    }


def test_files_that_are_none_are_refused_with_what_they_are_and_what_to_do(file: Path, tmp_path: Path) -> None:
    for name, said in _unlike_weights(tmp_path, file).items():
        with pytest.raises(RenderingError) as refused:
            Lpips.load(tmp_path / name)
        message = str(refused.value)
        assert message.startswith(f"{tmp_path / name}: "), message
        assert said in message, message
        assert message.endswith("name such a file, or leave LPIPS out"), message
        assert not re.search("[a-z]Error", message), message  # not in Python's words


def test_heads_of_the_package_itself_are_read_although_no_zip(state: dict[str, Tensor], tmp_path: Path) -> None:
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    torch.save(state, tmp_path / "new.pth")
    old, new = (Lpips.load(tmp_path / name)(*pictures()) for name in ("old.pth", "new.pth"))
    assert torch.equal(old, new)


def test_pictures_too_small_for_alexnet_are_refused(file: Path) -> None:
    with pytest.raises(RenderingError, match="31 px"):
        Lpips.load(file)(*pictures(side=30))
    assert (Lpips.load(file)(*pictures(side=31)) > 0).all()


@pytest.mark.skipif(not REAL.is_file(), reason="the real weights of LPIPS are not beside the checkout")
def test_the_real_weights_know_what_people_see() -> None:
    lpips = Lpips.load(REAL)
    y, x = torch.meshgrid(torch.linspace(0, 1, 64), torch.linspace(0, 1, 64), indexing="ij")
    stripes = ((12 * x).sin() * (9 * y).cos() * 0.4 + 0.5).expand(3, 64, 64)[None].contiguous()
    brighter = (stripes + 0.04).clamp(0, 1)
    noisy = (stripes + 0.04 * torch.randn(stripes.shape, generator=torch.Generator().manual_seed(0)).sign()).clamp(0, 1)
    assert lpips(stripes, stripes).item() == 0
    assert lpips(stripes, brighter).item() == pytest.approx(lpips(brighter, stripes).item(), abs=1e-7)
    assert 0 < lpips(stripes, brighter) < lpips(stripes, noisy)  # the same L1, and not the same to the eye
    waves = ((40 * x * y).sin() * 0.4 + 0.5).expand(3, 64, 64)[None].contiguous()
    assert lpips(waves, waves.flip(-1)).item() == pytest.approx(PUBLISHED, abs=1e-5)
