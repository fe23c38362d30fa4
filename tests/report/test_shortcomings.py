"""What the page says where a method is missing, cities are few, or training was short or unequal."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from factorjepa.report.answers import answers
from factorjepa.report.cautions import Caution, cautions
from factorjepa.report.curves import Run
from factorjepa.report.making import make_report
from factorjepa.report.material import Material
from factorjepa.report.page import _folded
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings, Comparison, compare
from factorjepa.statistics.contrasts import Contrast
from factorjepa.training.run import RunDirectory
from factorjepa.training.tuning import Tried

from . import synthetic
from .conftest import Make
from .reading import read
from .test_page import QUICK, SMALL, made


@pytest.fixture(scope="module")
def partial() -> Material:
    scores = synthetic.scores(
        cities=8, sources=2, clips=1, methods=("frozen", "full", "lora", "factorjepa"), structure=False
    )
    return Material("x", scores, compare(scores, QUICK))


def test_a_diagnostic_that_joined_methods_lack_is_a_caution_that_says_what_the_adjusted_family_lost() -> None:
    small = {"cities": 8, "sources": 2, "clips": 1, "structure": False}
    whole = synthetic.scores(**small, methods=("frozen", "factorjepa", "factorjepa_raw", "factorjepa_int"))
    other = synthetic.scores(**small, methods=("auto_rgn", "factorjepa_di"))
    without = [row for row in other.table.to_pylist() if row["diagnostic"] != "motion_cosine"]
    diagnostics = {name: info for name, info in other.diagnostics.items() if name != "motion_cosine"}
    scores = Scores.joined([whole, Scores.of_rows(without, diagnostics, other.evaluator, other.runs)])
    (said,) = [one for one in cautions(Material("x", scores, compare(scores, QUICK))) if "prespecified" in one[:40]]
    assert isinstance(said, Caution)
    assert said.said == (
        "3 of 20 prespecified tests could not be made: p-values are adjusted for the 17 that could, and Holm "
        "multiplies the smallest by 17 instead of 20."
    )
    assert said.who == (
        "Not made: pkg and total on Motion cosine (not measured for Auto-RGN); DI+ on Motion cosine (not measured for "
        "factorjepa_di)."
    )
    assert not any("could not be made" in one for one in cautions(_complete(small)))


def _complete(small: dict[str, Any]) -> Material:
    methods = ("factorjepa", "factorjepa_raw", "factorjepa_int", "factorjepa_di", "auto_rgn")
    scores = synthetic.scores(**small, methods=methods)
    return Material("x", scores, compare(scores, QUICK))


class TestWithoutTheBaseline:
    """Auto-RGN was not evaluated, other methods were: the page says so, and does not deny what was tested."""

    def test_the_first_three_answers_name_the_method_that_is_missing(self, partial: Material) -> None:
        help_, much, sure, _ = (one.short for one in answers(partial, "nano"))
        assert all("Auto-RGN was not evaluated" in said for said in (help_, much, sure))
        assert "the paper's question cannot be answered" in help_
        assert "factorjepa train CORPUS --out RUN --method auto_rgn" in help_

    def test_what_was_tested_is_counted_and_estimated(self, partial: Material) -> None:
        tested = [row for row in partial.comparison.contrasts if not row.decision.startswith("untestable")]
        decided = sum(row.decision in ("better", "worse") for row in tested)
        help_, much, sure, _ = answers(partial, "nano")
        assert decided
        assert f"{decided} of {len(tested)} other tests decided" in sure.short
        assert "Nothing could be tested" not in sure.short
        assert "Against Full fine-tuning (exploratory), Future-frame L1: \N{MINUS SIGN}" in much.short
        assert any(line.startswith("Over LoRA, exploratory: better on") for line in help_.evidence)

    def test_few_seeds_are_pointed_out_without_a_prespecified_test_too(self, partial: Material) -> None:
        assert "3 training seeds are few: intervals leave their differences out" in " ".join(cautions(partial))

    def test_two_missing_methods_are_both_named(self) -> None:
        scores = synthetic.scores(cities=6, sources=2, clips=1, seeds=(1,), methods=("frozen", "lora"), structure=False)
        said = answers(Material("x", scores, compare(scores, QUICK)), "nano")[0].short
        assert "FactorJEPA and Auto-RGN were not evaluated" in said
        assert "--method factorjepa` and `factorjepa train" in said

    def test_pairs_that_somebody_asked_for_lead_where_factorjepa_is_not_there(self) -> None:
        """Who compares two baselines with --also reads that answer first."""
        scores = synthetic.scores(cities=8, sources=2, clips=1, methods=("auto_rgn", "lora", "full"), structure=False)
        assert answers(Material("x", scores, compare(scores, QUICK)), "nano")[0].short.startswith("It cannot be said.")
        asked = [Contrast(f"auto_rgn over {other}", "auto_rgn", other) for other in ("lora", "full")]
        found = compare(scores, dataclasses.replace(QUICK, also=asked))
        help_, much, _, _ = answers(Material("x", scores, found), "nano")
        said = {row.b: row for row in found.contrasts if row.diagnostic == "future_l1" and row.a == "auto_rgn"}
        assert said["lora"].decision == "better"
        assert help_.short.startswith(
            "FactorJEPA itself was not evaluated. What was asked instead, exploratory: Auto-RGN over LoRA is better on "
        )
        assert "; Auto-RGN over Full fine-tuning is " in help_.short
        assert "the paper's question cannot be answered" in help_.evidence[-1]
        assert "Auto-RGN against LoRA (exploratory), Future-frame L1: \N{MINUS SIGN}" in much.short
        assert "Auto-RGN against Full fine-tuning (exploratory), Future-frame L1: \N{MINUS SIGN}" in much.short

    def test_contrasts_that_cannot_be_made_are_one_folded_line_with_titles(
        self, tmp_path: Path, partial: Material
    ) -> None:
        page = made(tmp_path, partial.scores)
        contrasts = page.text.split("Contrasts and decisions")[-1].split("Where it helps")[0]
        assert "nano: 5 contrasts could not be tested" in contrasts
        assert "total: FactorJEPA over Auto-RGN, Future-frame L1" in contrasts
        assert "untestable" not in contrasts
        assert "auto_rgn" not in contrasts
        assert "Auto-RGN was not evaluated" in (tmp_path / "report" / "index.html").read_text().split("<main>")[1]


class TestTooFewCities:
    """Fewer than six cities decide nothing, and nothing on the page looks as if they had been tested."""

    @pytest.fixture
    def few(self) -> Scores:
        return synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False)

    def test_the_answers_say_that_nothing_is_decided(self, few: Scores) -> None:
        said = [one.short for one in answers(Material("x", few, compare(few, QUICK)), "nano")]
        for number in (0, 2, 3):
            assert "The scores are of 4 cities, and fewer than 6 decide nothing" in said[number]
        assert "untestable: 4 cities are too few" in said[1]
        assert not any("adjusted p" in one for one in said)

    def test_marks_and_tables_show_no_test(self, few: Scores, tmp_path: Path) -> None:
        page = made(tmp_path, few)
        marks = {
            e.attributes["class"]
            for e in page.elements
            if "wide" in e.inside and "mark" in e.attributes.get("class", "")
        }
        assert marks == {"mark untested"}
        assert any(e.attributes.get("class") == "mark untested" and "legend" in e.inside for e in page.elements)
        cells = page.text.split("Contrasts and decisions")[-1].split("deciding")[-1].split("As a table")[0]
        assert "4 cities are too few" in cells
        assert " H" not in cells
        with open(tmp_path / "report" / "tables" / "contrasts.csv", encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
        assert {row["adjusted_p"] for row in rows} == {row["deciding.adjusted_p"] for row in rows} == {""}
        assert any(row["p"] for row in rows)


def test_a_page_is_called_like_its_study_not_like_the_folder_of_scores(tmp_path: Path) -> None:
    for folder, name in (("study/scores", "study"), ("both", "both")):
        page = made(tmp_path / folder, synthetic.scores(**SMALL, structure=False))
        assert f"FactorJEPA report: {name}" in page.text


def test_a_variant_answers_where_factorjepa_itself_is_missing(tmp_path: Path) -> None:
    names = ("frozen", "auto_rgn", "factorjepa_both_chosen")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=3.0))
    assert "FactorJEPA itself was not evaluated. Variants of it over Auto-RGN, exploratory" in page.text
    assert "\u201cFactorJEPA, both, chosen blocks\u201d is better on Future-frame L1" in page.text
    assert "\u201cFactorJEPA, both, chosen blocks\u201d against Auto-RGN (exploratory), Future-frame L1" in page.text
    assert "cannot be said" not in page.text
    assert "No control was evaluated, so a gain may come from the inputs" in page.text
    headline = page.text.split("Headline effects")[-1].split("Paired effects in units")[0]
    assert "FactorJEPA, both, chosen blocks, exploratory (BH)" in headline
    assert "over Auto-RGN" in headline
    assert "not testable" not in headline  # nothing is drawn of what is missing


@pytest.mark.parametrize("baseline", ["auto_rgn_views@look", "auto_rgn@look"])
def test_a_form_of_the_baseline_stands_in_where_that_was_not_evaluated_either(baseline: str, tmp_path: Path) -> None:
    names = ("frozen", "lora", baseline, "factorjepa_chosen@look")
    scores = synthetic.scores(methods=names, structure=False, gain=3.0)
    page = made(tmp_path, scores)
    over = next(run.title for run in scores.runs if run.method == baseline)
    assert f"FactorJEPA itself was not evaluated. Variants of it over {over}, exploratory" in page.text
    headline = page.text.split("Headline effects")[-1].split("Paired effects in units")[0]
    assert f"over {over}" in headline
    assert "not testable" not in headline


def test_variants_stand_beside_the_baseline_that_has_their_settings(tmp_path: Path) -> None:
    """Over one without them, what the settings give would pass for what factorization gives."""
    names = ("auto_rgn_views", "auto_rgn_views@look", "factorjepa_chosen@look")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=3.0))
    assert "Variants of it over Auto-RGN + views @look, exploratory" in page.text


@pytest.mark.parametrize("plain", [(), ("auto_rgn",)])
def test_a_variant_that_looks_back_stands_beside_a_baseline_that_does(plain: tuple[str, ...], tmp_path: Path) -> None:
    names = (*plain, "auto_rgn_look", "factorjepa_chosen@look")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=3.0))
    assert "Variants of it over Auto-RGN + views + look back, exploratory" in page.text


def test_every_variant_is_told_beside_its_own_baseline(tmp_path: Path) -> None:
    names = ("auto_rgn_views", "auto_rgn_views@look", "factorjepa_chosen", "factorjepa_chosen@look")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=3.0))
    assert "Variants of it over Auto-RGN + views, exploratory: \u201cFactorJEPA, chosen blocks\u201d is" in page.text
    looking = "Variants of it over Auto-RGN + views @look, exploratory: \u201cFactorJEPA, chosen blocks @look\u201d is"
    assert looking in page.text


def test_figures_keep_the_baseline_of_the_paper_where_factorjepa_was_evaluated() -> None:
    names = ("frozen", "auto_rgn", "lora", "dora", "full", "factorjepa", "factorjepa@slow", "auto_rgn@slow")
    scores = synthetic.scores(cities=6, sources=2, clips=1, methods=names, structure=False)
    material = Material("x", scores, compare(scores, CompareSettings(replicates=100, mixed="none")))
    assert {"auto_rgn", "factorjepa", "frozen"} <= {*material.few("nano", 4)}


def test_what_several_variants_gain_is_one_sentence(tmp_path: Path) -> None:
    names = ("frozen", "auto_rgn", "factorjepa@slow", "factorjepa_both_chosen")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=3.0))
    said = page.text.split("Variants against Auto-RGN (exploratory), Future-frame L1: ")[1].split(". ")[0]
    assert "FactorJEPA @slow \N{MINUS SIGN}" in said
    assert "\u201cFactorJEPA, both, chosen blocks\u201d \N{MINUS SIGN}" in said
    assert said.count("; ") == 1


def test_variants_are_drawn_where_too_few_cities_decide_nothing(tmp_path: Path) -> None:
    names = ("frozen", "auto_rgn", "factorjepa_both_chosen", "factorjepa@slow")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, cities=4))
    headline = page.text.split("Headline effects")[-1].split("Paired effects in units")[0]
    assert "FactorJEPA, both, chosen blocks, exploratory (BH)" in headline
    assert "FactorJEPA @slow, exploratory (BH)" in headline
    assert "It cannot be said" in page.text


def test_a_variant_s_failures_are_told_like_its_gains(tmp_path: Path) -> None:
    names = ("frozen", "auto_rgn", "factorjepa_raw", "mono_states_both", "factorjepa_both_chosen")
    page = made(tmp_path, synthetic.scores(methods=names, structure=False, gain=-3.0))
    assert "A variant is worse than another method on Future-frame L1" in page.text
    assert "Future-frame L1 (\u201cFactorJEPA, both, chosen blocks\u201d): worse than " in page.text
    assert "nothing about FactorJEPA could be tested" not in page.text
    assert "Attribution, the factorized predictor without factor targets (FactorJEPA-RAW over Auto-RGN)" in page.text


def test_targets_of_other_clips_that_do_as_well_are_told() -> None:
    methods = ("frozen", "auto_rgn", "factorjepa", "shuffled_targets", "misaligned_targets")
    scores = synthetic.scores(cities=8, sources=2, clips=1, methods=methods, structure=False)
    said = answers(Material("x", scores, compare(scores, QUICK)), "nano")[0]
    level = "nothing is decided over \u201cFactorJEPA, shuffled targets\u201d."  # it is over misaligned ones
    assert said.short.endswith(f" That targets are of the clip is not shown to help: {level}")
    negative = [line for line in said.evidence if line.startswith("Negative control, exploratory: FactorJEPA over ")]
    assert len(negative) == 2
    assert "misaligned targets\u201d: better on Future-frame L1" in negative[1]
    found = compare(scores, QUICK)
    found.contrasts[:] = [
        dataclasses.replace(row, decision="worse") if row.b == "shuffled_targets" else row for row in found.contrasts
    ]
    said = answers(Material("x", scores, found), "nano")[0]
    assert said.short.endswith("not shown to help: it is worse than \u201cFactorJEPA, shuffled targets\u201d.")
    alone = synthetic.scores(cities=8, sources=2, clips=1, methods=methods[:3], structure=False)
    assert "targets are of the clip" not in answers(Material("x", alone, compare(alone, QUICK)), "nano")[0].short


class TestTraining:
    """Cautions are about the updates made and the settings used, not about the checkpoint that was chosen."""

    def of(self, tried: Sequence[Tried] = (), **changes: dict[str, Any]) -> str:
        """Cautions where the named methods' runs differ as told; every run made 2,000 updates and chose the 8th."""
        names = (
            "frozen",
            "wise_0.5",
            "auto_rgn",
            "factorjepa",
            *(["factorjepa_raw"] if "factorjepa_raw" in changes else []),
        )
        scores = synthetic.scores(**SMALL, methods=names, structure=False, step=8)
        scores.runs[:] = [
            dataclasses.replace(run, **{"updates": 2000, "config": "lr: 0.1", **changes.get(run.method, {})})
            for run in scores.runs
        ]
        nothing = Comparison({}, {}, [], [], [], [], [], [])
        return " ".join(cautions(Material("x", scores, nothing, tried=tried)))

    def test_an_early_best_checkpoint_is_no_short_training(self) -> None:
        assert "Trained for" not in self.of()

    def test_few_updates_are_the_updates_made(self) -> None:
        short = {"updates": 40}
        assert "Trained for at most 40 updates" in self.of(auto_rgn=short, factorjepa=short)

    def test_the_run_s_own_record_counts_where_the_scores_do_not_say(self, run: Make) -> None:
        scores = synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False, step=8)
        scores.runs[:] = [dataclasses.replace(one, run="a") for one in scores.runs]
        drawn = Run.read(run("a", updates=100, until=60))
        found = cautions(Material("x", scores, Comparison({}, {}, [], [], [], [], [], []), runs=[drawn]))
        assert any("at most 60 updates" in line for line in found)

    def test_pathways_that_closed_are_told(self) -> None:
        assert "had closed" not in self.of()
        said = self.of(factorjepa={"closed": ("pairs", "early pairs")}, factorjepa_raw={"closed": ("pairs",)})
        assert (
            "Gates or edges had closed by the end of training: there such a model is its own control. "
            "pairs: FactorJEPA and FactorJEPA-RAW; early pairs: FactorJEPA." in said
        )
        scores = synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False)
        first = next(run for run in scores.runs if run.method == "factorjepa")
        scores.runs[:] = [dataclasses.replace(run, closed=("agents",)) if run is first else run for run in scores.runs]
        few = " ".join(cautions(Material("x", scores, Comparison({}, {}, [], [], [], [], [], []))))
        assert "agents: FactorJEPA in 1 of " in few
        assert "Not recorded: FactorJEPA." in few

    def test_equal_training_is_not_called_unequal(self) -> None:
        assert "Unequal" not in self.of(**{"wise_0.5": {"updates": 0}, "frozen": {"updates": 0, "config": "lr: 1"}})

    def test_settings_that_validation_chose_are_tuned_and_others_are_unequal(self) -> None:
        tried = [Tried("nano", "auto_rgn", {"lr": "0.1"}, 0.4, True), Tried("", "factorjepa", {"lr": "0.2"}, 0.4, True)]
        tried.append(Tried("small", "factorjepa", {"lr": "0.5"}, 0.4, True))  # of another backbone
        assert "Tuned" not in self.of(factorjepa={"config": "lr: 0.2"})
        said = self.of(tried, factorjepa={"config": "lr: 0.2"})
        assert "validation clips chose lr" in said
        assert "Unequal" not in said
        other = self.of(tried, factorjepa={"config": "lr: 0.3"})  # not what was chosen
        assert "Unequal training, in lr: differences between methods may come from it. lr: " in other
        assert "Tuned" not in other

    def test_who_has_nothing_of_what_is_tuned_had_fewer_tries(self) -> None:
        tried = [
            Tried("nano", "auto_rgn", {"lr": "0.1"}, 0.4, True),
            Tried("nano", "factorjepa", {"lr": "0.1", "branch_rate": "4.0"}, 0.4, True),
        ]
        said = self.of(tried, factorjepa={"config": "{lr: 0.1, branch_rate: 4.0}"})
        assert "chose lr and branch_rate for each method, from the same values; " in said
        assert "tried no branch_rate, and so had fewer tries" in said

    def test_the_rate_of_branches_is_nothing_to_a_method_that_has_none(self) -> None:
        branches = {"config": "{lr: 0.1, branch_rate: 4.0}"}
        assert "Unequal" not in self.of(auto_rgn={"config": "{lr: 0.1, branch_rate: 1.0}"}, factorjepa=branches)
        assert "Unequal" not in self.of(factorjepa={"config": "{lr: 0.1, branch_rate: 4.0, gate_rate: 4.0}"}, **{
            "wise_0.5": {}, "auto_rgn": branches})  # fmt: skip
        assert "lr: 0.2 (Auto-RGN)" in self.of(auto_rgn={"config": "{lr: 0.2, branch_rate: 1.0}"}, factorjepa=branches)

    def test_what_one_side_may_look_at_and_the_other_not_is_named(self) -> None:
        back = {"config": "{lr: 0.1, branch_rate: 4.0, predictor: {recalled: true}}"}
        said = self.of(auto_rgn=back, factorjepa={"config": "{lr: 0.1, branch_rate: 2.0}"})
        assert "recalled: True (Auto-RGN), False (FactorJEPA)" in said
        assert "branch_rate: 4.0 (Auto-RGN), 2.0 (FactorJEPA)" in said
        assert "recalled" not in self.of(auto_rgn=back, factorjepa=back)

    def test_the_rate_of_gates_is_named_where_it_is_not_that_of_the_branches(self) -> None:
        scores = {"factorjepa_raw": {"config": "{lr: 0.1, branch_rate: 1.0}"}}
        said = self.of(factorjepa={"config": "{lr: 0.1, branch_rate: 4.0}"}, **scores)
        assert "branch_rate" in said
        assert "gate_rate" not in said
        own = self.of(factorjepa={"config": "{lr: 0.1, branch_rate: 1.0, gate_rate: 4.0}"}, **scores)
        assert "gate_rate: 4.0 (FactorJEPA), that of branches (FactorJEPA-RAW)" in own

    def test_methods_that_are_compared_and_differ_in_size_are_named(self) -> None:
        said = self.of(auto_rgn={"trainable": 2_670_000}, factorjepa={"trainable": 2_930_000})
        assert "Unequal size: the largest trains 10% more parameters than the smallest. 2.67 M (Auto-RGN), " in said
        assert "Unequal size" not in self.of(auto_rgn={"trainable": 2_670_000}, factorjepa={"trainable": 2_700_000})

    def test_an_update_s_clips_are_batch_times_passes_times_processes(self) -> None:
        alone = {"config": "{batch: 8, accumulate: 2, lr: 0.1}", "processes": (1,)}
        many = {"config": "{batch: 2, accumulate: 1, lr: 0.1}", "processes": (8,)}
        assert "Unequal" not in self.of(auto_rgn=alone, factorjepa=many)
        same_setting = {**many, "processes": (4,)}
        said = self.of(auto_rgn=many, factorjepa=same_setting)
        assert "may come from it. clips per update: 16 (Auto-RGN), 8 (FactorJEPA)." in said
        went_on = {**many, "processes": (8, 4)}
        assert "clips per update: 16 (Auto-RGN), 16 then 8 (FactorJEPA)." in self.of(auto_rgn=many, factorjepa=went_on)

    def test_what_differs_is_named_with_its_values_and_methods(self) -> None:
        said = self.of(auto_rgn={"updates": 1500, "config": "lr: 0.2"})
        assert "Unequal training, in updates and lr: differences between methods may come from it. " in said
        assert "updates: 1500 (Auto-RGN), 2000 (FactorJEPA); lr: 0.2 (Auto-RGN), 0.1 (FactorJEPA)." in said

    def test_one_corpus_by_several_names_is_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        names = {"auto_rgn": "corpus", "factorjepa": "../corpus", "factorjepa_raw": f"{tmp_path}/corpus"}
        assert "Unequal" not in self.of(
            **{who: {"config": f"{{lr: 0.1, data: {data}}}"} for who, data in names.items()}
        )
        said = self.of(
            auto_rgn={"config": "{lr: 0.1, data: corpus}"}, factorjepa={"config": "{lr: 0.1, data: a/corpus}"}
        )
        assert "data: corpus (Auto-RGN), a/corpus (FactorJEPA)" in said

    def test_a_chance_that_nothing_can_beat_is_explained(self) -> None:
        action = synthetic.OTHERS[1]
        assert "all clips are of one class" in action.about_chance(1.0)
        assert not action.about_chance(0.9)

    def test_runs_that_were_stopped_early_are_named(self) -> None:
        assert "Unfinished" not in self.of(auto_rgn={"updates": 60, "config": "updates: 60"}, frozen={"updates": 0})
        said = self.of(auto_rgn={"updates": 4, "config": "updates: 60", "run": "ka"})
        assert "Unfinished: ka made 4 of 60 updates" in said
        assert "--resume" in said

    def test_a_run_knows_how_many_updates_it_made(self, run: Make) -> None:
        folder = RunDirectory(run("a", until=7))
        assert folder.updates_made() == 7
        (folder.folder / "metrics.jsonl").unlink()
        assert folder.updates_made() is None


