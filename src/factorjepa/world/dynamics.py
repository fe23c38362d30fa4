"""How agents move: each wants to get on, and negotiates the way with its neighbours.

The law is local and has compact support: a neighbour farther than the pair's reach contributes exactly zero. Pair
terms are accumulated one after another (`bincount`), so a zero term changes no bit. Therefore an edit (an agent taken
out, an agent braking) leaves every agent that it does not reach unchanged to the bit.

Entities are rows of flat arrays. Several alternative worlds of the same crowd can be stepped at once by stacking their
rows. Coordinates are metres on a torus (`extent`): x along the street, y to the left, heading as a unit vector.
"""

from __future__ import annotations

import numpy as np

from .crowd import DT, FAR, Bools, Crowd, Floats, Ground, Ints, Route, State, clip, wrap
from .neighbours import HARD_CONTACT, HEADWAY, Intent, Pairs, pair_terms


def intent(state: State, crowd: Crowd, ground: Ground, time: float, urge: Floats) -> Intent:
    """Desired speed and direction. `urge` scales every desired speed (1 normally, 0 for one told to brake)."""
    route, manner = crowd.route(state.leg), crowd.manner
    drift = crowd.wander[:, 0] * np.sin(crowd.wander[:, 1] * time + crowd.wander[:, 2])
    across = wrap(state.y, ground.extent[1])
    if not route.everyone_along_x:
        across = np.where(route.along_x, across, _from_junction(state.x, ground))
    error = route.lateral + drift - across  # along +y on the x street, along +x on the y street
    onward = 1.0 - 0.92 * route.crossing * clip((np.abs(error) - 0.8) / 1.5, 0.0, 1.0)
    sideways = clip(0.35 * error * route.leftward, -1.0, 1.0) * route.slope
    norm = 1.0 / np.sqrt(onward * onward + sideways * sideways)
    onward, sideways = onward * norm, sideways * norm
    walking = np.sin(crowd.pause[:, 1] * time + crowd.pause[:, 2]) >= manner.pause_below
    return Intent(
        speed=crowd.speed * urge * walking,
        dirx=route.ux * onward - route.uy * sideways,
        diry=route.uy * onward + route.ux * sideways,
        across=across,
        route=route,
    )


def step(state: State, crowd: Crowd, ground: Ground, pairs: Pairs, time: float, present: Bools, urge: Floats) -> State:
    """One step of `DT`. An absent entity influences nobody."""
    want, manner = intent(state, crowd, ground, time, urge), crowd.manner
    limit, swerve, pushx, pushy = _neighbours(state, crowd, ground, pairs, present, want)
    pushx, pushy = pushx * (urge > 0), pushy * (urge > 0)  # with the brakes on, nobody is pushed along
    limit = np.minimum(limit, _signal_limit(state, crowd, ground, time, want.route))
    wanted = want.speed
    if manner.any_partner:
        pull, abreast = _company(state, crowd, ground, present)
        wanted = wanted + pull * (wanted > 0)
        swerve = swerve + abreast
    target = np.maximum(np.minimum(wanted, limit), 0.0)
    beyond = want.across - clip(want.across, -want.route.room, want.route.room)
    if want.route.everyone_along_x:
        pushy = pushy - 5.0 * beyond
    else:
        pushx = pushx - 5.0 * beyond * ~want.route.along_x
        pushy = pushy - 5.0 * beyond * want.route.along_x

    ax = (want.dirx * target - state.vx) / crowd.reaction + pushx
    ay = (want.diry * target - state.vy) / crowd.reaction + pushy
    hx, hy = state.hx, state.hy
    forward = clip(ax * hx + ay * hy, -crowd.brake, crowd.accelerate)
    left = clip(ay * hx - ax * hy, -4.0, 4.0) + swerve
    v_forward = np.maximum(state.vx * hx + state.vy * hy + DT * forward, manner.least_forward)
    slide = manner.slide_by_speed * v_forward + manner.slide_anyway
    v_left = clip(state.vy * hx - state.vx * hy + DT * left, -slide, slide)
    speed = np.sqrt(v_forward * v_forward + v_left * v_left) + 1e-9
    slow = np.minimum(manner.top_speed / speed, 1.0)
    v_forward, v_left, speed = v_forward * slow, v_left * slow, speed * slow
    vx, vy = v_forward * hx - v_left * hy, v_forward * hy + v_left * hx

    # Heading follows the way one goes; wheels also keep to the way they want, so a nudge does not turn them around.
    # Someone who stands keeps looking where they looked.
    going = (1.0 - manner.keep_course) / np.maximum(speed, 0.05)
    turn = np.minimum(speed / 0.8, 1.0) * manner.turn
    nx = hx + turn * (vx * going + want.dirx * manner.keep_course - hx)
    ny = hy + turn * (vy * going + want.diry * manner.keep_course - hy)
    length = 1.0 / np.sqrt(nx * nx + ny * ny + 1e-12)
    x, y = state.x + DT * vx, state.y + DT * vy
    return State(x, y, vx, vy, nx * length, ny * length, _next_leg(state, crowd, ground, x, y, time))


