"""Simulated corpora and packets through the whole protocol."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from factorjepa.cli import app
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.corpus.splits import Split
from factorjepa.corpus.store import TRUTH, sidecar_path
from factorjepa.errors import RegimeError
from factorjepa.regime import measuring
from factorjepa.regime.axes import NAMES, frame_measures
from factorjepa.regime.controls import Control, Pool, pool_of, spatially_permuted, temporally_permuted
from factorjepa.regime.domain import domain_counts
from factorjepa.regime.measuring import Opening, TeacherMeasurer, TruthMeasurer, measure_corpus, measured
from factorjepa.regime.scene import Scene
from factorjepa.regime.settings import PRIMARY, Thresholds
from factorjepa.regime.sources import scene_of_packet, scene_of_truth
from factorjepa.regime.strata import cuts_of, with_strata
from factorjepa.regime.table import COLUMNS, RegimeTable
from factorjepa.teacher.cache import PacketCache
from factorjepa.teacher.making import make_packets
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.world import ClipTruth, WorldSettings
from factorjepa.world.measures import measure

from .scenes import Agent, scene

T = Thresholds()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Six sources of each regime at 64 pixels."""
    root = tmp_path_factory.mktemp("regimes")
    for regime in ("dense", "sparse"):
        world = WorldSettings(regime=regime, size=64, seconds=(6.0, 6.5), capture_modes={"drive": 1.0})  # type: ignore[arg-type]
        simulate_corpus(root / regime, SimulationPlan(seed=3, clips=6, clips_per_source=1, world=world), workers=1)
    return {regime: root / regime for regime in ("dense", "sparse")}


@pytest.fixture(scope="module")
def tables(folders: dict[str, Path]) -> dict[str, RegimeTable]:
    return {
        name: measure_corpus(Manifest.read(folder), TruthMeasurer(folder, T), T) for name, folder in folders.items()
    }


def truths(folder: Path) -> list[ClipTruth]:
    return [
        ClipTruth.from_bytes((folder / sidecar_path(clip.path, TRUTH)).read_bytes()) for clip in Manifest.read(folder)
    ]


def test_count_and_heterogeneity_are_those_that_the_simulator_takes_from_its_truth(
    folders: dict[str, Path], tables: dict[str, RegimeTable]
) -> None:
    """4 frames per second of 12 are every third frame, which is what `inspect` shows."""
    means = tables["dense"].means(PRIMARY)
    for row, truth in enumerate(truths(folders["dense"])):
        known = measure(truth, every=3)
        assert means[row, NAMES.index("count")] == pytest.approx(known.agents_per_frame)
        assert means[row, NAMES.index("heterogeneity")] == pytest.approx(known.heterogeneity)


def test_occupancy_is_the_share_of_pixels_of_retained_agents(folders: dict[str, Path]) -> None:
    truth = truths(folders["dense"])[0]
    found = frame_measures(scene_of_truth(truth, 4.0), T)
    for t in (0, 5):
        shown = truth.instances(3 * t)
        sizes = np.bincount(shown.ravel())[1:]
        expected = sizes[sizes >= T.min_area * shown.size].sum() / shown.size
        assert found[t, NAMES.index("occupancy")] == pytest.approx(expected)


def retained_by_frame(truth: ClipTruth) -> list[dict[int, int]]:
    """Of every third frame: agent -> row of the truth's table, for those that show enough."""
    least = T.min_area * truth.size**2
    return [
        {int(truth.agent[r]): int(r) for r in truth.observations(t) if truth.visible_pixels[r] >= least}
        for t in range(0, truth.frames, 3)
    ]


def sightings_before_and_after(seen: list[dict[int, int]], agent: int, t: int) -> tuple[int | None, int | None]:
    there = [k for k, rows in enumerate(seen) if agent in rows]
    return max((k for k in there if k < t), default=None), min((k for k in there if k > t), default=None)