def test_a_long_caution_shows_what_it_is_about_and_folds_the_rest() -> None:
    assert _folded(Caution("Short.", "All of it.")) == "Short. All of it."
    long = f"lr: {'0.1 (A), ' * 40}."
    assert _folded(f"It is one. {long}") == f"It is one. {long}"  # no list of who has what
    shown, _, rest = _folded(Caution("Unequal <lr>: may matter.", long)).partition("<details>")
    assert shown == "Unequal &lt;lr&gt;: may matter."
    assert "0.1 (A), 0.1 (A)" in rest


def test_a_page_has_the_variants_that_were_compared_by_also_when_it_compares_again(tmp_path: Path) -> None:
    scores = synthetic.scores(**SMALL, structure=False)
    scores.write(tmp_path / "scores.parquet")
    asked = dataclasses.replace(QUICK, variants=["mask_slope/hidden_0.9"])
    compare(scores, asked).write(tmp_path / "comparison")
    told = make_report(tmp_path)
    assert not told.compared
    assert "Mask-ratio slope (hidden_0.9)" in read(told.page).text
    (tmp_path / "comparison" / "comparison.json").touch()
    os.utime(tmp_path / "scores.parquet", (2e9, 2e9))  # evaluated since
    told = make_report(tmp_path)
    assert told.compared
    assert "Mask-ratio slope (hidden_0.9)" in read(told.page).text
    assert any("made from other scores" in note for note in told.notes)


def test_of_many_controls_that_a_gain_shares_those_that_are_ahead_are_named_and_all_are_evidence() -> None:
    controls = ("mono_supervised", "mono_states_both", "auto_rgn_views", "auto_rgn_look", "mono_top")
    scores = synthetic.scores(cities=8, sources=2, clips=1, methods=("auto_rgn", "factorjepa", *controls), gain=2.0)
    found = compare(scores, QUICK)
    ahead = {"auto_rgn_look": ["worse"] * 4, "mono_top": ["worse"] + ["not separated"] * 3}
    decisions = {name: iter(ahead.get(name, ["not separated"] * 4)) for name in controls}
    found.contrasts[:] = [
        dataclasses.replace(row, decision=next(decisions[row.b]))
        if row.a == "factorjepa" and row.b in controls and row.status == "primary" else row
        for row in found.contrasts
    ]  # fmt: skip
    material = dataclasses.replace(Material("x", scores, found))
    titles = [material.title_of(name) for name in controls if material.family(name) == "control"]
    said = answers(material, "nano")[0]
    assert (
        f"not shown to be better than {len(titles)} of {len(titles)} controls, such as Auto-RGN + views + look back"
        in said.short
    )
    assert all(title in " ".join(said.evidence) for title in titles)
