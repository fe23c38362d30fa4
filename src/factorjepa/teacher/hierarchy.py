"""A frame as a tree of parts: neighbouring parts that are alike are joined first, down to the whole picture.

Every node is a connected part of the picture, and every agent that stands out from what is around it is near some node.
Joining is Ward's: the two neighbours join whose union has the least scatter, so small and similar parts go first and
large or different ones last. All pairs that are each other's best are joined at once, which gives the tree that joining
one pair at a time would give, in a few dozen rounds of array operations. Rows are picked with `take` and by number: by
a mask they take several times as long.

Shapes: S side of the mask grid, M nodes, of which the first are the leaves; K columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from .channels import length, total
from .regions import Floats

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_IN_CACHE = 2048  # pairs of nodes whose places a processor's own cache holds
_OUTWARDS = np.array([-1, -1, 1, 1])
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

    def shared(self, labels: Integers, count: int) -> NDArray[np.int32]:
        """How many pixels of each of `count` labels every node has, `[M, count]`; -1 in `labels` `[S, S]` is none."""
        labelled = np.flatnonzero(labels >= 0)
        pairs = self.leaves.take(labelled) * count + labels.take(labelled)
        found = np.empty((len(self.parent), count), np.int32)
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


def hierarchies(lab: Sequence[Floats], place: Sequence[Floats]) -> list[Hierarchy]:
    """The trees of frames `[S, S, 3]` whose pixels lie at `place` `[S, S, P]`: near is alike.

    Frames do not touch, so each has the tree that it would have alone, to the bit. They go through their rounds
    together because a late round is a few nodes and dozens of array operations.
    """
    zones = [flat_zones(one) for one in lab]
    counts = np.array([len(boxes) for _, boxes in zones])
    total, begins = int(counts.sum()), np.cumsum(counts) - counts
    room = 2 * total - len(zones)  # trees that join two at a time
    frame, parent, children = np.empty(room, np.uint16), np.full(room, -1, np.int64), np.full((room, 2), -1, np.int64)
    area, sums, mean = np.empty(room), *np.empty((2, room, place[0].shape[-1]))
    reach = np.empty((room, 4), np.int64)  # left, up, right and down: a union reaches as far as either part
    outline, contrast, grain, paid = (np.zeros(room) for _ in range(4))
    borders = []
    for t, (leaves, boxes) in enumerate(zones):
        part = slice(begins[t], begins[t] + len(boxes))
        frame[part], reach[part] = t, boxes * _OUTWARDS
        area[part], sums[part] = np.bincount(leaves.ravel()), _leaf_sums(leaves, len(boxes), place[t])
        borders.append(_borders(leaves, lab[t], begins[t]))
    np.divide(sums[:total], area[:total, None], out=mean[:total])
    a, b, shared, strength = (np.concatenate(columns) for columns in zip(*borders, strict=True))
    for end in (a, b):
        outline[:total] += np.bincount(end, weights=shared, minlength=total)
        contrast[:total] += np.bincount(end, weights=strength, minlength=total)

    def cost(a: Integers, b: Integers) -> Doubles:
        squares = np.empty(a.size)
        for begin in range(0, a.size, _IN_CACHE):
            some = slice(begin, begin + _IN_CACHE)
            apart = mean.take(a[some], axis=0)
            apart -= mean.take(b[some], axis=0)
            np.einsum("ij,ij->i", apart, apart, out=squares[some])
        area_a, area_b = area[a], area[b]
        return np.asarray(area_a * area_b / (area_a + area_b) * squares)

    price = cost(a, b)
    made, joins = total, []
    now, least, first = np.arange(room), np.empty(room), np.empty(room, np.int64)  # made once: there are many rounds
    while a.size:
        joined = _mutual(a, b, price, least, first)
        one, other = a[joined], b[joined]
        new = slice(made, made + joined.size)
        now[one] = now[other] = parent[one] = parent[other] = np.arange(new.start, new.stop)
        children[new, 0], children[new, 1] = one, other
        frame[new] = frame[one]
        area[new] = area[one] + area[other]
        np.add(sums.take(one, axis=0), sums.take(other, axis=0), out=sums[new])
        np.divide(sums[new], area[new, None], out=mean[new])
        np.maximum(reach.take(one, axis=0), reach.take(other, axis=0), out=reach[new])
        outline[new] = outline[one] + outline[other] - 2 * shared[joined]
        contrast[new] = contrast[one] + contrast[other] - 2 * strength[joined]
        grain[new] = grain[one] + grain[other] + strength[joined]
        paid[new] = price[joined]
        joins.append(np.bincount(frame[new], minlength=len(zones)))
        made = new.stop
        x, y = now[a], now[b]
        moved = (x != a) | (y != b)
        changed, same = np.flatnonzero(moved), np.flatnonzero(~moved)
        x, y, sides, power = _together(x[changed], y[changed], shared[changed], strength[changed], made)
        a, b = np.concatenate([a[same], x]), np.concatenate([b[same], y])
        shared, strength = np.concatenate([shared[same], sides]), np.concatenate([strength[same], power])
        price = np.concatenate([price[same], cost(x, y)])

    number = np.full(room + 1, -1)  # of each node in its own tree; -1, nobody, stays
    trees = []
    for t, (leaves, _) in enumerate(zones):
        own = np.flatnonzero(frame == t)
        number[own] = np.arange(own.size)
        sizes = [int(nodes[t]) for nodes in joins if nodes[t]]
        edges = np.cumsum([counts[t], *sizes]).tolist()
        measures = (values[own] for values in (outline, contrast, grain, paid))
        kin, box = (number[parent[own]], number[children[own]]), reach[own] * _OUTWARDS
        trees.append(Hierarchy(leaves, *kin, tuple(pairwise(edges)), area[own], box, *measures))
    return trees


def _mutual(a: Integers, b: Integers, cost: Doubles, least: Doubles, first: Integers) -> Integers:
    """The edges whose two ends are each other's cheapest neighbour; of equally dear neighbours the first edge counts.

    `least` and `first` have room for every node; what they hold before does not matter.
    """
    least[a] = least[b] = np.inf
    np.minimum.at(least, a, cost)
    np.minimum.at(least, b, cost)
    best = np.flatnonzero((cost <= least[a]) & (cost <= least[b]))
    one, other = a[best], b[best]
    ends = np.empty(2 * best.size, np.int64)
    ends[::2], ends[1::2] = one, other
    first[ends[::-1]] = best.repeat(2)[::-1]  # the last written stays
    return best[np.flatnonzero((first[one] == best) & (first[other] == best))]


def _borders(labels: Integers, lab: Floats, begin: int) -> tuple[Integers, Integers, Doubles, Doubles]:
    """Pairs of leaves that touch, along how many pixel sides, and the sum of colour differences across them.

    Leaves are numbered from `begin` on.
    """
    first = np.concatenate([labels[:, :-1].ravel(), labels[:-1].ravel()])
    second = np.concatenate([labels[:, 1:].ravel(), labels[1:].ravel()])
    step = [length(np.diff(lab, axis=axis)).ravel() for axis in (1, 0)]
    strength = np.concatenate(step).astype(np.float64)
    a, b, shared, strength = _together(first, second, np.ones(first.size), strength, int(labels.max()) + 1)
    return a + begin, b + begin, shared, strength


def _together(
    a: Integers, b: Integers, shared: Doubles, strength: Doubles, nodes: int
) -> tuple[Integers, Integers, Doubles, Doubles]:
    """Each pair of different nodes once, the smaller number first, with the sums over its repetitions."""
    apart = np.flatnonzero(a != b)
    a, b, shared, strength = a[apart], b[apart], shared[apart], strength[apart]
    # Both nodes and the pair's place in one number each: numbers are sorted in a third of the time that places take.
    node_bits, place_bits = nodes.bit_length(), a.size.bit_length()
    pairs = np.minimum(a, b) << node_bits | np.maximum(a, b)
    pairs = np.sort(pairs << place_bits | np.arange(a.size))
    places = pairs & ((1 << place_bits) - 1)
    pairs >>= place_bits
    begins = np.ones(pairs.size, dtype=bool)
    np.not_equal(pairs[1:], pairs[:-1], out=begins[1:])
    group, pairs = np.cumsum(begins) - 1, pairs[np.flatnonzero(begins)]
    sides, power = (
        np.bincount(group, weights=values[places], minlength=pairs.size).astype(np.float64, copy=False)
        for values in (shared, strength)
    )
    return pairs >> node_bits, pairs & ((1 << node_bits) - 1), sides, power


def _leaf_sums(leaves: Integers, count: int, values: NDArray[np.floating]) -> Doubles:
    """Sums over the pixels of each of `count` leaves of columns `[S, S, K]`, `[count, K]`."""
    pixels = leaves.size
    members = csc_array((np.ones(pixels), leaves.ravel(), np.arange(pixels + 1)), shape=(count, pixels))
    return np.asarray(members @ values.reshape(pixels, -1))
