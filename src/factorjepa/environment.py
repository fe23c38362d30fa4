"""What this machine has: for `factorjepa info` and for bug reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil

from rich import box
from rich.table import Table

from . import __version__

REQUIRED = ("numpy", "torch", "av", "opencv-python-headless", "pyarrow", "pydantic", "safetensors", "pillow")
OPTIONAL = {"transformers": "parity tests of the backbones (extra: dev)"}


def describe_environment() -> Table:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_row("factorjepa", __version__)
    table.add_row("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    table.add_row("cores", str(os.cpu_count()))
    table.add_row("memory", _memory())
    free = shutil.disk_usage(".").free
    table.add_row("free disk here", f"{free / 2**30:.0f} GiB")
    for package in REQUIRED:
        table.add_row(package, _version(package) or "missing: pip install factorjepa")
    table.add_row("device", _device())
    for package, purpose in OPTIONAL.items():
        table.add_row(package, _version(package) or f"not installed; for {purpose}")
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):
        return "unknown"
    return f"{total / 2**30:.0f} GiB, {free / 2**30:.0f} GiB free"


def _device() -> str:
    import torch

    if not torch.cuda.is_available():
        return "CPU only (torch sees no CUDA device)"
    names = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    return ", ".join(f"{device.name} ({device.total_memory / 2**30:.0f} GiB)" for device in names)
