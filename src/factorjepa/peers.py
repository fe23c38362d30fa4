"""Who shares a batch: one process, or several that each hold an equal part of its clips.

Whatever is a ratio or a mean over the batch is made from sums over all peers, so that the loss does not depend on how
many there are. A process alone sums over itself.
"""

from __future__ import annotations

import typing

if typing.TYPE_CHECKING:
    from torch import Tensor


class Peers:
    """A process alone. `training.parallel` has the one that is connected with others."""

    rank = 0
    world = 1

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all peers, the same on each, with gradients that are right once averaged over the peers."""
        return x

    def mean(self, x: Tensor) -> Tensor:
        """The mean of all elements on all peers, which hold equally many."""
        return self.sum(x.mean()) / self.world


ALONE = Peers()
