"""Decoded futures on the page: whole, small, honest; and in a browser, to flip between."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoded_streets import FEW, SECONDS, TITLES, decoded
from factorjepa.decoded import (
    AGENTS,
    MOVING,
    STATIC,
    DecodedExample,
    Failure,
    RegionError,
    Strengths,
    write_decoded,
)
from factorjepa.errors import ReportError
from factorjepa.report import decoded as futures
from factorjepa.report.failures import attributed, told_apart, why
from factorjepa.report.making import make_report
from factorjepa.report.material import Decoded
from factorjepa.report.numbers import decimals, number
from factorjepa.report.viewer import BUDGET, MOST, viewers
from factorjepa.scores import DiagnosticInfo, RunInfo, Scores
from factorjepa.statistics import CompareSettings, Comparison, compare

from . import synthetic
from .browser import NAMES, Tab, browser, found
from .decoded_scores import SYMPTOMS, scores, write_futures
from .reading import Page, read
from .test_browser import WIDER

PROGRAM = found()
QUICK = CompareSettings(replicates=500, mixed="none")
SMALL = {"cities": 8, "sources": 1, "clips": 2, "seeds": (17,), "methods": ("frozen", "factorjepa")}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with two decoded clips and their scores."""
    folder = tmp_path_factory.mktemp("decoded")
    synthetic.scores(**SMALL, structure=False).write(folder / "scores.parquet")
    write_futures(folder, (64, 64))
    make_report(folder, settings=QUICK)
    return folder


@pytest.fixture(scope="module")
def page(out: Path) -> Page:
    return read(out / "report" / "index.html")


def light(**changed: Any) -> DecodedExample:
    """Few pictures to pack."""
    return dataclasses.replace(decoded(methods=("frozen", "factorjepa"), channels=False), **changed)


def parsed(markup: str | None) -> Page:
    read_ = Page()
    read_.feed(markup or "")
    read_.close()
    return read_


def test_the_section_stands_among_the_others_and_is_well_formed(page: Page) -> None:
    assert not page.problems
    names = [element.attributes["id"] for element in page.of("section")]
    assert names[names.index("where") + 1] == "street"
    assert "What the street looks like one second ahead" in page.text
    assert "secondary to the latent metrics" in page.text
    assert "no evidence that factors were identified" in page.text


def test_without_decoded_futures_the_page_says_nothing(tmp_path: Path) -> None:
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    made = make_report(tmp_path, settings=QUICK)
    assert not made.notes
    assert "street" not in {element.attributes["id"] for element in read(made.page).of("section")}


def test_every_name_is_given_once_and_every_reference_is_found(page: Page) -> None:
    names = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
    assert len(names) == len(set(names))
    referred = {element.attributes["href"].removeprefix("#") for element in page.of("use")}
    assert referred
    assert referred <= set(names)
    steps = {f"d{n}-m{k}-{t}" for n in range(2) for k in range(len(FEW)) for t in range(len(SECONDS))}
    assert steps <= set(names)  # what the script can ask for is there


def test_the_paper_table_holds_the_comparisons_numbers(out: Path, page: Page) -> None:
    rows = Comparison.read(out / "decoded" / "comparison").scores
    for diagnostic in ("decoded_psnr", "decoded_flow_epe"):
        for variant in ("oracle", "pooled", "copy"):
            row = next(r for r in rows if (r.method, r.diagnostic, r.variant) == ("factorjepa", diagnostic, variant))
            assert number(row.mean, decimals(row.low, row.high)) in page.text
    psnr = next(r for r in rows if (r.method, r.diagnostic) == ("frozen", "decoded_psnr") and r.headline)
    places = decimals(psnr.low, psnr.high)
    assert f"{psnr.mean:.{places}f} (+{2.4:.{places}f})" in page.text  # PSNR falls, the deficit is positive
    epe = next(r for r in rows if (r.method, r.diagnostic) == ("frozen", "decoded_flow_epe") and r.headline)
    places = decimals(epe.low, epe.high)
    assert f"{epe.mean:.{places}f} (+{0.12:.{places}f})" in page.text
    assert "LPIPS: not available: no weights were given." in page.text


