"""A frame as a tree of parts: neighbouring parts that are alike are joined first, down to the whole picture.

Every node is a connected part of the picture, and every agent that stands out from what is around it is near some node.
Joining is Ward's: the two neighbours join whose union has the least scatter, so small and similar parts go first and
large or different ones last. All pairs that are each other's best are joined at once, which gives the tree that joining
one pair at a time would give, in a few dozen rounds of array operations. Rows are picked with `take` and by number: by
a mask they take several times as long.

Shapes: S side of the mask grid, M nodes, of which the first are the leaves; K columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from .channels import length, total
from .regions import Floats

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_FLAT = 4.0  # sum of L, a and b differences below which neighbouring pixels are one leaf


@dataclass(frozen=True)
class Hierarchy:
    """The tree of one frame. A node comes after its children; those made in one round come one after the other."""

    leaves: Integers  # [S, S] leaf of every pixel
    parent: Integers  # [M], -1 at the root
    children: Integers  # [M, 2], -1 for leaves
    rounds: tuple[tuple[int, int], ...]  # first node of each round and the one after its last
    area: Doubles  # [M] pixels
    box: Integers  # [M, 4] left, top, right, bottom
    outline: Doubles  # [M] pixel sides it shares with the rest of the picture
    contrast: Doubles  # [M] sum of colour differences over them
    grain: Doubles  # [M] sum of colour differences between its leaves
    price: Doubles  # [M] scatter that joining its two children added; 0 for leaves

    def upwards(self) -> Iterator[tuple[slice, Integers, Integers]]:
        """Round by round the nodes made in it, and their first and second children: all of earlier rounds."""
        for start, end in self.rounds:
            yield slice(start, end), self.children[start:end, 0], self.children[start:end, 1]

    def summed(self, values: NDArray[np.floating]) -> Doubles:
        """Sums over every node's pixels of columns `[S, S, K]`, `[M, K]`."""
        sums = np.empty((len(self.parent), values.shape[-1]))
        sums[: self.leaf_count] = _leaf_sums(self.leaves, self.leaf_count, values)
        for new, one, other in self.upwards():
            np.add(sums.take(one, axis=0), sums.take(other, axis=0), out=sums[new])
        return sums

    def shared(self, labels: Integers, count: int) -> Doubles:
        """How many pixels of each of `count` labels every node has, `[M, count]`; -1 in `labels` `[S, S]` is none."""
        labelled = np.flatnonzero(labels >= 0)
        pairs = self.leaves.take(labelled) * count + labels.take(labelled)
        found = np.zeros((len(self.parent), count))
        found[: self.leaf_count] = np.bincount(pairs, minlength=self.leaf_count * count).reshape(-1, count)
        for new, one, other in self.upwards():
            np.add(found.take(one, axis=0), found.take(other, axis=0), out=found[new])
        return found

    def best_apart(self, worth: Doubles) -> Integers:
        """The nodes, none of which contains another, whose `worth` `[M]` has the largest positive sum; ascending."""
        best, taken = np.maximum(worth, 0), worth > 0
        for new, one, other in self.upwards():
            apart = best[one] + best[other]
            taken[new] = worth[new] > apart
            best[new] = np.maximum(apart, worth[new])
        hidden = np.zeros(len(worth), dtype=bool)  # in a part that is taken
        for start, end in reversed(self.rounds):
            hidden[self.children[start:end]] = (hidden[start:end] | taken[start:end])[:, None]
        return np.flatnonzero(taken & ~hidden)

    def labels(self, nodes: Integers) -> Integers:
        """Which of the nodes each pixel is in, by place in `nodes`, -1: none; none contains another. `[S, S]`"""
        owner = np.full(len(self.parent), -1, np.int64)
        owner[nodes] = np.arange(len(nodes))
        for start, end in reversed(self.rounds):
            below = self.children[start:end]
            owner[below] = np.maximum(owner[below], owner[start:end, None])
        return np.asarray(owner[self.leaves])

    @property
    def leaf_count(self) -> int:
        return (len(self.parent) + 1) // 2


def flat_zones(lab: Floats) -> tuple[Integers, Integers]:
    """Connected pixels of practically one colour: labels `[S, S]` in reading order, and their boxes."""
    side = len(lab)
    # Pixels at even places, and between two of them 1 where they belong together.
    links = np.zeros((2 * side - 1, 2 * side - 1), np.uint8)
    links[::2, ::2] = 1
    links[::2, 1::2] = total(np.abs(np.diff(lab, axis=1))) < _FLAT
    links[1::2, ::2] = total(np.abs(np.diff(lab, axis=0))) < _FLAT
    _, labels, found, _ = cv2.connectedComponentsWithStats(links, connectivity=4)
    low, size = found[1:, :2].astype(np.int64), found[1:, 2:4]
    return labels[::2, ::2].astype(np.int64) - 1, np.concatenate([low, low + size + 1], axis=1) // 2


