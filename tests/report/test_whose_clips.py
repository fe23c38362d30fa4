"""What the page says of data and people is of the clips that were measured, and of no other corpus."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from factorjepa import commands
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.simulated import PLAN
from factorjepa.corpus.splits import Split
from factorjepa.errors import ReportError
from factorjepa.report.making import make_report
from factorjepa.report.provenance import corpus_of
from factorjepa.scores import Scores
from factorjepa.statistics import CompareSettings

from . import synthetic

QUICK = CompareSettings(replicates=200, mixed="none")
Corpora = Callable[..., tuple[Path, Scores]]


@pytest.fixture
def corpora(tmp_path: Path) -> Corpora:
    """A simulated corpus `streets` that runs were trained on, and footage, unblurred, of the scored clips."""
    scores = synthetic.scores(cities=3, seeds=(17,), methods=("frozen", "factorjepa"), structure=False)
    places = dict(zip(scores.table["clip_id"].to_pylist(), scores.table["source"].to_pylist(), strict=True))
    footage = [
        Clip(clip, "Pune", "s1", source, 0, "walk", 0.0, 8.0, 12.0, 64, 64, f"{k}.mp4", Split.TEST, {"privacy": "off"})
        for k, (clip, source) in enumerate(places.items())
    ]
    Manifest(footage).write(tmp_path / "footage")
    streets = [dataclasses.replace(clip, clip_id=f"street-{k}", attributes={}) for k, clip in enumerate(footage)]
    Manifest(streets).write(tmp_path / "streets")
    (tmp_path / "streets" / PLAN).write_text("seed: 7\n")

    def made(measured_on: str = "") -> tuple[Path, Scores]:
        scores.runs[:] = [
            dataclasses.replace(run, config=f"data: {tmp_path / 'streets'}\nmethod: {run.method}\n",
                                measured_on=measured_on and str(tmp_path / measured_on))
            for run in scores.runs
        ]  # fmt: skip
        scores.write(tmp_path / "out" / "scores.parquet")
        return tmp_path / "out", scores

    return made


def page(out: Path, data: Path | None = None) -> str:
    return make_report(out, data=data, settings=QUICK).page.read_text(encoding="utf-8")


def test_footage_that_was_measured_is_described_where_simulated_streets_were_trained_on(corpora: Corpora) -> None:
    out, _ = corpora("footage")
    text = page(out)
    assert "Faces and number plates were NOT blurred" in text
    assert "No person was filmed" not in text
    assert "<dt>corpus</dt><dd>footage</dd>" in text


def test_scores_that_do_not_say_where_they_were_measured_are_not_taken_for_the_training_corpus(
    corpora: Corpora,
) -> None:
    text = page(corpora()[0])
    assert "No person was filmed" not in text
    assert "find out whether people in them can be recognised" in text


def test_a_corpus_is_the_same_however_it_was_named(
    corpora: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, scores = corpora("footage")
    monkeypatch.chdir(tmp_path)
    for named in ("footage", "./footage", "gone"):  # relative, otherwise, and as it was before it was moved
        scores.runs[0] = dataclasses.replace(scores.runs[0], measured_on=named)
        scores.write(out / "scores.parquet")
        assert "<dt>corpus</dt><dd>footage</dd>" in page(out)


def test_a_measured_corpus_that_is_gone_is_looked_up_where_runs_were_trained(corpora: Corpora, tmp_path: Path) -> None:
    _, scores = corpora("gone")
    assert corpus_of(scores) is None
    scores.runs[:] = [
        dataclasses.replace(run, config=f"data: {tmp_path / 'footage'}\nmethod: {run.method}\n") for run in scores.runs
    ]
    assert corpus_of(scores) == tmp_path / "footage"


def test_a_corpus_that_is_named_and_has_other_clips_is_refused(corpora: Corpora, tmp_path: Path) -> None:
    out, _ = corpora("footage")
    with pytest.raises(ReportError, match=r"streets: is not the corpus of these scores: \d+ scored clips are not in"):
        page(out, tmp_path / "streets")
    assert not (out / "report").exists()


def test_commands_of_both_corpora_stand_under_their_names(
    corpora: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = corpora("footage")
    for name, line in (("footage", "factorjepa ingest f"), ("streets", "factorjepa simulate streets")):
        monkeypatch.setattr(commands, "_line", line)
        commands.record(tmp_path / name)
        (tmp_path / name / "targets").mkdir()
        monkeypatch.setattr(commands, "_line", f"factorjepa targets {name}")
        commands.record(tmp_path / name / "targets")
    monkeypatch.setattr(commands, "_line", "")
    text = page(out)
    assert "# corpus\nfactorjepa ingest f" in text
    assert "# corpus of training\nfactorjepa simulate streets" in text
    assert "# packets\nfactorjepa targets streets" in text
    assert "# packets\nfactorjepa targets footage" in text
