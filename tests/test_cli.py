"""The command line as people use it: help with examples, errors in words, exit codes for scripts."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image, ImageSequence
from typer.main import get_command

import factorjepa
from factorjepa import environment
from factorjepa.backbones import build
from factorjepa.backbones.checkpoint import save
from factorjepa.cli import app
from factorjepa.config import resolve
from factorjepa.corpus.manifest import MANIFEST, Manifest
from factorjepa.corpus.simulated import SimulationPlan, simulate_corpus
from factorjepa.study import StudySettings
from factorjepa.verbs import study
from factorjepa.video import probe
from factorjepa.world import WorldSettings

Processes = Callable[..., "subprocess.CompletedProcess[str]"]
Command = Callable[..., Any]
SMALL = ["size=48", "seconds=[1,1]", "fps=8", "cities=[navapur,gulmohar,lohapur,mehrabad]"]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("corpora")
    for preset in ("dense", "sparse"):
        world = resolve(WorldSettings, preset, SMALL)
        simulate_corpus(folder / preset, SimulationPlan(seed=5, clips=6, world=world), workers=1)
    return folder / "dense", folder / "sparse"


@pytest.fixture
def footage(corpora: tuple[Path, Path], tmp_path: Path) -> Path:
    """Clips without ground truth, as footage has them."""
    folder = tmp_path / "footage"
    shutil.copytree(corpora[0], folder, ignore=shutil.ignore_patterns("*.truth.npz"))
    return folder


def verbs() -> dict[str, list[str]]:
    """Every verb that can be typed, with the words that lead to it."""
    found = {}
    root = get_command(app)
    for name, verb in root.commands.items():  # type: ignore[attr-defined]
        inner = getattr(verb, "commands", None)
        for words in [[name, each] for each in inner] if inner else [[name]]:
            found[" ".join(words)] = words
    return found


class TestHelp:
    def test_groups_the_verbs(self, command: Command) -> None:
        said = command("--help").stdout
        panels = [line for line in said.splitlines() if line.startswith("╭")]
        names = [re.sub(r"[╭─╮ ]", "", panel) for panel in panels]
        assert [name for name in names if name in ("Data", "Model", "Look")] == ["Data", "Model", "Look"]
        assert "Commands" not in names  # nobody is left without a group
        for verb in ("simulate", "pack", "inspect", "preview", "info", "demo", "features", "weights"):
            assert re.search(rf"^│ {verb} ", said, re.M), verb

    @pytest.mark.parametrize("name", sorted(verbs()))
    def test_every_verb_shows_an_example_of_itself(self, name: str) -> None:
        from typer.testing import CliRunner

        words = verbs()[name]
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}, terminal_width=200)
        assert shown.exit_code == 0
        assert f"Example: factorjepa {name}" in re.sub(r"\s+", " ", shown.output)

    def test_examples_use_options_that_exist(self) -> None:
        from typer.testing import CliRunner

        for name, words in verbs().items():
            text = CliRunner().invoke(app, [*words, "--help"], terminal_width=400).output
            example = re.search(rf"Example: +(factorjepa {name}.*)", text)
            assert example is not None
            for option in re.findall(r"--[a-z0-9-]+", example[1]):
                assert text.count(option) >= 2, (name, option)  # once in the example, once in the list

    def test_no_verb_shows_help_and_a_wrong_verb_is_an_error(self, command: Command) -> None:
        bare = command()
        assert "Usage" in bare.stdout + bare.stderr
        wrong = command("simulat")
        assert wrong.returncode == 2
        assert "simulate" in wrong.stderr  # did you mean

    def test_version(self, command: Command) -> None:
        ran = command("--version")
        assert (ran.returncode, ran.stdout.strip()) == (0, factorjepa.__version__)


def test_info_has_what_a_bug_report_needs(command: Command) -> None:
    ran = command("info")
    assert ran.returncode == 0
    for word in ("factorjepa", "python", "torch", "numpy", "memory", "device", "cores", factorjepa.__version__):
        assert word in ran.stdout


class TestInspect:
    def test_two_corpora_are_compared_by_ratio(self, command: Command, corpora: tuple[Path, Path]) -> None:
        ran = command("inspect", *corpora)
        assert ran.returncode == 0, ran.stderr
        assert "dense / sparse" in ran.stdout
        means = [
            np.mean([clip.attributes["agents_per_frame"] for clip in Manifest.read(folder)])  # type: ignore[arg-type]
            for folder in corpora
        ]
        row = next(line for line in reversed(ran.stdout.splitlines()) if "agents per frame" in line)
        assert float(row.split()[-1].rstrip("x")) == pytest.approx(means[0] / means[1], abs=0.011)
        assert float(row.split()[-3]) == pytest.approx(means[0], rel=0.01)

    def test_one_corpus_shows_composition_splits_and_measures(
        self, command: Command, corpora: tuple[Path, Path]
    ) -> None:
        said = command("inspect", corpora[0]).stdout
        assert "6 clips from 2 sources" in said
        assert "dense / sparse" not in said
        for words in ("Splits", "Clips by city and capture mode", "occupancy", "moved > 1/2 body", "median 1.0"):
            assert words in said

    def test_the_folder_one_stands_in_has_a_name_too(
        self, command: Command, corpora: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(corpora[0])
        said = command("inspect", ".", corpora[1]).stdout
        assert "dense / sparse" in said

    def test_a_reader_that_closes_early_is_no_error_to_shout_about(self, corpora: tuple[Path, Path]) -> None:
        program = Path(sys.executable).with_name("factorjepa")
        ran = subprocess.run(f"{program} inspect {corpora[0]} | head -1", shell=True, capture_output=True, text=True)
        assert "Traceback" not in ran.stderr
        assert "Exception" not in ran.stderr


class TestPreview:
    def test_writes_a_contact_sheet_and_a_moving_picture(
        self, command: Command, corpora: tuple[Path, Path], tmp_path: Path
    ) -> None:
        ran = command("preview", corpora[0], "--out", tmp_path / "p", "--count", 4)
        assert ran.returncode == 0, ran.stderr
        assert str(tmp_path / "p" / "overlay.gif") in ran.stdout
        with Image.open(tmp_path / "p" / "contact_sheet.png") as sheet:
            pixels = np.asarray(sheet.convert("RGB"))
        assert pixels.shape[1] > 4 * 200
        assert pixels.std() > 20
        with Image.open(tmp_path / "p" / "overlay.gif") as moving:
            pictures = [np.asarray(frame.convert("RGB")).astype(int) for frame in ImageSequence.Iterator(moving)]
        assert len(pictures) > 4
        assert np.abs(pictures[0] - pictures[-1]).mean() > 0.5
        left, right = np.split(pictures[0][:, : pictures[0].shape[1] // 2 * 2], 2, axis=1)
        assert np.abs(left - right).mean() > 5  # the truth is drawn over one of the two

    def test_can_write_a_film_of_a_chosen_clip(
        self, command: Command, corpora: tuple[Path, Path], tmp_path: Path
    ) -> None:
        chosen = Manifest.read(corpora[0])[3]
        ran = command("preview", corpora[0], "--out", tmp_path, "--clip", chosen.clip_id, "--mp4")
        assert ran.returncode == 0, ran.stderr
        assert chosen.clip_id in ran.stdout
        info = probe(tmp_path / "overlay.mp4")
        assert info.seconds == pytest.approx(chosen.seconds, abs=0.2)
        assert info.width > info.height

    def test_a_clip_without_ground_truth_is_shown_alone_and_not_called_an_overlay(
        self, command: Command, footage: Path, tmp_path: Path
    ) -> None:
        ran = command("preview", footage, "--out", tmp_path / "p")
        assert ran.returncode == 0, ran.stderr
        assert sorted(path.name for path in (tmp_path / "p").iterdir()) == ["clip.gif", "contact_sheet.png"]
        assert "nothing drawn over it: it has no ground truth" in ran.stdout
        assert "make them with factorjepa targets" in ran.stdout
        with Image.open(tmp_path / "p" / "clip.gif") as moving:
            assert moving.width == moving.height

    def test_packets_that_were_named_must_be_there(self, command: Command, footage: Path, tmp_path: Path) -> None:
        ran = command("preview", footage, "--out", tmp_path / "p", "--packets", tmp_path / "none")
        assert ran.returncode == 1
        assert f"{tmp_path / 'none'}: holds no header.json" in ran.stderr

    def test_an_unknown_clip_names_the_nearest(self, command: Command, corpora: tuple[Path, Path]) -> None:
        known = Manifest.read(corpora[0])[0].clip_id
        ran = command("preview", corpora[0], "--clip", known[:-1] + "7")
        assert ran.returncode == 1
        assert "there is no clip" in ran.stderr
        assert known in ran.stderr
        assert "Traceback" not in ran.stderr

    def test_a_corpus_without_clips_is_an_error_in_words(self, command: Command, tmp_path: Path) -> None:
        Manifest([]).write(tmp_path)
        for verb in ("preview", "inspect"):
            ran = command(verb, tmp_path)
            assert "Traceback" not in ran.stderr, ran.stderr[-300:]

    def test_damaged_truth_is_named(self, command: Command, corpora: tuple[Path, Path], tmp_path: Path) -> None:
        folder = tmp_path / "damaged"
        shutil.copytree(corpora[1], folder)
        chosen = Manifest.read(folder)[0]
        (folder / chosen.path).with_suffix(".truth.npz").write_bytes(b"PK\x03\x04 no")
        ran = command("preview", folder, "--clip", chosen.clip_id)
        assert ran.returncode == 1
        assert chosen.clip_id in ran.stderr
        assert "simulate" in ran.stderr
        assert "Traceback" not in ran.stderr


class TestErrors:
    @pytest.mark.parametrize("verb", ["inspect", "preview"])
    def test_a_folder_without_manifest(self, command: Command, tmp_path: Path, verb: str) -> None:
        ran = command(verb, tmp_path)
        assert ran.returncode == 1
        assert ran.stderr.startswith("error:")
        assert MANIFEST in ran.stderr
        assert ran.stdout == ""

    def test_all_wrong_settings_at_once_with_the_valid_keys(self, command: Command, tmp_path: Path) -> None:
        ran = command("simulate", tmp_path / "x", "size=63", "densty=2", "clutter=lots")
        assert ran.returncode == 1
        assert "Found 3 errors" in ran.stderr
        assert "size: must be even: H.264 stores colour at half resolution (got 63)" in ran.stderr
        assert "densty: unknown key (did you mean 'density'?); valid keys: regime, size" in ran.stderr
        assert "clutter: " in ran.stderr
        assert not (tmp_path / "x").exists()

    def test_an_unknown_preset_names_the_nearest(self, command: Command, tmp_path: Path) -> None:
        ran = command("simulate", tmp_path / "x", "--preset", "dens")
        assert ran.returncode == 1
        assert "did you mean 'dense'?" in ran.stderr

    def test_a_foreign_folder(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        ran = command("simulate", tmp_path, "--clips", 1, *SMALL)
        assert ran.returncode == 1
        assert "not empty" in ran.stderr
        assert os.listdir(tmp_path) == ["notes.txt"]  # and nothing is left there

    @pytest.mark.parametrize("words", [["--clips", "0"], ["--seed", "-1"], ["--workers", "0"], ["--clip", "3"]])
    def test_wrong_usage_has_its_own_exit_code(self, command: Command, tmp_path: Path, words: list[str]) -> None:
        ran = command("simulate", tmp_path / "x", *words)
        assert ran.returncode == 2
        assert not (tmp_path / "x").exists()

    def test_square_brackets_in_an_error_are_shown_as_they_are(self, command: Command, tmp_path: Path) -> None:
        ran = command("inspect", tmp_path / "[bold]x[/bold]")
        assert "[bold]x[/bold]" in ran.stderr


def test_simulate_from_words_to_a_corpus(process: Processes, tmp_path: Path) -> None:
    ran = process("simulate", tmp_path / "out", "--clips", 20, "--seed", 1, "--preset", "sparse", "--workers", 2,
                  "size=32", "seconds=[1,1]", "cities=[navapur,gulmohar,lohapur,mehrabad]")  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "20 clips in" in ran.stdout
    assert "factorjepa inspect" in ran.stdout
    assert "simulate: 20 clips of 20 clips" in ran.stderr  # plain lines, because this is no terminal
    manifest = Manifest.read(tmp_path / "out")
    assert {clip.attributes["regime"] for clip in manifest} == {"sparse"}
    assert {str(clip.split) for clip in manifest} >= {"train", "audit"}


def test_one_clip_is_singular(command: Command, tmp_path: Path) -> None:
    ran = command("simulate", tmp_path / "out", "--clips", 1, *SMALL)
    assert ran.stdout.startswith(f"1 clip in {tmp_path}")
    assert "simulate: 1 clip of 1 clip," in ran.stderr
    assert "no clips for validation, test, audit" in ran.stderr
    assert "--clips 35 gives each some" in ran.stderr
    assert "1 clip from 1 source in 1 city, " in command("inspect", tmp_path / "out").stdout


def test_simulate_says_what_it_repaired(command: Command, tmp_path: Path) -> None:
    words = ("simulate", tmp_path / "out", "--clips", 2, "--workers", 1, *SMALL)
    assert "made again" not in command(*words).stderr
    victim = tmp_path / "out" / Manifest.read(tmp_path / "out")[1].path
    victim.write_bytes(victim.read_bytes()[:-100])
    ran = command(*words)
    assert "1 damaged clip made again:" in ran.stderr
    assert f"{victim}: had " in ran.stderr


@pytest.mark.parametrize(("file", "named"), [("out/a.bin", "out/a.bin: the disk is full"),
                                             (None, "a file that is written: the disk is full")])  # fmt: skip
def test_a_full_disk_is_said_wherever_it_strikes(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, named: str
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)

    monkeypatch.setattr(Manifest, "read", full)
    ran = command("inspect", tmp_path)
    assert ran.returncode == 1
    assert named in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 768. GiB"), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
              RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 24 bytes")],
)  # fmt: skip
def test_what_does_not_fit_into_memory_is_said(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def hungry(folder: Path) -> None:
        raise error

    monkeypatch.setattr(Manifest, "read", hungry)
    ran = command("inspect", tmp_path)
    assert ran.returncode == 1
    assert "there is not enough memory for this" in ran.stderr
    assert "batch, size" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("word", ["seed=-1", "seed=99999999999999999999999", "size=65536"])
def test_values_that_no_machine_could_bear_are_refused(command: Command, tmp_path: Path, word: str) -> None:
    ran = command("train", tmp_path, "--out", tmp_path / "run", word)
    assert ran.returncode == 1
    assert f"{word.partition('=')[0]}:" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(("name", "complaint"), [("tpu", "there is no device 'tpu': choose cpu or cuda"),
                                                 ("quantum", "there is no device 'quantum'")])  # fmt: skip
def test_a_device_that_is_not_there_is_said(command: Command, tmp_path: Path, name: str, complaint: str) -> None:
    ran = command("evaluate", tmp_path / "run", "--out", tmp_path / "s", "--device", name)
    assert ran.returncode == 1
    assert complaint in ran.stderr


def test_a_study_goes_from_streets_to_a_report_and_finishes_what_was_begun(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Worker processes would take longer to start than to work.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    small = {"dim": 48, "depth": 4, "heads": 2, "mlp_hidden": 96, "taps": (0, 1, 2, 3), "grid": (4, 4),
             "predictor_dim": 48, "predictor_depth": 2, "predictor_heads": 2}  # fmt: skip
    save(build("nano", **small), tmp_path / "small.safetensors")
    training = {"arch": "file", "weights": str(tmp_path / "small.safetensors"), "size": 32, "dictionary_clips": 8}
    out = tmp_path / "demo"
    words = [
        "study", "--preset", "demo", "--out", out, "methods=[frozen,full,wise_0.3]", "seeds=[17]", "clips=20",
        "tested=3", "examples=0", "decoding.updates=1", "decoding.batch=4", "side_by_side=1", "beside_teacher=1",
        'street=["size=32","seconds=[4.5,4.6]"]', "training.updates=1", "tuned={wise_0.3: {keep: 1}}",
        "tuning={lr: [0.00001, 0.001]}",
        *(f"training.{key}={value}" for key, value in training.items()),
    ]  # fmt: skip
    assert "there is no method 'loar' (did you mean 'lora'?)" in command(*words, "tuned={loar: {lr: 0.1}}").stderr
    ran = command(*words, "tuned={wise_0.3: {keep: 1}, lora: {lr: 0.1}}", "--until", "targets")
    assert ran.returncode == 0, ran.stderr
    assert "tuned: not used for lora, which the study does not have" in ran.stderr
    assert not (out / "runs").exists()
    ran = command(*words)
    assert ran.returncode == 0, ran.stderr
    assert "not finished" not in ran.stderr
    assert "full: lr=" in (out / "beside" / "runs_without_packets.log").read_text() + ran.stdout  # whoever chose it
    assert "decoder.safetensors" in (out / "beside" / "decoder.log").read_text()
    assert [line[:3] for line in ran.stdout.splitlines() if line[1:3] == "/9"] == [f"{k}/9" for k in range(1, 10)]
    tried = (out / "tuning" / "chosen.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in tried[1:]] == [["file", "full", "1e-05"], ["file", "full", "0.001"]]
    (chosen,) = [line.split(",")[2] for line in tried if line.endswith(",yes")]
    assert f"lr: {float(chosen)}" in (out / "runs" / "full-17" / "config.yaml").read_text()
    assert "full: lr=" in ran.stdout
    assert "training.lr is not used: lr is tuned" in ran.stderr
    page = out / "scores" / "report" / "index.html"
    assert "Does factorization help?" in page.read_text(encoding="utf-8")
    shown = page.read_text(encoding="utf-8")
    assert "runs frozen-17, full-17 and wise_0.3-17" in shown, "the page says who trained them"
    assert f"factorjepa study --preset demo --out {out}" in shown
    assert f"Open {page}" in ran.stdout
    assert (out / "decoder" / "decoder.safetensors").is_file(), "this backbone has no packaged one"
    page.unlink()
    checkpoint = next((out / "runs" / "full-17" / "checkpoints").glob("*/weights.safetensors"))
    before = checkpoint.stat().st_mtime_ns
    again = command(*words)
    assert again.returncode == 0, again.stderr
    assert page.exists()
    assert checkpoint.stat().st_mtime_ns == before  # what was finished is left as it was
    other = command(*words, "training.lr=0.01")
    assert other.returncode == 1
    assert "lr" in other.stderr


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("seeds=[1,1]", "more than once"),
        ("methods=[frozen,frozen]", "more than once"),
        ("methods=[]", "methods: names none: a study needs at least one"),
        ("measuring=[probs.fit=1]", "did you mean 'probes'"),
        ("teacher=[regiones.kind=truth]", "did you mean 'regions'"),
        ("training.losses={factor: .nan}", "losses.factor"),
        ("tuning={lr: [0.1]}", "two or more different values"),
        ("tuning={rate: [0.1, 0.2]}", "tuning: rate is no setting of a run"),
        ("context=8", "did you mean 'training.context'?"),
        ("seed=3", "did you mean 'seeds'?"),
        ("training.contex=8", "training: contex is no setting of a run (did you mean 'context'?)"),
        ("tuned={full: {lrr: 1}}", "tuned: full: lrr is no setting of a run (did you mean 'lr'?)"),
        ("preset=small", "make them on a GPU with `factorjepa pretrain runs/small arch=small`"),
        ("training.weights=nothing.safetensors", "nothing.safetensors"),
        ("data=nowhere", "nowhere"),
    ],
)
def test_a_study_refuses_before_it_begins(command: Command, tmp_path: Path, word: str, complaint: str) -> None:
    ran = command("study", "--out", tmp_path / "s", word)
    assert ran.returncode == 1
    assert complaint in ran.stderr
    assert not (tmp_path / "s").exists()


def test_the_demo_is_a_study(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[StudySettings, Path]] = []

    def run(settings: StudySettings, out: Path) -> Path:
        asked.append((settings, out))
        return out / "page"

    monkeypatch.setattr(study, "run_study", run)
    ran = command("demo", "--out", tmp_path, "--clips", 24, "--updates", 3)
    assert f"Open {tmp_path / 'page'}" in ran.stdout
    settings, out = asked[0]
    assert (settings.clips, settings.training["updates"], out) == (24, 3, tmp_path)
    assert settings.methods == ("frozen", "auto_rgn", "factorjepa_raw", "factorjepa")


def test_the_verbs_are_plain_functions_that_typer_understands() -> None:
    assert isinstance(app, typer.Typer)
    assert len(verbs()) >= 8


def test_facts_name_the_commit_of_the_checkout_and_of_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(environment.__file__).parent
    commit = subprocess.run(["git", "-C", package, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    monkeypatch.delenv("FACTORJEPA_COMMIT", raising=False)
    environment._commit.cache_clear()
    told = environment.facts()["factorjepa"]
    assert (f", commit {commit[:12]}" in told) == bool(commit)
    # Installed into an environment that lies in somebody's own repository.
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "venv" / "factorjepa" / "environment.py"))
    (tmp_path / "venv" / "factorjepa").mkdir(parents=True)
    environment._commit.cache_clear()
    assert environment.facts()["factorjepa"] == factorjepa.__version__
    monkeypatch.setenv("FACTORJEPA_COMMIT", "0123456789ab")
    environment._commit.cache_clear()
    assert environment.facts()["factorjepa"] == f"{factorjepa.__version__}, commit 0123456789ab"
    environment._commit.cache_clear()
