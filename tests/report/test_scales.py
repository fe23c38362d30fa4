"""Two backbones on one page: whether methods keep their order, from one folder of scores or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factorjepa.errors import ReportError
from factorjepa.report.cautions import cautions
from factorjepa.report.making import join_scores
from factorjepa.report.material import Material
from factorjepa.scores import Scores
from factorjepa.statistics import Comparison

from . import synthetic
from .reading import read

FEW: dict[str, Any] = {"cities": 6, "sources": 1, "clips": 1, "seeds": (17,)}


def test_every_diagnostic_has_its_rank_correlations_and_their_ranges(rich: Path) -> None:
    text = read(rich / "report" / "index.html").text
    table = text[text.index("Order of the methods on two backbones") :]
    table = table[: table.index("ranks.csv")]
    assert "Future-frame L1nano, vitg_1b" in table
    assert table.count("] method") == table.count("] family") > 4


def test_scores_of_two_folders_make_one_page(command: Callable[..., Any], tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, backbone in zip(folders, ("nano", "small"), strict=True):
        synthetic.scores(**FEW, backbones=(backbone,)).write(folder / "scores.parquet")
    ran = command("report", *folders, "--out", tmp_path / "both")
    assert ran.returncode == 0, ran.stderr
    assert Scores.read(tmp_path / "both").values("backbone") == ["nano", "small"]
    assert "Order of the methods on two backbones" in read(tmp_path / "both" / "index.html").text
    assert (tmp_path / "both" / "tables" / "ranks.csv").read_text().count("nano,small") > 3


def test_what_is_true_of_both_is_said_once() -> None:
    nothing = Comparison({}, {}, [], [], [], [], [], [])

    def said(*seeds: tuple[int, ...]) -> list[str]:
        parts = [
            synthetic.scores(
                **{**FEW, "seeds": own}, backbones=(name,), methods=("frozen", "auto_rgn"), structure=False
            )
            for name, own in zip(("nano", "small"), seeds, strict=True)
        ]
        lines = cautions(Material("x", Scores.joined(parts), nothing))
        return [line for line in lines if "seed" in line]

    (both,) = said((17, 29), (17, 29))
    assert both.startswith("2 training seeds")
    assert [line.split(":")[0] for line in said((17, 29), (17,))] == ["nano", "small"]


def test_joined_scores_are_written_over_no_evaluation(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for folder in (None, tmp_path):
        with pytest.raises(ReportError, match="--out FOLDER"):
            join_scores([tmp_path / "a", tmp_path / "b"], folder)
