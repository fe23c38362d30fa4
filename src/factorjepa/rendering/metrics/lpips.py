"""LPIPS (Zhang et al. 2018) with AlexNet, version 0.1, from a file of weights: no torchvision, no download.

Where no file is given there is no LPIPS. Nothing else is ever reported under this name.

Legend: N pictures, B clips, T frames, H x W pixels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from ...backbones.reading import read_torch, what_instead
from ...backbones.weights import sha256_of
from ...errors import BackboneError, RenderingError
from .region import region_mean

_WIDTHS = (64, 192, 384, 256, 256)
_PLACES = (0, 3, 6, 8, 10)  # of the convolutions in AlexNet's `features`
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # the scaling layer: ImageNet's, for [-1, 1]
_SMALLEST = 31  # px: below, nothing is left for the last layers
_BATCH = 32  # pictures at once
_SHOWN = 4  # keys named in an error
_ALONE = {"trunk": "It holds AlexNet alone. ", "heads": "It holds the linear heads alone. "}
_NEEDS = (
    "LPIPS needs AlexNet's `features.*` and the linear heads `lin0` to `lin4` of version 0.1, saved into one file; "
    "name such a file, or leave LPIPS out"
)


class Lpips(nn.Module):
    """The distance of pictures in [0, 1]. Frozen; differentiable with respect to the pictures."""

    def __init__(self) -> None:
        super().__init__()
        kernels, strides, paddings = (11, 5, 3, 3, 3), (4, 1, 1, 1, 1), (2, 2, 1, 1, 1)
        inside = (3, *_WIDTHS[:-1])
        shapes = zip(inside, _WIDTHS, kernels, strides, paddings, strict=True)
        self.trunk = nn.ModuleList(nn.Conv2d(*shape) for shape in shapes)
        self.heads = nn.ModuleList(nn.Conv2d(width, 1, 1, bias=False) for width in _WIDTHS)
        self.name = "LPIPS-Alex without weights"
        self.register_buffer("shift", torch.tensor(_SHIFT).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(_SCALE).view(1, 3, 1, 1), persistent=False)
        self.shift: Tensor
        self.scale: Tensor

    @classmethod
    def load(cls, path: Path | str, trunk: Path | str | None = None, device: torch.device | str = "cpu") -> Lpips:
        """Trunk and heads from one file, or the heads from `path` and AlexNet's trunk from another file.

        Taken: `features.*` with `lin*`; a state dict of the `lpips` package (`net.slice*`, `lin*`, `lins.*`); its
        heads (`alex.pth`) with torchvision's AlexNet as `trunk`.
        """
        paths = [Path(path), *([Path(trunk)] if trunk is not None else [])]
        tensors: dict[str, Tensor] = {}
        for one in paths:
            tensors |= _renamed(one, _read(one))
        result = cls()
        _refuse_misfits(paths, tensors, result.state_dict())
        result.load_state_dict(tensors)
        files = " and ".join(f"{one.name} (sha256 {sha256_of(one)[:8]})" for one in paths)
        result.name = f"LPIPS-Alex v0.1, {files}"
        return result.eval().requires_grad_(False).to(device)

    def forward(self, first_N3HW: Tensor, second_N3HW: Tensor) -> Tensor:
        """`[N]`."""
        return torch.stack([layer.mean((1, 2, 3)) for layer in self._layers(first_N3HW, second_N3HW)]).sum(0)

    def frames(self, first_BT3HW: Tensor, second_BT3HW: Tensor, region_BTHW: Tensor | None = None) -> Tensor:
        """Of every frame, `[B, T]`; over a region from the layers' maps, enlarged to the picture and added up."""
        B, T, _, H, W = first_BT3HW.shape
        values = []
        parts = (torch.split(frames.flatten(0, 1), _BATCH) for frames in (first_BT3HW, second_BT3HW))
        for first, second in zip(*parts, strict=True):
            if region_BTHW is None:
                values.append(self(first, second))
                continue
            layers = self._layers(first, second)
            enlarged = [F.interpolate(x, (H, W), mode="bilinear", align_corners=False)[:, 0] for x in layers]
            values.append(torch.stack(enlarged).sum(0))
        joined = torch.cat(values).reshape(B, T, *values[0].shape[1:]).to(first_BT3HW.device)
        return joined if region_BTHW is None else region_mean(joined, region_BTHW)

    def _layers(self, first_N3HW: Tensor, second_N3HW: Tensor) -> list[Tensor]:
        """Weighed squared differences of unit-length features, `[N, 1, h, w]` of each layer."""
        if min(first_N3HW.shape[-2:]) < _SMALLEST:
            height, width = first_N3HW.shape[-2:]
            raise RenderingError(f"LPIPS of pictures of {height} x {width} px: AlexNet needs {_SMALLEST} px a side")
        x = torch.cat((first_N3HW, second_N3HW)).to(self.shift.device)  # pictures are kept in main memory
        x = (2.0 * x - 1.0 - self.shift) / self.scale
        layers = []
        for k, (convolution, head) in enumerate(zip(self.trunk, self.heads, strict=True)):
            if k in (1, 2):
                x = F.max_pool2d(x, 3, 2)
            x = F.relu(convolution(x))
            unit = x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-10)
            first, second = unit.chunk(2)
            layers.append(head((first - second).square()))
        return layers


