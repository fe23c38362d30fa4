"""Things made a little ahead by a thread of their own, while what was made before is used.

Decoding, looking for shots and resizing leave Python alone while they work, so two threads of one process keep two
cores busy. The order is that of the source, and an error comes where it belongs.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")

_DEPTH = 8  # frames of 8192 x 4320 pixels, the most that are taken, are half a gigabyte


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items. If nobody asks any more, no more are made."""
    made: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(_DEPTH)
    wanted = threading.Event()
    wanted.set()

    def make() -> None:
        last: BaseException | None = None
        try:
            for item in items:
                made.put((item,))
                if not wanted.is_set():
                    return
        except BaseException as error:  # whatever it is, it is raised where the item was asked for
            last = error
        made.put(last)

    threading.Thread(target=make, daemon=True).start()
    try:
        while isinstance(item := made.get(), tuple):
            yield item[0]
        if item is not None:
            raise item
    finally:
        wanted.clear()
        with contextlib.suppress(queue.Empty):
            while True:  # it may be waiting for room; it is not waited for, since a decoder may hang
                made.get_nowait()
