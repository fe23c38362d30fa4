"""The simulated cities: invented places, each with its own palette, buildings, traffic and weather."""

from __future__ import annotations

from dataclasses import dataclass, field

from .taxonomy import Superclass

RGB = tuple[int, int, int]


@dataclass(frozen=True)
class City:
    name: str
    walls: tuple[RGB, ...]  # facade paints
    trim: RGB  # window frames, cornices
    accents: tuple[RGB, ...]  # signboards, awnings, shutters
    road: RGB
    earth: RGB  # footpaths, dust
    floors: tuple[int, int]  # storeys of its buildings, least and most
    arches: float  # share of facades with arches and domes
    balconies: float
    greenery: float  # trees per 10 m of kerb
    crowding: float  # multiplies the preset's density
    haze: float  # 0 clear air, 1 thick
    rain: float  # probability of rain
    disorder: float  # multiplies weak lane discipline
    mix: dict[Superclass, float] = field(default_factory=dict)  # multiplies the traffic mix


_S = Superclass

CITIES: dict[str, City] = {
    city.name: city
    for city in (
        City(
            "navapur", ((196, 188, 172), (170, 160, 150), (208, 176, 138), (150, 160, 168)), (92, 84, 78),
            ((200, 40, 36), (28, 88, 168), (238, 180, 30), (30, 130, 90)), (86, 86, 90), (150, 138, 122),
            (3, 6), 0.05, 0.45, 0.25, 1.15, 0.30, 0.15, 1.0, {_S.LIGHT_VEHICLE: 1.4, _S.HEAVY_VEHICLE: 1.3},
        ),
        City(
            "kesaripet", ((224, 150, 96), (232, 186, 120), (206, 120, 84), (238, 208, 160)), (120, 58, 40),
            ((226, 92, 20), (190, 30, 60), (250, 200, 60), (90, 40, 110)), (104, 94, 86), (190, 154, 114),
            (2, 4), 0.45, 0.35, 0.12, 1.10, 0.22, 0.05, 1.15, {_S.ANIMAL: 1.8, _S.INTERMEDIATE: 1.3},
        ),
        City(
            "samudranagar", ((230, 226, 214), (160, 202, 206), (236, 214, 168), (198, 216, 190)), (70, 104, 120),
            ((20, 120, 160), (240, 120, 90), (250, 220, 110), (40, 150, 140)), (92, 94, 96), (198, 184, 154),
            (2, 5), 0.12, 0.60, 0.40, 0.95, 0.20, 0.30, 0.9, {_S.PEDESTRIAN: 1.25, _S.ANIMAL: 0.6},
        ),
        City(
            "dholaghat", ((190, 170, 148), (176, 142, 120), (210, 196, 168), (150, 132, 118)), (84, 66, 54),
            ((178, 40, 50), (224, 150, 40), (60, 110, 90), (120, 60, 120)), (108, 100, 92), (172, 152, 126),
            (2, 4), 0.35, 0.50, 0.18, 1.20, 0.45, 0.18, 1.2, {_S.PEDESTRIAN: 1.3, _S.PEDAL_CYCLE: 1.6},
        ),
        City(
            "mehrabad", ((226, 206, 176), (206, 166, 130), (236, 224, 200), (186, 150, 120)), (140, 96, 70),
            ((10, 120, 90), (196, 60, 40), (230, 190, 80), (40, 80, 140)), (98, 92, 86), (196, 172, 138),
            (2, 3), 0.65, 0.25, 0.15, 1.05, 0.28, 0.06, 1.1, {_S.INTERMEDIATE: 1.6},
        ),
        City(
            "vanapalli", ((216, 220, 196), (186, 206, 176), (230, 200, 190), (204, 196, 216)), (80, 96, 72),
            ((46, 140, 60), (220, 70, 90), (240, 200, 50), (80, 80, 170)), (80, 84, 84), (134, 130, 104),
            (1, 3), 0.08, 0.55, 0.85, 0.90, 0.25, 0.45, 0.85, {_S.TWO_WHEELER: 1.5},
        ),
        City(
            "tapimarg", ((158, 154, 150), (180, 170, 160), (140, 136, 132), (196, 180, 156)), (70, 68, 66),
            ((210, 130, 30), (50, 90, 140), (160, 40, 40), (90, 100, 60)), (76, 76, 78), (128, 118, 108),
            (2, 5), 0.03, 0.25, 0.10, 1.00, 0.60, 0.12, 1.05, {_S.HEAVY_VEHICLE: 2.2, _S.PEDAL_CYCLE: 1.3},
        ),
        City(
            "gulmohar", ((238, 214, 196), (220, 180, 186), (196, 204, 222), (240, 232, 206)), (110, 76, 84),
            ((230, 60, 110), (250, 170, 60), (60, 150, 170), (140, 90, 180)), (94, 92, 98), (176, 160, 146),
            (2, 4), 0.10, 0.65, 0.55, 0.90, 0.18, 0.20, 0.9, {_S.LIGHT_VEHICLE: 1.3, _S.TWO_WHEELER: 1.3},
        ),
        City(
            "pahargaon", ((176, 186, 190), (206, 190, 170), (150, 166, 150), (214, 206, 200)), (64, 80, 70),
            ((170, 40, 40), (40, 100, 80), (220, 170, 60), (50, 70, 120)), (88, 88, 88), (140, 132, 116),
            (1, 3), 0.06, 0.40, 0.65, 0.85, 0.70, 0.30, 0.95, {_S.PEDESTRIAN: 1.2, _S.ANIMAL: 1.5},
        ),
        City(
            "lohapur", ((172, 148, 130), (150, 130, 120), (190, 170, 150), (132, 124, 124)), (60, 54, 50),
            ((230, 160, 20), (180, 50, 30), (40, 100, 130), (100, 110, 60)), (82, 80, 80), (146, 126, 104),
            (2, 4), 0.05, 0.30, 0.15, 1.10, 0.50, 0.10, 1.2, {_S.INTERMEDIATE: 1.4, _S.HEAVY_VEHICLE: 1.5},
        ),
    )
}  # fmt: skip
