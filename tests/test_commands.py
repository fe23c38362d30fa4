"""Commands are kept as they were given, and none is invented."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa import commands


def test_a_line_names_what_lies_here_from_here_and_the_rest_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    words = ["train", str(tmp_path / "a corpus"), "--out", "runs/a", f"weights={tmp_path / 'w.pt'}", "/elsewhere/x"]
    assert commands.line_of(words) == "factorjepa train 'a corpus' --out runs/a weights=w.pt /elsewhere/x"
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert commands.line_of(["train"]) == "factorjepa train  # in 8 processes, by torchrun"


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_a_shell_reads_a_line_back_as_it_was_given(words: list[str]) -> None:
    kept = [word for word in words if not word.rpartition("=")[2].startswith("/")]
    assert shlex.split(commands.line_of(kept)) == ["factorjepa", *kept]


def test_a_folder_keeps_every_command_once_and_nothing_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_line", "")
    commands.record(tmp_path)
    assert list(tmp_path.iterdir()) == []
    for line in ("factorjepa train a", "factorjepa train a --resume", "factorjepa train a"):
        commands.carry_out(line)
        commands.record(tmp_path)
    assert commands.recorded(tmp_path) == ["factorjepa train a", "factorjepa train a --resume"]
    assert commands.recorded(tmp_path / "nowhere") == []
