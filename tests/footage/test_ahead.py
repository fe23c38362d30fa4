"""A thread that works ahead changes nothing but the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factorjepa.footage.ahead import ahead


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise RuntimeError("the file ends here")


@given(st.integers(0, 40))
def test_items_come_in_their_order_and_an_error_after_what_came_before_it(count: int) -> None:
    assert list(ahead(iter(range(count)))) == list(range(count))
    items = ahead(failing(count))
    assert [next(items) for _ in range(count)] == list(range(count))
    with pytest.raises(RuntimeError, match="the file ends here"):
        next(items)


def test_whoever_stops_asking_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    endless = ahead(iter(int, 1))
    assert next(endless) == 0
    endless.close()  # type: ignore[attr-defined]
    while threading.active_count() > before:  # ends by itself, or this test never does
        time.sleep(0.001)
