"""Who notices whom, and what neighbours do to each other: the interaction law, pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .crowd import DT, Bools, Crowd, Floats, Ground, Ints, Route, State, clip, wrap

HEADWAY = 0.75  # s kept to whoever is ahead
HARD_CONTACT = 9.0  # m/s^2 of the push at touch
_COMFORT = 3.0  # m/s^2 at which one plans to brake
_STANDOFF = 0.25  # m kept when stopped behind someone
_CONFLICT_HORIZON = 2.2  # s ahead that crossing paths are compared
_SIDE_MARGIN = 0.30  # m of clearance that counts as in one's path
_SWERVE_MARGIN = 0.75  # m of clearance that one tries to get by moving sideways
_CONTACT = 0.40  # m under which bodies push apart


@dataclass(frozen=True)
class Intent:
    """What everyone would do on an empty street."""

    speed: Floats
    dirx: Floats
    diry: Floats
    across: Floats  # present coordinate across one's own street
    route: Route


@dataclass(frozen=True)
class Pairs:
    """Directed pairs (who reacts, to whom), in the order of who and then of whom.

    The order follows from the rows alone, so that sums over neighbours have the same bits however the pairs were found.
    """

    who: Ints
    whom: Ints
    fixed: Floats  # [9, P] what does not change while they move, see `of`

    @classmethod
    def of(cls, crowd: Crowd, who: Ints, whom: Ints) -> Pairs:
        """With reach, least distance ahead, half length and width of both, push share, look ahead and side.

        Reach is the distance beyond which the second has no influence on the first.
        """
        one, other = crowd.body.take(who, axis=1), crowd.body[:3].take(whom, axis=1)
        half_length, half_width, push, look, speed, side = one
        bulk = other[0] + other[1]
        share = HARD_CONTACT * other[2] / (push + other[2])
        behind = -(half_length + bulk + _CONTACT)
        bodies = (half_length, half_width, other[0], other[1])
        return cls(who, whom, np.array([look + bulk, behind, *bodies, share, 1.2 + 0.9 * speed, 0.3 * side]))

    @property
    def starts(self) -> Ints:
        return np.concatenate([[0], np.flatnonzero(self.who[1:] != self.who[:-1]) + 1])

    def now(self, state: State, ground: Ground) -> Pairs:
        """Those of the pairs in which the first can notice the second at this moment."""
        place = np.array([state.x, state.y, state.hx, state.hy])
        one, other = place.take(self.who, axis=1), place[:2].take(self.whom, axis=1)
        dx, dy = _apart(one, other, ground)
        reach, behind = self.fixed[:2]
        # Whoever is behind matters only in contact.
        noticed = (dx * dx + dy * dy < reach * reach) & (dx * one[2] + dy * one[3] > behind)
        kept = np.flatnonzero(noticed)
        return Pairs(self.who.take(kept), self.whom.take(kept), self.fixed.take(kept, axis=1))


class Everyone:
    """All pairs of the same world, of whom the first `reacts`. Rows of a world lie side by side.

    The street is short beside anyone's reach: to look at all pairs is cheaper than to sort.
    """

    def __init__(self, crowd: Crowd, world: Ints, reacts: Bools) -> None:
        self.crowd = crowd
        ends = np.cumsum(np.bincount(world)).tolist()
        self.worlds = [
            (slice(first, end), first + np.flatnonzero(reacts[first:end]))
            for first, end in zip([0, *ends[:-1]], ends, strict=True)
        ]

    def within(self, state: State, ground: Ground, steps: int) -> Pairs:
        """The pairs of which the first may notice the second now or before `steps` steps are over."""
        way = (steps - 1) * DT * self.crowd.manner.top_speed
        look, bulk = self.crowd.look + way, self.crowd.bulk + way
        who, whom = [], []
        for part, rows in self.worlds:
            dx = wrap(state.x[part] - state.x[rows, None], ground.extent[0])
            dy = wrap(state.y[part] - state.y[rows, None], ground.extent[1])
            reach = look[rows, None] + bulk[part]
            near = dx * dx + dy * dy < reach * reach
            near[np.arange(rows.size), rows - part.start] = False
            one, other = np.nonzero(near)
            who.append(rows[one])
            whom.append(other + part.start)
        return Pairs.of(self.crowd, np.concatenate(who), np.concatenate(whom))


def _apart(one: Floats, other: Floats, ground: Ground) -> Floats:
    """`[2, P]` the shortest way from one to the other; rows of the arguments start with x and y."""
    return wrap(other[:2] - one[:2], ground.periods)


def pairs_within(state: State, crowd: Crowd, ground: Ground, world: Ints, reacts: Bools) -> Pairs:
    """All pairs of the same world in which the first (one that `reacts`) can notice the second now."""
    return Everyone(crowd, world, reacts).within(state, ground, 1).now(state, ground)


@dataclass(frozen=True)
class PairTerms:
    """What the second of each pair does to the first."""

    follow: Floats  # speed allowed behind it
    give_way: Floats  # speed allowed while it passes
    swerve: Floats  # sideways acceleration, left positive
    pushx: Floats
    pushy: Floats


def pair_terms(state: State, crowd: Crowd, ground: Ground, pairs: Pairs, intended: Intent) -> PairTerms:
    """The interaction law, pair by pair."""
    reach, _, hl_i, hw_i, hl_j, hw_j, share, look, side = pairs.fixed
    will = (intended.speed, intended.dirx, intended.diry)
    moving = np.array([state.x, state.y, state.hx, state.hy, *will, crowd.push, state.vx, state.vy])
    one, other = moving[:8].take(pairs.who, axis=1), moving.take(pairs.whom, axis=1)
    dx, dy = _apart(one, other, ground)
    distance = np.sqrt(dx * dx + dy * dy) + 1e-6
    near = clip(reach - distance, 0.0, 1.0)
    _, _, hx, hy, want, dirx, diry, push = one
    _, _, gx, gy, _, _, _, other_push, vjx, vjy = other
    ahead, left = dx * hx + dy * hy, dy * hx - dx * hy
    parallel, crosswise = np.abs(hx * gx + hy * gy), np.abs(hx * gy - hy * gx)
    reach_ahead = hl_i + parallel * hl_j + crosswise * hw_j
    reach_side = hw_i + crosswise * hl_j + parallel * hw_j
    far_left = np.abs(left)
    gap, clear = ahead - reach_ahead, far_left - reach_side
    in_front = (ahead > 0) * near
    v_along = vjx * hx + vjy * hy
    v_ahead = np.maximum(v_along, 0.0)

    # Following: no faster than the one ahead plus what the gap allows.
    in_path = clip(1.0 - clear / _SIDE_MARGIN, 0.0, 1.0) * in_front
    room = np.maximum(gap - _STANDOFF, 0.0)
    allowed = np.minimum(v_ahead + room / HEADWAY, np.sqrt(v_ahead * v_ahead + 2.0 * _COMFORT * room))
    follow = want - in_path * np.maximum(want - allowed, 0.0)

    # Gap acceptance: would we meet if I went on? Then the less pushy one waits.
    wx, wy = vjx - dirx * want, vjy - diry * want
    closest = -(dx * wx + dy * wy) / (wx * wx + wy * wy + 1e-3)
    miss_x, miss_y = dx + wx * closest, dy + wy * closest
    miss = np.sqrt(miss_x * miss_x + miss_y * miss_y)
    body = 0.55 * (hl_i + hw_i + hl_j + hw_j) + 0.35
    conflict = (closest > 0) & (crosswise > 0.35) & (other_push > push) & (vjx * vjx + vjy * vjy > 0.04)
    strength = clip((_CONFLICT_HORIZON - closest) / 0.8, 0.0, 1.0) * clip((body - miss) / 0.5, 0.0, 1.0)
    give_way = want * (1.0 - conflict * strength * in_front)

    # Swerving: get past the slower one, or out of the way of the oncoming one.
    impatience = clip(want - v_along, 0.0, 2.0) * 0.5
    evade = clip(1.0 - gap / look, 0.0, 1.0) * clip(1.0 - clear / _SWERVE_MARGIN, 0.0, 1.0)
    away = (side - left) / (far_left + 0.3)
    swerve = 4.0 * evade * impatience * away * in_front

    # Contact: bodies keep apart, the lighter one gives more.
    touch = clip(1.0 - clear / _CONTACT, 0.0, 2.0) * clip(1.0 - (np.abs(ahead) - reach_ahead) / _CONTACT, 0.0, 2.0)
    apart = -touch * share * near / distance
    return PairTerms(follow, give_way, swerve, apart * dx, apart * dy)
