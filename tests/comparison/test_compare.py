"""`compare` as a whole: decisions, sensitivities, refusals and fallbacks that say what they are."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from factorjepa.adaptation.registry import METHODS
from factorjepa.errors import ScoresError
from factorjepa.scores import Scores
from factorjepa.statistics import PRESPECIFIED, CompareSettings, Comparison, Contrast, ContrastRow, compare
from factorjepa.statistics.contrasts import extended
from factorjepa.statistics.measures import measures_of
from factorjepa.statistics.mixed import Observations, mixed_effects
from factorjepa.statistics.ranks import FAMILIES

from .tables import ACTION, FUTURE, MOTION, SLOPE, Row, rows_of, scores_of

AB = (Contrast("a over b", "a", "b", True),)
QUICK = CompareSettings(replicates=500, mixed="none", contrasts=AB)
PAPER = dataclasses.replace(QUICK, contrasts=None)


def contrast(rows: list[Row], settings: CompareSettings = QUICK, **kinds: int) -> ContrastRow:
    return compare(scores_of(rows, trainable=kinds), settings).contrasts[0]


class TestFamilies:
    def test_the_names_are_those_of_the_methods(self) -> None:
        named = {name for one in PRESPECIFIED for name in (one.a, one.b)} | FAMILIES.keys()
        assert named <= METHODS.keys()

    def test_holm_covers_prespecified_contrasts_on_primary_diagnostics_and_nothing_else(self) -> None:
        infos = [FUTURE, MOTION, ACTION]
        shifts = {"auto_rgn": 0.1, "factorjepa_raw": 0.0, "factorjepa": -0.1, "frozen": 0.5, "mono_supervised": 0.2}
        found = compare(scores_of(rows_of(shifts, infos=infos), infos), PAPER)
        tested = [row for row in found.contrasts if row.adjustment]
        family = [row for row in tested if row.family == "primary"]
        assert {(row.contrast, row.diagnostic) for row in family} == {
            (name, info.name) for name in ("pkg", "sup|pkg", "total") for info in (FUTURE, MOTION)
        }
        assert {row.adjustment for row in family} == {"Holm"}
        assert min(row.adjusted_p for row in family) == pytest.approx(6 / 501)  # six tests at the resolution
        rest = [row for row in tested if row.family == "exploratory"]
        assert {row.adjustment for row in rest} == {"Benjamini-Hochberg"}
        assert {row.contrast for row in rest} >= {"over mono_supervised", "factorjepa over frozen", "pkg"}

    def test_forms_of_factorjepa_are_not_its_competitors(self) -> None:
        families = {"factorjepa_di": "factorized", "no_factor_loss": "ablation", "full": "reference"}
        names = [one.name for one in extended(["factorjepa", "factorjepa_di", "full", "no_factor_loss"], families)]
        assert names == ["over full", "factorjepa over no_factor_loss"]  # the latter as a part that was taken out

    def test_a_missing_method_is_a_row_that_says_so(self) -> None:
        found = compare(scores_of(rows_of({"factorjepa": 0.0, "factorjepa_raw": 0.1})), PAPER)
        decisions = {row.contrast: row.decision for row in found.contrasts}
        assert decisions["pkg"] == "untestable: no scores of auto_rgn"
        assert found.notes[0] == (
            "nano: 4 of 5 prespecified tests could not be made: p-values are adjusted for the 1 that could, and Holm "
            "multiplies the smallest by 1 instead of 5. Not made: pkg and total (no scores of auto_rgn); INT (no "
            "scores of factorjepa_int); DI+ (no scores of factorjepa_di)"
        )

    def test_the_verdict_calls_a_trade_off_by_its_name(self) -> None:
        infos = [FUTURE, MOTION]
        rows = rows_of({"factorjepa": -1.0, "auto_rgn": 0.0}, infos=infos)
        said = compare(scores_of(rows, infos), PAPER).verdict
        total = next(line for line in said if "total" in line)
        assert "Future-frame L1 better (Holm-adjusted p = 0.004)" in total
        assert "Motion cosine worse" in total
        assert total.endswith("A trade-off, not a general improvement.")

    def test_an_interval_without_zero_is_no_evidence_when_the_adjusted_p_fails(self) -> None:
        names = [f"d{n}" for n in range(60)]
        infos = [dataclasses.replace(FUTURE, name=name) for name in names]
        found = compare(scores_of(rows_of({"a": 0.0, "b": 0.0}, infos=infos, noise=0.5), infos), QUICK)
        excluding = [row for row in found.contrasts if row.low > 0 or row.high < 0]
        assert excluding  # some of sixty do by chance
        assert {row.decision for row in found.contrasts} == {"not separated"}

    def test_too_few_replicates_for_the_family_are_pointed_out(self) -> None:
        infos = [dataclasses.replace(FUTURE, name=f"d{n}") for n in range(6)]
        few = dataclasses.replace(QUICK, replicates=100)
        notes = compare(scores_of(rows_of({"a": 0.0, "b": 1.0}, infos=infos), infos), few).notes
        assert any("too few for 6 tests" in note for note in notes)


class TestSensitivity:
    def test_a_construction_that_points_the_other_way_makes_a_contrast_unstable(self) -> None:
        same = rows_of({"a": -1.0, "b": 0.0}, variants=["pooled", "alt/mse"])
        assert contrast(same).stable
        turned = rows_of({"a": -1.0, "b": 0.0}) + rows_of({"a": 1.0, "b": 0.0}, variants=["alt/auc"])
        row = contrast(turned)
        assert (row.decision, row.stable) == ("better", False)
        assert {each.name: each.agrees for each in row.sensitivities}["alt/auc"] is False

    def test_a_construction_is_better_in_its_own_direction(self) -> None:
        """A cosine is better for more, and the squared error beside it for less."""
        both = rows_of({"a": 1.0, "b": 0.0}, infos=[MOTION]) + rows_of(
            {"a": -1.0, "b": 0.0}, infos=[MOTION], variants=["alt/squared_error"]
        )
        found = compare(scores_of(both, [MOTION]), QUICK)
        assert (found.contrasts[0].decision, found.contrasts[0].stable) == ("better", True)
        squared = next(row for row in found.scores if row.variant == "alt/squared_error")
        assert (squared.direction, squared.unit) == ("lower", "standardised squared error, clip")

    def test_one_horizon_that_points_the_other_way_makes_a_contrast_unstable(self) -> None:
        turned = rows_of({"a": -1.0, "b": 0.0}, variants=["pooled", "h1"]) + rows_of(
            {"a": 1.0, "b": 0.0}, variants=["h2"]
        )
        row = contrast(turned)
        assert {each.name: each.agrees for each in row.sensitivities if each.name in ("h1", "h2")} == {
            "h1": True,
            "h2": False,
        }
        assert not row.stable

    def test_the_headline_comes_first_in_the_scorecard(self) -> None:
        rows = rows_of({"a": 0.0, "b": 0.0}, variants=["alt/mse", "pooled", "at 1 s"])
        variants = [row.variant for row in compare(scores_of(rows), QUICK).scores if row.method == "a"]
        assert variants == ["pooled", "alt/mse", "at 1 s"]

    def test_a_deficit_is_better_when_it_is_lower_whatever_the_diagnostic_is(self) -> None:
        rows = rows_of({"a": 0.1, "b": 0.0}, infos=(MOTION,), variants=("pooled", "deficit"))
        scores = scores_of(rows, infos=(MOTION,))
        found = {row.variant: row.direction for row in compare(scores, QUICK).scores}
        assert found == {"pooled": "higher", "deficit": "lower"}
        assert [one.sign for one in measures_of(MOTION, ["pooled", "deficit", "h1"])] == [1.0, -1.0, 1.0]

    def test_alternatives_can_be_named_instead(self) -> None:
        rows = rows_of({"a": -1.0, "b": 0.0}) + rows_of({"a": 1.0, "b": 0.0}, variants=["auc", "alt/x"])
        chosen = dataclasses.replace(QUICK, alternatives={"future_l1": ("auc",)})
        names = [each.name for each in contrast(rows, chosen).sensitivities]
        assert "auc" in names
        assert "alt/x" not in names
        with pytest.raises(ScoresError, match="alternatives acu are no variants"):
            contrast(rows, dataclasses.replace(QUICK, alternatives={"future_l1": ("acu",)}))

    def test_one_city_that_carries_the_effect_is_found(self) -> None:
        rows = rows_of({"a": 0.0, "b": 0.0}, cities=6, noise=0.001)
        rows = [r | {"value": r["value"] - 6 * (r["city"] == "c03") + 0.5} if r["method"] == "a" else r for r in rows]
        row = contrast(rows)
        assert row.effect > 0
        assert not row.stable
        left_out = next(each for each in row.sensitivities if each.name == "leave one city out")
        assert left_out.low == pytest.approx(-0.5, abs=0.01)
        assert not left_out.agrees

    def test_clip_weighting_follows_the_clips(self) -> None:
        rows = rows_of({"a": 0.0, "b": 0.0}, cities=2, sources=2, clips=6, noise=0.0)
        rows = [r for r in rows if r["city"] == "c00" or r["clip_id"].endswith("#0")]
        rows = [r | {"value": r["value"] - 1.0 * (r["city"] == "c00")} if r["method"] == "a" else r for r in rows]
        row = contrast(rows)
        weighted = next(each for each in row.sensitivities if each.name == "clip-weighted")
        assert row.effect == pytest.approx(0.5)
        assert weighted.effect == pytest.approx(12 / 14)

    def test_seeds_that_disagree_widen_the_crossed_interval(self) -> None:
        rows = rows_of({"a": -0.1, "b": 0.0}, seeds=(1, 2, 3), noise=0.001)
        swing = {1: -0.4, 2: 0.0, 3: 0.4}
        rows = [r | {"value": r["value"] + swing[r["seed"]]} if r["method"] == "a" else r for r in rows]
        found = compare(scores_of(rows), QUICK)
        row = found.contrasts[0]
        crossed = next(each for each in row.sensitivities if each.name == "crossed-seed bootstrap")
        assert crossed.high - crossed.low > 10 * (row.high - row.low)
        assert not crossed.agrees
        assert row.seed_effects == pytest.approx([0.5, 0.1, -0.3], abs=0.01)
        score = next(each for each in found.scores if each.method == "a")
        assert score.seed_sd == pytest.approx(0.4, abs=0.01)


class TestMixedEffects:
    MIXED = dataclasses.replace(QUICK, mixed="primary")

    def test_the_direction_supports_a_clear_effect(self) -> None:
        row = contrast(rows_of({"a": -0.5, "b": 0.0}), self.MIXED)
        assert row.mixed.supportive
        assert row.mixed.effect == pytest.approx(row.effect, abs=1e-6)  # balanced: the same estimate

    @pytest.mark.parametrize("seed", [3, 5, 21, 24, 28, 34])  # at a boundary, where L-BFGS alone ends without a result
    def test_a_fit_at_a_boundary_is_found_all_the_same(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        source = np.repeat(np.arange(12), 4)
        clip = random.normal(size=48)
        values = [clip + 0.01 * first + 0.02 * random.normal(size=48) for first in (1, 1, 1, 0, 0, 0)]
        fit = mixed_effects(
            Observations(np.stack(values, 1).ravel(), np.tile([1, 1, 1, 0, 0, 0], 48), np.tile([17, 29, 43] * 2, 48),
                         np.repeat(source // 3, 6), np.repeat(source, 6))
        )  # fmt: skip
        assert fit.converged
        assert fit.effect == pytest.approx(np.mean(values[:3]) - np.mean(values[3:]), abs=1e-6)

    def test_a_singular_fit_is_reported_as_one(self) -> None:
        assert "singular" in contrast(rows_of({"a": -0.5, "b": 0.0}, cities=3, noise=1.0), self.MIXED).mixed.note

    def test_what_cannot_be_fitted_says_why(self) -> None:
        flat = [row | {"value": 1.0} for row in rows_of({"a": 0.0, "b": 0.0}, cities=3)]
        row = contrast(flat, self.MIXED)
        assert (row.mixed.supportive, row.mixed.note) == (False, "failed: all values are equal")
        apart = rows_of({"a": 0.0}, seeds=[1]) + rows_of({"b": 0.0}, seeds=[2])
        assert "no seed ran both" in contrast(apart, self.MIXED).mixed.note


class TestFewClusters:
    def test_one_source_is_refused(self) -> None:
        with pytest.raises(ScoresError, match=r"one source .* at least two sources"):
            compare(scores_of(rows_of({"a": 0.0}, cities=1, sources=1)), QUICK)

    def test_one_city_resamples_sources_and_decides_nothing(self) -> None:
        row = contrast(rows_of({"a": -1.0, "b": 0.0}, cities=1, sources=9))
        assert row.decision == "untestable: one city"
        assert contrast(rows_of({"a": -1.0, "b": 0.0}, cities=5)).decision == "untestable: 5 cities are too few"
        assert row.low < row.effect < row.high
        assert "one city: sources resampled" in row.note

    def test_an_untestable_contrast_has_no_adjusted_p(self) -> None:
        few, enough = (contrast(rows_of({"a": -1.0, "b": 0.0}, cities=n)) for n in (5, 6))
        assert math.isfinite(few.p)
        assert (math.isnan(few.adjusted_p), few.adjustment) == (True, "")
        assert math.isfinite(enough.adjusted_p)

    def test_few_cities_carry_a_warning_and_many_do_not(self) -> None:
        few, many = (compare(scores_of(rows_of({"a": 0.0}, cities=n)), QUICK) for n in (4, 10))
        assert few.scores[0].note == "4 cities: intervals are too narrow, some cover 81%"
        assert any("too narrow" in note for note in few.notes)
        assert not many.scores[0].note


class TestMissing:
    def test_unequal_clips_are_refused_with_their_counts(self) -> None:
        rows = [r for r in rows_of({"a": 0.0, "b": 0.0}) if r["method"] == "a" or r["city"] != "c00"]
        with pytest.raises(ScoresError, match=r"a \(seed 17\): 60, .* b \(seed 17\): 54.* 54 in common.*--common"):
            compare(scores_of(rows), QUICK)
        row = contrast(rows, dataclasses.replace(QUICK, common=True))
        assert (row.clips, row.cities) == (54, 9)
        assert "54 common clips of 60" in row.note

    def test_no_common_clip_is_refused_even_so(self) -> None:
        rows = [r for r in rows_of({"a": 0.0, "b": 0.0}) if (r["method"] == "a") == (r["city"] < "c04")]
        with pytest.raises(ScoresError, match="no clip in common"):
            compare(scores_of(rows), dataclasses.replace(QUICK, common=True))

    def test_a_contrast_uses_the_clips_that_both_have_a_value_for(self) -> None:
        rows = rows_of({"a": -0.5, "b": 0.0}, noise=0.0)
        rows = [r | {"value": np.nan} if r["method"] == "b" and r["city"] == "c00" else r for r in rows]
        row = contrast(rows)
        assert (row.dropped, row.clips, row.cities) == (6, 54, 9)
        assert "6 clips left out" in row.note
        assert row.effect == pytest.approx(0.5)  # exactly paired: the other clips do not matter

    def test_an_all_nan_diagnostic_has_no_number(self) -> None:
        rows = [r | {"value": np.nan} for r in rows_of({"a": 0.0, "b": 0.0})]
        found = compare(scores_of(rows), QUICK)
        assert math.isnan(found.scores[0].mean)
        assert found.scores[0].note == "no value"
        assert found.contrasts[0].decision == "untestable: not measured for A and B"

    def test_a_ratio_without_denominator_is_untestable_and_not_a_number(self) -> None:
        info = dataclasses.replace(FUTURE, reduction="leakage", headline="mean")
        variants = ["L->L", "L->A", "A->A", "A->L", "constant->L", "constant->A"]  # all errors alike: nothing is learnt
        rows = [row | {"value": 1.0} for row in rows_of({"a": 0.0, "b": 0.0}, infos=[info], variants=variants)]
        found = compare(scores_of(rows, [info]), QUICK)
        assert math.isnan(found.contrasts[0].p)
        assert found.contrasts[0].decision == "untestable: no interval"
        assert found.scores[0].note == "no value"

    def test_a_missing_seed_leaves_the_common_ones_and_is_said(self) -> None:
        rows = [r for r in rows_of({"a": -1.0, "b": 0.0}, seeds=(1, 2, 3)) if (r["method"], r["seed"]) != ("b", 3)]
        found = compare(scores_of(rows), QUICK)
        assert found.contrasts[0].seeds == [1, 2]
        assert "2 of 3 seeds" in found.contrasts[0].note
        assert {row.method: row.note for row in found.scores} == {"a": "", "b": "without seed 3"}

    def test_a_method_that_trains_nothing_needs_one_seed_only(self) -> None:
        rows = [r for r in rows_of({"a": -1.0, "b": 0.0}, seeds=(1, 2, 3)) if r["method"] == "a" or r["seed"] == 1]
        row = contrast(rows, QUICK, a=5, b=0)
        assert (row.note, row.decision) == ("", "better")
        assert (row.seeds, len(row.seed_effects)) == ([1, 2, 3], 3)
        assert "1 of 3 seeds" in contrast(rows, QUICK, a=5, b=5).note

    def test_a_headline_without_scores_is_refused(self) -> None:
        with pytest.raises(ScoresError, match="headline variant 'pooled' has no scores"):
            compare(scores_of(rows_of({"a": 0.0}, variants=["other"])), QUICK)


class TestRanksAndPareto:
    def found(self, second: dict[str, float]) -> Comparison:
        infos = [FUTURE, SLOPE]
        first = {"frozen": 0.4, "lora": 0.3, "dora": 0.2, "factorjepa": 0.0, "full": 0.1}
        rows = rows_of(first, infos=infos, noise=0.0) + rows_of(second, infos=infos, noise=0.0, backbone="vitg")
        return compare(scores_of(rows, infos, {"full": 1000, "frozen": 0}), QUICK)

    def test_the_same_order_has_correlation_one_and_leaving_one_out_keeps_it(self) -> None:
        row = self.found({"frozen": 4, "lora": 3, "dora": 2, "factorjepa": 0, "full": 1}).ranks[0]
        assert (row.spearman, row.kendall) == (pytest.approx(1), pytest.approx(1))
        assert row.spearman_without_method == pytest.approx([1, 1])

    def test_ranges_show_what_hangs_on_one_method_or_family(self) -> None:
        row = self.found({"frozen": 0, "lora": 3, "dora": 2, "factorjepa": 0.5, "full": 1}).ranks[0]
        assert row.spearman < row.spearman_without_method[1] == pytest.approx(1)  # without frozen
        assert row.spearman_without_family[0] < 0  # without lora and dora

    def test_two_common_methods_have_no_correlation(self) -> None:
        row = self.found({"frozen": 0, "lora": 3}).ranks[0]
        assert math.isnan(row.spearman)
        assert "2 common methods" in row.note

    def test_dominated_methods_are_named_with_whom(self) -> None:
        found = self.found({"frozen": 1.0})
        by_method = {row.method: row.dominated_by for row in found.pareto if row.backbone == "nano"}
        assert by_method["factorjepa"] == []
        assert by_method["lora"] == ["dora", "factorjepa"]
        assert by_method["full"] == ["factorjepa"]
        assert by_method["frozen"] == []  # costs nothing

    def test_hours_that_nobody_logged_leave_the_comparison_and_that_is_said(self) -> None:
        scores = scores_of(rows_of({"a": 0.0, "b": 0.5}))
        runs = [dataclasses.replace(run, seconds=None if run.method == "b" else 9e9) for run in scores.runs]
        rows = compare(Scores(scores.table, scores.diagnostics, {}, runs), QUICK).pareto
        assert [row.dominated_by for row in rows] == [[], ["a"]]
        assert all("hours are left out" in row.note for row in rows)


def test_statistics_know_no_models() -> None:
    code = (
        "import sys, factorjepa.statistics; print([m for m in ('torch', 'statsmodels', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_a_comparison_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    infos = [FUTURE, MOTION]
    found = compare(scores_of(rows_of({"factorjepa": 0.0, "auto_rgn": 0.1}, infos=infos), infos), PAPER)
    found.write(tmp_path)
    assert Comparison.read(tmp_path).json() == found.json() == (tmp_path / "comparison.json").read_text()
    lines = (tmp_path / "contrasts.csv").read_text().splitlines()
    assert lines[0].startswith("backbone,contrast,a,b,diagnostic")
    assert len(lines) == 1 + len(found.contrasts)
    with pytest.raises(ScoresError, match="factorjepa compare"):
        Comparison.read(tmp_path / "elsewhere")
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(ScoresError, match="compare again"):
        Comparison.read(tmp_path)
