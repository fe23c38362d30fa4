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


def test_what_comes_before_the_first_report_is_in_no_estimate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of imports and warm-up, then ten updates a second: who resumes at 100 is told no more than that."""
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    with terminal.counting("training", "update") as progress:
        for now, made in ((5.0, 0), (60.0, 101), (60.1, 102), (75.0, 251), (76.0, 300)):
            clock[0] = now
            progress(made, 300, "loss 1")
    lines = [" ".join(line.split()) for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "training: 101 updates of 300 updates; loss 1"
    assert lines[1] == "training: 251 updates of 300 updates, 10.0 updates/s, 5 s left; loss 1"
    assert lines[2].startswith("training: 300 updates of 300 updates, 12.4 updates/s; loss 1")


def test_a_job_that_is_done_at_its_first_report_has_the_rate_of_the_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    with terminal.counting("comparing", "diagnostic") as progress:
        clock[0] = 0.5
        progress(1, 1)
    assert "1 diagnostic of 1 diagnostic, 2.0 diagnostics/s" in " ".join(capsys.readouterr().err.split())
