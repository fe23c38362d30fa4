"""Which clips an evaluation shows, in which batches, and how it names them to be recognised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import Settings
from ..corpus.access import ClipSet, Corpus, EvaluationClips, TrainingClips
from ..corpus.loader import Batch, EvaluationLoader, Loader
from ..corpus.windows import WindowSpec
from .diagnostic import Role
from .labels import action_of, tags_of
from .settings import EvaluateSettings


def clip_sets(corpus: Corpus, settings: EvaluateSettings) -> dict[Role, ClipSet]:
    """Clips that probes are fitted on, clips that choose their strength, and clips that are measured."""
    measured: EvaluationClips = corpus.audit() if settings.split == "audit" else corpus.evaluation(settings.split)
    if settings.clips is not None:
        measured = measured.subset(min(settings.clips, len(measured)), seed=0)
    fit, choose = corpus.training(), corpus.validation()
    fit = fit.subset(min(settings.probes.fit_clips, len(fit)), seed=0)
    choose = choose.subset(min(settings.probes.choose_clips, len(choose)), seed=0)
    return {"fit": fit, "choose": choose, "measure": measured}


def batches(clips: ClipSet, window: WindowSpec, settings: EvaluateSettings) -> Iterator[Batch]:
    """Every clip once, in a fixed order."""
    decoded = Path(settings.windows) if settings.windows else None
    if isinstance(clips, EvaluationClips):
        yield from EvaluationLoader(
            clips, window, settings.batch, settings.workers, replication=settings.replication, decoded=decoded
        )
        return
    assert isinstance(clips, TrainingClips)
    whole = len(clips) // settings.batch * settings.batch  # a training loader leaves out what fills no batch
    pieces = [(clips[:whole], settings.batch)] if whole else []
    if whole < len(clips):
        pieces.append((clips[whole:], len(clips) - whole))
    for some, size in pieces:
        yield from Loader(
            some, window, size, 0, settings.workers, replication=settings.replication, shuffle=False, decoded=decoded
        )


def digest_of(clips: ClipSet) -> str:
    ids = hashlib.blake2b("\n".join(clip.clip_id for clip in clips).encode(), digest_size=8)
    return f"{len(clips)}, {ids.hexdigest()}"


def labels_of(sets: Sequence[ClipSet]) -> str:
    """Of the labels in the manifest that diagnostics read."""
    labels = [(clip.clip_id, action_of(clip), tags_of(clip)) for clips in sets for clip in clips]
    return hashlib.blake2b(json.dumps(labels).encode(), digest_size=8).hexdigest()


def text_of(section: Settings | dict[str, Any]) -> str:
    return json.dumps(section.model_dump(mode="json") if isinstance(section, Settings) else section)
