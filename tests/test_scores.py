"""The table that everything after the diagnostics reads."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from factorjepa.diagnostics.position_readout import PositionReadout
from factorjepa.errors import ScoresError
from factorjepa.missing import Missing, told
from factorjepa.scores import ENCODER, KEY, DiagnosticInfo, RunInfo, Scores, runs_in

L1 = DiagnosticInfo("future_l1", "Future-frame L1", "mean |Y - Y*|", "lower", "token units", "primary", "target", "own")
RUN = RunInfo("nano", "factorjepa", 17, "FactorJEPA", "factor", 10, "run", "{}", 5)


def row(**changes: Any) -> dict[str, Any]:
    plain = {
        "backbone": "nano", "method": "factorjepa", "seed": 17, "city": "a", "source": "a/1", "clip_id": "a/1#0",
        "diagnostic": "future_l1", "variant": "pooled", "value": 0.5,
    }  # fmt: skip
    return plain | changes


def scores(*rows: dict[str, Any], evaluator: str = "abc") -> Scores:
    return Scores.of_rows(rows, {"future_l1": L1}, {"target": evaluator}, [RUN])


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    written = scores(row(), row(clip_id="a/1#1", value=float("nan")))
    written.write(tmp_path / "scores.parquet")
    read = Scores.read(tmp_path)
    assert read.table.slice(0, 1).to_pylist() == written.table.slice(0, 1).to_pylist()
    assert (read.diagnostics, read.evaluator, read.runs) == (written.diagnostics, written.evaluator, written.runs)


def test_the_runs_of_a_file_are_told_without_its_rows(tmp_path: Path) -> None:
    path = scores(row()).write(tmp_path / "scores.parquet")
    assert runs_in(path) == {("nano", "factorjepa", 17)}
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    path.write_bytes(path.read_bytes()[:100])
    assert runs_in(path) == runs_in(tmp_path / "other.parquet") == runs_in(tmp_path / "absent.parquet") == set()


def test_scores_of_different_evaluators_refuse_to_meet() -> None:
    with pytest.raises(ScoresError, match=r"different evaluators \(target\)"):
        Scores.joined([scores(row()), scores(row(method="frozen"), evaluator="other")])


def test_each_backbone_brings_its_own_frozen_encoder() -> None:
    def of(backbone: str, encoder: str) -> Scores:
        made = scores(row(backbone=backbone))
        return Scores(made.table, made.diagnostics, {**made.evaluator, f"{ENCODER}{backbone}": encoder}, [])

    both = Scores.joined([of("small", "1"), of("large", "2")])
    assert both.evaluator == {"target": "abc", "encoder/small": "1", "encoder/large": "2"}
    with pytest.raises(ScoresError, match=r"different evaluators \(encoder/large\)"):
        Scores.joined([both, of("large", "3")])


@pytest.mark.parametrize("context", [12, 8])
def test_definitions_in_words_of_before_are_todays_where_they_mean_the_same(tmp_path: Path, context: int) -> None:
    """Kept scores of the studies are joined with new ones; those of a longer future asked for another moment."""
    info = PositionReadout.info
    before = dataclasses.replace(info, formula=info.formula.replace("by the window's end", "within 1 s"))
    assert before != info
    window = json.dumps({"frames": 16, "fps": 4.0, "context": context})
    made = Scores.of_rows([row(diagnostic=info.name)], {info.name: before}, {"window": window}, [RUN])
    made.write(tmp_path / "old.parquet")
    assert Scores.read(tmp_path / "old.parquet").diagnostics == {info.name: info if context == 12 else before}


def test_joining_keeps_every_row() -> None:
    both = Scores.joined([scores(row()), scores(row(method="frozen"))])
    assert both.values("method") == ["factorjepa", "frozen"]
    assert len(both) == 2


def test_a_diagnostic_that_only_one_part_has_is_kept_and_one_that_they_define_differently_refused() -> None:
    def of(method: str, *described: DiagnosticInfo) -> Scores:
        rows = [row(method=method, diagnostic=one.name) for one in described]
        return Scores.of_rows(rows, {one.name: one for one in described}, {"target": "abc"}, [])

    cosine = dataclasses.replace(L1, name="motion_cosine")
    both = Scores.joined([of("frozen", L1), of("lora", cosine, L1)])
    assert both.diagnostics == {"future_l1": L1, "motion_cosine": cosine}
    assert len(both) == 3
    with pytest.raises(ScoresError, match="define motion_cosine differently"):
        Scores.joined([both, of("dora", dataclasses.replace(cosine, formula="another"))])


def test_the_same_score_twice_is_refused() -> None:
    with pytest.raises(ScoresError, match="two scores for the same thing"):
        scores(row(), row(value=0.6))


def test_an_infinite_score_is_refused() -> None:
    with pytest.raises(ScoresError, match="infinite scores"):
        scores(row(value=float("inf")))


def test_an_undescribed_diagnostic_is_refused() -> None:
    with pytest.raises(ScoresError, match="nothing describes: other"):
        scores(row(diagnostic="other"))


def test_an_unknown_direction_is_refused() -> None:
    odd = dataclasses.replace(L1, direction="sideways")  # type: ignore[arg-type]
    with pytest.raises(ScoresError, match="direction 'sideways'"):
        Scores.of_rows([row()], {"future_l1": odd}, {}, [RUN])


def test_select_keeps_the_rows_asked_for() -> None:
    chosen = scores(row(), row(seed=29), row(seed=29, clip_id="x")).select(seed=29, clip_id="x")
    assert len(chosen) == 1


@pytest.mark.parametrize("content", [b"", b"PAR1 not really"])
def test_a_damaged_file_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "scores.parquet").write_bytes(content)
    with pytest.raises(ScoresError, match="evaluate again"):
        Scores.read(tmp_path)


def test_a_missing_or_foreign_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ScoresError, match="factorjepa evaluate"):
        Scores.read(tmp_path)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "scores.parquet")
    with pytest.raises(ScoresError, match="not one that `factorjepa evaluate` wrote"):
        Scores.read(tmp_path)


def test_coded_columns_are_positions_among_the_sorted_values() -> None:
    coded = scores(row(method="b"), row(method="a"), row(method="b", seed=3))
    names, positions = coded.coded("method")
    assert (names, positions.tolist()) == (["a", "b"], [1, 0, 1])
    seeds, positions = coded.coded("seed")
    assert (seeds, positions.tolist()) == ([3, 17], [1, 1, 0])


def test_seeds_that_lack_different_scores_do_not_count_as_methods() -> None:
    few, many = (Missing("future_l1", "", "no agent is seen", clips) for clips in (3, 4))
    both = Missing("motion", "", "nothing moves", 2)
    named = {"A (seed 17)": [few, both], "A (seed 29)": [many, both], "B": [few, both]}
    said = told(named, {}, methods_in_all=2)
    assert "motion: no score of 2 clips for all 2 methods: nothing moves" in said
    assert "future_l1: no score of 4 clips for A (seed 29): no agent is seen" in said
    alone = told({"A (seed 17)": [few], "A (seed 29)": [few]}, {}, methods_in_all=1)
    assert alone == ["future_l1: no score of 3 clips for A (seed 17), A (seed 29): no agent is seen"]


def test_words_of_tables_that_number_them_differently_are_the_same_words() -> None:
    first, second = scores(row(method="b"), row(method="c")), scores(row(method="a"), row(method="c", seed=3))
    stacked = pa.concat_tables([first.table, second.table])
    both = Scores(stacked, first.diagnostics, first.evaluator, [])
    assert both.coded("method")[1].tolist() == [1, 2, 0, 2]
    assert [one["seed"] for one in both.select(method="c").table.to_pylist()] == [17, 3]
    assert len(both.select(method="d")) == 0
    with pytest.raises(ScoresError, match=r"two scores for the same thing: .* for b with seed 17"):
        Scores(pa.concat_tables([stacked, first.select(method="b").table]), first.diagnostics, {}, [])


@pytest.mark.parametrize("column", KEY)
def test_a_score_is_told_from_another_by_every_column_of_its_key(column: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("factorjepa.scores._MOST_KEYS", 3)  # as if there were more keys than one number can tell apart
    infos = {name: dataclasses.replace(L1, name=name) for name in ("future_l1", "other")}
    other = row(**{column: 5 if column == "seed" else "other"})
    assert len(Scores.of_rows([row(), other], infos, {}, [])) == 2
    with pytest.raises(ScoresError, match="two scores"):
        Scores.of_rows([other, row(), other], infos, {}, [])


def test_means_are_taken_over_everything_that_is_not_named() -> None:
    found = scores(row(value=1.0), row(seed=29, value=2.0), row(method="frozen", value=6.0)).means("method", "variant")
    assert found == {("factorjepa", "pooled"): 1.5, ("frozen", "pooled"): 6.0}
