"""What the street looks like ahead: decoded futures to flip between, their scores, and how often they fail how."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ..decoded import FOLDER, read_all_decoded
from ..errors import ScoresError
from ..rendering.gallery import column_order
from ..scores import DiagnosticInfo, Scores
from ..statistics import Comparison, ScoreRow
from ..statistics.comparison import FILE
from ..statistics.contrasts import OURS
from ..statistics.intervals import CONSTANT
from ..words import counted
from .failures import ATTRIBUTIONS, OURS_TOO, SYMPTOMS, plain
from .markup import Markup, joined, tag
from .material import Decoded, arranged
from .numbers import NOTHING, decimals, interval, number
from .strata import strata_tables
from .tables import Cell, table
from .viewer import viewers

SCORES, COMPARISON = "scores.parquet", "comparison"
COLUMNS = {
    "decoded_psnr": "PSNR", "decoded_ssim": "SSIM", "decoded_lpips": "LPIPS", "decoded_flow_epe": "Flow EPE",
    "decoded_agent_f1": "Agent F1",
}  # fmt: skip
L1, FAILURES = "decoded_l1", "decoded_failures"
ORACLE, COPY, DEFICIT, GAP, DYNAMIC = "oracle", "copy", "deficit", "gap", "dynamic"
_HORIZON, _WORDS = re.compile(r"h\d+"), {DYNAMIC: "moving regions"}
_ARROWS = {"lower": " \N{DOWNWARDS ARROW}", "higher": " \N{UPWARDS ARROW}"}
_AGAIN = "decoded futures are left out: {}; run `factorjepa decode evaluate` and `render` again"
_SECOND = 0.13  # so near to a second is a second


def read_futures(out: Path) -> tuple[Decoded, list[str]]:
    """What lies in OUT/decoded, and in words what of it could not be read."""
    examples, problems = read_all_decoded(out)
    folder = out / FOLDER
    if not (folder / SCORES).exists():
        return Decoded(examples), problems
    try:
        scores, comparison = Scores.read(folder / SCORES), Comparison.read(folder / COMPARISON)
    except ScoresError as error:
        why = str(error).partition("; ")[0]  # what to do is another verb's business here
        return Decoded(examples), [*problems, _AGAIN.format(why)]
    if (folder / COMPARISON / FILE).stat().st_mtime < (folder / SCORES).stat().st_mtime:
        return Decoded(examples), [*problems, _AGAIN.format("their comparison is older than their scores")]
    by = {"decoder": scores.evaluator.get("decoder"), "split": scores.evaluator.get("split")}
    strange = [one for one in examples if any(said and getattr(one, name) != said for name, said in by.items())]
    if strange:
        problems.append(
            f"decoded futures: {counted(len(strange), 'example')} left out, drawn by another decoder or of another "
            "split than the scores: render them again"
        )
    return Decoded([one for one in examples if one not in strange], scores, comparison), problems


def refuse_other_clips(decoded: Decoded, scores: Scores) -> tuple[Decoded, list[str]]:
    """Decoded scores beside latent ones must be of the same windows and split, and of clips that these have as well."""
    if decoded.scores is None:
        return decoded, []
    names = [name for name in ("split", "window") if decoded.scores.evaluator.get(name) != scores.evaluator.get(name)]
    if not {*decoded.scores.values("clip_id")} <= {*scores.values("clip_id")}:
        names.append("set of clips")
    if not names:
        return decoded, []
    return Decoded(), [_AGAIN.format(f"they were measured with another {' and '.join(names)} than the other scores")]


def heading(decoded: Decoded) -> str:
    furthest = [example.seconds[-1] for example in decoded.examples]
    if not furthest or all(abs(seconds - 1) < _SECOND for seconds in furthest):
        return "What the street looks like one second ahead"
    return f"What the street looks like {max(furthest):.2g} s ahead"


def section(decoded: Decoded, order: Sequence[str] = ()) -> Markup:
    """Pictures, then the paper's table, then the taxonomy's rates. Methods in the page's order."""
    said = (
        "One frozen decoder draws what each method predicts. It was trained on the true latents of training clips, "
        "never on a prediction. The oracle is its picture of the true latents: what is wrong there already is the "
        "decoder's limit, not the forecast's. All panels have the same range and size."
    )
    said += "".join(f" {one}" for one in dict.fromkeys(example.contour() for example in decoded.examples) if one)
    caution = (
        "Read with care: this shows what latents imply under one decoder. It is secondary to the latent metrics above, "
        "and what a channel's removal changes is no evidence that factors were identified."
    )
    return joined(
        tag("p", said),
        tag("p", caution, class_="missing"),
        viewers([replace(one, methods=arranged(one.methods, order)) for one in decoded.examples]),
        _measured(decoded.scores, decoded.comparison, order) if decoded.scores and decoded.comparison else None,
    )


