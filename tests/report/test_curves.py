"""The training curve: what is recorded is drawn, stages are where they were, names do not lie over each other."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from factorjepa.errors import ReportError
from factorjepa.report.curves import COLOURS, Run, apart, differing, labels_of, running_mean, training_curve

from .conftest import Make


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.floats(0.01, 2))
def test_names_lie_apart_in_the_order_of_their_lines(places: list[float], least: float) -> None:
    moved = apart(places, least)
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.array(moved)[order]) >= least - 1e-9).all()
    assert sum(moved) == pytest.approx(sum(places), abs=1e-6)  # nobody is pushed to one side
    if len(places) == 1 or np.diff(np.sort(places)).min() >= least:
        assert moved == pytest.approx(places)


def test_a_running_mean_keeps_the_ends_and_a_constant() -> None:
    values = np.arange(9.0)
    assert running_mean(values, 3).tolist() == [0.5, 1, 2, 3, 4, 5, 6, 7, 7.5]
    assert running_mean(values, 0).tolist() == values.tolist()
    assert np.allclose(running_mean(np.full(7, 2.0), 5), 2.0)


def test_stages_lie_where_training_entered_them(run: Make) -> None:
    read = Run.read(run("a", updates=40))
    assert read.stages == [("head", 0, 4), ("layout", 4, 16), ("agents", 16, 28), ("interactions", 28, 40)]
    for name, start, end in read.stages:
        for step in (start, end - 1):
            assert read.method.stage_at(step, 40)[1].name == name


def test_an_unfinished_run_shows_the_stages_that_have_begun(run: Make) -> None:
    assert Run.read(run("a", updates=40, until=20)).stages == [("head", 0, 4), ("layout", 4, 16), ("agents", 16, 20)]


def test_a_method_that_appears_twice_is_told_apart_by_folder(run: Make) -> None:
    runs = [Run.read(run("one")), Run.read(run("two")), Run.read(run("three", method="full"))]
    assert labels_of(runs) == ["FactorJEPA (one)", "FactorJEPA (two)", "Full fine-tuning"]


def test_the_figure_names_methods_stages_and_terms(run: Make, tmp_path: Path) -> None:
    runs = [Run.read(one) for one in (run("a"), run("b", method="full", until=20), run("c", method="frozen"))]
    picture = training_curve(runs, tmp_path / "curve.svg").read_text(encoding="utf-8")
    for words in ("0.3200  FactorJEPA", "0.3600  Full fine-tuning", "0.4000  Frozen V-JEPA", "head", "interactions",
                  "prediction", "factor targets", "bands: stages of FactorJEPA"):  # fmt: skip
        assert f">{words}" in picture, words
    assert "visibility" not in picture  # a term that nobody has
    assert COLOURS[0] in picture
    assert picture == training_curve(runs, tmp_path / "again.svg").read_text(encoding="utf-8")


def test_a_picture_has_the_width_of_a_page_and_lines_in_their_colours(run: Make, tmp_path: Path) -> None:
    path = training_curve([Run.read(run("a")), Run.read(run("b", method="full"))], tmp_path / "figures" / "curve.png")
    image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    assert image.width == 1440
    colours = {colour for _, colour in image.getcolors(maxcolors=2**20) or []}
    assert {tuple(bytes.fromhex(colour[1:])) for colour in COLOURS[:2]} <= colours
    assert image.getpixel((2, 2)) == (255, 255, 255)


def test_a_run_that_makes_no_update_is_drawn_alone_as_well(run: Make, tmp_path: Path) -> None:
    assert (
        training_curve([Run.read(run("a", method="frozen"))], tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")
    )


def test_runs_that_were_validated_on_other_windows_are_told(run: Make) -> None:
    alike = [Run.read(run("a")), Run.read(run("b", method="full"))]
    assert differing(alike) == []
    fewer = dataclasses.replace(alike[1], validated_on=(*alike[1].validated_on, ("validation_clips", 2)))
    known = dict(alike[0].validated_on)["validation_clips"]
    assert differing([alike[0], fewer]) == [f"validation_clips {known} and 2"]


def test_what_cannot_be_drawn_says_why(run: Make, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="png, pdf or svg, not 'jpg'"):
        training_curve([Run.read(run("a"))], tmp_path / "curve.jpg")
    empty = run("b")
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(ReportError, match="has recorded nothing yet"):
        Run.read(empty)
    (empty / "metrics.jsonl").write_bytes(b"\x00garbage\n")
    with pytest.raises(ReportError, match=r"metrics\.jsonl: is damaged"):
        Run.read(empty)
    (empty / "config.yaml").write_text("arch: nano\nsteps: 10\n")
    with pytest.raises(ReportError, match="runs of `factorjepa train`"):
        Run.read(empty)
