"""What is said of two corpora follows from how they were made."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from factorjepa.corpus.manifest import Manifest
from factorjepa.errors import RegimeError, ReportError
from factorjepa.regime.axes import AXES
from factorjepa.regime.controls import Control
from factorjepa.regime.population import Population
from factorjepa.regime.table import COLUMNS
from factorjepa.report.regime import write_scene_figure
from factorjepa.statistics.regime import compare_regimes
from factorjepa.statistics.regime_drawing import RegimeSettings
from factorjepa.statistics.regime_rows import MeasureRow, RegimeComparison
from factorjepa.statistics.regime_scenes import EQUAL_STRATUM

from .clips import corpus

FEW = RegimeSettings(replicates=200, fields=("scene_type",), caliper=0.5)


def row(found: RegimeComparison, measure: str = "count", reference: str | None = None) -> MeasureRow:
    return next(r for r in found.measures if r.measure == measure and reference in (None, r.reference))


@pytest.fixture(scope="module")
def apart() -> RegimeComparison:
    """Twice as dense in markets, half as dense again elsewhere."""
    dense = corpus("dense", lambda random, scene: 6.0 if scene == "market" else 3.0, seed=1)
    sparse = corpus("sparse", lambda random, scene: 3.0 if scene == "market" else 2.0, seed=2)
    alike = corpus("alike", lambda random, scene: 6.0 if scene == "market" else 3.0, seed=3)
    return compare_regimes(dense, [sparse, alike], FEW)


def test_a_real_difference_is_stable_and_one_that_is_none_is_not(apart: RegimeComparison) -> None:
    real, none = row(apart, reference="sparse"), row(apart, reference="alike")
    assert real.verdict == "stable separation, higher"
    assert real.difference.low < 2.0 < real.difference.high
    assert real.ratio.value == pytest.approx(real.first.value / real.other.value, rel=1e-3)
    assert none.verdict.startswith("not stable: interval includes zero")
    assert [w.corpus for w in real.without_city] == ["dense"] * 8 + ["sparse"] * 8


def test_holm_is_over_five_axes_and_both_references(apart: RegimeComparison) -> None:
    family = [r for r in apart.measures if r.axis]
    assert len(family) == 10
    smallest = min(r.p for r in family)
    assert min(r.adjusted_p for r in family) == pytest.approx(min(1.0, 10 * smallest))


def test_the_scene_table_has_ratios_of_means_in_its_last_row(apart: RegimeComparison) -> None:
    its = {r.scene: r for r in apart.scenes if r.reference == "sparse" and r.measure == "count"}
    strata = [its["market"], its["junction"]]
    last = its[EQUAL_STRATUM]
    assert last.first.value == pytest.approx(np.mean([r.first.value for r in strata]))
    assert last.ratio.value == pytest.approx(last.first.value / last.other.value, rel=1e-3)
    assert its["market"].difference.value == pytest.approx(3.0, abs=0.6)


def test_pairs_of_the_scenes_add_up_to_all_pairs(apart: RegimeComparison) -> None:
    for balance in apart.balance:
        its = {r.scene: r.pairs for r in apart.scenes if (r.reference, r.measure) == (balance.reference, "count")}
        assert its.pop(EQUAL_STRATUM) == sum(its.values()) == balance.pairs


def test_where_scenes_were_not_matched_there_is_no_table_of_them_but_a_sentence() -> None:
    """The first corpus is all markets, half of the other are junctions: a row's clips would be no pairs."""
    dense, sparse = corpus("dense", lambda random, scene: 6.0), corpus("sparse", lambda random, scene: 2.0)
    markets = tuple(dataclasses.replace(clip, attributes={"scene_type": "market"}) for clip in dense.clips)
    asked = dataclasses.replace(FEW, fields=("capture_mode",))
    found = compare_regimes(dataclasses.replace(dense, clips=markets), [sparse], asked)
    assert not found.scenes
    assert found.notes == [
        "no scene-matched table against sparse: pairs were not matched on scene_type, which is not among the fields "
        "asked for"
    ]
    with pytest.raises(ReportError, match="not matched on scene_type"):
        write_scene_figure(found, Path("scenes.png"))


def test_a_difference_that_one_city_carries_is_not_stable() -> None:
    dense = corpus("dense", lambda random, scene: 3.0, seed=1, spread=0.1)
    totals = dense.totals_CVM.copy()
    totals[[clip.city == "c00" for clip in dense.clips]] *= 6
    found = compare_regimes(
        dataclasses.replace(dense, totals_CVM=totals),
        [corpus("sparse", lambda random, scene: 3.0, seed=2, spread=0.1)],
        FEW,
    )
    assert "c00 of dense" in row(found).verdict or "interval includes zero" in row(found).verdict
    assert not next(w for w in row(found).without_city if (w.corpus, w.city) == ("dense", "c00")).survives


def test_a_difference_that_one_city_of_the_reference_carries_is_not_stable() -> None:
    """The reference's other cities are like the first corpus; c00 has a hundred times as much."""
    reference = corpus("reference", lambda random, scene: 3.0, seed=2, spread=0.1)
    totals = reference.totals_CVM.copy()
    totals[[clip.city == "c00" for clip in reference.clips]] *= 100
    found = compare_regimes(
        corpus("dense", lambda random, scene: 3.0, seed=1, spread=0.1),
        [dataclasses.replace(reference, totals_CVM=totals)],
        FEW,
    )
    assert row(found).verdict.startswith("not stable")
    assert not next(w for w in row(found).without_city if (w.corpus, w.city) == ("reference", "c00")).survives


