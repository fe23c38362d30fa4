"""Numbers as a paper prints them: as many digits as the interval can carry, a true minus, nothing for NaN."""

from __future__ import annotations

import math

MINUS, NOTHING = "\N{MINUS SIGN}", "\N{EN DASH}"
_MOST = 6  # decimals


def decimals(low: float, high: float, value: float = math.nan) -> int:
    """Decimals that show an interval's width to two significant digits; without one, a value to three."""
    width = abs(high - low)
    if math.isfinite(width) and width > 0:
        return min(max(1 - math.floor(math.log10(width)), 0), _MOST)
    if math.isfinite(value) and value:
        return min(max(2 - math.floor(math.log10(abs(value))), 0), _MOST)
    return 3


def number(value: float, places: int, sign: bool = False) -> str:
    if not math.isfinite(value):
        return NOTHING
    written = f"{value:+.{places}f}" if sign else f"{value:.{places}f}"
    if not float(written):
        written = written.lstrip("+-")
    return written.replace("-", MINUS)


def interval(low: float, high: float, places: int, sign: bool = False) -> str:
    """`[0.312, 0.340]`; nothing where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "no interval"
    return f"[{number(low, places, sign)}, {number(high, places, sign)}]"


def estimate(value: float, low: float, high: float, sign: bool = False) -> str:
    """`0.326 [0.312, 0.340]`."""
    places = decimals(low, high, value)
    return f"{number(value, places, sign)} {interval(low, high, places, sign)}"


def percent(share: float, places: int = 1, sign: bool = True) -> str:
    return NOTHING if not math.isfinite(share) else f"{number(100 * share, places, sign)} %"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return NOTHING
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def big(count: float) -> str:
    """`77.5 M`, `12,400`."""
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count:,.0f}"
