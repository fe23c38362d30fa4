"""Random streams belong to addresses, not to the order of calls."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.seeding import seed_of, stream

parts = st.lists(st.one_of(st.integers(), st.text(max_size=6)), min_size=1, max_size=4)


@given(parts)
def test_the_same_address_gives_the_same_numbers(address: list[int | str]) -> None:
    first = stream(*address).random(4)
    stream("somebody", "else").random(9)
    assert (stream(*address).random(4) == first).all()


@given(parts, parts)
def test_different_addresses_give_different_seeds(a: list[int | str], b: list[int | str]) -> None:
    if a != b:
        assert seed_of(*a) != seed_of(*b)


def test_order_type_and_grouping_matter() -> None:
    addresses = [(1, 2), (2, 1), (12,), ("1", 2), ("12",), (1, "2"), ("a", "b"), ("ab",), ("a", "b", ""), ("a b",)]
    assert len({seed_of(*address) for address in addresses}) == len(addresses)


def test_a_word_cannot_pretend_to_be_two() -> None:
    assert seed_of("a\0str:b") != seed_of("a", "b")


def test_a_whole_number_from_numpy_is_that_number() -> None:
    assert seed_of(np.int64(3), "x") == seed_of(3, "x")  # type: ignore[arg-type]


def test_another_process_with_another_hash_seed_draws_the_same_numbers() -> None:
    code = "from factorjepa.seeding import stream; print(stream(7, 'world', 12).integers(2**32))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONHASHSEED": "5"})
    assert int(ran.stdout) == stream(7, "world", 12).integers(2**32)


def test_neighbouring_streams_are_unrelated() -> None:
    values = np.array([stream(7, "crowd", index).random(50) for index in range(40)])
    correlation = np.corrcoef(values) - np.eye(40)
    assert np.abs(correlation).max() < 0.7
    assert abs(values.mean() - 0.5) < 0.03