def test_visibility_pressure_is_that_of_painted_boxes_and_of_sightings_one_by_one(folders: dict[str, Path]) -> None:
    """No arrays of pairs or steps: boxes are painted, and the clip is looked through for every agent."""
    gaps = 0
    for truth in truths(folders["dense"])[:2]:
        seen = retained_by_frame(truth)

        def painted(row: int, truth: ClipTruth = truth) -> np.ndarray:
            left, top, right, bottom = truth.box[row]
            canvas = np.zeros((truth.size, truth.size), bool)
            canvas[top:bottom, left:right] = True
            return canvas

        def at_border(row: int, truth: ClipTruth = truth) -> bool:
            return bool(truth.box[row].min() == 0 or truth.box[row, 2:].max() == truth.size)

        found = frame_measures(scene_of_truth(truth, 4.0), T)[:, NAMES.index("visibility")]
        for t, rows in enumerate(seen):
            canvases, pressed = {agent: painted(row) for agent, row in rows.items()}, 0
            for agent, row in rows.items():
                mine = canvases[agent]
                overlaps = any(
                    (mine & other).sum() / (min(mine.sum(), other.sum()) + 1e-9) >= T.overlap  # the paper's epsilon
                    for k, other in canvases.items() if k != agent
                )  # fmt: skip
                lost = any(
                    k is not None and 1 < abs(k - t) <= 4 * T.gap_seconds
                    and not at_border(row) and not at_border(seen[k][agent])
                    for k in sightings_before_and_after(seen, agent, t)
                )  # fmt: skip
                gaps += lost
                pressed += overlaps or at_border(row) or lost
            assert found[t] == pytest.approx(pressed / len(rows) if rows else np.nan, nan_ok=True)
    assert gaps


def test_interaction_pressure_is_that_of_pairs_one_by_one_and_near_the_simulators_own(folders: dict[str, Path]) -> None:
    """The simulator takes its velocities from where bodies stand, we from boxes of tracks: not quite the same."""
    for truth in truths(folders["dense"])[:2]:
        seen = retained_by_frame(truth)

        def centre(row: int, truth: ClipTruth = truth) -> np.ndarray:
            return (truth.box[row, :2] + truth.box[row, 2:].astype(float)) / (2 * truth.size)

        def velocity(agent: int, t: int, truth: ClipTruth = truth, seen: list[dict[int, int]] = seen) -> np.ndarray:
            before, after = sightings_before_and_after(seen, agent, t)
            first, last = (before, t) if before is not None else (t, after)
            if last is None:
                return np.full(2, np.nan)
            one, other = seen[first][agent], seen[last][agent]
            return (centre(other) - centre(one)) * 4 / (last - first) - truth.camera_velocity[other] / truth.size

        found = frame_measures(scene_of_truth(truth, 4.0), T)[:, NAMES.index("interaction")]
        for t, rows in enumerate(seen):
            edges = 0
            for a, b in combinations(rows, 2):
                apart, closing = centre(rows[b]) - centre(rows[a]), velocity(b, t) - velocity(a, t)
                time = -(apart @ closing) / (closing @ closing + 1e-9)
                soon = 0 < time <= T.approach_seconds
                meets = soon and np.linalg.norm(apart + time * closing) <= T.approach_distance
                edges += bool(np.linalg.norm(apart) <= T.near or meets)
            assert found[t] == pytest.approx(2 * edges / len(rows) if len(rows) > 1 else np.nan, nan_ok=True)
        assert np.nanmean(found) == pytest.approx(measure(truth, every=3).interaction_degree, rel=0.2)


def test_the_dense_world_is_denser_on_every_axis(tables: dict[str, RegimeTable]) -> None:
    dense, sparse = (np.nanmean(tables[name].means(PRIMARY)[:, : len(NAMES)], axis=0) for name in ("dense", "sparse"))
    for axis in ("count", "occupancy", "visibility", "interaction"):
        assert dense[NAMES.index(axis)] > sparse[NAMES.index(axis)]


def test_controls_keep_what_they_must_and_break_the_rest(tables: dict[str, RegimeTable]) -> None:
    table = tables["dense"]
    totals = {name: table.variant(name)[0].sum(0) for name in (PRIMARY, *Control)}
    at = COLUMNS.index
    for name in ("count", "occupancy", "heterogeneity", "overlap", "truncation"):
        assert totals[Control.TEMPORAL][at(name)] == pytest.approx(totals[PRIMARY][at(name)])
    for name in ("count", "heterogeneity"):
        assert totals[Control.SPATIAL][at(name)] == pytest.approx(totals[PRIMARY][at(name)])
    terms = {name: table.variant(name)[1].sum(0) for name in (PRIMARY, Control.TEMPORAL)}
    before, after = (totals[v][at("consistency")] / terms[v][at("consistency")] for v in (PRIMARY, Control.TEMPORAL))
    assert before > 0.3 > after
    assert totals[Control.SPATIAL][at("interaction")] < totals[PRIMARY][at("interaction")]


def test_spatial_permutation_scatters_a_clump() -> None:
    """Ten agents side by side; the pool has places all over the picture."""
    clump = scene([Agent(0, (40 + k, 40, 45 + k, 45)) for k in range(10)])
    grid = np.stack(np.meshgrid(np.linspace(0.05, 0.95, 20), np.linspace(0.05, 0.95, 20)), -1).reshape(-1, 2)
    found = spatially_permuted(clump, T, Pool(grid, np.zeros_like(grid)), 0, "a")
    at = NAMES.index("interaction")
    assert frame_measures(clump, T)[0, at] == pytest.approx(9.0)
    assert found[0, at] < 3.0
    assert found[0, NAMES.index("count")] == 10
    assert len(pool_of(clump, T, 0, "a").centre_Q2) == 10