def _measured(scores: Scores, comparison: Comparison, order: Sequence[str]) -> Markup:
    parts: list[Markup | None] = []
    for backbone in dict.fromkeys(row.backbone for row in comparison.scores):
        by_method = {row.method: row for row in comparison.scores if row.backbone == backbone}
        place = {method: number for number, method in enumerate(arranged(by_method, order))}
        rows = sorted((row for row in comparison.scores if row.backbone == backbone), key=lambda r: place[r.method])
        parts += [_quality(scores, rows, backbone), _gaps(rows, backbone), _horizons(scores, rows, backbone)]
        titles = {row.method: row.title for row in rows}
        parts.append(strata_tables(comparison, backbone, lambda name: COLUMNS.get(name, name), titles.__getitem__))
        parts.append(_counts(scores, rows, backbone))
    return joined(parts)


def _quality(scores: Scores, rows: Sequence[ScoreRow], backbone: str) -> Markup:
    """The paper's table: mean, interval, and in brackets the direction-normalised deficit to the oracle."""
    infos = {name: scores.diagnostics.get(name) for name in COLUMNS}
    methods, titles = _methods(rows)
    lines: list[list[str | Cell]] = []
    for title, variant in (("Target latent (oracle)", ORACLE), ("Last seen frame, repeated", COPY)):
        cells = [_cell(_first(rows, name, variant, methods)) for name in COLUMNS]
        if any(cell.value is not None for cell in cells):
            lines.append([Cell(title), *cells])
    for method in methods:
        cells = [_with_deficit(rows, name, method, infos[name]) for name in COLUMNS]
        lines.append([Cell(titles[method], class_="ours" if method == OURS else ""), *cells])
    heads: list[str | Cell] = ["latent source"]
    for name, short in COLUMNS.items():
        info = infos[name]
        arrow = _ARROWS[info.direction] if info else ""
        heads.append(Cell(f"{short}{arrow}", hint=f"{info.formula} ({info.unit})" if info else ""))
    said = (
        f"Means over cities with 95 % intervals, of {counted(len(scores.values('clip_id')), 'clip')}. In brackets the "
        "deficit to the oracle, turned so that a positive one is worse than the oracle."
    )
    absent = [
        tag("p", f"{short}: not available: {_why(scores, name)}.", class_="missing")
        for name, short in COLUMNS.items()
        if not any(math.isfinite(row.mean) for row in rows if row.diagnostic == name)
    ]
    caption = f"{backbone}: decoded futures against the observed one"
    return joined(tag("p", said, class_="missing"), table(heads, lines, caption, range(1, len(heads))), absent)


def _with_deficit(rows: Sequence[ScoreRow], diagnostic: str, method: str, info: DiagnosticInfo | None) -> Cell:
    row = _of(rows, diagnostic, method)
    if row is None or info is None:
        return Cell(NOTHING)
    known, oracle = _of(rows, diagnostic, method, DEFICIT), _of(rows, diagnostic, method, ORACLE)
    sign = 1.0 if info.direction == "lower" else -1.0
    apart = sign * (row.mean - oracle.mean) if oracle else math.nan
    return _cell(row, known.mean if known else apart, known)


