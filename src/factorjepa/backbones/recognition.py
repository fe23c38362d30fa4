"""What a weights file holds: whether every key fits an architecture; if not, which differ and what it looks like."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import BackboneError
from .backbone import build
from .huggingface import SOURCE
from .reading import PARTS, Shapes, WeightsFile, open_weights
from .spec import BackboneSpec, name_of, names, resolve

Parts = Literal["both", "encoder"]

# 2.0 files carry sine-cosine tables that its rotary models never read.
_UNUSED_IN_20 = frozenset({"encoder.pos_embed", "predictor.predictor_pos_embed"})
# V-JEPA 1 has the blocks of 2.0 and does read its table, by whose size it is known: 16 frames at 224 or 384 px.
_TABLES_OF_1 = {(1, 8 * 14**2, 1024), (1, 8 * 14**2, 1280), (1, 8 * 24**2, 1280)}
_ROWS = 5  # of each kind in the table of a wrong file
_ALIKE = 0.5  # share of equal keys from which a file is said to be an architecture, though not exactly
_FOREIGN = 0.05  # share below which naming the nearest architecture would only mislead

_SPARE = 100  # predictor blocks and mask tokens that the header of an encoder alone may name
_LARGEST = 100_000  # of any number in a header's spec

Differences = dict[str, dict[str, str]]  # missing, unexpected, misshapen: key to what was expected and found


@dataclass(frozen=True)
class Recognised:
    """A file whose every key fits `spec`. `names` are the registered ones that it fits (sizes of 2.0 share shapes)."""

    spec: BackboneSpec
    names: tuple[str, ...]
    parts: Parts
    origin: str

    def __str__(self) -> str:
        what = " or ".join(self.names) or "a spec of its own (in its header)"
        return f"{what}, {'encoder and predictor' if self.parts == 'both' else 'encoder alone'}"


def recognise(path: Path) -> Recognised:
    """What the file holds, read from its keys; an error where that is no whole architecture known here."""
    weights = open_weights(path)
    parts: Parts = "both" if any(key.startswith("predictor.") for key in weights.shapes) else "encoder"
    declared = spec_in(weights)
    if declared is not None:
        candidates = {name_of(declared) or "": declared}
    else:
        candidates = {name: resolve(name) for name in names()}
    fitting = [name for name, spec in candidates.items() if not differences(weights, spec, parts)]
    if not fitting:
        if weights.run:
            raise BackboneError(_of_run(weights))
        (name, *_), share = most_likely(weights.shapes)
        if declared is not None:
            name = next(iter(candidates))
        elif share < _FOREIGN:
            few = ", ".join(f"{key} ({_text(shape)})" for key, shape in list(weights.shapes.items())[:_ROWS])
            more = f", … and {len(weights.shapes) - _ROWS} more" if len(weights.shapes) > _ROWS else ""
            raise BackboneError(f"{path}: holds {few or 'nothing'}{more}.\n  {_advice(weights, None)}")
        spec = candidates[name]
        raise BackboneError(explain(weights, spec, name or None, parts, differences(weights, spec, parts)))
    spec = candidates[fitting[0]]
    return Recognised(spec, tuple(name for name in fitting if name), parts, origin_of(weights, spec, parts))


def spec_in(weights: WeightsFile) -> BackboneSpec | None:
    """The spec in the header of one of our own files; None for any other file."""
    if not weights.header:
        return None
    try:
        spec = BackboneSpec.from_json(weights.header["spec"])
        sizes = (*dataclasses.astuple(spec), *spec.grid)
    except (KeyError, TypeError, ValueError, BackboneError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise BackboneError(
            f"{weights.path}: the spec in its header is not valid ({reason}); convert it again"
        ) from None
    modules = spec.depth + spec.predictor_depth + spec.mask_tokens
    # A header is somebody's word: nothing is built that its file could not fill.
    if modules > _SPARE + len(weights.shapes) or any(isinstance(size, int) and size > _LARGEST for size in sizes):
        raise BackboneError(f"{weights.path}: the spec in its header is larger than the file; convert it again")
    return spec


@functools.lru_cache(maxsize=32)
def wanted(spec: BackboneSpec, parts: Parts) -> Shapes:
    """Every key of a spec's state dict with its shape; not to be changed."""
    backbone = build(spec, device="meta")
    state = backbone.state_dict()
    return {key: tuple(state[key].shape) for key in state if parts == "both" or key.startswith("encoder.")}


def differences(weights: WeightsFile, spec: BackboneSpec, parts: Parts) -> Differences:
    """Empty when every key fits; else the kinds that occur, with a line for each key."""
    expected = wanted(spec, parts)
    found = {
        key: shape
        for key, shape in weights.shapes.items()
        if not (parts == "encoder" and key.startswith("predictor.")) and not _unused(key, shape, spec)
    }
    return compare(expected, found, weights.whole_numbers)


def compare(expected: Shapes, found: Shapes, whole_numbers: frozenset[str] = frozenset()) -> Differences:
    """Which keys are missing, unexpected or misshapen, with a line for each; empty when all fit."""
    kinds: Differences = {
        "missing": {key: f"expected {_text(shape)}" for key, shape in expected.items() if key not in found},
        "unexpected": {key: f"file has {_text(shape)}" for key, shape in found.items() if key not in expected},
        "misshapen": {
            key: f"expected {_text(shape)}, file has {_text(found[key])}{whole}"
            for key, shape in expected.items()
            if key in found
            for whole in (" of whole numbers" if key in whole_numbers else "",)
            if found[key] != shape or whole
        },
    }
    return {kind: rows for kind, rows in kinds.items() if rows}


