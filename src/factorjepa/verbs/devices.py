"""Where a verb runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    import torch


def chosen_device(name: str | None) -> torch.device:
    """The one that was named; a GPU where there is one."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ConfigError(f"there is no device {name!r}: choose cpu or cuda (cuda:1 for the second GPU)")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, and no CUDA device can be used here: choose cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} was asked for, and there are {torch.cuda.device_count()} GPUs, from cuda:0")
    return device
