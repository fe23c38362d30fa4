"""What people see in a terminal."""

from __future__ import annotations

import pytest

from factorjepa import terminal
from factorjepa.terminal import listing


def test_long_lists_end_with_how_many_more_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    listing([f"line {number}" for number in range(9)], "elsewhere")
    assert "more" not in capsys.readouterr().out
    listing([f"line {number}" for number in range(20)], "elsewhere")
    said = capsys.readouterr().out.splitlines()
    assert said[:8] == [f"line {number}" for number in range(8)]
    assert said[8:] == ["and 12 more: elsewhere"]


def test_progress_that_goes_back_has_no_negative_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run goes back to its checkpoint: what it had logged after that is made again."""
    monkeypatch.setattr(terminal, "_SECONDS_BETWEEN_LINES", 0)
    with terminal.counting("training", "update") as progress:
        for made in (19, 7, 8):
            progress(made, 52)
    said = capsys.readouterr().err
    assert "training: 7 updates of 52 updates" in " ".join(said.split())
    assert "-" not in said
