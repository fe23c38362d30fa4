"""The page in a real browser: no errors, no request, nothing too wide; on laptop and phone, light and dark.

`REPORT_PICTURES=folder pytest tests/report/test_browser.py` keeps screenshots to look at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from factorjepa.report.making import make_report
from factorjepa.statistics import CompareSettings

from . import synthetic
from .browser import NAMES, Tab, browser, found

PROGRAM = found()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=f"no browser here: none of {', '.join(NAMES)} is on the path")

WIDER = """[...document.querySelectorAll("body *")].filter(e => {
  for (let p = e.parentElement; p; p = p.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX) && p !== document.body) return false;
  return e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest("svg");
}).slice(0, 5).map(e => e.tagName + "." + e.className)"""

CUT = """[...document.querySelectorAll("caption")].filter(e => {
  const seen = e.closest(".scroll").getBoundingClientRect(), own = e.getBoundingClientRect();
  return own.left < seen.left - 1 || own.right > seen.right + 1;
}).map(e => e.textContent)"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(str(PROGRAM), tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["laptop", "phone"])
def test_the_page_fits_the_screen_and_complains_of_nothing(
    tab: Tab, rich: Path, width: int, height: int, scheme: str
) -> None:
    tab.open(rich / "report" / "index.html", width, height, scheme)
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(WIDER) == []
    wide, narrow = (
        tab.value(f"getComputedStyle(document.querySelector('.{name}')).display") for name in ("wide", "narrow")
    )
    assert (wide == "none", narrow == "none") == (width < 600, width > 600)
    paper = tab.value("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 26)")
    kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")
    assert [event for event in tab.events if event.get("method") in kinds] == []
    asked = [e["params"]["request"]["url"] for e in tab.events if e.get("method") == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:")) for url in asked)
    if folder := os.environ.get("REPORT_PICTURES"):
        tab.picture(Path(folder) / f"{width}-{scheme}.png")


@pytest.mark.parametrize("cities", [4, 10])
def test_the_table_of_contrasts_is_seen_whole_on_a_laptop(tab: Tab, tmp_path: Path, cities: int) -> None:
    synthetic.scores(cities=cities, sources=2, clips=1, seeds=(17, 29), structure=False).write(
        tmp_path / "scores.parquet"
    )
    page = make_report(tmp_path, settings=CompareSettings(replicates=500, mixed="none")).page
    tab.open(page, 1280, 800, "light")
    frame = "document.querySelector('#contrasts .scroll')"
    assert tab.value(f"{frame}.scrollWidth") <= tab.value(f"{frame}.clientWidth")
    clipped = "[...document.querySelectorAll('#contrasts td')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert tab.value(clipped) == 0
    if folder := os.environ.get("REPORT_PICTURES"):
        tab.picture(Path(folder) / f"contrasts-{cities}.png")


@pytest.mark.parametrize("moved", [0, 120], ids=["at first", "moved sideways"])
def test_captions_of_tables_wider_than_a_phone_are_seen_whole(tab: Tab, rich: Path, moved: int) -> None:
    tab.open(rich / "report" / "index.html", 390, 844, "light")
    assert tab.value("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).length") > 2
    tab.value(f"document.querySelectorAll('.scroll').forEach(e => e.scrollLeft = {moved})")
    assert tab.value(CUT) == []


def test_a_click_on_a_heading_sorts_the_table(tab: Tab, rich: Path) -> None:
    tab.open(rich / "report" / "index.html", 1280, 800, "light")
    column = "[...document.querySelector('#scorecard table').tBodies[0].rows].map(row => +row.cells[2].dataset.v)"
    before = tab.value(column)
    click = "document.querySelector('#scorecard table').tHead.rows[0].cells[2].querySelector('button').click()"
    tab.value(click)
    assert tab.value(column) == sorted(before)
    tab.value(click)
    assert tab.value(column) == sorted(before, reverse=True)