def test_temporal_permutation_keeps_pictures_whole() -> None:
    moving = scene(
        [Agent(t, (10 + 5 * t, 40, 25 + 5 * t, 60), track=1) for t in range(8)] + [Agent(0, (70, 70, 90, 90))], 8
    )
    shuffled = temporally_permuted(moving, 0, "a")
    one, other = frame_measures(moving, T), frame_measures(shuffled, T)
    for name in ("count", "occupancy"):
        at = NAMES.index(name)
        assert sorted(one[:, at]) == pytest.approx(sorted(other[:, at]))
    assert list(shuffled.frame_O) != list(moving.frame_O) or not np.array_equal(shuffled.box_O4, moving.box_O4)


def test_domain_counts_by_hand() -> None:
    agents = [Agent(0, (10, 10, 30, 30), 1), Agent(0, (50, 50, 52, 52), 2), Agent(0, (60, 60, 80, 80), 3, 0, 0.5),
              Agent(2, (10, 10, 30, 30), 1), Agent(0, (10, 60, 30, 80), 4, superclass=-1)]  # fmt: skip
    rates = domain_counts(scene(agents, 3), T).rates()
    assert rates["retained-instance rate"] == pytest.approx(2 / 5)
    assert rates["unresolved-class rate"] == pytest.approx(1 / 5)
    assert rates["small-instance exclusion rate"] == pytest.approx(1 / 5)
    assert rates["track fragmentation (gaps per track)"] == pytest.approx(1 / 4)
    assert rates["confidence, lowest tenth below"] == pytest.approx(0.5, abs=0.026)
    assert rates["confidence, median"] == pytest.approx(1.0, abs=0.026)


def test_strata_are_cut_on_training_clips_alone(folders: dict[str, Path], tables: dict[str, RegimeTable]) -> None:
    manifest, table = Manifest.read(folders["dense"]), tables["dense"]
    cuts = cuts_of(manifest, table)
    training = [row for row, clip in enumerate(manifest) if clip.split == Split.TRAIN]
    others = [row for row, clip in enumerate(manifest) if clip.split != Split.TRAIN]
    assert others
    totals = table.totals_CVM.copy()
    totals[others] *= 100
    assert cuts_of(manifest, dataclasses.replace(table, totals_CVM=totals)) == cuts
    counts = table.means(PRIMARY)[:, NAMES.index("count")]
    assert cuts[0].lower == pytest.approx(np.quantile(counts[training], 1 / 3))
    levels = [clip.attributes["density_stratum"] for clip in with_strata(manifest, table, cuts)]
    assert {levels[row] for row in training} == {"low", "medium", "high"}
    assert levels[int(counts.argmax())] == "high"


