"""Tensors to a GPU and numbers from it, without waiting."""

from __future__ import annotations

import pytest
import torch

from factorjepa.transfer import Later, marked, sent

DEVICES = [
    torch.device("cpu"),
    pytest.param(
        torch.device("cuda"), marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_come_back_as_they_were_and_a_gpu_says_how_long_it_took(device: torch.device) -> None:
    values = sent(torch.tensor([1.5, -2.0]), device)
    began = marked(device)
    later = Later(values * 2, began)
    values.zero_()  # what comes after does not change them
    assert later.read() == [3.0, -4.0]
    seconds = later.seconds()
    assert seconds is None if device.type == "cpu" else 0 <= seconds < 10
    assert Later(torch.full((), 1.0, device=device)).read() == [1.0]
    assert Later(values).seconds() is None
