"""Decoded futures on disk: what is written is read, and what does not fit is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoded_streets import decoded
from factorjepa.decoded import Failure, read_all_decoded, read_decoded, write_decoded
from factorjepa.errors import ReportError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    example = decoded()
    again = read_decoded(write_decoded(tmp_path / "a", example))
    for name in ("clip_id", "seconds", "titles", "removed_from", "box", "decoder", "note"):
        assert getattr(again, name) == getattr(example, name)
    assert list(again.methods) == list(example.methods)
    assert again.failures == dict(example.failures)
    assert again.errors == dict(example.errors)
    assert again.nearest == dict(example.nearest)
    np.testing.assert_array_equal(again.methods["factorjepa"], example.methods["factorjepa"])
    np.testing.assert_array_equal(again.influence["A"], example.influence["A"])
    assert again.agents_THW is not None
    np.testing.assert_array_equal(again.agents_THW, example.agents_THW)


def test_evidence_that_cannot_be_had_is_left_out(tmp_path: Path) -> None:
    failure = Failure("layout_drift", "mixed", {"drift": 0.02, "LPIPS": float("nan")})
    example = dataclasses.replace(decoded(), failures={"frozen": [failure]})
    again = read_decoded(write_decoded(tmp_path / "a", example))
    assert again.failures["frozen"][0].evidence == {"drift": 0.02}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"agents_THW": np.zeros((4, 8, 8), bool)}, "agents must be"),
        ({"influence": {"L": np.zeros((4, 8, 8), np.float32)}}, "L must be"),
        ({"removed_from": "someone"}, "'someone', no method of it"),
        ({"box": (40, 0, 70, 30)}, "does not lie in a picture"),
        ({"seconds": (0.25,)}, "times do not fit"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ReportError, match=said):
        dataclasses.replace(decoded(), **changed)


@pytest.mark.parametrize("left", [b"", b"PK"], ids=["empty", "cut short"])
def test_one_damaged_folder_hides_no_other(tmp_path: Path, left: bytes) -> None:
    write_decoded(tmp_path / "decoded" / "b", decoded())
    write_decoded(tmp_path / "decoded" / "a", decoded())
    (tmp_path / "decoded" / "a" / "frames.npz").write_bytes(left)
    found, problems = read_all_decoded(tmp_path)
    assert len(found) == 1
    assert "render it again" in problems[0]
