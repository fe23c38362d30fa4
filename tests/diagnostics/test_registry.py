"""The registry as the paper's table has it."""

from __future__ import annotations

from factorjepa.diagnostics.registry import DIAGNOSTICS


def test_four_diagnostics_are_primary_and_eleven_secondary() -> None:
    """The confirmatory family is crossed with the four: one more would change every adjusted p-value."""
    by_status: dict[str, list[str]] = {}
    for one in DIAGNOSTICS:
        by_status.setdefault(one.info.status, []).append(one.info.name)
    assert by_status["primary"] == ["future_l1", "intervention_l1", "mask_slope", "motion_cosine"]
    assert len(by_status["secondary"]) == 11