def test_frames_of_the_future_stand_in_their_order_before_moving_regions(page: Page) -> None:
    assert "frame 1frame 2frame 10moving regions" in page.text


def test_an_f1_from_counts_has_its_oracle_and_its_deficit_too() -> None:
    info = DiagnosticInfo("decoded_agent_f1", "Agent F1", "2 tp / (2 tp + fp + fn)", "higher", "", "secondary", "", "",
                          "f1/agents", "macro_f1")  # fmt: skip
    counts = {"tp/agents": 2, "fp/agents": 1, "fn/agents": 1, "tp/oracle": 3, "fp/oracle": 0, "fn/oracle": 2}
    rows = [
        {"backbone": "nano", "method": "factorjepa", "seed": 17, "city": f"c{k}", "source": f"c{k}/v", "value": value,
         "clip_id": f"c{k}/v#0", "diagnostic": info.name, "variant": variant}
        for k in range(6) for variant, value in counts.items()
    ]  # fmt: skip
    run = RunInfo("nano", "factorjepa", 17, "FactorJEPA", "", 1, "a", "", 1)
    held = Scores.of_rows(rows, {info.name: info}, {}, [run])
    text = parsed(futures.section(Decoded([], held, compare(held, QUICK)))).text
    assert "0.667 (+0.083)" in text  # 3/4 of the oracle, 2/3
    assert "Target latent (oracle)" in text
    assert "PSNR: not available: it was not measured." in text


def test_failures_have_rates_with_intervals_and_counts_by_attribution(out: Path, page: Page) -> None:
    table = scores().select(diagnostic="decoded_failures", method="frozen").table.to_pylist()
    rows = Comparison.read(out / "decoded" / "comparison").scores
    found = {row.variant: row for row in rows if (row.diagnostic, row.method) == ("decoded_failures", "frozen")}

    def rate(variant: str) -> str:
        mean, low, high = (100 * getattr(found[variant], name) for name in ("mean", "low", "high"))
        assert low <= mean <= high
        return f"{mean:.0f} % [{low:.0f}, {high:.0f}]" if low < high else f"{mean:.0f} %"

    def total(variant: str) -> int:
        return round(sum(row["value"] for row in table if row["variant"] == variant))

    wide = [found[f"{symptom}/oracle"] for symptom in SYMPTOMS]
    assert all(row.low < row.mean < row.high for row in wide), "the oracle fails in one city of eight"
    for symptom in SYMPTOMS:
        parts = [total(f"{symptom}/{one}") for one in ("prediction_conditioned", "mixed", "oracle_present")]
        assert sum(parts) == total(symptom)
        assert f"{rate(symptom)}{total(symptom)} of 16: {' / '.join(map(str, parts))}" in page.text
        assert f"{rate(f'{symptom}/oracle')}{rate(symptom)}" in page.text, "the oracle's own rate stands before"


def test_failures_of_a_clip_are_said_in_plain_words(page: Page) -> None:
    said = " ".join(page.text.split())
    assert "Agent omission: an agent is missing or has faded. Only in the prediction. recall 0.31" in said
    assert "towards an average. In both, more or elsewhere in the prediction." in said
    assert "what stands still has moved. The oracle shows it too." in said


def test_a_taxonomy_spelt_with_spaces_and_hyphens_is_the_same() -> None:
    spelt = Failure("agent omission", "oracle-present", {"recall": math.nan})
    example = light(failures={"frozen": [spelt], "factorjepa": []})
    text = parsed(viewers([example])).text
    assert "Agent omission: an agent is missing or has faded. The oracle shows it too." in text
    assert "No symptom of the taxonomy reaches its threshold." in text
    assert not re.search(r"\bnan\b", text)


