"""The frozen-encoder scorecard: the same probes on what encoders see, and nothing of the future in it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typer.testing import CliRunner

from backbones.conftest import TINY
from factorjepa.backbones import build
from factorjepa.backbones.frozen import FrozenEncoder
from factorjepa.cli import app
from factorjepa.corpus.access import Corpus
from factorjepa.corpus.loader import Batch, EvaluationLoader
from factorjepa.corpus.windows import WindowSpec
from factorjepa.diagnostics import scorecard as module
from factorjepa.diagnostics.asks import PLAIN, Predict
from factorjepa.diagnostics.continuing import FromEarly, Paced
from factorjepa.diagnostics.correspondence import chance_of_cycle_back, cycle_back
from factorjepa.diagnostics.looking import Looked, Looker, correspondence, views
from factorjepa.diagnostics.reference import Precision
from factorjepa.diagnostics.reordered import REVERSED
from factorjepa.diagnostics.scene import Known, Scene
from factorjepa.diagnostics.scorecard import infos, scorecard
from factorjepa.diagnostics.settings import EvaluateSettings, ProbeSettings
from factorjepa.errors import DiagnosticsError
from factorjepa.scores import Scores

CPU = torch.device("cpu")
SETTINGS = EvaluateSettings(batch=2, probes=ProbeSettings(fit_clips=4, choose_clips=2, grid=(0.1, 10.0)))
WINDOW = WindowSpec(size=32)
PRECISION = Precision(CPU, bf16=False)


class Brightness:
    """An image encoder that sees how bright a frame is, as an angle, in 2 x 2 places."""

    name, origin, step, grid, dim = "brightness", "made up", 1, (2, 2), 4
    gain = 1.0

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)

    def tokens(self, frames: NDArray[np.uint8]) -> Tensor:
        angle = torch.from_numpy(frames.mean((2, 3, 4)) / 255 * np.pi * self.gain)
        token = torch.stack((angle.cos(), angle.sin(), -angle.cos(), -angle.sin()), dim=-1).float()
        return token[:, :, None].expand(-1, -1, 4, -1)


class Blind(Brightness):
    """Sees nothing."""

    name, gain = "blind", 0.0


def looker(encoder: object = None) -> Looker:
    return Looker(cast(FrozenEncoder, encoder or Brightness()), 12, PRECISION)


def scene(streets: Path, look: Looker, frames: NDArray[np.uint8] | None = None) -> Scene:
    """Two clips of the test split; `frames [T]` gives their brightness instead of the street."""
    clips = Corpus.open(streets).evaluation("test")
    batch = next(iter(EvaluationLoader(clips, WINDOW, 2, 0)))
    if frames is not None:
        shown = np.broadcast_to(frames[:, None, None, None], (16, 32, 32, 3)).astype(np.uint8)
        batch = Batch(torch.from_numpy(shown)[None].repeat(2, 1, 1, 1, 1), batch.clips, batch.times)
    return Scene(batch, Known(), look, SETTINGS)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """`blind` and `brightness` can be opened by name."""
    encoders = {"blind": Blind(), "brightness": Brightness()}
    monkeypatch.setattr(module, "open_encoder", lambda arch, weights, **how: encoders[arch])


def test_an_encoder_is_scored_from_the_command_line(
    streets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = FrozenEncoder("nano", build(TINY).encoder, "a small one in its place")
    asked: list[tuple[str, Path | None]] = []

    def opened(arch: str, weights: Path | None, **how: object) -> FrozenEncoder:
        asked.append((arch, weights))
        return small

    monkeypatch.setattr(module, "open_encoder", opened)
    words = ["scorecard", str(streets), "--encoder", "nano=some.pt", "--out", str(tmp_path), "--clips", "1"]
    result = CliRunner().invoke(app, [*words, "--set", "probes.fit_clips=4", "--set", "probes.choose_clips=1"])
    assert result.exit_code == 0, result.output
    assert asked == [("nano", Path("some.pt"))]
    assert "clips were read at 128 px" in result.output
    assert re.search(r"Taxonomy F1 ↑ +[01]\.\d{4}", result.output)
    scores = Scores.read(tmp_path)
    assert scores.values("method") == ["frozen:nano"]
    assert {*scores.values("diagnostic")} == {*infos()}
    columns = scores.columns()
    for name, info in infos().items():
        mine = (columns["diagnostic"] == name) & (columns["variant"] == (info.headline or "tp/pedestrian"))
        assert len(columns["value"][mine]) == 1, name
    assert scores.runs[0].run == "a small one in its place"


@pytest.mark.usefixtures("made_up")
def test_a_finished_part_is_kept_and_another_question_is_asked_anew(streets: Path, tmp_path: Path) -> None:
    first = scorecard(streets, [("brightness", None)], tmp_path, SETTINGS, CPU, WINDOW)
    again = scorecard(streets, [("brightness", None)], tmp_path, SETTINGS, CPU, WINDOW)
    assert (first.again, again.again) == ([], ["brightness"])
    assert again.scores.table.equals(first.scores.table)
    assert not scorecard(streets, [("brightness", None)], tmp_path, SETTINGS, CPU, WINDOW, context=10).again


@pytest.mark.usefixtures("made_up")
def test_an_encoder_whose_part_was_deleted_is_named_when_its_scores_go(
    streets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("blind", "brightness"):
        scorecard(streets, [(name, None)], tmp_path, SETTINGS, CPU, WINDOW)
    assert not caplog.messages
    (tmp_path / "parts" / "blind.parquet").unlink()
    scorecard(streets, [("brightness", None)], tmp_path, SETTINGS, CPU, WINDOW)
    assert any("loses the scores of blind: " in said for said in caplog.messages)


@pytest.mark.usefixtures("made_up")
def test_encoders_stand_in_one_table_and_are_compared(streets: Path, tmp_path: Path) -> None:
    audit = SETTINGS.model_copy(update={"split": "audit"})
    scorecard(streets, [("blind", None)], tmp_path, audit, CPU, WINDOW)
    both = scorecard(streets, [("brightness", None)], tmp_path, audit, CPU, WINDOW).scores
    assert both.values("method") == ["frozen:blind", "frozen:brightness"]
    columns = both.columns()

    def values(diagnostic: str) -> NDArray[np.float64]:
        mine = (columns["diagnostic"] == diagnostic) & (columns["method"] == "frozen:blind")
        return np.asarray(columns["value"][mine & (columns["variant"] == "pooled")], np.float64)

    # Who sees nothing is right in one of K; all of eight steps of half a second come back to the first.
    known = {"arrow_of_time": 1 / 2, "temporal_order": 1 / 2, "playback_pace": 1 / 3, "tcc_kendall_tau": 0,
             "tcc_cycle_back": 1.75}  # fmt: skip
    for diagnostic, expected in known.items():
        np.testing.assert_allclose(values(diagnostic), expected, atol=1e-9, err_msg=diagnostic)
    result = CliRunner().invoke(app, ["compare", str(tmp_path), "--out", str(tmp_path / "compared")])
    assert result.exit_code == 0, result.output
    assert "frozen:brightness" in result.output or "brightness" in result.output


def test_an_encoder_is_shown_the_context_and_nothing_later(streets: Path) -> None:
    look = looker(FrozenEncoder("tiny", build(TINY).encoder, "random"))
    before, after = scene(streets, look), scene(streets, look)
    after.frames_BTHW3[:, 12:] = 255 - after.frames_BTHW3[:, 12:]
    asks = (PLAIN, Predict(REVERSED), Paced(1, 3), Paced(3, 3))
    seen, seen_later = Looked(look, before, asks), Looked(look, after, asks)
    for ask in asks:
        assert seen[ask].tokens_BtD.equal(seen_later[ask].tokens_BtD), ask
    assert seen[PLAIN].tokens_BtD.shape == (2, 6 * 4 * 4, 48)
    assert not seen[PLAIN].tokens_BtD.equal(seen[Predict(REVERSED)].tokens_BtD)


def test_an_image_encoder_gives_one_step_for_two_frames(streets: Path) -> None:
    look = looker()
    ramp = np.linspace(0, 200, 16).round()
    steps = look.steps(scene(streets, look, ramp).frames_BTHW3[:, :4])
    assert steps.shape == (2, 2, 4, 4)
    single = cast(Tensor, look.frozen.tokens(scene(streets, look, ramp).frames_BTHW3[:, :2])).mean(1)
    torch.testing.assert_close(steps[:, 0], torch.nn.functional.layer_norm(single, (4,)), atol=1e-4, rtol=0)


def test_steps_that_differ_are_matched_in_order_and_the_same_ones_backwards_are_not(streets: Path) -> None:
    look = looker()
    seconds, tau = correspondence(look, scene(streets, look, np.linspace(0, 240, 16).round()))
    assert seconds.tolist() == [0.0, 0.0]
    assert tau.tolist() == [1.0, 1.0]
    there_and_back = np.array([0, 0, 80, 80, 160, 160, 240, 240, 240, 240, 160, 160, 80, 80, 0, 0])
    _, tau = correspondence(look, scene(streets, look, there_and_back))
    assert (tau < 1).all()


def test_the_matched_views_share_a_third_of_the_picture_at_other_places() -> None:
    """At the same place any pixel would do: raw ones matched even with odd frames as well as an encoder did."""
    column = np.broadcast_to(np.arange(96, dtype=np.uint8)[:, None], (1, 4, 96, 96, 3))
    left, right = views(column)
    assert left.shape == right.shape == (1, 4, 64, 64, 3)
    assert set(left[..., 0].ravel()) & set(right[..., 0].ravel()) == set(range(32, 64))
    assert not (left == right).any()


def test_noise_comes_back_by_chance_as_often_as_is_said() -> None:
    generator = torch.Generator().manual_seed(0)
    for n in (4, 8):
        found = cycle_back(torch.rand(20_000, n, n, generator=generator)).mean()
        assert float(found) == pytest.approx(chance_of_cycle_back(n), rel=0.02)


def test_what_needs_a_predictor_is_refused(streets: Path) -> None:
    look = looker()
    shown = scene(streets, look)
    with pytest.raises(DiagnosticsError, match="cannot be asked"):
        Looked(look, shown, [FromEarly(2)])
    with pytest.raises(DiagnosticsError, match="cannot be asked"):
        Looked(look, shown, [Predict(hidden=0.5)])
    with pytest.raises(DiagnosticsError, match="predicts nothing"):
        shown.target()
    with pytest.raises(DiagnosticsError, match="tubelets of 3 frames"):
        look.use(cast(FrozenEncoder, SimpleNamespace(step=3, name="odd")))


def test_the_verb_names_what_is_wrong(streets: Path, tmp_path: Path) -> None:
    def invoke(*words: str) -> str:
        result = CliRunner().invoke(app, ["scorecard", str(streets), "--out", str(tmp_path / "card"), *words])
        assert result.exit_code == 1
        return str(result.exception)

    assert "did you mean 'nano'" in invoke("--encoder", "nana")
    assert "nano is named twice" in invoke("--encoder", "nano", "--encoder", "nano")
    assert "whole steps of 2 frames" in invoke("--encoder", "nano", "--context", "13")
    assert "no such weights file" in invoke("--encoder", f"dinov2_vits14={tmp_path / 'absent.pth'}")


def test_a_scorecard_does_not_join_with_scores_of_methods() -> None:
    """Its formulas say what is read: the same name would not make the numbers comparable."""
    from factorjepa.diagnostics.registry import DIAGNOSTICS

    of_methods = {one.info.name: one.info for one in DIAGNOSTICS}
    for name, info in infos().items():
        assert info != of_methods[name]
        assert dataclasses.replace(info, formula="", provenance="") == dataclasses.replace(
            of_methods[name], formula="", provenance=""
        )
