"""Tensors to a GPU and from it without waiting: the host goes on preparing while the GPU still computes."""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    import torch
    from torch import Tensor


def sent(x: Tensor, device: torch.device) -> Tensor:
    """`x` on `device`. A copy from ordinary memory would wait until the GPU has done everything before it, so it goes
    through pinned memory (which torch keeps until the copy is done)."""
    if device.type != "cuda" or x.device.type != "cpu":
        return x.to(device)
    return (x if x.is_pinned() else x.contiguous().pin_memory()).to(device, non_blocking=True)


class Later:
    """A few numbers that a GPU will know when it has come that far: `read` waits, and leaves the core to others.

    On a CPU they are known. `began` was `marked` before what led to them.
    """

    def __init__(self, values: Tensor, began: torch.cuda.Event | None = None) -> None:
        self._values, self._began = values, began
        self._copied: torch.cuda.Event | None = None
        if values.device.type == "cuda":
            self._values = values.to("cpu", non_blocking=True, copy=True)
            self._copied = marked(values.device)

    def read(self) -> list[float]:
        if self._copied is not None:
            self._copied.synchronize()
        return [float(value) for value in self._values.reshape(-1).tolist()]

    def seconds(self) -> float | None:
        """Of the GPU, from the mark to the numbers, which have been read."""
        if self._copied is None or self._began is None:
            return None
        return float(self._began.elapsed_time(self._copied)) / 1e3


def marked(device: torch.device) -> torch.cuda.Event | None:
    """Where a GPU's queue stands now; None of a CPU."""
    import torch

    if device.type != "cuda":
        return None
    event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