def test_a_threshold_that_turns_the_direction_round_is_named() -> None:
    dense, sparse = (
        corpus(n, lambda random, scene, m=m: m, seed=s) for n, m, s in (("dense", 5.0, 1), ("sparse", 3.0, 2))
    )
    turned = dense.totals_CVM.copy()
    turned[:, dense.table.about.variants.index("a_min x 2")] = 0.0
    found = compare_regimes(dataclasses.replace(dense, totals_CVM=turned), [sparse], FEW)
    assert row(found).verdict == "not stable: turned round by a_min x 2"


def test_too_few_cities_decide_nothing() -> None:
    found = compare_regimes(
        corpus("dense", lambda random, scene: 6.0, cities=3), [corpus("sparse", lambda random, scene: 2.0)], FEW
    )
    assert row(found).verdict.startswith("untestable: 3 matched city groups of dense")


def test_a_reference_of_one_city_decides_nothing_however_many_sources_it_has() -> None:
    """Drawn by city its interval holds no city's variation; drawn by source, as the paper draws BDD100K, it is told."""
    dense = corpus("dense", lambda random, scene: 6.0)
    reference = corpus("reference", lambda random, scene: 2.0, cities=1, sources=32)
    found = compare_regimes(dense, [reference], FEW)
    assert row(found).verdict == "untestable: 1 matched city group of reference is too few"
    by_source = Population.of("reference", Manifest(list(reference.clips)), reference.table, ("drive",), "source")
    found = compare_regimes(dense, [by_source], FEW)
    assert row(found).verdict == "stable separation, higher"
    assert {w.corpus for w in row(found).without_city} == {"dense"}


def test_too_few_replicates_for_any_verdict_are_refused() -> None:
    """Holm over ten contrasts needs a p-value of 0.005; 100 replicates give none below 0.0099."""
    dense, sparse = corpus("dense", lambda random, scene: 6.0), corpus("sparse", lambda random, scene: 2.0)
    with pytest.raises(RegimeError, match=r"100 replicates: .* Take at least 199"):
        compare_regimes(dense, [sparse, sparse], dataclasses.replace(FEW, replicates=100))
    fewest = compare_regimes(dense, [sparse], dataclasses.replace(FEW, replicates=99))
    assert row(fewest).adjusted_p <= 0.05


def test_what_nobody_can_measure_is_unavailable() -> None:
    dense = corpus("dense", lambda random, scene: 6.0)
    about = dataclasses.replace(dense.table.about, unavailable=("heterogeneity",))
    blind = dataclasses.replace(dense, table=dataclasses.replace(dense.table, about=about))
    found = compare_regimes(blind, [corpus("sparse", lambda random, scene: 2.0)], FEW)
    assert row(found, "heterogeneity").verdict == "unavailable"
    assert any("heterogeneity" in note for note in found.notes)
    assert not [c for c in found.controls if c.corpus == "dense" and c.measure == "heterogeneity"]


def test_corpora_measured_otherwise_are_refused() -> None:
    dense, sparse = corpus("dense", lambda random, scene: 6.0), corpus("sparse", lambda random, scene: 2.0)
    about = dataclasses.replace(sparse.table.about, measured_by="another teacher")
    with pytest.raises(RegimeError, match="the protocol must be the same"):
        compare_regimes(dense, [dataclasses.replace(sparse, table=dataclasses.replace(sparse.table, about=about))], FEW)


def test_controls_pass_and_fail_by_what_they_lose_and_keep() -> None:
    dense, sparse = corpus("dense", lambda random, scene: 6.0), corpus("sparse", lambda random, scene: 2.0)
    totals = dense.totals_CVM.copy()
    v = dense.table.about.variants.index(Control.SPATIAL)
    totals[:, v, COLUMNS.index("interaction")] *= 2.0
    totals[:, v, COLUMNS.index("count")] *= 1.01
    found = compare_regimes(dataclasses.replace(dense, totals_CVM=totals), [sparse], FEW)
    spatial = {(c.corpus, c.measure): c.passed for c in found.controls if c.control == Control.SPATIAL}
    assert not spatial["dense", "interaction"]  # nothing was lost
    assert not spatial["dense", "count"]
    assert spatial["sparse", "interaction"]
    assert spatial["sparse", "count"]
    assert row(found, "interaction").verdict == (
        "not stable: failed spatial permutation of dense (interaction must attenuate)"
    )
    assert row(found, "occupancy").verdict == "stable separation, higher"


def test_the_files_hold_what_was_found(apart: RegimeComparison, tmp_path: Path) -> None:
    apart.write(tmp_path)
    again = RegimeComparison.read(tmp_path)
    assert row(again).verdict == row(apart).verdict
    assert row(again).difference.low == pytest.approx(row(apart).difference.low)
    assert np.isnan(row(again, "overlap").adjusted_p)
    assert {path.name for path in tmp_path.glob("*.csv")} == {
        "axes.csv", "scenes.csv", "balance.csv", "controls.csv", "domain.csv", "variations.csv", "without_city.csv",
    }  # fmt: skip
    text = (tmp_path / "axes.csv").read_text()
    assert all(axis in text for axis in AXES)
    assert write_scene_figure(apart, tmp_path / "scenes.png").read_bytes().startswith(b"\x89PNG")
