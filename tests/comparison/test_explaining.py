"""What explains a gain: single steps between methods that exist, with the numbers of their contrasts."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from factorjepa.adaptation import METHODS, known
from factorjepa.cli import main
from factorjepa.report.making import make_report
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings, compare
from factorjepa.statistics.contrasts import PRESPECIFIED, Contrast, extended
from factorjepa.statistics.explaining import COLUMNS, LADDERS, PARTS, STEPS, explained, told
from factorjepa.statistics.verdict import brief

from .tables import FUTURE, SLOPE, rows_of, scores_of

QUICK = CompareSettings(replicates=400, mixed="none")
LADDER = {"frozen": 0.9, "mono_top": 0.5, "mono_states_late": 0.5, "factorjepa_raw": 0.3}


ABLATED = {"factorjepa": 0.0, "no_factor_loss": 0.2, "double_ranks": -0.1, "shuffled_targets": 0.3}


def test_every_ablation_of_the_registry_is_a_part_with_the_method_that_it_changes() -> None:
    ablations = {name for name, method in METHODS.items() if method.family == "ablation"}
    whole = {f"{name}{place}" for name in ("factorjepa", "factorjepa_raw") for place in ("", "_chosen", "_both_chosen")}
    for step in PARTS:
        assert {step.a, step.b} & whole
    assert {name for step in PARTS for name in (step.a, step.b)} == ablations | {"factorjepa", "factorjepa_raw"}
    assert len({step.title for step in PARTS}) == len(PARTS)


def test_a_part_that_was_taken_out_is_worth_what_its_ablation_lost_and_a_change_what_it_gained() -> None:
    found = compare(scores_of(rows_of(ABLATED, seeds=(17, 29, 43))), QUICK).explained(LADDERS[1])
    effects = {row.step: row.effect for row in found if row.diagnostic == FUTURE.name}
    assert effects == pytest.approx(
        {"the factor loss": 0.2, "targets of this clip instead of another's": 0.3, "twice the ranks": 0.1}, abs=0.02
    )


def test_page_tables_and_terminal_show_what_parts_are_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores_of(rows_of(ABLATED)).write(tmp_path / "scores.parquet")
    monkeypatch.setattr(sys, "argv", ["factorjepa", "compare", str(tmp_path), "--replicates", "400", "--no-mixed"])
    with pytest.raises(SystemExit):
        main()
    assert "what each part is worth?" in capsys.readouterr().out
    made = make_report(tmp_path)
    assert "What each part is worth" in made.page.read_text(encoding="utf-8")
    assert "twice the ranks" in (made.page.parent / "tables" / "parts.csv").read_text(encoding="utf-8")


def test_parts_that_the_ladder_shows_have_no_second_table(tmp_path: Path) -> None:
    shifts = {"factorjepa": 0.0, "shuffled_targets": 0.3, "no_visibility_path": 0.1}
    scores_of(rows_of(shifts)).write(tmp_path / "scores.parquet")
    page = make_report(tmp_path, settings=QUICK).page.read_text(encoding="utf-8")
    assert "What explains a gain" in page
    assert "What each part is worth" not in page


def test_every_step_is_between_two_methods_of_the_registry_and_stands_once() -> None:
    assert {name for step in STEPS for name in (step.a, step.b)} <= METHODS.keys()
    assert len({(step.a, step.b) for step in STEPS}) == len({step.title for step in STEPS}) == len(STEPS)


def test_no_pair_of_methods_is_compared_twice() -> None:
    families = {name: method.family for name, method in METHODS.items()}
    pairs = [(one.a, one.b) for one in (*PRESPECIFIED, *extended(list(METHODS), families))]
    assert len(pairs) == len(set(pairs))
    assert {(step.a, step.b) for step in STEPS} <= set(pairs)


def test_a_step_has_the_effect_and_decision_of_its_contrast_and_steps_without_methods_are_left_out() -> None:
    contrasts = compare(scores_of(rows_of(LADDER, seeds=(17, 29, 43))), QUICK).contrasts
    found = explained(contrasts, "nano")
    assert list(dict.fromkeys((row.b, row.a) for row in found)) == [
        ("frozen", "mono_top"), ("mono_top", "mono_states_late"), ("mono_states_late", "factorjepa_raw"),
        ("mono_top", "factorjepa_raw"),
    ]  # fmt: skip
    assert len(found) == 4 * len(COLUMNS)
    future = {(row.a, row.b): row for row in found if row.diagnostic == FUTURE.name}
    assert future["factorjepa_raw", "mono_states_late"].effect == pytest.approx(0.2, abs=0.01)
    assert future["factorjepa_raw", "mono_states_late"].decision == "better"
    assert future["mono_states_late", "mono_top"].decision == "not separated"
    assert not explained(contrasts, "another backbone")


def test_the_area_under_the_masking_curve_comes_with_its_interval_and_without_a_decision() -> None:
    rows = rows_of(LADDER, infos=(SLOPE,), variants=("pooled", "alt/auc"))
    found = [row for row in explained(compare(scores_of(rows, (SLOPE,)), QUICK).contrasts, "nano") if row.variant]
    area = next(
        row for row in found if (row.a, row.b) == ("factorjepa_raw", "mono_top") and row.diagnostic == SLOPE.name
    )
    assert area.low < area.effect < area.high
    assert area.effect == pytest.approx(0.2, abs=0.01)
    assert not area.decision


def test_page_table_and_terminal_show_the_ladder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores_of(rows_of(LADDER)).write(tmp_path / "scores.parquet")
    words = ["factorjepa", "compare", str(tmp_path / "scores.parquet"), "--replicates", "400", "--no-mixed"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "what explains a gain?" in capsys.readouterr().out
    made = make_report(tmp_path)
    assert "What explains a gain" in made.page.read_text(encoding="utf-8")
    assert "factorization, given states" in (made.page.parent / "tables" / "explained.csv").read_text(encoding="utf-8")


def test_one_step_is_no_ladder(tmp_path: Path) -> None:
    scores_of(rows_of({"frozen": 0.5, "mono_top": 0.1})).write(tmp_path / "scores.parquet")
    page = make_report(tmp_path, settings=QUICK).page.read_text(encoding="utf-8")
    assert "What explains a gain" not in page


class TestVariants:
    """`method@word`: the same method under other settings."""

    SHIFTS: ClassVar = {"auto_rgn": 0.5, "auto_rgn@long": 0.4, "factorjepa_chosen": 0.2, "factorjepa_chosen@slow": 0.3}

    def steps(self, shifts: dict[str, float]) -> dict[tuple[str, str], float]:
        found = compare(scores_of(rows_of(shifts, seeds=(17, 29, 43))), QUICK).explained()
        return {(row.a, row.b): row.effect for row in found if row.diagnostic == FUTURE.name}

    def test_a_variant_is_compared_with_its_method_and_stands_in_for_it(self) -> None:
        assert self.steps(self.SHIFTS) == pytest.approx(
            {
                ("auto_rgn@long", "auto_rgn"): 0.1,
                ("factorjepa_chosen@slow", "factorjepa_chosen"): -0.1,
                ("factorjepa_chosen", "auto_rgn"): 0.3,
                ("factorjepa_chosen", "auto_rgn@long"): 0.2,
                ("factorjepa_chosen@slow", "auto_rgn"): 0.2,
            },
            abs=0.02,
        )

    def test_two_variants_of_a_method_are_a_step_where_somebody_asks_for_it(self) -> None:
        shifts = {"auto_rgn": 0.5, "auto_rgn@long": 0.4, "auto_rgn@wide": 0.2}
        assert ("auto_rgn@wide", "auto_rgn@long") not in self.steps(shifts)
        asked = dataclasses.replace(QUICK, also=[Contrast("asked", "auto_rgn@wide", "auto_rgn@long")])
        found = compare(scores_of(rows_of(shifts, seeds=(17, 29, 43))), asked).explained()
        step = next(row for row in found if (row.a, row.b) == ("auto_rgn@wide", "auto_rgn@long"))
        assert (step.step, step.told) == ("@wide instead of @long, auto_rgn", "variants")
        assert step.effect == pytest.approx(0.2, abs=0.02)

    def test_with_the_same_word_on_both_sides_it_is_compared_in_itself(self) -> None:
        found = self.steps({name.replace("long", "slow"): shift for name, shift in self.SHIFTS.items()})
        assert ("factorjepa_chosen@slow", "auto_rgn@slow") in found
        assert ("factorjepa_chosen", "auto_rgn@slow") not in found

    def test_variants_of_prespecified_pairs_are_compared_and_a_form_may_be_a_variant(self) -> None:
        methods = ["auto_rgn", "auto_rgn@long", "factorjepa", "factorjepa@slow", "factorjepa_raw", "lora"]
        families = {name: known(name).family for name in methods}  # type: ignore[union-attr]
        pairs = [(one.a, one.b) for one in extended(methods, families)]
        assert {("factorjepa@slow", "auto_rgn"), ("factorjepa@slow", "factorjepa_raw")} < set(pairs)
        assert {("factorjepa", "auto_rgn@long"), ("factorjepa_raw", "auto_rgn@long")} < set(pairs)
        assert len(pairs) == len(set(pairs))
        alone = {(one.a, one.b) for one in extended(["factorjepa_chosen@slow", "lora"], families)}
        assert ("factorjepa_chosen@slow", "lora") in alone

    MANY: ClassVar = {
        **SHIFTS, "factorjepa_raw_chosen": 0.3, "mono_matched_late_chosen": 0.35, "auto_rgn_views": 0.4,
        "auto_rgn_views@long": 0.4,
    }  # fmt: skip
    BETWEEN: ClassVar = {
        ("factorjepa_chosen", "auto_rgn"), ("factorjepa_chosen", "factorjepa_raw_chosen"),
        ("factorjepa_chosen", "mono_matched_late_chosen"), ("factorjepa_chosen", "auto_rgn_views"),
        ("factorjepa_raw_chosen", "auto_rgn"), ("mono_matched_late_chosen", "auto_rgn"),
        ("mono_matched_late_chosen", "auto_rgn_views"), ("auto_rgn_views", "auto_rgn"),
    }  # fmt: skip

    def many(self) -> Scores:
        scores = scores_of(rows_of(self.MANY))
        runs = [dataclasses.replace(run, family=known(run.method).family) for run in scores.runs]  # type: ignore[union-attr]
        return Scores(scores.table, scores.diagnostics, scores.evaluator, runs)

    def test_of_a_variant_is_told_what_it_changes_and_what_it_is_beside_controls(self) -> None:
        rows = compare(self.many(), QUICK).explained()
        shown, more = told(rows)
        assert {(row.a, row.b) for row in shown["methods"]} == self.BETWEEN
        assert {(row.a, row.b) for row in shown["variants"]} == {
            ("auto_rgn@long", "auto_rgn"), ("auto_rgn_views@long", "auto_rgn_views"),
            ("factorjepa_chosen@slow", "factorjepa_chosen"), ("factorjepa_chosen@slow", "mono_matched_late_chosen"),
            ("factorjepa_chosen@slow", "auto_rgn_views"), ("factorjepa_chosen", "auto_rgn_views@long"),
        }  # fmt: skip
        assert more == len({(row.a, row.b) for row in rows}) - 8 - 6 > 0

    def test_what_is_shown_does_not_change_what_is_adjusted_together(self) -> None:
        scores = self.many()
        plain = Scores(
            scores.table, scores.diagnostics, scores.evaluator,
            [dataclasses.replace(run, family="generic") for run in scores.runs],
        )  # fmt: skip
        steps = compare(scores, QUICK).explained()
        assert [dataclasses.replace(row, told="") for row in steps] == [
            dataclasses.replace(row, told="") for row in compare(plain, QUICK).explained()
        ]
        known_pairs = {(row.a, row.b) for row in compare(scores, QUICK).contrasts if row.adjustment}
        assert {(row.a, row.b) for row in steps} <= known_pairs  # told or not, a step counts in its family

    def test_page_and_terminal_tell_methods_first_and_leave_other_steps_to_the_table_of_all(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.many().write(tmp_path / "scores.parquet")
        monkeypatch.setattr(sys, "argv", ["factorjepa", "compare", str(tmp_path), "--replicates", "400", "--no-mixed"])
        with pytest.raises(SystemExit):
            main()
        page = make_report(tmp_path).page
        title = "everything, late states; Auto-RGN's blocks (@slow)"
        html = page.read_text(encoding="utf-8").replace("&#39;", "'").replace("&#x27;", "'")
        first, variants = html.index("what a step is worth"), html.index("what variants change")
        assert first < html.index("late states, targets and factorization, given stages and views") < variants
        assert variants < html.index("@slow instead of the usual settings, factorjepa_chosen")
        assert title not in html
        assert "more, in which a variant stands in for its method, in explained.csv" in html
        assert title in (page.parent / "tables" / "explained.csv").read_text(encoding="utf-8")
        printed = " ".join(capsys.readouterr().out.split())
        assert "what variants change, and what they are beside controls" in printed
        assert "more with variants: explained.csv" in printed
        assert "(@slow)" in printed  # beside controls


def test_where_the_paper_s_form_was_not_run_another_stands_against_all_competitors() -> None:
    families = {"lora": "generic", "mono_top": "control", "factorjepa_chosen": "ablation", "pair_motion": "ablation"}
    pairs = {(one.a, one.b) for one in extended([*families, "frozen"], families)}
    assert {("factorjepa_chosen", "lora"), ("factorjepa_chosen", "mono_top")} <= pairs
    assert ("factorjepa_chosen", "pair_motion") not in pairs
    assert ("factorjepa", "lora") in {(one.a, one.b) for one in extended([*families, "factorjepa"], families)}


def test_a_variant_whose_method_was_not_run_is_told_like_a_method() -> None:
    shifts = {"auto_rgn": 0.5, "auto_rgn@long": 0.4, "factorjepa_chosen@slow": 0.2}
    shown, more = told(compare(scores_of(rows_of(shifts)), QUICK).explained())
    assert {(row.a, row.b) for row in shown["methods"]} == {("factorjepa_chosen@slow", "auto_rgn")}
    assert {(row.a, row.b) for row in shown["variants"]} == {("auto_rgn@long", "auto_rgn")}
    assert not more


def test_a_decision_in_brief_keeps_that_it_is_unstable() -> None:
    assert brief("not resolved: 8 cities vary too much, unstable") == "not resolved, unstable"
    assert brief("not resolved: 8 cities vary too much") == "not resolved"
    assert brief("better, unstable") == "better, unstable"