@pytest.mark.parametrize(("attribution", "strength", "said"), [
    ("mixed", (3.0, 2.0, 1.5), "in both, stronger in the prediction"),
    ("mixed", (2.0, 2.0, 1.2), "in both, but only in part at the same agents or places"),
    ("prediction_conditioned", (2.0, 0.0, 0.0), "only in the prediction"),
    ("prediction_conditioned", (2.0, 2.0, 0.1), "the oracle fails in this way too, but at other agents or places"),
    ("oracle_present", (1.1, 1.2, 1.1), "the oracle shows it too"),
    ("oracle_present", (1.1, 0.9, 0.9), "the oracle shows nearly as much"),
])  # fmt: skip
def test_words_of_an_attribution_follow_from_the_strengths_beside_them(
    attribution: str, strength: tuple[float, float, float], said: str
) -> None:
    assert said in attributed(Failure("agent_omission", attribution, {}, Strengths(*strength)))


def test_numbers_of_the_prediction_have_the_oracles_beside_them() -> None:
    evidence = {"recall, predicted": 0.5, "recall, oracle": 0.9, "E_e2e": 0.2, "E_oracle": 0.1, "G_visible": 0.15}
    text = parsed(why([Failure("agent_omission", "mixed", evidence, Strengths(2.5, 0.5, 0.25))], [])).text
    assert "recall 0.50 (oracle 0.90); pixel L1 there: end to end 0.20, oracle 0.10, visible gap 0.15" in text
    assert "strength 2.50 thresholds (oracle 0.50; at the same agents or places 0.25)" in text


def test_a_clip_without_a_symptom_still_says_how_large_its_error_is_and_where() -> None:
    errors = [
        RegionError(AGENTS, 0.1, 0.2, 0.1),
        RegionError(MOVING, 0.1, 0.05, 0.05),
        RegionError(STATIC, 0.8, 0.1, 0.05),
    ]
    nearest = Failure("lost_detail", "", {}, Strengths(0.96, 0.4, 0.4))
    text = " ".join(parsed(why([], errors, nearest)).text.split())
    assert "A pixel is off by 10.5 % of the range on average; the oracle's by 5.5 %. That is 1.9 times" in text
    assert "The largest part, 80 %, of what is added lies in the static scene: 10.0 % instead of 5.0 %." in text
    assert "No symptom of the taxonomy reaches its threshold. Nearest: lost detail, walls, roads" in text
    assert "strength 0.96 thresholds" in text
    assert "None found" not in text
    alike = [RegionError(STATIC, 1.0, 0.0505, 0.05)]
    assert "draws this clip as well as the true latents do" in parsed(why([], alike)).text
    flawless = parsed(why([], [RegionError(STATIC, 1.0, 0.1, 0.0)])).text
    assert "the oracle's by 0.0 %. Nearly all of what is added lies in the static scene" in flawless
    assert "inf" not in flawless
    assert "as well as the true latents do" in parsed(why([], [RegionError(STATIC, 1.0, 0.0, 0.0)])).text


def test_where_no_detector_looked_the_error_is_told_and_no_symptom_denied() -> None:
    example = light(failures={}, errors={"factorjepa": [RegionError(STATIC, 1.0, 0.1, 0.05)]})
    read_ = parsed(viewers([example]))
    assert "2.0 times the oracle's error. Nearly all of what is added lies in the static scene" in read_.text
    assert "No symptom" not in read_.text
    names = {element.attributes["id"] for element in read_.elements if "id" in element.attributes}
    assert {"d0-e-oracle", "d0-e-m1"} <= names
    assert {one.attributes["href"].removeprefix("#") for one in read_.of("use")} <= names


def test_the_scale_of_influence_is_said_in_what_a_pixel_changes(page: Page) -> None:
    said = " ".join(page.text.split())
    assert re.search(
        r"all channels of this clip on one scale from none \(grey\) to \d+ % of the range \(yellow\)", said
    )


def test_the_symptoms_that_are_ours_are_said_to_be(page: Page) -> None:
    assert "Lost detail and scenery substitution are ours" in page.text


def test_words_of_others_cannot_become_markup() -> None:
    example = light(note="<script>x</script>", clip_id="a<b>", titles={"frozen": '"><i>'})
    read_ = parsed(viewers([example]))
    assert not read_.of("script")
    assert not read_.of("i")
    assert "<script>x</script>" in read_.text


