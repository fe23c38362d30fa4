"""Every method by name."""

from __future__ import annotations

from ..errors import TrainingError
from ..words import nearest
from .ablations import ABLATIONS
from .adapters import DORA, LORA
from .autorgn import AUTO_RGN
from .continual import CONTINUAL
from .controls import CHOSEN, EVERYTHING, GEOMETRY, PLAIN, SUPERVISED, VIEWED
from .factor import DI_PLUS, FACTORJEPA, INT, RAW
from .lpft import LPFT
from .method import Method
from .reference import FROZEN, FULL
from .wise import WISE

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        FROZEN, FULL, CONTINUAL, LPFT, *WISE, LORA, DORA, AUTO_RGN, RAW, FACTORJEPA, DI_PLUS, INT, PLAIN,
        SUPERVISED, VIEWED, *GEOMETRY, *EVERYTHING, *CHOSEN, *ABLATIONS,
    )
}  # fmt: skip


def method_named(name: str) -> Method:
    if name not in METHODS:
        raise TrainingError(f"there is no method {name!r}{nearest(name, METHODS)}; `factorjepa methods` lists them")
    return METHODS[name]
