"""What a manifest says about clips that probes can be asked for."""

from __future__ import annotations

from ..corpus.manifest import Clip, listed

ACTION = "action"  # column: one word
TAXONOMY = "taxonomy"  # column: the superclasses of agents that are seen, "pedestrian; pedal cycle"


def action_of(clip: Clip) -> str | None:
    """None where the manifest does not say."""
    action = clip.attributes.get(ACTION)
    return None if action is None else str(action)


def tags_of(clip: Clip) -> list[str] | None:
    """Superclasses of the agents in the clip; none where there are no agents, None where nobody looked."""
    tags = clip.attributes.get(TAXONOMY)
    return None if tags is None else listed(str(tags))
