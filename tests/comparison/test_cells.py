"""Rows as cells of a CSV file, which people and other programs read."""

from __future__ import annotations

import math

from factorjepa.statistics.cells import flat, plain


def test_a_value_that_is_missing_keeps_its_place_in_a_list() -> None:
    cells = flat({"seeds": [17, 29, 43], "seed_values": [math.nan, 0.5, 0.25], "mean": math.nan})
    assert cells == {"seeds": "17 29 43", "seed_values": "nan 0.5 0.25", "mean": None}


def test_zero_has_no_sign_and_noise_beyond_what_is_reproducible_is_cut() -> None:
    assert str(plain(-0.0)) == "0.0"
    assert plain([1 / 3, -1e-300, math.inf]) == [0.3333333333, -1e-300, None]
