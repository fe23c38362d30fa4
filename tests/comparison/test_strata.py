"""Effects by stratum: right clips, same numbers as the whole, and never a decision."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from factorjepa.cli import main
from factorjepa.corpus.manifest import Attribute, Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.errors import ScoresError
from factorjepa.report.making import make_report
from factorjepa.statistics import CompareSettings, Comparison, compare
from factorjepa.statistics.rows import StratumRow
from factorjepa.statistics.strata import levels_of, ordered, strata_in, stratified, unmeasured

from .tables import ACTION, FUTURE, places, rows_of, scores_of

QUICK = CompareSettings(replicates=400, mixed="none")
SHIFTS = {"auto_rgn": 0.3, "factorjepa": 0.0}


def corpus(folder: Path, column: str = "density_stratum") -> Path:
    """The clips of `rows_of`, every second one dense; the last has no stratum."""
    clips = []
    for number, (city, source, clip_id) in enumerate(places(10, 3, 2)):
        attributes: dict[str, Attribute] = {"brightness": number / 60}
        if number < 59:
            attributes[column] = "high" if number % 2 else "low"
        clips.append(
            Clip(clip_id, city, "s", source, 0, "drive", 10.0 * number, 10.0 * number + 6, 12.0, 64, 64,
                 f"clips/{number}.mp4", Split.TEST, attributes)
        )  # fmt: skip
    Manifest(clips).write(folder)
    return folder


def of(rows: list[StratumRow], level: str) -> StratumRow:
    return next(row for row in rows if row.level == level and row.contrast == "total")


def test_a_stratum_of_all_clips_is_the_whole_comparison() -> None:
    scores = scores_of(rows_of(SHIFTS))
    everyone = {"x": {clip: "all" for _, _, clip in places(10, 3, 2)}}
    (row,) = [row for row in compare(scores, QUICK).contrasts if row.contrast == "total"]
    found = of(stratified(scores, everyone, QUICK), "all")
    assert (found.effect, found.low, found.high) == (row.effect, row.low, row.high)
    assert (found.clips, found.sources, found.cities) == (row.clips, row.sources, row.cities)


def test_scored_clips_that_came_after_the_measuring_are_missed_aloud(tmp_path: Path) -> None:
    scores, folder = scores_of(rows_of(SHIFTS)), corpus(tmp_path)
    (said,) = unmeasured(strata_in(folder, scores), scores)
    assert said.startswith("1 scored clip in no stratum, for example ")
    assert said.endswith("factorjepa targets and then factorjepa regime measure on it again")
    whole = {clip.clip_id: "low" for clip in Manifest.read(folder)}
    assert unmeasured({"density_stratum": whole}, scores) == []
    assert unmeasured({"occlusion_stratum": {}}, scores) == []  # a clip without agents has none


def test_an_effect_that_only_dense_clips_have_is_found_in_them_alone(tmp_path: Path) -> None:
    rows = rows_of({"auto_rgn": 0.0, "factorjepa": 0.0})
    dense = {clip for number, (_, _, clip) in enumerate(places(10, 3, 2)) if number % 2}
    for row in rows:
        row["value"] -= 0.4 * (row["method"] == "factorjepa" and row["clip_id"] in dense)
    scores = scores_of(rows)
    found = stratified(scores, strata_in(corpus(tmp_path), scores), QUICK)
    low, high = of(found, "low"), of(found, "high")
    assert high.effect == pytest.approx(0.4, abs=0.02)
    assert high.low > 0.3
    assert low.low < 0 < low.high
    assert (low.clips, high.clips) == (30, 29)  # the clip without a stratum is in neither


def test_strata_take_no_part_in_decisions() -> None:
    assert not any("decision" in name or name == "p" for name in StratumRow.__dataclass_fields__)


def test_secondary_diagnostics_have_no_strata(tmp_path: Path) -> None:
    infos = [FUTURE, ACTION]
    scores = scores_of(rows_of(SHIFTS, infos=infos), infos)
    found = stratified(scores, strata_in(corpus(tmp_path), scores), QUICK)
    assert {row.diagnostic for row in found} == {"future_l1"}


def test_a_level_in_one_city_alone_has_no_interval_that_pretends() -> None:
    scores = scores_of(rows_of(SHIFTS))
    one_city = {"x": {clip: "here" for city, _, clip in places(10, 3, 2) if city == "c00"}}
    found = of(stratified(scores, one_city, QUICK), "here")
    assert found.effect == pytest.approx(0.3, abs=0.03)
    assert math.isnan(found.low)
    assert found.note == "1 city: too few for an interval"


def test_a_level_in_few_cities_says_that_its_interval_is_too_narrow() -> None:
    scores = scores_of(rows_of(SHIFTS))
    some = {"x": {clip: "some" for city, _, clip in places(10, 3, 2) if city < "c08"}}
    found = of(stratified(scores, some, QUICK), "some")
    assert found.low < found.effect < found.high
    assert found.note == "8 cities: the interval is too narrow"


def test_columns_that_are_no_strata_are_refused(tmp_path: Path) -> None:
    manifest = Manifest.read(corpus(tmp_path))
    with pytest.raises(ScoresError, match=r"no column 'density'.*density_stratum"):
        levels_of(manifest, ["density"])
    with pytest.raises(ScoresError, match="60 values"):
        levels_of(manifest, ["brightness"])
    assert set(levels_of(manifest, ["capture_mode"])["capture_mode"].values()) == {"drive"}


def test_a_corpus_of_other_clips_gives_no_strata_and_an_error_when_asked(tmp_path: Path) -> None:
    other = scores_of(rows_of(SHIFTS, cities=11))
    folder = corpus(tmp_path)
    assert strata_in(folder, other) == {}
    assert strata_in(None, other) == {}
    assert strata_in(tmp_path / "nothing", other) == {}
    with pytest.raises(ScoresError, match="6 scored clips are not in its manifest"):
        strata_in(folder, other, required=True)
    with pytest.raises(ScoresError, match="--data"):
        strata_in(None, other, required=True)
    with pytest.raises(ScoresError, match="has no strata; run factorjepa regime measure"):
        strata_in(corpus(tmp_path / "bare", "something"), scores_of(rows_of(SHIFTS)), required=True)


def test_levels_stand_in_their_order() -> None:
    assert ordered(["high", "low", "medium", "low"]) == ["low", "medium", "high"]
    assert ordered(["night", "day"]) == ["day", "night"]


def test_compare_prints_and_keeps_strata_and_the_page_shows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "scores", corpus(tmp_path / "corpus")
    scores_of(rows_of(SHIFTS)).write(out / "scores.parquet")
    words = ["compare", out, "--data", data, "--replicates", 200, "--no-mixed"]
    monkeypatch.setattr(sys, "argv", ["factorjepa", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    assert "by density stratum" in capsys.readouterr().out
    kept = Comparison.read(out / "comparison")
    assert [row.level for row in kept.strata if row.contrast == "total"] == ["low", "high"]
    assert "density_stratum,low,total" in (out / "comparison" / "strata.csv").read_text()
    page = make_report(out, data=data).page.read_text()
    assert "by density stratum; positive favours the first" in page
    assert "No decision is made on strata" in page


def test_a_corpus_measured_after_the_comparison_still_reaches_the_page(tmp_path: Path) -> None:
    out = tmp_path / "scores"
    scores_of(rows_of(SHIFTS)).write(out / "scores.parquet")
    bare = corpus(tmp_path / "bare", "something")
    assert "by density" not in make_report(out, data=bare, settings=QUICK).page.read_text()
    drawn = dataclasses.replace(FUTURE, name="decoded_l1", status="secondary")
    decoded = scores_of(rows_of(SHIFTS, infos=(drawn,)), (drawn,))
    decoded.write(out / "decoded" / "scores.parquet")
    compare(decoded, QUICK).write(out / "decoded" / "comparison")
    made = make_report(out, data=corpus(tmp_path / "measured"))
    assert not made.compared
    assert Comparison.read(out / "decoded" / "comparison").strata, "of decoded futures as well"
    assert "by density stratum" in made.page.read_text()
    assert np.isfinite([row.low for row in Comparison.read(out / "comparison").strata]).all()