def test_pictures_stay_in_their_budget_however_hard_they_are_to_pack() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2, 256, 256, 3), dtype=np.uint8)
    methods = dict.fromkeys(("frozen", "lora", "factorjepa"), noise)
    example = DecodedExample("noise", SECONDS[:2], noise[0], noise, noise, methods, TITLES)
    shown = viewers([example])
    assert shown is not None
    assert 3 * len(shown) < BUDGET + 50_000
    assert len(re.findall("data:image/webp", shown)) == 1 + 2 * 5


def test_more_examples_than_there_is_room_for_are_said() -> None:
    whole = light()
    few = DecodedExample("a", (1.0,), whole.last_HW3, whole.observed_THW3[:1], whole.oracle_THW3[:1],
                         {"factorjepa": whole.methods["factorjepa"][:1]}, TITLES)  # fmt: skip
    read_ = parsed(viewers([few] * (MOST + 2)))
    assert len(read_.of("article")) == MOST
    assert "2 more in the folder" in read_.text
    assert viewers([]) is None


def test_another_horizon_is_in_the_heading() -> None:
    half = light(seconds=(0.125, 0.25, 0.375, 0.5))
    assert futures.heading(Decoded([half])) == "What the street looks like 0.5 s ahead"
    assert "0.50 s ahead" in parsed(viewers([half])).text


def test_what_cannot_be_read_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    for name in ("a", "b"):
        write_decoded(tmp_path / "decoded" / name, light())
    (tmp_path / "decoded" / "a" / "frames.npz").write_bytes(b"")
    scores().write(tmp_path / "decoded" / "scores.parquet")  # and no comparison
    made = make_report(tmp_path, settings=QUICK)
    assert any("cannot be read as a decoded future" in note for note in made.notes)
    assert any("there is no comparison" in note for note in made.notes)
    assert len(read(made.page).of("article")) == 1


def test_a_broken_comparison_is_said_in_a_line_with_the_verb_that_makes_it(tmp_path: Path) -> None:
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    write_futures(tmp_path, ())
    (tmp_path / "decoded" / "comparison" / "comparison.json").write_text('{"scores": [{"backbone": 3}]}')
    (note,) = [one for one in make_report(tmp_path, settings=QUICK).notes if "comparison" in one]
    assert "\n" not in note
    assert "settings: Field required and" in note
    assert note.endswith("run `factorjepa decode evaluate` and `render` again")


def test_a_folder_with_decoded_scores_alone_says_what_is_lacking(tmp_path: Path) -> None:
    write_futures(tmp_path, ())
    with pytest.raises(ReportError, match="decoded scores alone") as error:
        make_report(tmp_path)
    assert f"factorjepa evaluate RUN... --out {tmp_path}" in str(error.value)
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    with pytest.raises(ReportError, match=f"make the report of {tmp_path}"):
        make_report(tmp_path / "decoded")


def test_methods_stand_in_the_pages_order_in_pictures_and_tables() -> None:
    methods = ("lora", "full", "frozen", "factorjepa")
    example = dataclasses.replace(
        decoded(methods=("frozen", "factorjepa"), channels=False),
        methods={name: light().observed_THW3 for name in methods}, titles={name: name.upper() for name in methods},
    )  # fmt: skip
    shown = parsed(futures.section(Decoded([example]), ["frozen", "full", "lora", "factorjepa"]))
    places = [shown.text.index(name) for name in ("FROZEN", "FULL", "LORA")]
    assert places == sorted(places)


def test_a_comparison_of_other_scores_is_not_shown(tmp_path: Path) -> None:
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    write_futures(tmp_path, ())
    scores(("frozen", "factorjepa")).write(tmp_path / "decoded" / "scores.parquet")
    made = make_report(tmp_path, settings=QUICK)
    assert any("their comparison is older than their scores" in note for note in made.notes)
    os.utime(tmp_path / "decoded" / "comparison" / "comparison.json")
    made = make_report(tmp_path, settings=QUICK)
    assert any("their comparison was made from other scores" in note for note in made.notes)
    assert "street" not in {element.attributes["id"] for element in read(made.page).of("section")}