def hierarchy(lab: Floats, place: Floats) -> Hierarchy:
    """The tree of a frame whose pixels lie at `place` `[S, S, P]`: near is alike."""
    leaves, boxes = flat_zones(lab)
    count = len(boxes)
    room = 2 * count - 1  # a tree that joins two at a time
    area, sums, mean = np.empty(room), np.empty((room, place.shape[-1])), np.empty((room, place.shape[-1]))
    area[:count], sums[:count] = np.bincount(leaves.ravel()), _leaf_sums(leaves, count, place)
    np.divide(sums[:count], area[:count, None], out=mean[:count])
    outline, contrast, grain, paid = np.zeros(room), np.zeros(room), np.zeros(room), np.zeros(room)
    parent, children, box = np.full(room, -1, np.int64), np.full((room, 2), -1, np.int64), np.empty((room, 4), np.int64)
    box[:count] = boxes
    a, b, shared, strength = _borders(leaves, lab)
    for end in (a, b):
        outline[:count] += np.bincount(end, weights=shared, minlength=count)
        contrast[:count] += np.bincount(end, weights=strength, minlength=count)

    def cost(a: Integers, b: Integers) -> Doubles:
        apart = mean.take(a, axis=0)
        apart -= mean.take(b, axis=0)
        return np.asarray(area[a] * area[b] / (area[a] + area[b]) * np.einsum("ij,ij->i", apart, apart))

    price = cost(a, b)
    made, rounds = count, []
    now, least, first = np.arange(room), np.empty(room), np.empty(room, np.int64)  # made once: there are many rounds
    while a.size:
        joined = _mutual(a, b, price, least, first)
        one, other = a[joined], b[joined]
        new = slice(made, made + joined.size)
        now[one] = now[other] = parent[one] = parent[other] = np.arange(new.start, new.stop)
        children[new, 0], children[new, 1] = one, other
        area[new] = area[one] + area[other]
        np.add(sums.take(one, axis=0), sums.take(other, axis=0), out=sums[new])
        np.divide(sums[new], area[new, None], out=mean[new])
        np.minimum(box[one, :2], box[other, :2], out=box[new, :2])
        np.maximum(box[one, 2:], box[other, 2:], out=box[new, 2:])
        outline[new] = outline[one] + outline[other] - 2 * shared[joined]
        contrast[new] = contrast[one] + contrast[other] - 2 * strength[joined]
        grain[new] = grain[one] + grain[other] + strength[joined]
        paid[new] = price[joined]
        rounds.append((new.start, new.stop))
        made = new.stop
        x, y = now[a], now[b]
        moved = (x != a) | (y != b)
        changed, same = np.flatnonzero(moved), np.flatnonzero(~moved)
        x, y, sides, power = _together(x[changed], y[changed], shared[changed], strength[changed], made)
        a, b = np.concatenate([a[same], x]), np.concatenate([b[same], y])
        shared, strength = np.concatenate([shared[same], sides]), np.concatenate([strength[same], power])
        price = np.concatenate([price[same], cost(x, y)])
    return Hierarchy(leaves, parent, children, tuple(rounds), area, box, outline, contrast, grain, paid)


def _mutual(a: Integers, b: Integers, cost: Doubles, least: Doubles, first: Integers) -> Integers:
    """The edges whose two ends are each other's cheapest neighbour; of equally dear neighbours the first edge counts.

    `least` and `first` have room for every node; what they hold before does not matter.
    """
    least[a] = least[b] = np.inf
    np.minimum.at(least, a, cost)
    np.minimum.at(least, b, cost)
    best = np.flatnonzero((cost <= least[a]) & (cost <= least[b]))
    first[np.stack([a[best], b[best]], axis=1).ravel()[::-1]] = best.repeat(2)[::-1]  # the last written stays
    return np.asarray(best[(first[a[best]] == best) & (first[b[best]] == best)])


def _borders(labels: Integers, lab: Floats) -> tuple[Integers, Integers, Doubles, Doubles]:
    """Pairs of leaves that touch, along how many pixel sides, and the sum of colour differences across them."""
    first = np.concatenate([labels[:, :-1].ravel(), labels[:-1].ravel()])
    second = np.concatenate([labels[:, 1:].ravel(), labels[1:].ravel()])
    step = [length(np.diff(lab, axis=axis)).ravel() for axis in (1, 0)]
    return _together(first, second, np.ones(first.size), np.concatenate(step).astype(np.float64), int(labels.max()) + 1)


def _together(
    a: Integers, b: Integers, shared: Doubles, strength: Doubles, nodes: int
) -> tuple[Integers, Integers, Doubles, Doubles]:
    """Each pair of different nodes once, the smaller number first, with the sums over its repetitions."""
    apart = np.flatnonzero(a != b)
    a, b, shared, strength = a[apart], b[apart], shared[apart], strength[apart]
    keys, place = np.unique(np.minimum(a, b) * nodes + np.maximum(a, b), return_inverse=True)
    sides, power = (
        np.bincount(place, weights=values, minlength=keys.size).astype(np.float64) for values in (shared, strength)
    )
    return keys // nodes, keys % nodes, sides, power


def _leaf_sums(leaves: Integers, count: int, values: NDArray[np.floating]) -> Doubles:
    """Sums over the pixels of each of `count` leaves of columns `[S, S, K]`, `[count, K]`."""
    pixels = leaves.size
    members = csc_array((np.ones(pixels), leaves.ravel(), np.arange(pixels + 1)), shape=(count, pixels))
    return np.asarray(members @ values.reshape(pixels, -1))
