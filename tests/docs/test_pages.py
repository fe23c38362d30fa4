"""README and docs are true: links lead somewhere, commands are taken, their settings exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from factorjepa.cli import app
from factorjepa.config import Settings, resolve
from factorjepa.diagnostics.settings import EvaluateSettings
from factorjepa.footage.configuration import IngestConfiguration
from factorjepa.regime.settings import Thresholds
from factorjepa.rendering.settings import DecodeSettings
from factorjepa.study import StudySettings
from factorjepa.teacher.settings import TeacherSettings
from factorjepa.training.pretrain import PretrainSettings
from factorjepa.training.settings import PRESET_OF, TrainSettings
from factorjepa.world import WorldSettings

from .pages import PAGES, ROOT, Said, commands, headings, links

Asked = dict[str, Any]  # a verb's parameters


def _study(asked: Asked, overrides: list[str]) -> Settings:
    settings = resolve(StudySettings, asked["preset"], overrides)
    settings.jobs(Path(), Path())  # settings of its runs
    return settings


SETTINGS: dict[str, Callable[[Asked, list[str]], Settings]] = {
    "simulate": lambda asked, overrides: resolve(WorldSettings, asked["preset"], overrides),
    "ingest": lambda asked, overrides: resolve(IngestConfiguration, asked["preset"], overrides),
    "targets": lambda asked, overrides: resolve(TeacherSettings, asked["preset"], overrides),
    "regime measure": lambda asked, overrides: resolve(Thresholds, asked["preset"], overrides),
    "regime compare": lambda asked, overrides: resolve(Thresholds, asked["preset"], overrides),
    "trunk": lambda asked, overrides: resolve(TrainSettings, asked["preset"], overrides, data="-"),
    "train": lambda asked, overrides: resolve(
        TrainSettings, asked["preset"], overrides, data="-", method=asked["method"]
    ),
    "pretrain": lambda asked, overrides: resolve(PretrainSettings, overrides=overrides),
    "profile": lambda asked, overrides: resolve(
        TrainSettings, PRESET_OF.get(asked["arch"], "nano"), overrides, data="-", arch=asked["arch"]
    ),
    "evaluate": lambda asked, overrides: resolve(EvaluateSettings, None, overrides),
    "decode train": lambda asked, overrides: resolve(DecodeSettings, asked["preset"], overrides, data="-"),
    "decode evaluate": lambda asked, overrides: resolve(EvaluateSettings, None, overrides),
    "study": _study,
}


def taken(said: Said) -> tuple[str, Asked]:
    """The verb and its parameters, as the command line understands them."""
    words = list(said.words[said.words.index("factorjepa") + 1 :])
    verb, context, path = typer.main.get_command(app), None, ""
    while isinstance(verb, typer.core.TyperGroup):
        context = typer.Context(verb, parent=context)
        name, verb, words = verb.resolve_command(context, words)
        assert verb is not None
        path = f"{path} {name}".strip()
    return path, verb.make_context(path, words, parent=context).params


def check(said: Said) -> None:
    """An error of the command line, or of the settings, unless all is well."""
    try:
        verb, asked = taken(said)
    except Exception as error:
        if type(error).__name__ == "MissingParameter" and (not said.whole or said.words[-1] == "..."):
            return
        raise
    if verb in SETTINGS:
        SETTINGS[verb](asked, asked.get("overrides") or asked.get("change") or [])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    for file, heading in links(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{file} is not there"
        assert not heading or heading in headings(target), f"{file or page.name} has no heading {heading}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_are_taken_and_their_settings_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # presets that are named by their path
    refused = []
    for said in commands(page):
        if said.words[0] != "python" and not {"VERB", "--help"} & set(said.words):
            try:
                check(said)
            except Exception as error:
                refused.append(f"{' '.join(said.words)}: {getattr(error, 'message', error)}")
    assert not refused, "\n".join(refused)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_benchmarks_are_there_and_know_their_options(page: Path) -> None:
    for said in commands(page):
        if said.words[0] == "python":
            script = (ROOT / said.words[1]).read_text(encoding="utf-8")
            for option in (word.removeprefix("--") for word in said.words[2:] if word.startswith("--")):
                assert f'"--{option}"' in script or f'("{option}", ' in script, f"{said.words[1]} has no --{option}"


def test_pages_are_read() -> None:
    """Were nothing found on them, nothing above could fail."""
    found = [said for page in PAGES for said in commands(page)]
    assert len(found) > 200
    assert sum(said.words[0] == "python" for said in found) > 40
    assert sum(len(list(links(page))) for page in PAGES) > 150


@pytest.mark.parametrize(
    "wrong",
    [
        "factorjepa trian out", "factorjepa train out --outt runs/a", "factorjepa train out --out a lrr=1",
        "factorjepa decode train out", "factorjepa study --out a methods=[factorjepaa]",
    ],
)  # fmt: skip
def test_a_command_that_would_be_refused_is_found(wrong: str) -> None:
    with pytest.raises(Exception, match=r"No such|Missing|there is no|lrr"):
        check(Said(tuple(wrong.split()), whole=True))
