"""Strict configuration: presets in YAML, dotted `key=value` overrides, every error named at once.

Each room declares its own settings as a `Settings` subclass; this module only knows how to fill one in and how to
explain what is wrong. An unknown key is an error that names the nearest valid key.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_jsonable_python

from .errors import ConfigError
from .words import nearest

SettingsType = TypeVar("SettingsType", bound="Settings")


class Settings(BaseModel):
    """Base of every configuration section: unknown keys are errors, values are immutable once resolved."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
    inside: ClassVar[Mapping[str, Collection[str]]] = {}  # a mapping of this section -> keys that it takes


def resolve(
    model: type[SettingsType], preset: str | Path | None = None, overrides: Sequence[str] = (), **values: Any
) -> SettingsType:
    """Build `model` from a preset (name or YAML path), then `values` that are not None, then dotted overrides."""
    data: dict[str, Any] = {}
    if preset is not None:
        data = _read_yaml(preset_path(preset, model))
    for key, value in values.items():
        if value is not None:
            data[key] = value
    malformed = []
    for override in overrides:
        try:
            _apply_override(data, override, model)
        except ConfigError as error:
            malformed.append(str(error))
    if malformed:
        raise ConfigError("\n".join(malformed))
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError(explain(error, model, _blamed(error, preset, overrides))) from None


def _blamed(error: ValidationError, preset: str | Path | None, overrides: Sequence[str]) -> str:
    """Where whoever made the mistakes is to look."""
    given = [override.partition("=")[0].strip().split(".") for override in overrides]
    places = [[str(part) for part in problem["loc"]] for problem in error.errors()]

    def theirs(place: list[str], key: list[str]) -> bool:
        """Whether the mistake is in what was given there; one of a section as a whole may be the preset's."""
        return place[: len(key)] == key or (preset is None and key[: len(place)] == place)

    if all(any(theirs(place, key) for key in given) for place in places):
        return "what was given as key=value"
    return str(preset) if preset else "the configuration"


def dump(settings: Settings) -> str:
    """The resolved settings as YAML, in declaration order."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update(flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value})
    return flat


def defaults(model: type[Settings]) -> dict[str, Any]:
    """What `dump` says of settings that are left as they are."""
    fields = model.model_fields.items()
    return {
        name: to_jsonable_python(field.get_default(call_default_factory=True))
        for name, field in fields
        if not field.is_required()
    }


def preset_names(model: type[BaseModel]) -> list[str]:
    """The shipped presets of these settings: those whose every key is one of theirs."""
    paths = sorted(preset_folder().glob("*.yaml"))
    return [path.stem for path in paths if _read_yaml(path).keys() <= model.model_fields.keys()]


def preset_folder() -> Path:
    """Where the shipped presets lie: inside an installed wheel, or `configs/` of a source checkout."""
    packaged = Path(__file__).parent / "configs"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "configs"


def preset_path(preset: str | Path, model: type[BaseModel]) -> Path:
    """A path is taken as it is (it has a suffix or a separator); anything else names a shipped preset."""
    text = str(preset)
    if text.endswith((".yaml", ".yml")) or os.sep in text:
        return Path(text)
    path = preset_folder() / f"{text}.yaml"
    if not path.is_file():
        names = preset_names(model)
        raise ConfigError(f"there is no preset {text!r}{nearest(text, names)}; presets: {', '.join(names)}")
    return path


def first_problem(error: ValidationError) -> str:
    """In one line, of a file that nobody wrote by hand: what is wrong with it, and where."""
    first, *more = error.errors()
    place = ".".join(map(str, first["loc"]))
    return f"{f'{place}: ' if place else ''}{first['msg']}{f' and {len(more)} more' if more else ''}"


def explain(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """All validation errors, one line each: dotted key, what was wrong, and the nearest valid key."""
    problems = error.errors()
    lines = [f"Found {len(problems)} error{'s' if len(problems) != 1 else ''} in {source}:"]
    listed: list[Sequence[str]] = []  # keys that were told already
    for problem in problems:
        location = tuple(problem["loc"])
        key = ".".join(map(str, location)) or "(top level)"
        valid: list[str] | None = None
        if problem["type"] == "extra_forbidden":
            valid = _keys_at(model, location[:-1])
        elif problem["type"] == "literal_error" and location[-1] == "[key]":  # a mapping whose keys are given
            location = location[:-1]
            key, valid = ".".join(map(str, location)), re.findall("'([^']+)'", problem["ctx"]["expected"])
        if valid is not None:
            meant = _elsewhere(model, location, problem["input"], valid) or nearest(str(location[-1]), valid)
            told = f"; valid keys: {', '.join(valid)}" if valid not in listed else ""
            listed.append(valid)
            lines.append(f"  {key}: unknown key{meant}{told}")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            said = problem["type"] != "missing" and not isinstance(problem["input"], Mapping)  # of a section: itself
            shown = f" (got {problem['input']!r})" if said else ""
            lines.append(f"  {key}: {message[0].lower()}{message[1:]}{shown}")
    return "\n".join(lines)


def _elsewhere(model: type[BaseModel], location: tuple[int | str, ...], value: Any, valid: Sequence[str]) -> str:
    """A question after the same key one level deeper, or higher."""
    key = str(location[-1])
    if isinstance(value, dict) and value and value.keys() <= set(valid):
        return f" (did you mean {', '.join(map(repr, value))}, without {key!r}?)"
    if len(location) == 1 and issubclass(model, Settings):
        for section, keys in model.inside.items():
            if key in keys:
                return f" (did you mean {f'{section}.{key}'!r}?)"
    return ""


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        place = f", line {where.line + 1}" if where is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{path}{place}: is not valid YAML ({what}); restore or correct the file") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, not a {type(data).__name__}")
    return data


def _apply_override(data: dict[str, Any], override: str, model: type[BaseModel]) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"override {override!r} is not of the form key=value, for example {_example(model)}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from None
    *parents, last = key.strip().split(".")
    node = data
    if parents and parents[0] not in data and parents[0] in model.model_fields:
        default = model.model_fields[parents[0]].get_default(call_default_factory=True)
        if isinstance(default, dict):  # one entry of a mapping changes; the others keep their defaults
            data[parents[0]] = dict(default)
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {parent!r} is a value, not a section")
        node = child
    node[last] = value


def _example(model: type[BaseModel]) -> str:
    """An override that this model takes."""
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if isinstance(default, str | int | float):
            return f"{name}={default}"
    return "key=value"


def _keys_at(model: type[BaseModel], location: Iterable[int | str]) -> list[str]:
    """Valid keys of the section at `location`, following nested models through optionals, lists and mappings."""
    current: type[BaseModel] | None = model
    for part in location:
        if current is None:
            return []
        if isinstance(part, str) and part in current.model_fields:
            current = _model_inside(current.model_fields[part].annotation)
    return list(current.model_fields) if current else []


def _model_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        if found := _model_inside(argument):
            return found
    return None
