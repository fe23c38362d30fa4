"""The folders are the data's way: imports go only from later stages to earlier ones."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "factorjepa"

# world -> corpus -> footage|backbones -> teacher -> regime, predictors -> adaptation+training -> diagnostics ->
# rendering -> statistics -> report; objective with the training, profiling beside the diagnostics. Backbones come
# before the teacher, which looks through one of them (docs/decisions/models.md).
STAGE = {
    "world": 1, "corpus": 2, "footage": 3, "backbones": 3, "teacher": 4, "regime": 5, "predictors": 6, "objective": 7,
    "adaptation": 8, "training": 9, "diagnostics": 10, "profiling": 10, "rendering": 11, "statistics": 12, "report": 13,
}  # fmt: skip
HELPERS = {
    "", "config", "errors", "storage", "seeding", "video", "terminal", "environment", "pixels", "words", "workers",
    "signals", "runlengths", "scores", "examples", "peers", "transfer", "detectors", "commands", "missing", "engines",
    "decoded", "sharing",
}  # fmt: skip
TOP = {"cli", "verbs", "study", "__main__"}
HEAVY = {
    "ray", "diffusers", "onnxruntime", "wandb", "torchvision", "transformers", "peft", "motmetrics", "statsmodels",
    "matplotlib", "tensorboard", "onnx", "trackers", "supervision",
}  # fmt: skip
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def room_of(path: Path) -> str:
    """ "world" for world/street.py, "config" for config.py, "" for the package itself."""
    first = path.relative_to(PACKAGE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


@functools.cache
def imported(path: Path, text: str | None = None) -> list[tuple[str, int, bool]]:
    """Absolute names of the modules a file imports, where, and whether that happens when it is imported."""
    return list(_imported(path, ast.parse(path.read_text(encoding="utf-8") if text is None else text)))


def _imported(path: Path, tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    later = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _for_types_only(node)
        for inner in ast.walk(node)
    }
    package = ["factorjepa", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) not in later
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno, id(node) not in later


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def target_room(module: str) -> str | None:
    """The room of ours that a module name leads to; None for packages of others."""
    parts = module.split(".")
    if parts[0] != "factorjepa":
        return None
    known = STAGE.keys() | HELPERS | TOP
    return parts[1] if len(parts) > 1 and parts[1] in known else ""


def offence(room: str, target: str) -> str | None:
    """Why `room` must not import `target`, or None."""
    if target == room or target in HELPERS:
        return None
    if target in TOP:
        return None if room in TOP else f"{target} is on top: nobody imports it"
    if room in TOP:
        return None
    if room in HELPERS:
        return f"{room or 'the package'} is at the bottom and imports no room"
    if STAGE[target] < STAGE[room]:
        return None
    return f"{room} comes before {target}"


def test_every_module_belongs_to_a_room_of_the_design() -> None:
    unknown = {room_of(path) for path in SOURCES} - STAGE.keys() - HELPERS - TOP
    assert not unknown, f"say in tests/test_architecture.py where these stand: {unknown}"


def test_imports_go_only_from_later_stages_to_earlier_ones() -> None:
    offences = []
    for path in SOURCES:
        for module, line, _ in imported(path):
            target = target_room(module)
            if target is not None and (why := offence(room_of(path), target)):
                offences.append(f"{path.relative_to(ROOT)}:{line} imports {module}: {why}")
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("world", "from ..corpus import manifest"), ("world", "from factorjepa.corpus.manifest import Clip"),
        ("corpus", "import factorjepa.backbones"), ("corpus", "from .. import verbs"), ("corpus", "from .. import cli"),
        ("storage", "from . import world"), ("config", "from .world import clip"),
        ("backbones", "from ..predictors import x"),
    ],
)  # fmt: skip
def test_the_rule_catches_offenders(room: str, line: str) -> None:
    """A rule that nothing can break is no rule."""
    path = PACKAGE / f"{room}.py" if room in HELPERS else PACKAGE / room / "x.py"
    targets = [target_room(module) for module, _, _ in imported(path, line)]
    assert any(target is not None and offence(room_of(path), target) for target in targets)


@pytest.mark.parametrize(
    ("room", "line"), [("corpus", "from ..world import clip"), ("world", "from ..errors import WorldError"),
                       ("verbs", "from ..corpus import store"), ("world", "from .street import Street")],
)  # fmt: skip
def test_the_rule_lets_the_rest_pass(room: str, line: str) -> None:
    targets = [target_room(module) for module, _, _ in imported(PACKAGE / room / "x.py", line)]
    assert not any(target is not None and offence(room, target) for target in targets)


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    offences = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in SOURCES
        for module, line, at_once in imported(path)
        if at_once and module.split(".")[0] in HEAVY
    ]
    assert not offences, "\n".join(offences)


def test_the_command_line_starts_without_torch() -> None:
    code = "import sys, factorjepa.cli; print([m for m in ('torch', 'cv2', 'av', 'pyarrow') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "[]", ran.stderr


def test_importing_the_world_or_the_corpus_loads_no_later_room() -> None:
    code = (
        "import sys, factorjepa.world, factorjepa.corpus\n"
        "print(sorted({m.split('.')[1] for m in sys.modules if m.startswith('factorjepa.')}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    loaded = set(ast.literal_eval(ran.stdout))
    assert loaded <= HELPERS | {"world", "corpus"}


def test_a_file_fits_in_a_head() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in
               (*SOURCES, *TESTS)}  # fmt: skip
    assert not {path: length for path, length in lengths.items() if length > 500}


def test_sources_name_no_place_of_this_machine() -> None:
    place = re.compile(r"\.\./shared|(?<![\w.])/(work|home|root|Users|mnt|tmp|scratch)/")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*SOURCES, *sorted((ROOT / "configs").glob("*.yaml"))]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if place.search(line)
    ]
    assert not found, "\n".join(found)


def test_there_is_no_room_for_odds_and_ends() -> None:
    names = {part.removesuffix(".py") for path in SOURCES for part in path.relative_to(PACKAGE).parts}
    assert not names & {"utils", "util", "helpers", "misc", "common"}
