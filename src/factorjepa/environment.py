"""What this machine has: for `factorjepa info` and for bug reports."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from rich import box
from rich.table import Table

from . import __version__
from .workers import granted_cores

REQUIRED = (
    "numpy",
    "torch",
    "av",
    "opencv-python-headless",
    "pyarrow",
    "pydantic",
    "safetensors",
    "scenedetect-headless",
    "scipy",
    "statsmodels",
    "matplotlib",
    "pillow",
)
OPTIONAL = {
    "onnxruntime": "ONNX detectors of agents (extra: detectors), of faces and plates (extra: privacy)",
    "trackers": "following faces and plates with ByteTrack (extra: privacy)",
    "motmetrics": "the quality of tracks against ground truth (extra: tracking)",
    "peft": "the methods LoRA and DoRA (extra: adapters)",
    "tensorboard": "curves of a run in a browser (extra: logs)",
    "wandb": "curves of a run at Weights & Biases (extra: logs)",
    "ray": "ingest on a cluster (extra: cluster)",
    "transformers": "parity tests of the backbones (extra: dev)",
}


def facts() -> dict[str, str]:
    """Versions and devices that a result depends on, by name: kept beside every run."""
    known = {
        "factorjepa": f"{__version__}, commit {found}" if (found := _commit()) else __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    }
    known |= {package: _version(package) or "missing: pip install factorjepa" for package in REQUIRED}
    return known | {"device": _device()}


def describe_environment() -> Table:
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    for name, value in facts().items():
        table.add_row(name, value)
    table.add_row("cores", f"{granted_cores()} of {os.cpu_count()}")
    table.add_row("memory", _memory())
    table.add_row("free disk here", f"{shutil.disk_usage('.').free / 2**30:.0f} GiB")
    for package, purpose in OPTIONAL.items():
        table.add_row(package, _version(package) or f"not installed; for {purpose}")
    return table


@functools.cache
def _commit() -> str:
    """Of the checkout that this is run from, and whether it was changed since; nothing of an installed package.

    FACTORJEPA_COMMIT says it where the files were copied without their history.
    """
    if told := os.environ.get("FACTORJEPA_COMMIT"):
        return told
    here = Path(__file__).resolve().parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # no git here, or no history
        top = _git(here, "rev-parse", "--show-toplevel")
        if Path(top) / "src" / "factorjepa" == here:  # not that of a project in whose folder we are installed
            return _git(here, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    return ""


def _git(folder: Path, *words: str) -> str:
    ran = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=10, check=True)
    return ran.stdout.strip()


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