def _read(path: Path) -> Mapping[str, Tensor]:
    """The tensors of a file, under its names. What it is, its first bytes say."""
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "there is no such file"
        raise RenderingError(f"{path}: {what} of weights. {_NEEDS}")
    try:
        content = _content(path)
    except (BackboneError, OSError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).removeprefix(f"{path}: ")
        raise RenderingError(f"{path}: cannot be read as weights of LPIPS: {reason}. {_NEEDS}") from None
    for key, value in content.items():
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise RenderingError(
                f"{path}: holds no state dict of LPIPS: it maps {key!r} to a {type(value).__name__}, not a name to a "
                f"tensor. {_NEEDS}"
            )
    return content


def _content(path: Path) -> Mapping[Any, Any]:
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"PK"):
        return read_torch(path)
    if start[8:9] == b"{":  # safetensors: eight bytes of length, then JSON
        try:
            return load_file(path)
        except SafetensorError as error:
            raise BackboneError(f"is damaged or incomplete as safetensors ({error}); fetch it again") from None
    if not start.startswith(b"\x80"):
        raise BackboneError(what_instead(path, start))
    try:  # the heads as the package `lpips` has them are of a torch before its zip format
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # what unpickling some other file may raise has no end
        raise BackboneError("is a damaged pickle, or one of something else than tensors") from None
    if not isinstance(content, Mapping):
        raise BackboneError(f"holds a {type(content).__name__}, not a state dict")
    return content


def _renamed(path: Path, content: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Under our names; what the file says twice must agree, and the scaling layer must be ours."""
    result: dict[str, Tensor] = {}
    for key, value in content.items():
        if scaling := re.fullmatch(r"scaling_layer\.(shift|scale)", key):
            ours = torch.tensor(_SHIFT if scaling[1] == "shift" else _SCALE)
            if not torch.allclose(value.flatten().float(), ours):
                raise RenderingError(f"{path}: its {key} is not that of LPIPS 0.1")
            continue
        if re.match(r"classifier\.", key):  # of AlexNet as released: LPIPS ends before it
            continue
        name = _name(key)
        if name in result and not torch.equal(result[name], value):
            raise RenderingError(f"{path}: says {key} twice, differently")
        result[name] = value
    return result


def _name(key: str) -> str:
    if found := re.fullmatch(r"(?:features|net\.slice[1-5])\.(\d+)\.(weight|bias)", key):
        place = int(found[1])
        return f"trunk.{_PLACES.index(place)}.{found[2]}" if place in _PLACES else key
    if found := re.fullmatch(r"(?:lins\.|lin)(\d)\.model\.[01]\.weight", key):
        return f"heads.{found[1]}.weight"
    return key


def _refuse_misfits(paths: list[Path], found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    problems = []
    for what, keys in (("missing", wanted.keys() - found.keys()), ("unexpected", found.keys() - wanted.keys())):
        if keys:
            more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            problems.append(f"{what}: {', '.join(sorted(keys)[:_SHOWN])}{more}")
    misshapen = {key for key in wanted.keys() & found.keys() if wanted[key].shape != found[key].shape}
    problems += [f"{key} is {list(found[key].shape)}, not {list(wanted[key].shape)}" for key in sorted(misshapen)]
    if problems:
        there = {part for part in _ALONE if any(key.startswith(f"{part}.") for key in found)}
        alone = _ALONE[there.pop()] if len(there) == 1 and not misshapen else ""
        files = " and ".join(map(str, paths))
        raise RenderingError(f"{files}: not the weights of LPIPS-Alex: {'; '.join(problems)}. {alone}{_NEEDS}")
