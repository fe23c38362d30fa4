"""Prespecified tests that could not be made, and the family that is left."""

from __future__ import annotations

import pytest

from factorjepa.scores import Scores
from factorjepa.statistics import PRESPECIFIED, CompareSettings, compare

from .tables import FUTURE, MOTION, rows_of, scores_of

PAPER = CompareSettings(replicates=500, mixed="none")


def test_a_diagnostic_that_joined_methods_lack_is_missed_by_name_and_so_is_what_the_family_loses() -> None:
    infos = [FUTURE, MOTION]
    with_motion = scores_of(rows_of({"factorjepa": 0.0, "factorjepa_raw": 0.1}, infos=infos), infos)
    without = scores_of(rows_of({"auto_rgn": 0.2}))
    found = compare(Scores.joined([with_motion, without]), PAPER)
    tested = [row for row in found.contrasts if row.family == "primary" and row.adjustment]
    assert len(tested) == 4
    assert min(row.adjusted_p for row in tested) == pytest.approx(4 / 501)
    (note,) = [one for one in found.notes if "prespecified tests could not be made" in one]
    assert note.startswith("nano: 6 of 10 prespecified tests could not be made: p-values are adjusted for the 4")
    assert "multiplies the smallest by 4 instead of 10" in note
    assert "pkg and total on Motion cosine (not measured for Auto_Rgn)" in note


def test_a_diagnostic_that_a_whole_backbone_lacks_is_in_its_family_and_missed() -> None:
    infos, shifts = [FUTURE, MOTION], {name: 0.0 for one in PRESPECIFIED for name in (one.a, one.b)}
    one = scores_of(rows_of(shifts, infos=infos), infos)
    other = scores_of(rows_of(shifts, backbone="small"))
    found = compare(Scores.joined([one, other]), PAPER)
    assert not any("nano" in note and "could not be made" in note for note in found.notes)
    (note,) = [one for one in found.notes if "could not be made" in one]
    assert note.startswith("small: 5 of 10 prespecified tests could not be made")
    assert "sup|pkg on Motion cosine (not measured for Factorjepa and Factorjepa_Raw)" in note


def test_where_no_prespecified_test_could_be_made_all_is_called_exploratory() -> None:
    found = compare(scores_of(rows_of({"lora": 0.0, "frozen": 0.1})), PAPER)
    assert "none of the 5 prespecified tests could be made: every decision is exploratory" in found.notes[0]


def test_where_all_were_made_nothing_is_said() -> None:
    shifts = {name: 0.0 for one in PRESPECIFIED for name in (one.a, one.b)}
    assert not any("could not be made" in note for note in compare(scores_of(rows_of(shifts)), PAPER).notes)
