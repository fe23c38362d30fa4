"""The figures of README and of the page over all studies are those of the results that lie beside them."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import camera_ceiling
import explain_table
from factorjepa.adaptation import METHODS

from .pages import ROOT

RESULTS = ROOT / "docs" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
OVER_ALL = (RESULTS / "README.md").read_text(encoding="utf-8")
Row = dict[str, str]

OF_STUDY = {"nano": "nano_chosen_study", "small": "small_study"}
FACTORJEPA = {"nano": "factorjepa_chosen", "small": "factorjepa_both_chosen"}
AGAINST = {  # the page's words: the method of both studies
    "Auto-RGN": ("auto_rgn", "auto_rgn"),
    "Auto-RGN with FactorJEPA's stages and factor views": ("auto_rgn_views", "auto_rgn_views"),
    "the same with 1,800 updates, which take as long as 1,000 of FactorJEPA's": ("auto_rgn_views@long", ""),
    "a dense head with the same states, targets, stages and size": ("mono_matched_late_chosen", "mono_matched_chosen"),
}
LOOKED = {
    "Auto-RGN + views": "auto_rgn_views",
    "and a wide branch that is shown nothing (a control)": "auto_rgn_views@blind",
    "and a wide look back": "auto_rgn_views@look",
    "and agents, pairs and targets, through a dense head": "mono_direct_late_chosen@look",
    "the same in FactorJEPA's channels": "factorjepa_chosen@look",
}
SPEED = {
    "training FactorJEPA, clips/s": ("training", "compiled, no cache", "clips_per_s"),
    "with the frozen-trunk cache, clips/s": ("training", "compiled, cache", "clips_per_s"),
    "one prediction as a CUDA graph, ms": ("latency", "graph", "median_ms"),
    "GPU-hours of 20,000 updates": ("training", "compiled, no cache", "gpu_hours"),
}


def table(page: str, head: str) -> dict[str, list[str]]:
    """The table of a page whose first heading begins so: cells of each row by its first."""
    lines = page[page.index(f"| {head}") :].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {cells[0]: cells[1:] for cells in rows}


def rows(study: str, name: str) -> list[Row]:
    with (RESULTS / study / "report" / "tables" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def contrast(study: str, backbone: str, a: str, b: str, diagnostic: str) -> Row:
    wanted = (backbone, a, b, diagnostic)
    return next(r for r in rows(study, "contrasts") if (r["backbone"], r["a"], r["b"], r["diagnostic"]) == wanted)


def written(text: str) -> tuple[float, int]:
    """A number, and with how many digits after the point."""
    number = re.search(r"\d+(?:\.(\d+))?", text)
    assert number is not None, text
    return float(number[0]), len(number[1] or "")


def agrees(text: str, value: float) -> bool:
    said, digits = written(text)
    return said == pytest.approx(round(value, digits), abs=1e-9)


def test_leads_of_factorjepa_are_the_studies() -> None:
    told = table(OVER_ALL, "FactorJEPA against")
    assert set(AGAINST) < set(told)
    for words, methods in AGAINST.items():
        columns = [(d, s) for d in ("future_l1", "intervention_l1") for s in ("nano", "small")]
        for cell, (diagnostic, scale) in zip(told[words], columns, strict=True):
            method = methods[scale == "small"]
            if not method:
                assert cell == "-"
                continue
            found = contrast(OF_STUDY[scale], scale, FACTORJEPA[scale], method, diagnostic)
            assert cell.startswith("**") == (found["decision"] == "better"), (words, cell, found["decision"])
            if "%" in cell:
                assert agrees(cell, abs(100 * (1 - float(found["ratio"])))), (words, cell, found["ratio"])
                assert ("*worse*" in cell) == (float(found["effect"]) < 0), (words, cell)
            if "not" in cell:
                assert found["decision"].startswith(cell[cell.index("not") :]), (words, cell, found["decision"])


def test_leads_over_the_other_competitors_span_what_the_study_has() -> None:
    against = table(OVER_ALL, "FactorJEPA against")
    cells = next(cells for words, cells in against.items() if "every other competitor" in words)
    for cell, diagnostic in ((cells[0], "future_l1"), (cells[2], "intervention_l1")):
        of_these = [row for row in rows("nano_competitors", "contrasts") if row["diagnostic"] == diagnostic]
        others = [row for row in of_these if row["a"] == "factorjepa_chosen" and "auto_rgn" not in row["b"]]
        decided = [row for row in others if row["decision"] == "better"]
        undecided = {row["b"] for row in others} - {row["b"] for row in decided}
        assert all("wise" in name for name in undecided)
        assert bool(undecided) == ("WiSE-FT not resolved" in cell)
        low, high = cell.strip("*").split(" to ")
        leads = [100 * (1 - float(row["ratio"])) for row in decided]
        assert agrees(low, min(leads))
        assert agrees(high, max(leads))


def test_readme_sums_up_the_page_over_all_studies() -> None:
    against = table(OVER_ALL, "FactorJEPA against")
    told = re.search(r"([\d.]+ %) \(`nano`\) and ([\d.]+ %) \(`small`\) below .* (\d+) to (\d+) % below", README)
    assert told is not None
    assert [told[1], told[2]] == [cell.strip("*") for cell in against["Auto-RGN"][:2]]
    others = next(cells for words, cells in against.items() if "every other competitor" in words)
    spanned = others[0].strip("* %").split(" to ")
    assert [int(told[3]), int(told[4])] == [round(float(lead)) for lead in spanned]


def test_the_table_of_the_look_back_is_its_study() -> None:
    scores = [row for row in rows("nano_look", "scorecard") if row["headline"] == "True"]
    means = {(row["method"], row["diagnostic"]): row["mean"] for row in scores}
    told = table(README, "on Auto-RGN's blocks, with stages and views")
    assert set(told) == set(LOOKED)
    for words, method in LOOKED.items():
        for cell, diagnostic in zip(told[words][:2], ("future_l1", "intervention_l1"), strict=True):
            assert agrees(cell, float(means[method, diagnostic])), (words, cell)
    gained = contrast("nano_look", "nano", "auto_rgn_views@look", "auto_rgn_views", "future_l1")
    assert f"It takes {100 * (1 - float(gained['ratio'])):.1f} % off the error" in README


def test_steps_beside_a_look_back_are_as_decided_as_readme_says() -> None:
    steps = [(after, before) for before, after in itertools.pairwise(LOOKED.values())]
    decided = {
        (a, diagnostic): found
        for a, b in steps
        for diagnostic in ("future_l1", "intervention_l1")
        if (found := contrast("nano_look", "nano", a, b, diagnostic))["decision"] in ("better", "worse")
    }
    to_the_look_back = {(a, d) for a, _ in steps[:2] for d in ("future_l1", "intervention_l1")}
    assert to_the_look_back < set(decided)
    ((method, diagnostic),) = set(decided) - to_the_look_back
    assert (LOOKED["the same in FactorJEPA's channels"], "intervention_l1") == (method, diagnostic)
    told = re.search(r"After it one difference is: channels are ([\d.]+) % ahead .* on Intervention L1", README)
    assert told is not None
    assert agrees(told[1], 100 * (1 - float(decided[method, diagnostic]["ratio"])))


def test_speeds_are_logged() -> None:
    told = table(README, "one H200, 384 px")
    for words, keys in SPEED.items():
        cells = next(cells for name, cells in told.items() if name.startswith(words))
        for cell, arch in zip(cells, ("giant", "gigantic"), strict=True):
            log = RESULTS / "h200" / f"paper_scale_{arch}_batch16_eight_bits_ahead.json"
            assert agrees(cell, at(json.loads(log.read_text(encoding="utf-8")), keys)), (words, cell)


def at(log: dict[str, Any], keys: Sequence[str]) -> float:
    for key in keys:
        log = log[key]
    return float(log)  # type: ignore[arg-type]


def test_what_the_truth_about_agents_takes_off_is_the_ladders() -> None:
    told = re.search(r"takes ([\d.]+) % off at one second and 64 px, and ([\d.]+) % at two seconds and 128 px", README)
    assert told is not None
    for said, ladder in zip(told.groups(), ("64_12", "128_8"), strict=True):
        assert agrees(said, knowing_agents(RESULTS / "agents_ceiling" / f"ceiling_{ladder}.json")), ladder


def knowing_agents(ladder: Path) -> float:
    """From the look back to the last rung, in percent of the error of the query alone."""
    l1 = {rung["rung"]: rung["l1"][0] for rung in json.loads(ladder.read_text(encoding="utf-8"))["rungs"]}
    first, *_, last = l1.values()
    return 100 * (l1["own place"] - last) / first


def test_streets_of_another_seed_say_what_readme_says() -> None:
    def lead(a: str, b: str, diagnostic: str) -> tuple[float, bool]:
        found = contrast("nano_fresh", "nano", a, b, diagnostic)
        return 100 * (1 - float(found["ratio"])), found["decision"] in ("better", "worse")

    told = re.search(r"off the error of Auto-RGN with views, ([\d.]+) % on \[streets of another seed", README)
    assert told is not None
    gained, decided = lead("auto_rgn_views@look", "auto_rgn_views", "future_l1")
    assert decided
    assert agrees(told[1], gained)

    told = re.search(r"writes where channels write and learns at their rate is ([\d.]+) % ahead", README)
    assert told is not None
    for ours, dense in (("factorjepa_chosen", "mono_direct_late_chosen@fast"), ("factorjepa", "mono_direct_late")):
        behind, decided = lead(ours, dense, "future_l1")
        assert decided
        assert agrees(told[1], -behind)
    leads = table(OVER_ALL, "FactorJEPA against")
    row = next(cells for words, cells in leads.items() if "writes where channels write" in words)
    for cell, diagnostic in ((row[0], "future_l1"), (row[2], "intervention_l1")):
        behind, decided = lead("factorjepa_chosen", "mono_direct_late_chosen@fast", diagnostic)
        assert cell == (f"**{-behind:.2f} %** *worse*" if decided else "not separated")

    told = re.search(r"([\d.]+) to ([\d.]+) % on their own tokens, decided where the look back stays as wide", README)
    assert told is not None
    wide = ("factorjepa_chosen@look_wide", "mono_direct_late_chosen@look_wide")
    of_agents = [lead(method, "auto_rgn_views@look", "future_l1/teacher_agents") for method in wide]
    assert all(decided for _, decided in of_agents)
    assert agrees(told[1], min(gain for gain, _ in of_agents))
    assert agrees(told[2], max(gain for gain, _ in of_agents))
    assert not any(lead(method, "auto_rgn_views@look", "future_l1")[1] for method in wide)

    told = re.search(r"What channels have over the dense head beside a look back is ([\d.]+) % of", README)
    assert told is not None
    edited, decided = lead("factorjepa_chosen@look", "mono_direct_late_chosen@look", "intervention_l1")
    assert decided
    assert agrees(told[1], edited)
    assert agrees(told[1], lead(*wide, "intervention_l1")[0])


def test_every_method_has_been_on_test_clips() -> None:
    measured = {row["method"] for page in RESULTS.glob("*/report") for row in rows(page.parent.name, "scorecard")}
    assert "Every method has been on test clips" in OVER_ALL
    assert set(METHODS) - measured == {"auto_rgn_look"}  # there as auto_rgn_views@look


def test_a_look_back_at_1b_is_as_fast_as_logged() -> None:
    log = json.loads((RESULTS / "h200" / "paper_scale_giant_batch16_auto_rgn_look.json").read_text(encoding="utf-8"))
    told = re.search(r"a look back makes ([\d.]+) clips/s of ViT-g and takes ([\d.]+) ms", README)
    assert told is not None
    assert agrees(told[1], at(log, ("training", "compiled, no cache", "clips_per_s")))
    assert agrees(told[2], at(log, ("latency", "graph", "median_ms")))


def test_what_the_camera_s_way_is_worth_is_as_measured() -> None:
    page = (RESULTS / "camera_ceiling" / "README.md").read_text(encoding="utf-8")
    log = json.loads((RESULTS / "camera_ceiling" / "ceiling_64_12.json").read_text(encoding="utf-8"))
    told = table(page, "a head is shown")
    assert [*told] == [words for words, _ in camera_ceiling.RUNGS.values()]
    for cells, rung in zip(told.values(), log["rungs"], strict=True):
        of_modes = (rung["modes"][mode] for mode in ("aerial", "drive", "walk"))
        assert cells == [f"{rung['l1']:.4f}", *map(camera_ceiling.said, (rung, *of_modes))]
    in_readme = re.search(r"([\d.]+) % more off than by a look back alone .* on the same clips: ([\d.]+) %\)", README)
    assert in_readme is not None
    assert agrees(in_readme[1], log["rungs"][-1]["percent"])
    assert agrees(in_readme[2], knowing_agents(RESULTS / "camera_ceiling" / "agents_64_12.json"))


@pytest.mark.parametrize("name", explain_table.TABLES)
def test_tables_of_what_explains_the_gain_are_made_of_the_studies(name: str) -> None:
    page = (RESULTS / name).read_text(encoding="utf-8")
    command = f"python benchmarks/explain_table.py --page docs/results/{name}"
    assert command in page
    assert explain_table.renewed(page, name) == page, command