def test_clips_of_other_splits_are_not_asked_for_and_have_no_strata(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, asked, scene_of = Manifest.read(folders["dense"]), [], TruthMeasurer.scene

    def counting(self: TruthMeasurer, clip: Clip) -> Scene:
        asked.append(clip.split)
        return scene_of(self, clip)

    monkeypatch.setattr(TruthMeasurer, "scene", counting)
    table = measured(tmp_path, Opening(folders["dense"], "truth", tmp_path, T, splits=("train",)))
    assert set(asked) == {Split.TRAIN}
    told = with_strata(manifest, table, cuts_of(manifest, table))
    assert {clip.split for clip in told if "density_stratum" in clip.attributes} == {Split.TRAIN}


def test_several_processes_measure_what_one_does(
    folders: dict[str, Path], tables: dict[str, RegimeTable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_MANY", 2)
    monkeypatch.setattr(measuring, "_TOGETHER", 4)
    seen: list[tuple[int, int]] = []
    found = measured(
        tmp_path, Opening(folders["dense"], "truth", tmp_path, T), lambda done, all_: seen.append((done, all_))
    )
    alone = tables["dense"]
    assert (found.clip_ids, found.about) == (alone.clip_ids, alone.about)
    for one, other in zip(found.domain, alone.domain, strict=True):
        np.testing.assert_array_equal([*one.counts, *one.confidence], [*other.counts, *other.confidence])
    np.testing.assert_array_equal(found.totals_CVM, alone.totals_CVM)
    np.testing.assert_array_equal(found.terms_CVM, alone.terms_CVM)
    assert seen == [(number, 12) for number in range(1, 13)]


@pytest.fixture(scope="module")
def packets(folders: dict[str, Path]) -> Path:
    out = folders["sparse"] / "targets"
    make_packets(folders["sparse"], out, TeacherSettings(), workers=1)
    return out


def test_a_corpus_without_clips_is_not_measured(tmp_path: Path) -> None:
    Manifest([]).write(tmp_path / "empty")
    opening = Opening(tmp_path / "empty", "truth", tmp_path, T, None)
    with pytest.raises(RegimeError, match="empty: has no clips to measure"):
        measured(tmp_path / "out", opening)


def test_packets_are_measured_and_say_nothing_of_classes(folders: dict[str, Path], packets: Path) -> None:
    folder = folders["sparse"]
    table = measure_corpus(Manifest.read(folder), TeacherMeasurer(folder, packets), T)
    totals, terms = table.variant(PRIMARY)
    assert "heterogeneity" in table.about.unavailable
    assert terms[:, NAMES.index("heterogeneity")].sum() == 0
    assert totals[:, NAMES.index("count")].sum() > 0
    assert (table.frames_C == 16).all()


def test_a_packets_scene_has_the_pixels_of_its_masks(folders: dict[str, Path], packets: Path) -> None:
    from factorjepa.corpus.access import Corpus, clips_of

    corpus, cache = Corpus.open(folders["sparse"]), PacketCache.open(packets)
    its = cache.packets(clips_of(corpus, Split.TRAIN))
    packet = max((its[k] for k in range(len(its))), key=lambda one: len(one.region_frame))
    found = scene_of_packet(packet)
    painted = np.zeros((packet.frames, int(packet.side), int(packet.side)), bool)
    areas = np.zeros(len(packet.region_frame))
    for region, where, mask in packet.region_masks(np.ones(len(packet.region_frame), bool)):
        painted[(int(packet.region_frame[region]), *where)] |= mask
        areas[region] = mask.sum()
    assert len(areas) > 0
    np.testing.assert_array_equal(np.sort(found.area_O), np.sort(areas))
    np.testing.assert_array_equal(found.cover.union(np.ones(len(areas), bool)), painted.sum((1, 2)))


def test_the_check_verb_compares_packets_with_simulated_ground_truth(folders: dict[str, Path], packets: Path) -> None:
    folder = folders["sparse"]
    ran = CliRunner().invoke(app, ["regime", "check", str(folder), "--format", "simulated"])
    assert ran.exit_code == 0, ran.output
    assert "outside every statistic" in ran.output
    assert "6 clips checked" in ran.output
    rows = (folder / "regime" / "check" / "agreement.csv").read_text().splitlines()
    first = dict(zip(rows[0].split(","), rows[1].split(","), strict=True))
    assert (first["clip_id"], first["measure"], first["frames"]) == ("all", "count", "96")
    assert float(first["native"]) > 0


def test_a_table_survives_its_file_and_damage_is_named(tables: dict[str, RegimeTable], tmp_path: Path) -> None:
    path = tables["dense"].write(tmp_path)
    again = RegimeTable.read(tmp_path)
    np.testing.assert_array_equal(again.totals_CVM, tables["dense"].totals_CVM)
    assert again.about == tables["dense"].about
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(RegimeError, match="is damaged"):
        RegimeTable.read(tmp_path)
    with pytest.raises(RegimeError, match="regime measure first"):
        RegimeTable.read(tmp_path / "nowhere")


def test_the_verbs_measure_write_strata_and_compare(folders: dict[str, Path], tmp_path: Path) -> None:
    run = CliRunner()
    ran = run.invoke(app, ["regime", "measure", str(folders["dense"]), "--by", "truth"])
    assert ran.exit_code == 0, ran.output
    assert "density_stratum" in Manifest.read(folders["dense"])[0].attributes
    asked = f"--by truth --replicates 100 --match-on capture_mode --caliper 1 --out {tmp_path}".split()
    (tmp_path / "scenes.png").write_bytes(b"of an earlier comparison")
    ran = run.invoke(app, ["regime", "compare", str(folders["dense"]), str(folders["sparse"]), *asked])
    assert ran.exit_code == 0, ran.output
    assert "agent count density" in ran.output
    assert (tmp_path / "regime.json").is_file()
    assert "no scene-matched table" in ran.output
    assert not (tmp_path / "scenes.png").exists()


@pytest.mark.parametrize(
    ("corpora", "why"),
    [
        (("a", "b", "c", "d"), "3 references: give one or two"),
        (("a", "a"), "a is given twice"),
        (("a", "b", "c/../b"), "b is given twice"),
    ],
)
def test_repeated_and_too_many_corpora_are_refused(corpora: tuple[str, ...], why: str) -> None:
    ran = CliRunner().invoke(app, ["regime", "compare", *corpora])
    assert ran.exit_code != 0
    assert why in str(ran.exception)
