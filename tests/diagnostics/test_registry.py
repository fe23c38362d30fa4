"""The registry as the paper's table has it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from factorjepa.cli import app
from factorjepa.diagnostics.registry import DIAGNOSTICS
from factorjepa.terminal import console


def test_four_diagnostics_are_primary_and_eleven_secondary() -> None:
    """The confirmatory family is crossed with the four: one more would change every adjusted p-value."""
    by_status: dict[str, list[str]] = {}
    for one in DIAGNOSTICS:
        by_status.setdefault(one.info.status, []).append(one.info.name)
    assert by_status["primary"] == ["future_l1", "intervention_l1", "mask_slope", "motion_cosine"]
    assert len(by_status["secondary"]) == 11


@pytest.mark.parametrize("columns", [80, 100])
def test_the_list_fits_a_terminal_and_one_diagnostic_tells_everything(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", columns)
    listed = CliRunner().invoke(app, ["diagnostics"]).output
    for info in (one.info for one in DIAGNOSTICS):
        line = next(line for line in listed.splitlines() if line.split()[:1] == [info.name])
        assert info.title in line
        assert info.direction in line
        assert len(line) <= columns
        told = " ".join(CliRunner().invoke(app, ["diagnostics", info.name]).output.split())
        for said in (info.formula, info.evaluator, info.provenance, info.unit, info.status):
            assert " ".join(said.split()) in told, info.name
    everything = CliRunner().invoke(app, ["diagnostics", "--verbose"]).output
    assert everything.count("provenance  ") == len(DIAGNOSTICS)
    assert "did you mean 'mask_slope'" in str(CliRunner().invoke(app, ["diagnostics", "mask_slop"]).exception)
