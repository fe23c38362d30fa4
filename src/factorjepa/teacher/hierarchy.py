"""A frame as a tree of parts: neighbouring parts that are alike are joined first, down to the whole picture.

Every node is a connected part of the picture, and every agent that stands out from what is around it is near some node.
Joining is Ward's: the two neighbours join whose union has the least scatter, so small and similar parts go first and
large or different ones last. All pairs that are each other's best are joined at once, which gives the tree that joining
one pair at a time would give, in a few dozen rounds of array operations.

Shapes: S side of the mask grid, M nodes, of which the first are the leaves; K columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from .regions import Floats

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

_FLAT = 2.0  # sum of L, a and b differences below which neighbouring pixels are one leaf


@dataclass(frozen=True)
class Hierarchy:
    """The tree of one frame. A node comes after its children."""

    leaves: Integers  # [S, S] leaf of every pixel
    parent: Integers  # [M], -1 at the root
    area: Doubles  # [M] pixels
    sums: Doubles  # [M, K] of the columns
    scatter: Doubles  # [M] that joining its children added; 0 for leaves
    box: Integers  # [M, 4] left, top, right, bottom

    def masks(self, nodes: Integers) -> NDArray[np.bool_]:
        """The pixels of nodes none of which contains another, `[N, S, S]`."""
        owner = np.where(self.parent < 0, np.arange(len(self.parent)), self.parent)
        owner[nodes] = nodes
        while True:  # pointers jump twice as far each time, until all end in a node that was asked for or in the root
            further = owner[owner]
            if np.array_equal(further, owner):
                break
            owner = further
        return np.asarray(owner[self.leaves][None] == nodes[:, None, None])


def flat_zones(lab: Floats) -> tuple[Integers, int]:
    """Connected pixels of practically one colour: labels `[S, S]` and how many."""
    side = len(lab)
    pixels = np.arange(side * side).reshape(side, side)
    across = np.abs(np.diff(lab, axis=1)).sum(axis=-1) < _FLAT
    down = np.abs(np.diff(lab, axis=0)).sum(axis=-1) < _FLAT
    first = np.concatenate([pixels[:, :-1][across], pixels[:-1][down]])
    second = np.concatenate([pixels[:, 1:][across], pixels[1:][down]])
    links = coo_array((np.ones(first.size, dtype=bool), (first, second)), shape=(side * side, side * side))
    count, labels = connected_components(links, directed=False)
    return labels.reshape(side, side).astype(np.int64), int(count)


def hierarchy(lab: Floats, place: Floats, columns: Floats) -> Hierarchy:
    """The tree of a frame whose pixels lie at `place` `[S, S, P]`: near is alike. `columns` `[S, S, K]` are summed."""
    leaves, count = flat_zones(lab)
    room = 2 * count - 1  # a tree that joins two at a time
    joined = place.shape[-1]
    area, scatter = np.zeros(room), np.zeros(room)
    parent, box = np.full(room, -1, np.int64), np.zeros((room, 4), np.int64)
    values = np.concatenate([place, columns], axis=-1).reshape(leaves.size, -1)
    sums = np.zeros((room, values.shape[1]))
    flat = leaves.ravel()
    area[:count] = np.bincount(flat, minlength=count)
    for k in range(values.shape[1]):
        sums[:count, k] = np.bincount(flat, weights=values[:, k], minlength=count)
    box[:count] = _leaf_boxes(leaves, count)
    edges = _unique(_neighbours(leaves), count)
    made = count
    while len(edges):
        a, b = edges.T
        apart = sums[a, :joined] / area[a, None] - sums[b, :joined] / area[b, None]
        cost = area[a] * area[b] / (area[a] + area[b]) * np.einsum("ij,ij->i", apart, apart)
        one, other, price = _mutual(a, b, cost, made)
        new = np.arange(made, made + one.size)
        parent[one] = parent[other] = new
        area[new] = area[one] + area[other]
        sums[new] = sums[one] + sums[other]
        scatter[new] = price
        box[new, :2] = np.minimum(box[one, :2], box[other, :2])
        box[new, 2:] = np.maximum(box[one, 2:], box[other, 2:])
        made += one.size
        now = np.arange(made)
        now[one] = now[other] = new
        edges = _unique(now[edges], made)
    return Hierarchy(leaves, parent, area, sums[:, joined:], scatter, box)


def _mutual(a: Integers, b: Integers, cost: Doubles, nodes: int) -> tuple[Integers, Integers, Doubles]:
    """Pairs that are each other's cheapest neighbour, the smaller number first, and what joining them costs.

    Of equally dear neighbours the first edge counts. Edges are written dearest first, so that the cheapest one of each
    node is written last and stays.
    """
    order = np.argsort(-cost[::-1], kind="stable")
    a, b, cost = a[::-1][order], b[::-1][order], cost[::-1][order]
    best, least = np.full(nodes, -1, np.int64), np.zeros(nodes)
    both, other = np.stack([a, b], axis=1).ravel(), np.stack([b, a], axis=1).ravel()
    best[both], least[both] = other, cost.repeat(2)
    one = np.flatnonzero(best >= 0)
    one = one[(best[best[one]] == one) & (one < best[one])]
    return one, best[one], least[one]


def _neighbours(labels: Integers) -> Integers:
    """Pairs of labels that touch, `[E, 2]`, repeated as often as they do."""
    across = np.stack([labels[:, :-1].ravel(), labels[:, 1:].ravel()], axis=1)
    down = np.stack([labels[:-1].ravel(), labels[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def _unique(edges: Integers, nodes: int) -> Integers:
    """Each pair of different nodes once, the smaller number first."""
    low, high = edges.min(axis=1), edges.max(axis=1)
    apart = low != high
    keys = np.unique(low[apart] * nodes + high[apart])
    return np.stack([keys // nodes, keys % nodes], axis=1)


def _leaf_boxes(leaves: Integers, count: int) -> Integers:
    side = len(leaves)
    rows, columns = (part.ravel() for part in np.mgrid[:side, :side])
    flat = leaves.ravel()
    box = np.empty((count, 4), np.int64)
    box[:, :2], box[:, 2:] = side, 0
    for k, values in enumerate((columns, rows)):
        np.minimum.at(box[:, k], flat, values)
        np.maximum.at(box[:, k + 2], flat, values + 1)
    return box
