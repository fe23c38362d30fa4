"""The page as a whole: well formed, self-contained, honest, and readable where there is little to read."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factorjepa import commands
from factorjepa.adaptation import METHODS
from factorjepa.errors import ReportError, ScoresError
from factorjepa.examples import Example, Question
from factorjepa.missing import Missing
from factorjepa.report import plot
from factorjepa.report.answers import answers, change
from factorjepa.report.cards import cards, example_views
from factorjepa.report.cautions import cautions
from factorjepa.report.making import make_report
from factorjepa.report.material import Material
from factorjepa.report.tables import contrast_table
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings, Comparison, compare
from factorjepa.training.run import RunDirectory

from . import synthetic
from .conftest import Make
from .reading import Page, read

QUICK = CompareSettings(replicates=500, mixed="none")
SMALL = {"cities": 4, "sources": 2, "clips": 2, "seeds": (17, 29)}


def made(folder: Path, scores: Scores) -> Page:
    folder.mkdir(parents=True, exist_ok=True)
    scores.write(folder / "scores.parquet")
    return read(make_report(folder, settings=QUICK).page)


def test_the_page_is_well_formed_and_has_every_part(rich: Path) -> None:
    page = read(rich / "report" / "index.html")
    assert not page.problems
    sections = [element.attributes["id"] for element in page.of("section")]
    assert sections == [
        "headline", "scorecard", "contrasts", "where", "masking", "scale", "training", "structure", "questions",
        "examples", "data", "made",
    ]  # fmt: skip
    linked = {element.attributes["href"] for element in page.of("a") if "nav" in element.inside}
    assert linked == {f"#{name}" for name in sections}
    for said in ("Does factorization help?", "By how much?", "How sure are we?", "Where does it fail?"):
        assert said in page.text


def test_nothing_is_asked_of_a_network(rich: Path) -> None:
    page, folder = read(rich / "report" / "index.html"), rich / "report"
    for element in page.elements:
        for name in ("src", "href", "xlink:href", "srcset", "action", "poster"):
            place = element.attributes.get(name, "data:")
            assert place.startswith(("data:image/", "data:", "#")) or (folder / place).is_file(), place
        assert element.name not in ("link", "iframe", "object", "embed", "form")
        assert not any(name.startswith("on") for name in element.attributes)
    policy = next(e.attributes["content"] for e in page.of("meta") if "http-equiv" in e.attributes)
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|https?://", text)


def test_wide_things_scroll_inside_their_frame_and_figures_have_no_fixed_width(rich: Path) -> None:
    page = read(rich / "report" / "index.html")
    assert page.of("table")
    assert all("scroll" in element.inside for element in page.of("table"))
    figures = [element for element in page.of("svg") if "fig" in element.attributes["class"]]
    assert all("viewbox" in element.attributes and "width" not in element.attributes for element in figures)
    assert all(element.attributes["aria-label"] for element in figures)
    narrow = [e for e in figures if "narrow" in e.inside]
    assert narrow
    assert all(float(e.attributes["viewbox"].split()[2]) <= 340 for e in figures if "wide" not in e.inside)


def test_marks_stay_inside_their_figures(rich: Path) -> None:
    text = (rich / "report" / "index.html").read_text(encoding="utf-8")
    found = 0
    for width, height, drawn in re.findall(
        r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)" class="fig.*?>(.*?)</svg>', text, re.S
    ):
        for x, y in re.findall(r'<circle cx="(-?[\d.]+)" cy="(-?[\d.]+)"', drawn):
            assert 0 <= float(x) <= float(width)
            assert 0 <= float(y) <= float(height)
            found += 1
    assert found > 100


def test_known_numbers_appear(rich: Path) -> None:
    comparison = Comparison.read(rich / "comparison")
    page = read(rich / "report" / "index.html")
    row = next(r for r in comparison.scores if r.method == "factorjepa" and r.diagnostic == "future_l1" and r.headline)
    assert f"{row.mean:.4f}" in page.text or f"{row.mean:.3f}" in page.text
    titles = (rich / "report" / "index.html").read_text(encoding="utf-8")
    contrast = next(r for r in comparison.contrasts if r.contrast == "total" and r.diagnostic == "future_l1")
    assert f"{contrast.units:+.1f} units".replace("-", "\N{MINUS SIGN}") in titles
    assert "10 cities" in page.text


def test_how_the_seeds_variance_was_estimated_is_said_and_shown(rich: Path) -> None:
    text = (rich / "report" / "index.html").read_text()
    assert "the seeds of a pair, helped by those of the other methods" in text
    row = next(one for one in Comparison.read(rich / "comparison").contrasts if one.contrast == "total")
    assert row.deciding.seed_variance == "moderated"
    assert f"{row.deciding.pooled_sd:.2g} expected from {row.deciding.pooled_methods} methods" in text


def test_the_tables_round_trip(rich: Path) -> None:
    comparison, tables = Comparison.read(rich / "comparison"), rich / "report" / "tables"
    assert Comparison.read(tables).json() == comparison.json()
    with open(tables / "contrasts.csv", encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["decision"] for row in rows] == [row.decision for row in comparison.contrasts]
    effects = [float(row["effect"]) if row["effect"] else math.nan for row in rows]
    assert effects == pytest.approx([row.effect for row in comparison.contrasts], nan_ok=True)
    with open(tables / "cities.csv", encoding="utf-8", newline="") as opened:
        towns = [row for row in csv.DictReader(opened) if (row["backbone"], row["diagnostic"]) == ("nano", "future_l1")]
    total = next(
        r for r in comparison.contrasts if (r.backbone, r.contrast, r.diagnostic) == ("nano", "total", "future_l1")
    )
    assert np.mean([float(row["effect"]) for row in towns]) == pytest.approx(total.effect)  # cities count equally


def test_the_same_scores_make_the_same_page(rich: Path) -> None:
    before = (rich / "report" / "index.html").read_bytes()
    again = make_report(rich)
    assert not again.compared  # the comparison beside the scores is used
    assert again.page.read_bytes() == before


@pytest.fixture(scope="module")
def material() -> Material:
    scores = synthetic.scores(cities=10, sources=2, clips=1, seeds=(17, 29), structure=False)
    return Material("x", scores, compare(scores, QUICK))


class TestHonesty:
    """What is said is what was decided."""

    def decided(self, material: Material, decisions: dict[str, str], contrast: str = "total", **also: Any) -> Material:
        """The same with other decisions on one contrast."""
        rows = [
            dataclasses.replace(row, decision=decisions.get(row.diagnostic, "not separated"), **also)
            if row.contrast == contrast else row
            for row in material.comparison.contrasts
        ]  # fmt: skip
        return dataclasses.replace(material, comparison=dataclasses.replace(material.comparison, contrasts=rows))

    def short(self, material: Material, number: int = 0) -> str:
        return answers(material, "nano")[number].short

    def test_nothing_separated_is_not_shown(self, material: Material) -> None:
        said = self.short(self.decided(material, {}))
        assert said.startswith("Not shown")
        assert "is better" not in said

    def test_a_trade_off_is_called_one(self, material: Material) -> None:
        said = self.short(self.decided(material, {"future_l1": "better", "motion_cosine": "worse"}))
        assert said.startswith("A trade-off: better than Auto-RGN on Future-frame L1, worse on Motion cosine.")

    def test_worse_is_a_no(self, material: Material) -> None:
        assert self.short(self.decided(material, {"future_l1": "worse"})).startswith("No: worse than Auto-RGN")

    def test_a_gain_that_a_control_shares_is_not_credited_to_the_factorization(self, material: Material) -> None:
        everything = dict.fromkeys(material.primary, "better")
        equal = self.decided(self.decided(material, everything), {}, "over mono_states_both")
        said = self.short(equal)
        assert said.startswith("FactorJEPA is better than Auto-RGN on every primary diagnostic.")
        assert "not shown to be better than Monolithic + states (both)" in said
        credited = self.decided(equal, everything, "over mono_states_both")
        assert "put down" not in self.short(self.decided(credited, everything, "over mono_supervised"))

    def test_untestable_is_said_with_its_reason(self, material: Material) -> None:
        gone = dict.fromkeys(material.primary, "untestable: no clip has a value for both")
        said = self.short(self.decided(material, gone))
        assert said == "It cannot be said. FactorJEPA over Auto-RGN is untestable: no clip has a value for both."

    def test_every_better_on_the_page_is_a_decision(self, material: Material) -> None:
        for row in material.contrasts("nano", "total"):
            named = material.name(row.diagnostic)
            said = self.short(material).split("worse")[0]
            assert (named in said.split("Not shown")[0]) == (row.decision == "better")

    def test_a_gain_that_a_sensitivity_takes_back_is_not_called_better_first(self, material: Material) -> None:
        turned = self.decided(material, {"future_l1": "better"}, stable=False)
        said = self.short(turned)
        assert said.startswith("Not shown: no primary diagnostic decides between FactorJEPA and Auto-RGN. ")
        assert "On Future-frame L1 it is better, but a sensitivity analysis takes that back." in said
        assert "better, unstable on Future-frame L1" in answers(turned, "nano")[0].evidence[0]

    def test_a_gain_that_seeds_leave_open_is_said_with_its_reason(self, material: Material) -> None:
        why = "not resolved: 2 training seeds vary too much"
        doubted = self.decided(
            material, {"future_l1": why, "mask_slope": "better"}, paper_decision="better", stable=True
        )
        said = self.short(doubted)
        assert said.startswith("FactorJEPA is better than Auto-RGN on Mask-ratio slope. Not shown on Future-frame L1, ")
        assert "On Future-frame L1 it is better over cities alone, but 2 training seeds vary too much." in said
        assert "1 of 4 primary diagnostics decided" in self.short(doubted, 2)
        assert ", 1 not resolved;" in self.short(doubted, 2)
        assert "Not resolved on Future-frame L1." in self.short(doubted, 3)

    def test_an_error_that_falls_is_negative_and_an_unstable_direction_is_said(self, material: Material) -> None:
        row = next(r for r in material.contrasts("nano", "total") if r.diagnostic == "future_l1" and r.effect > 0)
        assert self.short(material, 1).startswith(f"Future-frame L1 (lower is better): {change(material, row)[0]}")
        assert change(material, row)[0] == "\N{MINUS SIGN}"
        turned = self.decided(material, {"future_l1": "better"}, stable=False)
        assert any("turns round" in line for line in answers(turned, "nano")[2].evidence)

    def test_the_table_says_unstable_in_the_cell_of_the_decision(self, material: Material) -> None:
        turned = self.decided(material, {"future_l1": "better"}, stable=False)
        assert ">better, unstable</td>" in str(contrast_table(turned, "nano"))
        steady = self.decided(material, {"future_l1": "better"}, stable=True)
        assert ">better</td>" in str(contrast_table(steady, "nano"))

    def test_small_samples_are_pointed_out_and_large_ones_are_not(self) -> None:
        few = synthetic.scores(**{**SMALL, "seeds": (17,)}, structure=False, step=40)
        said = " ".join(cautions(Material("x", few, compare(few, QUICK))))
        for word in ("4 cities are few", "16 clips of 8 source videos", "One training seed:", "at most 40 updates"):
            assert word in said
        whole = ("auto_rgn", "factorjepa", "factorjepa_raw", "factorjepa_int", "factorjepa_di")
        many = synthetic.scores(cities=11, sources=5, clips=2, seeds=(1, 2, 3, 4, 5), methods=whole, structure=False)
        assert cautions(Material("x", many, compare(many, QUICK))) == []

    def test_few_training_seeds_are_pointed_out_with_what_they_take(self, material: Material) -> None:
        said = " ".join(cautions(material))
        tests = sum(row.family == "primary" and math.isfinite(row.p) for row in material.comparison.contrasts)
        assert "2 training seeds are few: intervals leave their differences out" in said
        assert f"Among {tests} prespecified tests, an effect must be 108 times the SD of its seeds" in said


class TestHostile:
    def test_names_with_markup_are_shown_and_not_obeyed(self, tmp_path: Path) -> None:
        evil = '<script>alert("x")</script>&amp;\x00'
        scores = synthetic.scores(
            **SMALL, backbones=(evil,), titles={"factorjepa": evil, "auto_rgn": '"><img src=x onerror=y>'}
        )
        page = made(tmp_path, scores)
        assert not page.problems
        assert len(page.of("script")) == 1
        assert all(element.attributes["src"].startswith("data:") for element in page.of("img"))
        assert '<script>alert("x")</script>&amp;' in page.text
        assert "\x00" not in page.text

    @pytest.mark.parametrize(
        "changes",
        [{"methods": ("factorjepa",)}, {"methods": ("lora",)}, {"cities": 1, "seeds": (1,)}, {"methods": ("frozen",)}],
        ids=["factorjepa alone", "without factorjepa", "one city and seed", "frozen alone"],
    )  # fmt: skip
    def test_little_is_enough_for_a_page(self, tmp_path: Path, changes: dict[str, object]) -> None:
        page = made(tmp_path, synthetic.scores(**{**SMALL, **changes}))  # type: ignore[arg-type]
        assert not page.problems
        assert "cannot be said" in page.text
        assert "No decision says" not in page.text
        assert "Read this first" in page.text

    def test_hundreds_of_methods_leave_a_page_that_can_be_read(self, tmp_path: Path) -> None:
        names = (*synthetic.METHODS, *(f"method_{k}" for k in range(60)))
        page = made(
            tmp_path, synthetic.scores(cities=2, sources=2, clips=1, seeds=(1,), methods=names, structure=False)
        )
        assert (tmp_path / "report" / "index.html").stat().st_size < 4e6
        assert "further methods" in page.text
        rows = [e for e in page.of("th") if e.attributes.get("scope") == "row"]
        assert len(rows) > 2 * len(names)

    def test_a_diagnostic_without_values_leaves_a_dash(self, tmp_path: Path) -> None:
        scores = synthetic.scores(**SMALL, structure=False)
        kept = [
            row
            for row in scores.table.to_pylist()
            if not (row["method"] == "lora" and row["diagnostic"] == "future_l1")
        ]
        page = made(tmp_path, Scores.of_rows(kept, scores.diagnostics, scores.evaluator, scores.runs))
        assert not page.problems
        assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", page.text)

    def test_what_cannot_be_read_is_said_on_the_page(self, tmp_path: Path) -> None:
        synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "config.yaml").write_text("method: [")
        (tmp_path / "examples" / "broken").mkdir(parents=True)
        (tmp_path / "examples" / "broken" / "example.json").write_text("{}")
        found = make_report(tmp_path, [tmp_path / "run", tmp_path / "nowhere"], settings=QUICK)
        page = read(found.page)
        assert len(found.notes) == 3
        assert "is not a run" in page.text
        assert "cannot be read as an example" in page.text

    def test_without_any_factorjepa_the_headline_shows_what_adapting_gives(self, tmp_path: Path) -> None:
        page = made(tmp_path, synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "lora"), structure=False))
        assert "Over Frozen V-JEPA, exploratory (BH)" in page.text
        assert "are in the table of contrasts" not in page.text
        names = ("frozen", "auto_rgn", *(f"method_{k}" for k in range(20)))
        crowd = made(tmp_path, synthetic.scores(**SMALL, methods=names, structure=False))
        assert re.search(r"[1-9]\d* further methods are in the table of contrasts", crowd.text)
        assert "total: FactorJEPA over Auto-RGN" not in page.text.split("Over Frozen V-JEPA, exploratory (BH)")[0]

    def test_errors_say_what_to_do(self, tmp_path: Path) -> None:
        with pytest.raises(ScoresError, match="factorjepa evaluate"):
            make_report(tmp_path)
        with pytest.raises(ReportError, match="is not a folder"):
            make_report(tmp_path / "nothing")

    def test_a_page_of_somebody_else_is_left_alone(self, tmp_path: Path) -> None:
        synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False).write(tmp_path / "scores.parquet")
        (tmp_path / "report").mkdir()
        (tmp_path / "report" / "index.html").write_text("<h1>My thesis</h1>")
        with pytest.raises(ReportError, match=r"index\.html: is a page of somebody else's"):
            make_report(tmp_path, settings=QUICK)
        assert (tmp_path / "report" / "index.html").read_text() == "<h1>My thesis</h1>"
        (tmp_path / "report" / "index.html").unlink()
        for _ in range(2):  # its own is made again
            make_report(tmp_path, settings=QUICK)


class TestHowItWasMade:
    """Commands are shown as they were given; what nobody recorded is not made up."""

    def test_commands_stand_with_what_they_made_and_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made_by = {
            "frozen": ("factorjepa train c --method frozen --set 'a=[1, 2]'",),
            "factorjepa": ("x", "x --resume"),
        }
        scores = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False)
        evaluated = "factorjepa evaluate runs/a --set probes.fit_clips=20 --clips 14"
        runs = [
            dataclasses.replace(run, trained_by=made_by.get(run.method, ()), evaluated_by=evaluated)
            for run in scores.runs
        ]
        scores.runs[:] = runs
        monkeypatch.setattr(commands, "_line", "factorjepa report out")
        page = made(tmp_path, scores)
        assert page.text.count(evaluated) == 1
        assert f"# scores of {len(runs)} runs\n{evaluated}" in page.text
        assert f"# run frozen-17\n{made_by['frozen'][0]}" in page.text
        assert "# runs factorjepa-17 and factorjepa-29\nx\n" in page.text
        assert "x --resume" in page.text
        assert "# comparison, page\nfactorjepa report out" in page.text
        assert "or an older version did: runs auto_rgn-17 and auto_rgn-29." in page.text
        assert "factorjepa train CORPUS" not in page.text

    def test_nothing_is_invented_where_nothing_was_recorded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commands, "_line", "")
        page = made(tmp_path, synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False))
        assert "factorjepa train" not in page.text.split("Commands")[-1]
        assert "factorjepa evaluate --out" not in page.text
        assert "Not recorded" in page.text

    def test_reasons_for_missing_scores_are_told_once(self, tmp_path: Path) -> None:
        scores = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False)
        lack = (Missing("future_l1", "agents", "no agent is seen", 3),)
        scores.runs[:] = [dataclasses.replace(run, missing=lack) for run in scores.runs]
        page = made(tmp_path, scores)
        assert page.text.count("no agent is seen") == 1
        assert "Future-frame L1 (agents): no score of 3 clips for all 3 methods: no agent is seen" in page.text

    def test_hours_are_of_all_processes(self, run: Make) -> None:
        folder = RunDirectory(run("a"))
        records = [{"step": 1, "seconds": 10.0, "processes": 8}, {"step": 2, "seconds": 5.0, "processes": 2}]
        (folder.folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
        assert folder.process_seconds() == 90
        assert folder.processes() == (8, 2)
        (folder.folder / "metrics.jsonl").write_text('{"step": 1, "seconds": 10.0}\n')
        assert folder.process_seconds() == 10
        (folder.folder / "environment.json").write_text('{"processes": "8 (ddp)"}')
        assert folder.process_seconds() == 80, "an older record says only how many began"
        assert folder.processes() == (8,)
        (folder.folder / "metrics.jsonl").write_text('{"step": 0}\n')
        assert folder.process_seconds() is None
        assert folder.processes() == ()


class TestChance:
    """What who knows nothing scores stands beside every score that has such a level."""

    def of(self, folder: Path, chance: float) -> Page:
        scores = synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False)
        rows = scores.table.to_pylist()
        probed = [row for row in rows if row["diagnostic"] == "action_top1"]
        rows += [{**row, "variant": "chance", "value": chance} for row in probed]
        return made(folder, Scores.of_rows(rows, scores.diagnostics, scores.evaluator, scores.runs))

    def test_the_table_has_a_row_for_it_and_the_figure_a_line(self, tmp_path: Path) -> None:
        page = self.of(tmp_path, 0.25)
        assert "Chance" in page.text
        assert page.text.count("dashed: chance") == 1
        assert "Not shown to be better than chance" not in page.text

    def test_who_is_not_above_it_is_named(self, tmp_path: Path) -> None:
        page = self.of(tmp_path, 0.9)
        assert "Not shown to be better than chanceAction top-1 (chance 0.90): all 3 methods." in page.text
        assert "chance is high" not in page.text  # an accuracy's chance needs no explanation

    def test_the_high_chance_of_an_f1_is_explained(self) -> None:
        f1 = dataclasses.replace(synthetic.OTHERS[1], reduction="macro_f1")
        assert "most tags are present in nearly every clip" in f1.about_chance(0.82)
        assert f1.about_chance(0.3) == f1.about_chance(math.nan) == ""


def test_a_comparison_of_unknown_replicates_is_described_without_them() -> None:
    scores = synthetic.scores(**SMALL, methods=("auto_rgn", "factorjepa"), structure=False)
    comparison = compare(scores, QUICK)
    known = answers(Material("x", scores, comparison), "nano")[2].evidence[0]
    comparison.settings.pop("replicates")
    unknown = answers(Material("x", scores, comparison), "nano")[2].evidence[0]
    assert "500 replicates, BCa" in known
    assert unknown == known.replace("500 replicates, ", "")


def test_commands_in_answers_are_code_and_a_leak_below_zero_is_explained(tmp_path: Path) -> None:
    page = made(tmp_path, synthetic.scores(**SMALL, methods=("frozen", "factorjepa")))
    assert any("answers" in code.inside for code in page.of("code"))
    assert "`" not in page.text
    assert "Below 0: on these clips it predicts that factor worse than a constant does." in page.text


def test_questions_and_maps_are_shown(rich: Path) -> None:
    page = read(rich / "report" / "index.html")
    assert "Which way does it turn?" in page.text
    assert "Right here: Auto-RGN 1 of 2; FactorJEPA 1 of 2." in page.text
    tiles = [element for element in page.of("img") if "tiles" in element.inside]
    assert len(tiles) == 3 + 3
    assert len([e for e in page.of("img") if "film" in e.inside and e.attributes.get("class") == "ahead"]) == 3 * 2


def test_a_card_on_which_encoders_answer_alike_says_so() -> None:
    one = synthetic.example()
    alike = dataclasses.replace(one.questions[0], answers={"Auto-RGN": [0.1, 0.3, 0.6], "Ours": [0.102, 0.298, 0.6]})
    shown = cards([dataclasses.replace(one, questions=[alike, *one.questions])])
    assert shown.count("The same answer from each encoder.") == 1
    assert "In 1 of 3 every encoder gives the same answer to the per cent." in shown
    assert "same answer" not in cards([one])


def test_error_maps_stand_in_the_pages_order() -> None:
    shown = example_views([synthetic.example()], ["factorjepa", "frozen", "auto_rgn"])
    places = [shown.index(f'alt="{METHODS[name].title}: error') for name in ("factorjepa", "frozen", "auto_rgn")]
    assert places == sorted(places)


def test_training_curves_come_from_the_runs(run: Make, tmp_path: Path) -> None:
    out = tmp_path / "scores"
    out.mkdir()
    synthetic.scores(**SMALL, methods=("frozen", "factorjepa"), structure=False).write(out / "scores.parquet")
    page = read(make_report(out, [run("a"), run("b", method="frozen")], settings=QUICK).page)
    assert "Future-frame L1 on validation clips" in page.text
    assert "bands: stages of FactorJEPA" in page.text


def test_the_verb_makes_the_page(command: Callable[..., Any], tmp_path: Path) -> None:
    synthetic.scores(**SMALL, methods=("frozen", "auto_rgn", "factorjepa"), structure=False).write(
        tmp_path / "scores.parquet"
    )
    compare(Scores.read(tmp_path), QUICK).write(tmp_path / "comparison")
    ran = command("report", tmp_path, "--out", tmp_path / "page")
    assert ran.returncode == 0, ran.stderr
    assert "open it in a browser" in ran.stdout
    assert not read(tmp_path / "page" / "index.html").problems
    failed = command("report", tmp_path / "page")
    assert failed.returncode == 1
    assert "there are no scores" in failed.stderr


def test_an_example_that_makes_no_sense_is_refused() -> None:
    frames = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(ReportError, match="5 of 4 frames"):
        Example("a", frames, 5)
    with pytest.raises(ReportError, match="one shape"):
        Example("a", frames, 2, errors={"x": np.zeros((1, 2, 2), np.float32), "y": np.zeros((1, 3, 2), np.float32)})
    with pytest.raises(ReportError, match="query token"):
        Example("a", frames, 2, similarities={"x": np.zeros((1, 2, 2), np.float32)})
    with pytest.raises(ReportError, match="each of the 2 choices"):
        Question("q", ("a", "b"), 0, {"x": [1.0]})
    with pytest.raises(ReportError, match="number 2 of 2"):
        Question("q", ("a", "b"), 2, {})


def test_long_names_are_told_apart_on_two_lines_and_short_ones_stand_on_one() -> None:
    one = str(plot.label(0, 10, "FactorJEPA", 128))
    assert "tspan" not in one
    names = ("Monolithic + states (late)", "Monolithic + states + targets (late)")
    drawn = [re.sub(r"<title>.*?</title>", "", str(plot.label(0, 10, name, 128))) for name in names]
    words = [" ".join(re.findall(r"<tspan[^>]*>([^<]*)</tspan>", text)) for text in drawn]
    assert words == list(names)
    assert "…" in str(plot.label(0, 10, "a name " * 20, 128))
