"""Who is on the street: the paper's seven superclasses and the local kinds by name, each with body and manners."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Superclass(StrEnum):
    """The seven shared superclasses of the paper's dynamic-agent taxonomy (appendix B.1)."""

    PEDESTRIAN = "pedestrian"
    PEDAL_CYCLE = "pedal cycle"
    TWO_WHEELER = "powered two-wheeler"
    LIGHT_VEHICLE = "light passenger vehicle"
    HEAVY_VEHICLE = "heavy or public vehicle"
    INTERMEDIATE = "intermediate or non-motorized transport"
    ANIMAL = "animal or animal-drawn transport"


SUPERCLASSES = tuple(Superclass)


@dataclass(frozen=True)
class Kind:
    """One kind of agent. Sizes in metres, speeds in metres per second, times in seconds."""

    name: str
    superclass: Superclass
    length: float
    width: float
    height: float
    speed: float  # mean desired speed when the way is free
    speed_spread: float  # relative standard deviation of the desired speed
    reaction: float  # relaxation time towards the desired velocity
    agility: float  # sideways speed it can reach, as a share of its forward speed
    push: float  # how strongly it claims its way: the less pushy one of two yields
    restless: float = 0.0  # share of time it stops by itself (dogs sniff, vendors serve, autos look for fares)
    wheels: bool = True  # rolls along its heading; walkers may step sideways


_P, _C, _T, _L, _H, _I, _A = SUPERCLASSES

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("pedestrian", _P, 0.45, 0.55, 1.68, 1.35, 0.20, 0.40, 1.0, 0.18, 0.08, wheels=False),
        Kind("schoolchild", _P, 0.35, 0.42, 1.25, 1.45, 0.25, 0.35, 1.0, 0.12, 0.10, wheels=False),
        Kind("porter", _P, 0.50, 0.65, 2.00, 1.20, 0.15, 0.45, 0.9, 0.26, 0.03, wheels=False),
        Kind("bicycle", _C, 1.75, 0.55, 1.65, 3.4, 0.18, 0.50, 0.45, 0.30),
        Kind("cargo_bicycle", _C, 2.00, 0.75, 1.65, 2.8, 0.15, 0.55, 0.40, 0.34),
        Kind("motorcycle", _T, 2.00, 0.70, 1.55, 6.2, 0.20, 0.42, 0.50, 0.48),
        Kind("scooter", _T, 1.80, 0.68, 1.50, 5.4, 0.20, 0.42, 0.50, 0.45),
        Kind("multi_rider_two_wheeler", _T, 2.05, 0.78, 1.60, 5.0, 0.18, 0.48, 0.45, 0.47),
        Kind("delivery_rider", _T, 2.05, 0.80, 1.65, 6.6, 0.20, 0.40, 0.55, 0.50),
        Kind("hatchback", _L, 3.70, 1.65, 1.50, 6.6, 0.16, 0.50, 0.25, 0.66),
        Kind("sedan", _L, 4.40, 1.75, 1.48, 7.0, 0.16, 0.50, 0.25, 0.70),
        Kind("suv", _L, 4.50, 1.85, 1.80, 7.0, 0.16, 0.52, 0.25, 0.76),
        Kind("taxi", _L, 3.95, 1.68, 1.52, 6.6, 0.18, 0.48, 0.28, 0.72, 0.04),
        Kind("bus", _H, 9.50, 2.50, 3.10, 5.6, 0.12, 0.75, 0.16, 1.00, 0.06),
        Kind("minibus", _H, 6.20, 2.10, 2.60, 5.8, 0.14, 0.62, 0.20, 0.88, 0.06),
        Kind("truck", _H, 7.20, 2.35, 3.00, 5.2, 0.12, 0.75, 0.16, 0.96),
        Kind("tempo", _H, 4.20, 1.70, 2.10, 5.6, 0.15, 0.55, 0.22, 0.78),
        Kind("auto_rickshaw", _I, 2.70, 1.35, 1.72, 5.2, 0.18, 0.42, 0.40, 0.60, 0.06),
        Kind("e_rickshaw", _I, 2.80, 1.10, 1.80, 4.2, 0.15, 0.48, 0.35, 0.52, 0.06),
        Kind("cycle_rickshaw", _I, 2.50, 1.15, 1.75, 2.6, 0.15, 0.55, 0.35, 0.42, 0.04),
        Kind("mobile_vendor", _I, 1.90, 1.15, 1.90, 0.8, 0.25, 0.60, 0.50, 0.40, 0.45, wheels=False),
        Kind("handcart", _I, 2.60, 1.10, 1.65, 1.1, 0.18, 0.60, 0.40, 0.44, 0.08),
        Kind("cow", _A, 2.20, 0.75, 1.45, 0.7, 0.35, 0.70, 0.60, 0.90, 0.50, wheels=False),
        Kind("dog", _A, 0.90, 0.32, 0.62, 1.6, 0.35, 0.30, 1.0, 0.08, 0.35, wheels=False),
        Kind("goat", _A, 1.05, 0.38, 0.80, 1.0, 0.30, 0.40, 0.9, 0.10, 0.35, wheels=False),
        Kind("animal_cart", _A, 4.60, 1.60, 1.80, 1.6, 0.15, 0.80, 0.22, 0.82, 0.02),
    )
}
KIND_NAMES = tuple(KINDS)
