"""One window from pixels to evidence: features, camera motion, regions, tracklets."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import TeacherError
from ..pixels import Frames
from .camera import CameraMotion, camera_motion
from .features import FrameFeatures
from .proposals import Proposals, mask_side, retain
from .regions import Evidence, Floats, Region
from .settings import RegionSettings, TeacherSettings
from .tracking import associate


def open_proposals(settings: RegionSettings) -> Proposals:
    """The source of regions that the settings name. Ground truth belongs to one clip: see `TruthProposals`."""
    if settings.kind == "detector":
        from .detected import DetectorProposals

        return DetectorProposals(settings)
    if settings.kind == "street":
        from .detected import StreetProposals

        return StreetProposals(settings)
    if settings.kind == "unsupervised":
        from .unsupervised import UnsupervisedProposals

        return UnsupervisedProposals(settings)
    raise TeacherError(
        "regions.kind=truth needs the ground truth of one simulated clip: make TruthProposals of it instead"
    )


def observe(
    frames: Frames,
    settings: TeacherSettings,
    features: FrameFeatures,
    proposals: Proposals,
    described: Floats | None = None,
) -> Evidence:
    """What the teacher sees in `uint8 [T, S, S, 3]`; `described` are the features if they are known already.

    Everything about frames before `settings.context` comes from those frames alone.
    """
    grid = features(frames) if described is None else described
    motion = camera_motion(frames)
    candidates = proposals(frames, grid, motion.affine, settings.context)
    side = mask_side(settings.regions, frames.shape[1])
    return settle(candidates, grid, motion, side, settings)


def settle(
    candidates: Sequence[Sequence[Region]], grid: Floats, motion: CameraMotion, side: int, settings: TeacherSettings
) -> Evidence:
    """The cheap end of `observe`: which candidates are kept, and who is who."""
    regions = tuple(tuple(retain(found, settings.regions, side)) for found in candidates)
    tracklets = associate(regions, motion.affine, settings.tracks, side, motion.cuts, settings.context)
    return Evidence(grid, motion.affine, regions, tracklets, side, settings.context)