@pytest.mark.parametrize(("changed", "said"), [
    ({"decoder": "another"}, "drawn by another decoder or of another split"),
    ({"split": "validation"}, "drawn by another decoder or of another split"),
])  # fmt: skip
def test_pictures_of_another_decoder_or_split_are_not_shown_beside_the_scores(
    changed: dict[str, str], said: str, tmp_path: Path
) -> None:
    write_futures(tmp_path, ())
    write_decoded(tmp_path / "decoded" / "09", light(**changed))
    read_, problems = futures.read_futures(tmp_path)
    assert not read_.examples
    assert any(said in problem for problem in problems)


def synthetic_latent(clips: Sequence[str], evaluator: Mapping[str, str]) -> Scores:
    """Latent scores of these clips, under the same split and window."""
    info = DiagnosticInfo("future_l1", "Future-frame L1", "", "lower", "L1", "primary", "", "")
    rows = [{"backbone": "nano", "method": "frozen", "seed": 17, "city": "c", "source": "v", "clip_id": clip,
             "diagnostic": info.name, "variant": "pooled", "value": 0.5} for clip in clips]  # fmt: skip
    run = RunInfo("nano", "frozen", 17, "Frozen", "reference", 0, "frozen-17", "{}", 0, None)
    return Scores.of_rows(rows, {info.name: info}, dict(evaluator), [run])


def test_decoded_scores_of_other_clips_are_not_shown_beside_the_latent_ones(tmp_path: Path) -> None:
    write_futures(tmp_path, ())
    read_, _ = futures.read_futures(tmp_path)
    other = Scores.of_rows([], {}, {"split": "audit"}, [])
    kept, notes = futures.refuse_other_clips(read_, other)
    assert not kept
    assert "another split" in notes[0]
    assert "set of clips" in notes[0]


def test_decoded_scores_of_some_of_the_clips_are_shown_beside_the_latent_ones(tmp_path: Path) -> None:
    write_futures(tmp_path, ())
    read_, _ = futures.read_futures(tmp_path)
    assert read_.scores
    clips = read_.scores.values("clip_id")
    latent = synthetic_latent([*clips, "another clip"], read_.scores.evaluator)
    assert futures.refuse_other_clips(read_, latent) == (read_, [])
    fewer = synthetic_latent(clips[1:], read_.scores.evaluator)
    assert not futures.refuse_other_clips(read_, fewer)[0]


