"""Every method by name.

`auto_rgn@long` is Auto-RGN under a name of its own, for runs with other settings beside those of `auto_rgn`.
"""

from __future__ import annotations

import dataclasses
import re

from ..errors import TrainingError
from ..words import AT, nearest
from .ablations import ABLATIONS
from .adapters import DORA, LORA
from .autorgn import AUTO_RGN
from .continual import CONTINUAL
from .controls import CHOSEN, EDITED, EVERYTHING, GEOMETRY, LOOKING, PLAIN, SUPERVISED, VIEWED
from .factor import DI_PLUS, FACTORJEPA, INT, RAW
from .lpft import LPFT
from .method import Method
from .reference import FROZEN, FULL
from .wise import WISE

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        FROZEN, FULL, CONTINUAL, LPFT, *WISE, LORA, DORA, AUTO_RGN, RAW, FACTORJEPA, DI_PLUS, INT, PLAIN,
        SUPERVISED, VIEWED, EDITED, LOOKING, *GEOMETRY, *EVERYTHING, *CHOSEN, *ABLATIONS,
    )
}  # fmt: skip


def method_named(name: str) -> Method:
    """A method, or a variant of one with the same definition."""
    base, at, word = name.partition(AT)
    if base not in METHODS:
        raise TrainingError(f"there is no method {name!r}{nearest(base, METHODS)}; `factorjepa methods` lists them")
    method = METHODS[base]
    if not at:
        return method
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", word, re.ASCII):
        raise TrainingError(
            f"method {name!r}: after {AT} comes a word of letters, digits, '.', '_' and '-', as in {base}{AT}slow"
        )
    return dataclasses.replace(method, name=name, title=f"{method.title} {AT}{word}")


def known(name: str) -> Method | None:
    """A method that scores tell of, which may be of another version of this package."""
    try:
        return method_named(name)
    except TrainingError:
        return None