def _cell(row: ScoreRow | None, deficit: float = math.nan, known: ScoreRow | None = None) -> Cell:
    if row is None or not math.isfinite(row.mean):
        return Cell(NOTHING, hint=row.note if row else "")
    places = decimals(row.low, row.high, row.mean)
    behind = f" ({number(deficit, places, sign=True)})" if math.isfinite(deficit) else ""
    shown = joined(number(row.mean, places), behind, tag("small", interval(row.low, row.high, places)))
    hint = f"{row.clips} clips, {row.cities} cities, {row.interval} interval{'; ' + row.note if row.note else ''}"
    if known is not None and math.isfinite(known.low):
        hint += f"; deficit {number(known.mean, places)} {interval(known.low, known.high, places)}"
    return Cell(shown, row.mean, hint=hint)


def _gaps(rows: Sequence[ScoreRow], backbone: str) -> Markup | None:
    """E_oracle, E_e2e and G_visible in pixel L1, for which E_e2e <= G_visible + E_oracle holds."""
    methods, titles = _methods(rows)
    lines: list[list[str | Cell]] = []
    for method in methods:
        cells = [_of(rows, L1, method, ORACLE), _of(rows, L1, method), _of(rows, L1, method, GAP)]
        if all(cell is not None for cell in cells):
            lines.append([Cell(titles[method], class_="ours" if method == OURS else ""), *map(_cell, cells)])
    if not lines:
        return None
    heads: list[str | Cell] = [
        "latent source", Cell("oracle", hint="oracle against observed"),
        Cell("end to end", hint="prediction against observed"), Cell("visible gap", hint="prediction against oracle"),
    ]  # fmt: skip
    caption = f"{backbone}: pixel L1, where the error comes in; end to end is at most the other two together"
    return tag("details", tag("summary", "Where the error comes in"), table(heads, lines, caption, (1, 2, 3)))


def _horizons(scores: Scores, rows: Sequence[ScoreRow], backbone: str) -> Markup | None:
    """Each metric frame by frame of the future, and where things move."""
    methods, titles = _methods(rows)
    drawn = []
    for name, short in COLUMNS.items():
        present = {row.variant for row in rows if row.diagnostic == name}
        shown = sorted(filter(_HORIZON.fullmatch, present), key=lambda variant: int(variant[1:]))
        shown += [DYNAMIC] if DYNAMIC in present else []
        if not shown:
            continue
        lines: list[list[str | Cell]] = [
            [Cell(titles[method], class_="ours" if method == OURS else ""),
             *(_cell(_of(rows, name, method, variant)) for variant in shown)]
            for method in methods
        ]  # fmt: skip
        heads = [_WORDS.get(variant, f"frame {variant[1:]}") for variant in shown]
        caption = f"{backbone}: {short}{_ARROWS[scores.diagnostics[name].direction]}"
        drawn.append(table(["latent source", *heads], lines, caption, range(1, len(heads) + 1)))
    if not drawn:
        return None
    return tag("details", tag("summary", "Frame by frame, and where things move"), drawn)


