"""Effects by stratum: the same contrasts on the clips of one level of a manifest column. Descriptive: none decides.

Strata of density and occlusion come from `factorjepa regime measure`, which cuts them on training clips; any other
column of few words serves as well. Draws, estimand and intervals are those of the whole comparison.

Legend: N clips.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..corpus.manifest import Attribute, Manifest
from ..errors import FactorJEPAError, ScoresError
from ..regime.strata import DENSITY, LEVELS, STRATA
from ..scores import Scores
from ..words import counted
from .compare import FEW_CITIES, CompareSettings
from .contrasts import PRESPECIFIED, extended
from .estimand import Estimator, Request
from .intervals import bca
from .measures import Measure, measures_of
from .pairing import Pair, own_requests, pair_up
from .panel import panel_of
from .resampling import Mask
from .rows import StratumRow
from .verdict import LEAST_CITIES

Levels = Mapping[str, Mapping[str, str]]
"""Column -> clip -> level."""

_TOTAL = "total"
_MOST_LEVELS = 12  # a column with more is no stratum but a measurement or a name


def levels_of(manifest: Manifest, columns: Sequence[str] | None = None) -> Levels:
    """The strata of a corpus; without `columns` those of density and occlusion that it has."""
    by_clip: dict[str, dict[str, Attribute]] = {
        clip.clip_id: {"capture_mode": clip.capture_mode, **clip.attributes} for clip in manifest
    }
    known = {name for values in by_clip.values() for name in values}
    if columns is None:
        columns = [name for name in STRATA if name in known]
    found: dict[str, dict[str, str]] = {}
    for name in columns:
        if name not in known:
            raise ScoresError(
                f"the manifest has no column {name!r} to stratify by; it has: {', '.join(sorted(known))}. "
                "factorjepa regime measure writes density_stratum and occlusion_stratum"
            )
        found[name] = {clip_id: str(values[name]) for clip_id, values in by_clip.items() if name in values}
        if (many := len({*found[name].values()})) > _MOST_LEVELS:
            raise ScoresError(
                f"column {name!r} has {many} values, and strata have at most {_MOST_LEVELS}: name one that puts clips "
                "into a few groups"
            )
    return found


def strata_in(
    corpus: Path | None, scores: Scores, columns: Sequence[str] | None = None, required: bool = False
) -> Levels:
    """The strata of the scored clips, from the manifest of their corpus.

    None where it cannot be read, is not theirs or has none; what is `required` is missed aloud.
    """
    try:
        if corpus is None:
            raise ScoresError("strata are columns of a manifest: name the corpus of the scored clips with --data")
        manifest = Manifest.read(corpus)
        if missing := {*scores.values("clip_id")} - {clip.clip_id for clip in manifest}:
            raise ScoresError(
                f"{corpus}: {counted(len(missing), 'scored clip')} are not in its manifest, for example "
                f"{min(missing)!r}; name the corpus that was evaluated with --data"
            )
        if not (levels := levels_of(manifest, columns)):
            raise ScoresError(f"{corpus}: has no strata; run factorjepa regime measure {corpus}, or name columns: --by")
        return levels
    except FactorJEPAError:
        if required:
            raise
        return {}


def unmeasured(levels: Levels, scores: Scores) -> list[str]:
    """In words, how many scored clips the strata of a corpus do not know. Whatever is measured has a density."""
    known = levels.get(DENSITY, {})
    missing = sorted({*scores.values("clip_id")} - known.keys()) if known else []
    if not missing:
        return []
    return [
        f"{counted(len(missing), 'scored clip')} in no stratum, for example {missing[0]!r}: added to the corpus since "
        "it was measured? Run factorjepa targets and then factorjepa regime measure on it again"
    ]


def ordered(levels: Sequence[str]) -> list[str]:
    """Low, medium, high; words of other columns by the alphabet."""
    return sorted(set(levels), key=lambda level: (LEVELS.index(level) if level in LEVELS else len(LEVELS), level))


def shown_contrast(rows: Sequence[StratumRow]) -> str | None:
    """The contrast that a small table shows: the prespecified total, or else the first one that could be made."""
    known = list(dict.fromkeys(row.contrast for row in rows if not np.isnan(row.effect)))
    return next((name for name in (_TOTAL, *known) if name in known), None)


def stratified(scores: Scores, levels: Levels, settings: CompareSettings | None = None) -> list[StratumRow]:
    """Every contrast that can be made, level by level, on primary diagnostics (where there is none, on secondary ones).

    Clips without a level are in none.
    """
    settings = settings or CompareSettings()
    rows: list[StratumRow] = []
    for backbone in scores.values("backbone") if levels else ():
        panel = panel_of(scores, backbone, settings.common)
        masks = list(_masks(panel.clip_ids, levels))
        estimator = Estimator(panel, settings.replicates, settings.seed)
        families = {method: panel.family(method) for method in panel.methods}
        asked = settings.contrasts
        contrasts = [*PRESPECIFIED, *extended(panel.methods, families)] if asked is None else asked
        leading = "primary" if any(one.info.status == "primary" for one in panel.blocks.values()) else "secondary"
        for name, block in panel.blocks.items():
            if block.info.status != leading:
                continue
            headline = measures_of(block.info, block.variants)[0]
            own = own_requests(estimator, headline)
            pairs = [pair_up(estimator, headline, contrast, own) for contrast in contrasts]
            tested = [pair for pair in pairs if isinstance(pair, Pair)]
            for column, level, mask_N in masks:
                place = StratumRow(backbone, column, level, "", "", "", name)
                rows += _of_level(estimator, headline, tested, mask_N, place, settings.confidence)
    return rows


def _masks(clip_ids: Sequence[str], levels: Levels) -> Iterator[tuple[str, str, Mask]]:
    for column, of_clip in levels.items():
        here = np.array([of_clip.get(clip_id, "") for clip_id in clip_ids], object)
        for level in ordered([level for level in of_clip.values() if level]):
            if (mask_N := np.asarray(here == level, np.bool_)).any():
                yield column, level, mask_N


def _of_level(
    estimator: Estimator, measure: Measure, pairs: Sequence[Pair], mask_N: Mask, place: StratumRow, confidence: float
) -> list[StratumRow]:
    def within(request: Request) -> Request:
        return Request(request.method, request.seeds, (request.mask_N & mask_N).tobytes())

    sides = {pair.contrast.name: (within(pair.a), within(pair.b)) for pair in pairs}
    asked = [side for both in sides.values() for side in both if side.mask_N.any()]
    found = estimator.distributions(measure, asked, complete=False)
    rows = []
    for pair in pairs:
        row = StratumRow(place.backbone, place.column, place.level, pair.contrast.name, pair.contrast.a,
                         pair.contrast.b, place.diagnostic)  # fmt: skip
        rows.append(row)
        first, second = (found.get(side) for side in sides[pair.contrast.name])
        if first is None or second is None:
            row.note = "no clip of this level has a value for both"
        else:
            effect = first.over(second, measure.sign)
            scale = max(abs(first.estimate), abs(second.estimate))
            interval = bca(effect.estimate, effect.replicates_B, (effect.jackknife_J,), confidence, scale)
            row.effect, row.mean_a, row.mean_b = effect.estimate, first.estimate, second.estimate
            row.clips, row.sources, row.cities = effect.clips, effect.sources, effect.cities
            if row.cities < LEAST_CITIES:
                row.note = f"{counted(row.cities, 'city', 'cities')}: too few for an interval"
                continue
            row.low, row.high, row.interval = interval.low, interval.high, interval.kind
            narrow = f"{row.cities} cities: the interval is too narrow" if row.cities < FEW_CITIES else ""
            row.note = "; ".join(filter(None, (interval.note, narrow)))
    return rows
