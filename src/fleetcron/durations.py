"""Durations as people write them: `timedelta`, seconds, or text such as "250ms", "1.5s", "90s", "5m", "1h30m", "2d".

Everything is exact to the microsecond: no value passes through a float on its way.
"""

from __future__ import annotations

import re
from datetime import timedelta
from math import isfinite

# Largest first: text must name its units in this order, each at most once.
_UNITS: dict[str, int] = {  # microseconds
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
}
# Digits are bounded, so that no text can cost quadratic time in int(); the longest timedelta has 20, in microseconds.
_DIGITS = 20
_SCALE: int = 10**_DIGITS
_NUMBER = rf"[0-9]{{1,{_DIGITS}}}(?:\.[0-9]{{1,{_DIGITS}}})?"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_COMPOUND = re.compile("".join(rf"(?:({_NUMBER}){unit})?" for unit in _UNITS), re.ASCII)
_ALLOWED = 'expected a timedelta, a number of seconds, or text such as "250ms", "1.5s", "5m", "1h30m", "2d"'


def parse_duration(value: timedelta | float | str, name: str = "duration", *, allow_zero: bool = False) -> timedelta:
    """The duration that `value` means; `name` is what the error calls it.

    Numbers, and text without a unit ("90"), are seconds. Fractions of a microsecond are rounded to the nearest one.
    Raises ValueError naming `name` and the value if it is not a duration, negative, zero (unless `allow_zero`),
    NaN, infinite, above zero but below a microsecond, or longer than a timedelta can hold (about 2.7 million years).
    """
    exact, scale = _microseconds(value, name)
    whole = (2 * exact + scale) // (2 * scale)
    if exact < 0:
        raise ValueError(f"{name}: {_show(value)} is negative")
    if exact == 0 and not allow_zero:
        raise ValueError(f"{name}: must be longer than zero, got {_show(value)}")
    if exact > 0 and whole == 0:
        raise ValueError(f"{name}: {_show(value)} is below the resolution of one microsecond")
    try:
        return timedelta(microseconds=whole)
    except OverflowError:
        raise ValueError(f"{name}: {_show(value)} is longer than 999999999 days") from None


def format_duration(duration: timedelta) -> str:
    """The shortest exact text: "90s", "5m", "1h30m15s", "0.5s", "2d"; of two as short, that with larger units.

    `parse_duration(format_duration(d), allow_zero=True) == d` for every d ≥ 0; a negative one gets a leading "-".
    """
    total = duration // timedelta(microseconds=1)
    if total < 0:
        return "-" + format_duration(-duration)
    if total == 0:
        return "0s"
    parts, rest = [], total
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    candidates = ["".join(parts)]
    candidates += [f"{total // size}{unit}" for unit, size in _UNITS.items() if total % size == 0]
    seconds, fraction = divmod(total, 1_000_000)
    if fraction:
        candidates.append(f"{seconds}.{fraction:06d}".rstrip("0") + "s")
    return min(candidates, key=len)


def _microseconds(value: object, name: str) -> tuple[int, int]:
    """The value as an exact fraction: microseconds × scale, and scale."""
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1), 1
    if isinstance(value, int) and not isinstance(value, bool):
        return value * _UNITS["s"], 1
    if isinstance(value, float) and isfinite(value):
        numerator, denominator = value.as_integer_ratio()
        return numerator * _UNITS["s"], denominator
    if isinstance(value, str):
        text = value.strip()
        if _PLAIN.fullmatch(text):
            text += "s"
        found = _COMPOUND.fullmatch(text)
        if found and text:
            parts = zip(found.groups(), _UNITS.values(), strict=True)
            return sum(_scaled(number) * size for number, size in parts if number is not None), _SCALE
    raise ValueError(f"{name}: {_show(value)} is not a duration; {_ALLOWED}")


def _scaled(number: str) -> int:
    whole, _, fraction = number.partition(".")
    return int(whole) * _SCALE + int(fraction.ljust(_DIGITS, "0"))


def _show(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**30:  # its repr is quadratic, and refused above 4300 digits
        return f"a {value.bit_length()}-bit number of seconds"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