def _counts(scores: Scores, rows: Sequence[ScoreRow], backbone: str) -> Markup | None:
    """Symptoms downwards, methods along: how often decoded futures show it, and where it comes in."""
    held = scores.select(backbone=backbone, diagnostic=FAILURES).table
    if not held.num_rows:
        return None
    sums = held.group_by(["method", "variant"]).aggregate([("value", "sum"), ("value", "count")]).to_pylist()
    counted: dict[tuple[str, str, str], tuple[int, int]] = {}
    for one in sums:
        symptom, _, attribution = one["variant"].partition("/")
        place = (one["method"], plain(symptom), plain(attribution))
        counted[place] = (round(one["value_sum"]), one["value_count"])
    methods, titles = _methods([row for row in rows if row.diagnostic == FAILURES])
    found = {(row.method, row.variant): row for row in rows if row.diagnostic == FAILURES}
    best = {row.variant.partition("/")[0]: row for row in found.values() if row.variant.endswith(f"/{ORACLE}")}
    lines: list[list[str | Cell]] = []
    for symptom, (name, means) in SYMPTOMS.items():
        cells: list[str | Cell] = [Cell(joined(name, tag("small", means)))]
        if best:
            cells.append(_rate(next((row for key, row in best.items() if plain(key) == symptom), None)))
        for method in methods:
            row = next((one for (who, key), one in found.items() if who == method and plain(key) == symptom), None)
            amount, of = counted.get((method, symptom, ""), (0, 0))
            parts = [counted.get((method, symptom, key), (0, 0))[0] for key in ATTRIBUTIONS]
            hint = "; ".join(f"{part} {said}" for part, said in zip(parts, ATTRIBUTIONS.values(), strict=True))
            cells.append(_rate(row, f"{amount} of {of}: {' / '.join(map(str, parts))}" if of else "", hint))
        lines.append(cells)
    said = (
        f"Share of clips, with its 95 % interval over cities (none where all are alike); below it, clips of all seeds: "
        f"{' / '.join(ATTRIBUTIONS.values())}. "
        f"{'The oracle: looked at as if it were a prediction. ' if best else ''}Attribution is diagnostic, not causal: "
        f"a predicted latent may be one that no decoder has met. {OURS_TOO}"
    )
    heads: list[str | Cell] = [
        "symptom", *(["Target latent (oracle)"] if best else []), *(titles[method] for method in methods)
    ]  # fmt: skip
    drawn = table(heads, lines, f"{backbone}: failures found in decoded futures", range(1, len(heads)), "symptoms")
    return joined(tag("p", said, class_="missing"), drawn)


def _rate(row: ScoreRow | None, below: str = "", hint: str = "") -> Cell:
    """A share in per cent with its interval; none where all cities agree, from which nothing can be drawn again."""
    if row is None or not math.isfinite(row.mean):
        return Cell(NOTHING, hint=row.note if row else "")
    known = math.isfinite(row.low) and row.interval != CONSTANT
    ends = f" [{100 * row.low:.0f}, {100 * row.high:.0f}]" if known else ""
    shown = joined(f"{100 * row.mean:.0f} %{ends}", tag("small", below) if below else None)
    sure = f"{row.clips} clips, {row.cities} cities, {row.interval} interval{'; ' + row.note if row.note else ''}"
    return Cell(shown, row.mean, hint="; ".join(filter(None, (hint, sure))))


def _methods(rows: Iterable[ScoreRow]) -> tuple[list[str], dict[str, str]]:
    titles = {row.method: row.title for row in rows}
    return column_order(titles), titles


def _of(rows: Sequence[ScoreRow], diagnostic: str, method: str, variant: str | None = None) -> ScoreRow | None:
    """The headline unless a variant is asked for; of an F1 that is computed from counts, `f1/<variant>`."""
    for row in rows:
        same = row.headline if variant is None else row.variant in (variant, f"f1/{variant}")
        if row.diagnostic == diagnostic and row.method == method and same:
            return row
    return None


def _first(rows: Sequence[ScoreRow], diagnostic: str, variant: str, methods: Sequence[str]) -> ScoreRow | None:
    """Oracle and copy are the same for every method; FactorJEPA's is taken, or the last that has one."""
    found = [_of(rows, diagnostic, method, variant) for method in reversed(methods)]
    return next((row for row in found if row is not None and math.isfinite(row.mean)), None)


def _why(scores: Scores, diagnostic: str) -> str:
    reasons = [one.reason for run in scores.runs for one in run.missing if one.diagnostic == diagnostic]
    return reasons[0].rstrip(".") if reasons else "it was not measured"