needs_browser = pytest.mark.skipif(
    PROGRAM is None, reason=f"no browser here: none of {', '.join(NAMES)} is on the path"
)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(str(PROGRAM), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


_SHOWN = "document.querySelector('.decoded .stage figure:last-child use').getAttribute('href')"
_TITLE = "document.querySelector('.decoded .title').textContent"
_FAILURES = "[...document.querySelectorAll('.decoded')][0].querySelectorAll('[data-failures]:not([hidden])').length"


def click(tab: Tab, what: str) -> None:
    tab.value(f"document.querySelector('.decoded {what}').click()")


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_section_fits_the_screen_and_complains_of_nothing(tab: Tab, out: Path, width: int, scheme: str) -> None:
    tab.open(out / "report" / "index.html", width, 844, scheme)
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(WIDER) == []
    kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    assert [event for event in tab.events if event.get("method") in kinds] == []
    overlap = """[...document.querySelectorAll(".decoded > *")].filter(e => e.offsetHeight).filter(e => {
      const next = e.nextElementSibling, taller = e.scrollHeight > e.clientHeight + 1;
      return taller || next && next.getBoundingClientRect().top < e.getBoundingClientRect().bottom - 1;
    }).map(e => e.className)"""
    assert tab.value(overlap) == []


@needs_browser
def test_a_reader_flips_methods_goes_through_time_and_leaves_channels_out(tab: Tab, out: Path) -> None:
    tab.open(out / "report" / "index.html", 1280, 800, "light")
    assert (tab.value(_SHOWN), tab.value(_TITLE), tab.value(_FAILURES)) == ("#d0-m3-3", "FactorJEPA", 1)
    click(tab, "input[value=m0]")
    assert (tab.value(_SHOWN), tab.value(_TITLE)) == ("#d0-m0-3", "Frozen V-JEPA")
    assert tab.value("document.querySelector('.decoded [data-failures=m0]').offsetHeight") > 0
    tab.value("(s => { s.value = 1; s.dispatchEvent(new Event('input', {bubbles: true})) })"
              "(document.querySelector('.decoded .time'))")  # fmt: skip
    assert tab.value(_SHOWN) == "#d0-m0-1"
    assert tab.value("document.querySelector('.decoded output').textContent") == "0.50 s ahead"
    observed = "[...document.querySelectorAll('.decoded')][0].querySelector('[data-of=observed]').getAttribute('href')"
    assert tab.value(observed) == "#d0-observed-1"
    click(tab, "input[value=xA]")  # of FactorJEPA: it is shown
    assert (tab.value(_SHOWN), tab.value(_TITLE)) == ("#d0-xA-1", "FactorJEPA, without agents")
    click(tab, "input[value=m1]")  # another method has all it has
    assert (tab.value(_SHOWN), tab.value(_TITLE)) == ("#d0-m1-1", "Auto-RGN")
    line = "getComputedStyle(document.querySelector('.decoded .stage .line')).display"
    assert tab.value(line) != "none"
    click(tab, ".contour")
    assert tab.value(line) == "none"
    other = (
        "document.querySelectorAll('.decoded')[1].querySelector('.stage figure:last-child use').getAttribute('href')"
    )
    assert tab.value(other) == "#d1-m3-3"  # the other clip is left alone


@needs_browser
def test_where_only_the_oracle_was_decoded_time_can_still_be_gone_through(tab: Tab, tmp_path: Path) -> None:
    synthetic.scores(**SMALL, structure=False).write(tmp_path / "scores.parquet")
    write_decoded(tmp_path / "decoded" / "a", light(methods={}, failures={}))
    tab.open(make_report(tmp_path, settings=QUICK).page, 1280, 800, "light")
    tab.value("(s => { s.value = 0; s.dispatchEvent(new Event('input', {bubbles: true})) })"
              "(document.querySelector('.decoded .time'))")  # fmt: skip
    assert tab.value(_SHOWN) == "#d0-oracle-0"
    assert [event for event in tab.events if event.get("method") == "Runtime.exceptionThrown"] == []


@needs_browser
def test_the_keyboard_is_enough(tab: Tab, out: Path) -> None:
    tab.open(out / "report" / "index.html", 1280, 800, "light")
    tab.value("document.querySelector('.decoded input[value=m3]').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    assert tab.value(_SHOWN) == "#d0-m2-3"
    tab.value("document.querySelector('.decoded .time').focus()")
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
    assert tab.value(_SHOWN) == "#d0-m2-2"


@needs_browser
def test_without_a_script_every_method_and_failure_is_seen_and_no_dead_control(tab: Tab, out: Path) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(out / "report" / "index.html", 1280, 800, "light")
        first = "document.querySelector('.decoded')"
        seen = (
            f"[...{first}.querySelectorAll('.methods .thumb')].filter(e => e.getBoundingClientRect().width > 80).length"
        )
        assert tab.value(seen) == len(FEW)
        controls = f"[...{first}.querySelectorAll('input, button')].filter(e => e.offsetParent).length"
        assert tab.value(controls) == 0
        assert tab.value(f"{first}.querySelectorAll('[data-failures]:not([hidden])').length") == 2
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


def test_how_far_methods_are_off_and_apart_is_said_beside_the_last_frame() -> None:
    grey = np.full((4, 8, 8, 3), 100, np.uint8)
    example = DecodedExample(
        "a", (0.25, 0.5, 0.75, 1.0), grey[0] + np.uint8(51), grey, grey, titles={"auto_rgn": "Auto-RGN"},
        methods={"auto_rgn": grey + np.uint8(25), "factorjepa": grey + np.uint8(30)},
    )  # fmt: skip
    said = told_apart(example)
    assert "0.25 to 1 s ahead: Auto-RGN 9.8 %, factorjepa 11.8 %, the oracle 0.0 %" in said
    assert "the last seen frame, repeated 20.0 %" in said
    assert said.endswith("The methods' pictures differ from each other by 2.0 %.")
    alone = dataclasses.replace(example, methods={"auto_rgn": grey})
    assert "differ" not in told_apart(alone)