def origin_of(weights: WeightsFile, spec: BackboneSpec, parts: Parts) -> str:
    """For logs and reports: the file, and which of its contents were taken."""
    if weights.header:
        inner = weights.header.get("origin")
        return f"{weights.path.name} ({inner})" if inner else weights.path.name
    taken = ", ".join(source for part, source in weights.sources.items() if parts == "both" or part == "encoder.")
    unused = [key.partition(".")[2] for key, shape in weights.shapes.items() if _unused(key, shape, spec)]
    left_out = f" (left out, never read by a rotary model: {', '.join(unused)})" if unused else ""
    return f"{weights.path.name}: {taken}{left_out}"


def explain(weights: WeightsFile, spec: BackboneSpec, arch: str | None, parts: Parts, found: Differences) -> str:
    """What is missing, unexpected and misshapen, a few of each, and what the file most likely is."""
    if weights.run:
        return _of_run(weights)
    named = arch or "this spec"
    if parts == "both" and not differences(weights, spec, "encoder") and _predictor_absent(weights):
        return (
            f"{weights.path}: holds the encoder of {named} and no predictor. Where the encoder is enough, as for "
            'features, say so: load(..., parts="encoder"), or `factorjepa weights convert --encoder-only`'
        )
    what = f"the encoder of {named}" if parts == "encoder" else f"the weights of {named}"
    return f"{table(weights.path, what, len(wanted(spec, parts)), found)}\n  {_advice(weights, arch)}"


def table(path: Path, what: str, keys: int, found: Differences) -> str:
    """How many keys differ in which way, and a few of each."""
    counts = ", ".join(f"{len(found.get(kind, ()))} {kind}" for kind in ("missing", "unexpected", "misshapen"))
    lines = [f"{path}: does not hold {what}: {counts} keys (of {keys})."]
    width = max(len(key) for rows in found.values() for key in list(rows)[:_ROWS])
    for kind, rows in found.items():
        lines += [f"  {kind:<10}  {key:<{width}}  {text}" for key, text in list(rows.items())[:_ROWS]]
        if len(rows) > _ROWS:
            lines.append(f"  {kind:<10}  … and {len(rows) - _ROWS} more")
    return "\n".join(lines)


def _of_run(weights: WeightsFile) -> str:
    """What a checkpoint is for: it holds what its run trained, and not a whole backbone under its released keys."""
    return (
        f"{weights.path}: is a checkpoint of a run of factorjepa: what that run trained, and no whole backbone. Name "
        "the run's folder instead: `factorjepa evaluate RUN --out SCORES` measures it, `factorjepa train ... --resume` "
        "goes on with it"
    )


def _advice(weights: WeightsFile, arch: str | None) -> str:
    declared = weights.header.get("arch")
    if declared and declared != arch:
        return f"The file says that it is {declared!r}: load it as that (--arch)."
    from .families import fitting as families_of  # it compares keys with what is above

    if others := families_of(weights):
        return f"It holds {' or '.join(others)}, an encoder to look through: `factorjepa scorecard` takes it."
    if SOURCE in weights.sources.values():
        return (
            "The file has the names of Hugging Face transformers. Of those, V-JEPA 2, I-JEPA and DINOv2 are read, "
            "whole and without a head: fetch such a file, or the publisher's own (`factorjepa weights list`)."
        )
    if weights.whole_numbers:
        return "Weights are floating point: the file was quantised, or is of another model."
    likely, share = most_likely(weights.shapes)
    fitting = " or ".join(map(repr, likely))
    if share < _FOREIGN:
        return "It resembles no architecture known here: it is of another model."
    if arch in likely or share < _ALIKE:
        return (
            f"No known architecture fits better (nearest: {fitting}, {share:.0%} of its keys): the file is of another "
            "model, or its keys were changed after training."
        )
    return f"Most likely it is {fitting} ({share:.0%} of its keys fit): load it as that (--arch)."


def agreement(expected: Shapes, found: Shapes) -> float:
    """The share of all keys that both have, in the same shape."""
    return sum(found.get(key) == shape for key, shape in expected.items()) / len(expected.keys() | found.keys())


def likeliest(shares: Mapping[str, float], asked: str, kind: str) -> str:
    """What to do with a file that is not the `kind` that was asked for, given how far each known one agrees with it."""
    likely = max(shares, key=shares.__getitem__)
    if likely == asked or shares[likely] < _ALIKE:
        return (
            f"No known {kind} fits better (nearest: {likely!r}, {shares[likely]:.0%} of its keys): the file is of "
            "another model, or its keys were changed after training."
        )
    return f"Most likely it is {likely!r} ({shares[likely]:.0%} of its keys fit): load it as that."


def most_likely(found: Shapes) -> tuple[tuple[str, ...], float]:
    """The registered architectures whose keys and shapes agree most with `found`, and the share that does.

    Only the parts that the file holds are compared: an encoder alone can fit wholly.
    """
    held = tuple(part for part in PARTS if any(key.startswith(part) for key in found)) or PARTS
    scores: dict[str, float] = {}
    for name in names():
        spec = resolve(name)
        expected = {key: shape for key, shape in wanted(spec, "both").items() if key.startswith(held)}
        present = {key: shape for key, shape in found.items() if not _unused(key, shape, spec)}
        scores[name] = agreement(expected, present)
    best = max(scores.values())
    return tuple(name for name, score in scores.items() if score == best), best


def _unused(key: str, shape: tuple[int, ...], spec: BackboneSpec) -> bool:
    return not spec.modalities and key in _UNUSED_IN_20 and shape not in _TABLES_OF_1


def _predictor_absent(weights: WeightsFile) -> bool:
    return not any(key.startswith("predictor.") for key in weights.shapes)


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
