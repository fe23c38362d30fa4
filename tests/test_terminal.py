"""What people see in a terminal."""

from __future__ import annotations

import pytest

from factorjepa.terminal import listing


def test_long_lists_end_with_how_many_more_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    listing([f"line {number}" for number in range(9)], "elsewhere")
    assert "more" not in capsys.readouterr().out
    listing([f"line {number}" for number in range(20)], "elsewhere")
    said = capsys.readouterr().out.splitlines()
    assert said[:8] == [f"line {number}" for number in range(8)]
    assert said[8:] == ["and 12 more: elsewhere"]
