"""What every benchmark ends with: its figures as one line of JSON, printed and, if asked, kept."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch


def machine(device: torch.device | str) -> str:
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"


def publish(result: dict[str, Any], path: Path | None) -> None:
    line = json.dumps(result)
    print(line)
    if path:
        path.write_text(line + "\n")
