"""Every diagnostic in the order of the paper's registry. What each is stands in its own file."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import DiagnosticsError
from ..words import nearest
from .action import ActionTop1
from .correspondence import CycleBack, KendallTau
from .depth import Depth, TrueDepth
from .diagnostic import Diagnostic
from .frame_order import FrameOrder
from .future import FutureL1, FutureMSE
from .intervention_l1 import InterventionL1
from .leakage import Leakage, TrueLeakage
from .mask_slope import MaskSlope
from .motion_cosine import MotionCosine
from .position_readout import PositionReadout
from .stability import ExposureGap, HorizonDecay, RolloutDrift
from .taxonomy_f1 import TaxonomyF1
from .transformations import ArrowOfTime, PlaybackPace, TemporalOrder

DIAGNOSTICS: tuple[type[Diagnostic], ...] = (
    FutureL1, FutureMSE, InterventionL1, MaskSlope, MotionCosine,
    ActionTop1, TaxonomyF1,
    RolloutDrift, HorizonDecay, ExposureGap,
    FrameOrder, ArrowOfTime, TemporalOrder, PlaybackPace, CycleBack, KendallTau,
    PositionReadout,
    Leakage, TrueLeakage, Depth, TrueDepth,
)  # fmt: skip


def chosen(names: Sequence[str] | None) -> tuple[type[Diagnostic], ...]:
    """The diagnostics of these names, in the registry's order; None: all."""
    if names is None:
        return DIAGNOSTICS
    known = [one.info.name for one in DIAGNOSTICS]
    for name in names:
        if name not in known:
            hint = nearest(name, known)
            raise DiagnosticsError(f"there is no diagnostic {name!r}{hint}; `factorjepa diagnostics` lists them")
    return tuple(one for one in DIAGNOSTICS if one.info.name in names)