def _neighbours(
    state: State, crowd: Crowd, ground: Ground, pairs: Pairs, present: Bools, want: Intent
) -> tuple[Floats, Floats, Floats, Floats]:
    """Speed limit, sideways acceleration and body push that each entity takes from its neighbours."""
    n = len(crowd)
    i, j = pairs.who, pairs.whom
    if i.size == 0:
        return np.full(n, FAR), np.zeros(n), np.zeros(n), np.zeros(n)
    terms = pair_terms(state, crowd, ground, pairs, want)
    there = present[j]
    limit = np.full(n, FAR)
    starts = pairs.starts
    limit[i[starts]] = np.minimum.reduceat(np.where(there, np.minimum(terms.follow, terms.give_way), FAR), starts)
    swerve = np.bincount(i, terms.swerve * there, n)
    pushx = np.bincount(i, terms.pushx * there, n)
    pushy = np.bincount(i, terms.pushy * there, n)
    hard = HARD_CONTACT * 1.5
    return limit, clip(swerve, -3.5, 3.5), clip(pushx, -hard, hard), clip(pushy, -hard, hard)


def _company(state: State, crowd: Crowd, ground: Ground, present: Bools) -> tuple[Floats, Floats]:
    """Those who walk together keep level and side by side: speed correction, sideways acceleration."""
    together = crowd.partner >= 0
    other = np.where(together, crowd.partner, 0)
    there = together & present[other]
    dx, dy = wrap(state.x[other] - state.x, ground.extent[0]), wrap(state.y[other] - state.y, ground.extent[1])
    ahead, left = dx * state.hx + dy * state.hy, dy * state.hx - dx * state.hy
    close = there & (dx * dx + dy * dy < 36.0)
    pull = np.where(close, clip(0.5 * ahead, -0.5, 0.5) * crowd.speed, 0.0)
    abreast = np.where(close, clip(1.2 * (left - 0.75 * np.where(left >= 0, 1.0, -1.0)), -1.2, 1.2), 0.0)
    return pull, abreast


def _signal_limit(state: State, crowd: Crowd, ground: Ground, time: float, route: Route) -> Floats | float:
    """Speed allowed in front of a red light, for those who obey it."""
    red_x, red_y = ground.red(time)
    if not (red_x or red_y):
        return FAR
    along = np.where(route.along_x, _from_junction(state.x, ground), wrap(state.y, ground.extent[1])) * route.sign
    distance = -along - ground.stop_line - crowd.half_length
    waits = crowd.obeys & np.where(route.along_x, red_x, red_y) & (distance > -0.5)
    return np.where(waits, np.maximum(distance - 0.3, 0.0) / HEADWAY, FAR)


def _next_leg(state: State, crowd: Crowd, ground: Ground, x: Floats, y: Floats, time: float) -> Ints:
    due = time >= crowd.leg_at
    if ground.junction is not None:
        along_x = crowd.leg_axis[:, 0] == 0
        past = np.where(along_x, x, y) - crowd.turn_at
        past = wrap(past, np.where(along_x, *ground.extent)) * crowd.leg_sign[:, 0]
        due |= (past >= 0) & (past < 3.0)  # nan compares false: those never turn
    due &= state.leg == 0
    return np.where(due, 1, state.leg) if due.any() else state.leg


def _from_junction(x: Floats, ground: Ground) -> Floats:
    return wrap(x - (ground.junction or 0.0), ground.extent[0])
