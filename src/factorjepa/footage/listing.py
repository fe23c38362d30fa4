"""Which files there are, and what is known of each: from folders, or from a CSV that somebody has filled in.

Names and fields are not to be trusted: a path that leads out of its folder is refused, and what becomes part of an id
or of a file name keeps letters, digits and dashes only.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from ..corpus.checks import CAPTURE_MODES, report
from ..corpus.manifest import Clip
from ..corpus.splits import Split
from ..errors import CorpusError, StorageError
from ..storage import inside, write_text
from ..words import counted
from .measuring import Measures

COLUMNS = ("file", "city", "session", "capture_mode")
OPTIONAL = ("split", "scene_type", "illumination", "weather", "road_context")
FILLED = {"privacy", "source_file", "source_sha256", "transforms", *Measures.__dataclass_fields__}  # besides a Clip's
_MODES = {
    "drive": "drive", "driving": "drive", "dashcam": "drive", "walk": "walk", "walking": "walk",
    "aerial": "aerial", "drone": "aerial", "drive-through": "drive", "walk-through": "walk",
}  # fmt: skip
_SEPARATORS = {";": "semicolons", "\t": "tabs"}  # what spreadsheets write where the comma is the decimal sign
_NAME_BYTES = 80  # of a part of an id; file systems allow 255 for all of a name


@dataclass(frozen=True)
class Listed:
    """A file and what is known of it before it is opened."""

    path: Path  # where it lies now; not kept
    file: str  # what it is called in the corpus' tables: relative, with "/" between
    city: str = ""
    session: str = ""
    capture_mode: str = ""
    split: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    refused: str = ""  # why it will not be opened at all


def list_sources(sources: Sequence[Path], capture_mode: str = "") -> list[Listed]:
    """Every file of the given files, folders and CSV tables, in a lasting order."""
    found: list[Listed] = []
    for source in sources:
        if source.suffix.lower() == ".csv" and source.is_file():
            found += read_table(source)
        elif source.is_dir():
            found += _in_folder(source, f"{clean(source.resolve().name)}/" if len(sources) > 1 else "")
        elif source.is_file():
            found.append(_derived(source, source.name, (source.resolve().parent.name,)))
        else:
            raise CorpusError(f"{source}: no such file or folder")
    if capture_mode:
        found = [one if one.capture_mode else replace(one, capture_mode=_mode(capture_mode)) for one in found]
    twice = sorted(path for path, times in Counter(_true_path(one.path) for one in found).items() if times > 1)
    if twice:
        raise CorpusError(f"{twice[0]}: is listed more than once ({counted(len(twice), 'such file')})")
    called = Counter(one.file for one in found)
    if same := [one for one in found if called[one.file] > 1]:
        raise CorpusError(
            f"{same[0].path} and {same[1].path}: both would be called {same[0].file!r}; rename one of them"
        )
    return sorted(found, key=lambda one: one.file)


def refuse_nested(sources: Sequence[Path], out: Path) -> None:
    """A corpus inside its own footage would be footage of the next run."""
    corpus = out.resolve()
    for source in sources:
        footage = source.resolve()
        if footage.is_dir() and corpus.is_relative_to(footage):
            raise CorpusError(
                f"{out}: lies in the footage {source}, and would be taken for footage; choose another --out"
            )
        if footage.is_relative_to(corpus):
            raise CorpusError(f"{source}: lies in the corpus {out}; choose another --out")


def refuse_unknown(found: Sequence[Listed]) -> None:
    """Every file that will be opened must have a city, a session and a capture mode."""
    taken = [one for one in found if not one.refused]
    if not taken:
        raise CorpusError("there are no files to ingest: name videos, folders of videos or a CSV")
    unknown = {name: [one.file for one in taken if not getattr(one, name)] for name in COLUMNS[1:]}
    said = [
        f"{name} is not known of {counted(len(files), 'file')}, first {files[0]!r}"
        for name, files in unknown.items()
        if files
    ]
    if said:
        option = (
            "give --capture-mode drive, walk or aerial if it is one for all, or " if unknown["capture_mode"] else ""
        )
        raise CorpusError(
            f"{'; '.join(said)}: {option}fill in that column of the table (--template writes one) and ingest that"
        )


def read_table(path: Path) -> list[Listed]:
    """The rows of a CSV; files are looked for under the folder that it lies in. Everything wrong is said at once."""
    header, rows = _read_csv(path)
    names = [_column(name) for name in header]
    problems = _header_problems(header, names)
    known, found = set(COLUMNS) <= set(names), []
    for line, cells in rows:
        # Not strict: a row may be short, its last columns empty; a long one is refused below.
        values = dict(zip(names, (clean(cell) for cell in cells), strict=False))
        if len(cells) > len(names):
            problems.append(f"line {line}: has more fields than the header")
        elif known and values.get("file"):
            one, wrong = _from_row(path.resolve().parent, {**dict.fromkeys(names, ""), **values})
            problems += [f"line {line}: {what}" for what in wrong]
            found.append(one)
        elif known and any(values.values()):
            filled = ", ".join(name for name, value in values.items() if value)
            problems.append(f"line {line}: names no file, but has {filled}")
    if not rows:
        problems.append("it has no rows")
    if problems:
        raise CorpusError(report(str(path), problems))
    return found


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """The header, and each row that is not blank with the number of the line that it ends on."""
    try:
        reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True)
        rows = [(reader.line_num, cells) for cells in reader if cells]
    except UnicodeDecodeError:  # what spreadsheets write unless told otherwise
        raise CorpusError(
            f"{path}: cannot be read as CSV, its letters are not in UTF-8: save it again as UTF-8"
        ) from None
    except (OSError, csv.Error) as error:
        raise CorpusError(f"{path}: cannot be read as CSV ({error})") from None
    header = rows[0][1] if rows else []
    if len(header) == 1 and (separator := next((one for one in _SEPARATORS if one in header[0]), "")):
        raise CorpusError(
            f"{path}: its columns are separated by {_SEPARATORS[separator]}, not by commas; save it again with commas"
        )
    return header, rows[1:]


def _header_problems(header: Sequence[str], names: Sequence[str]) -> list[str]:
    if not header:
        return []
    problems = [f"column {name!r} is missing" for name in COLUMNS if name not in names]
    for name, times in Counter(names).items():
        if times > 1 and name:
            spelt = ", ".join(repr(given) for given, one in zip(header, names, strict=True) if one == name)
            problems.append(f"column {name!r} is there {times} times ({spelt}); keep one")
    fixed = {item.name for item in fields(Clip)} - {*COLUMNS, "split"} | FILLED
    return problems + [
        f"column {name!r} has the name of a column that ingest fills; rename it"
        for name in dict.fromkeys(names)
        if name in fixed or name.startswith("privacy_")
    ]


def write_template(path: Path, found: Iterable[Listed]) -> None:
    """A CSV with the files found and empty fields to complete, to lie above the files."""
    if path.exists():
        raise CorpusError(f"{path}: exists; a table that somebody may have filled in is not overwritten")
    folder = path.resolve().parent
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *OPTIONAL))
    for one in found:
        if one.refused:
            continue
        if not _true_path(one.path).is_relative_to(folder):
            raise CorpusError(
                f"{path}: must lie in a folder above the files it lists ({one.path} is not under {folder})"
            )
        where = _true_path(one.path).relative_to(folder).as_posix()
        if not where.isprintable():
            raise CorpusError(f"{one.file!r}: its name has characters that a table cannot hold; rename it")
        writer.writerow((where, one.city, one.session, one.capture_mode, *("" for _ in OPTIONAL)))
    write_text(path, text.getvalue())


def clean(text: str) -> str:
    """One line of text without control characters or blanks around it."""
    kept = "".join(" " if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") else c for c in text)
    return " ".join(unicodedata.normalize("NFC", kept).split())


def slug(text: str) -> str:
    """What is safe in an id, a path and an archive, in any script: letters, marks and digits, with dashes between."""
    kept = "".join(c if unicodedata.category(c)[0] in "LMN" else "-" for c in clean(text).lower())
    short = "-".join(part for part in kept.split("-") if part)
    while len(short.encode()) > _NAME_BYTES:
        short = short[:-1]
    return short or f"x{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


def _true_path(path: Path) -> Path:
    """Of a link that leads to itself, its own: `Path.resolve` would raise."""
    return Path(os.path.realpath(path))


def _in_folder(folder: Path, called: str) -> list[Listed]:
    """Everything below a folder but hidden files; CITY/SESSION/FILE where there are as many levels."""
    root = folder.resolve()
    found = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if any(part.startswith(".") for part in parts) or path.suffix.lower() == ".csv" or path.is_dir():
            continue
        name = called + clean("/".join(part.encode(errors="replace").decode() for part in parts))
        try:
            inside(root, str(path.relative_to(root)))
        except StorageError:
            found.append(Listed(path, name, refused="is a link that leads out of its folder"))
            continue
        if not path.is_file():
            found.append(Listed(path, name, refused="is not a plain file"))
            continue
        found.append(_derived(path, name, parts[:-1] or (root.name,)))
    return found


def _derived(path: Path, name: str, above: tuple[str, ...]) -> Listed:
    """City, session and capture mode as far as the folders above a file tell."""
    mode = next((_MODES[word] for part in above for word in slug(part).split("-") if word in _MODES), "")
    places = [part for part in above if slug(part) not in _MODES] or list(above)
    session = "-".join(places[1:]) or "all"
    return Listed(path, name, clean(places[0]), clean(session), mode)


def _from_row(folder: Path, values: Mapping[str, str]) -> tuple[Listed, list[str]]:
    """A file as its row describes it, and everything that is wrong with the row."""
    wrong = []
    path, mode, split = folder, "", values.get("split", "").lower()
    try:
        path = inside(folder, values["file"])
        if not path.is_file():
            wrong.append(f"there is no file {values['file']!r} under {folder}")
    except StorageError as error:
        wrong.append(str(error))
    if split and split not in tuple(Split):
        wrong.append(f"split {split!r} is none of {', '.join(Split)}")
    try:
        mode = _mode(values["capture_mode"]) if values["capture_mode"] else ""
    except CorpusError as error:
        wrong.append(str(error))
    attributes = {key: value for key, value in values.items() if key and key not in (*COLUMNS, "split") and value}
    name = path.relative_to(folder).as_posix()
    return Listed(path, clean(name), values["city"], values["session"], mode, split, attributes), wrong


def _mode(word: str) -> str:
    mode = _MODES.get("-".join(word.lower().replace("_", " ").replace("-", " ").split()), "")
    if not mode:
        raise CorpusError(f"capture mode {word!r} is none of {', '.join(CAPTURE_MODES)}")
    return mode


def _column(name: str) -> str:
    return "_".join(clean(name).lower().replace("-", " ").split())
