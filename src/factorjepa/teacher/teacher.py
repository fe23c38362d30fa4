"""The frozen teacher as a whole, opened once and used for many clips: window -> evidence -> packet."""

from __future__ import annotations

from ..corpus.access import AuditClips, ClipSet
from ..corpus.manifest import Clip
from ..corpus.windows import WindowSpec, window_times
from ..errors import TeacherError
from ..pixels import Frames, resize_to_cover
from ..video import read_frames
from ..world import ClipTruth
from .features import FrameFeatures, open_features
from .observe import observe, open_proposals
from .packet import Packet, build_packet, projections_for
from .proposals import Proposals
from .settings import TeacherSettings
from .truth import TruthProposals


class Teacher:
    """Features, regions and projections, opened once and used for many clips."""

    def __init__(self, settings: TeacherSettings, device: str | None = None) -> None:
        self.settings = settings
        self.features: FrameFeatures = open_features(settings.features, device)
        self._proposals = None if settings.regions.kind == "truth" else open_proposals(settings.regions)
        self.projections = projections_for(self.features.width, settings)

    @property
    def regions_name(self) -> str:
        return self._proposals.name if self._proposals is not None else TruthProposals.name

    def window(self, clips: ClipSet, clip: Clip, replication: int) -> Frames:
        return teacher_window(clips, clip, self.settings, replication)

    def packet(self, clips: ClipSet, clip: Clip, replication: int) -> Packet:
        """Everything the teacher says about the clip's window."""
        frames = self.window(clips, clip, replication)
        evidence = observe(frames, self.settings, self.features, self.proposals(clips, clip, replication))
        times = window_times(clip, window_of(self.settings), replication)
        return build_packet(evidence, times, self.settings, self.projections)

    def proposals(self, clips: ClipSet, clip: Clip, replication: int) -> Proposals:
        """Who proposes regions for this clip: the same for all of them, but for ground truth."""
        if self._proposals is not None:
            return self._proposals
        if not isinstance(clips, AuditClips):
            raise TeacherError(
                f"regions.kind=truth: ground truth comes out of audit clips alone, not of {clips.split} clips; add "
                "--split audit (of simulated streets: footage has none)"
            )
        truth = ClipTruth.from_bytes(clips.truth(clip), f"clip {clip.clip_id!r}")
        times = window_times(clip, window_of(self.settings), replication)
        return TruthProposals(truth, times, self.settings.regions)


def teacher_window(clips: ClipSet, clip: Clip, settings: TeacherSettings, replication: int) -> Frames:
    """`uint8 [T, S, S, 3]`: the centred square of the window's frames, as the teacher sees them."""
    times = window_times(clip, window_of(settings), replication)
    frames = read_frames(clips.video(clip), times, f"clip {clip.clip_id!r} ({clip.path})")
    size = min(settings.size, *frames.shape[1:3])
    return resize_to_cover(frames, size, size)


def window_of(settings: TeacherSettings) -> WindowSpec:
    return WindowSpec(frames=settings.frames, fps=settings.fps)
