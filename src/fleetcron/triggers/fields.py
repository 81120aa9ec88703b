"""The cron dialect: text to bit masks. Bit n of a mask stands for the value n of its field.

    item    :=  (* | value | value-value) [/step]       value/step runs to the end of the field
    value   :=  digits | three-letter name (JAN..DEC, SUN..SAT, any case)
    day     :=  also  ?  L  LW  nW                      last day, last Monday-Friday, Monday-Friday nearest to day n
    weekday :=  also  ?  d#n  dL                        n-th or last such weekday of the month; 0 and 7 are Sunday
    field   :=  item[,item]...

A range may wrap (FRI-MON, 22-2); its step counts along the wrapped sequence. Everything else is refused: a typo that is
silently read as another schedule is worse than an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, NoReturn

from fleetcron.errors import TriggerError

_FIRST_HALF = {"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6}
_MONTHS = _FIRST_HALF | {"JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12}
_WEEKDAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}
_ITEM = re.compile(r"(?P<first>\*|[0-9]+|[A-Z]{3})(?:-(?P<last>[0-9]+|[A-Z]{3}))?(?:/(?P<step>[0-9]+))?", re.ASCII)
_NEAREST = re.compile(r"([0-9]+)W", re.ASCII)
_NTH = re.compile(r"([0-9]|[A-Z]{3})#([0-9]+)", re.ASCII)
_LAST = re.compile(r"([0-9]|[A-Z]{3})L", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """One position of an expression: its name in messages, and the values it takes (low..high)."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict, hash=False)
    extras: str = ""

    def refuse(self, text: str, why: str) -> NoReturn:
        names = f", {next(iter(self.names))}-{list(self.names)[-1]}" if self.names else ""
        raise TriggerError(
            f"{self.name}: {text!r} {why}; allowed are *, {self.low}-{self.high}{names}, a-b, a/n, */n{self.extras}"
        )

    def value(self, text: str, item: str) -> int:
        """The number that `text` (digits or a name, inside `item`) stands for."""
        number = self.names.get(text, -1) if text.isalpha() else int(text)
        if not self.low <= number <= self.high:
            self.refuse(item, f"has {text!r}, which is not a {self.name}")
        return number


SECOND = Field("second", 0, 59)
MINUTE = Field("minute", 0, 59)
HOUR = Field("hour", 0, 23)
DAY = Field("day of month", 1, 31, extras=", ?, L, LW, nW, and lists of these")
MONTH = Field("month", 1, 12, _MONTHS)
WEEKDAY = Field("weekday", 0, 7, _WEEKDAYS, extras=", ?, d#1..d#5, dL, and lists of these")


class Days(NamedTuple):
    """Which days of the month, by date. `nearest` holds the n of every nW."""

    mask: int
    last: bool
    last_workday: bool
    nearest: int


class Weekdays(NamedTuple):
    """Which days of the month, by weekday (Sunday = bit 0). `nth` holds five 7-bit masks, first week lowest."""

    mask: int
    nth: int
    last: int


def mask(values: Iterable[int]) -> int:
    bits = 0
    for value in values:
        bits |= 1 << value
    return bits


def starred(text: str) -> bool:
    """Debian's test for "unrestricted": the field *starts* with a star, so */2 counts. `?` is another `*`."""
    return text.startswith(("*", "?"))


@lru_cache(maxsize=4096)
def parse_plain(kind: Field, text: str) -> int:
    """The mask of a second, minute, hour or month field (upper case). Raises TriggerError."""
    return mask(value for item in text.split(",") for value in _sequence(kind, item))


@lru_cache(maxsize=1024)
def parse_days(text: str) -> Days:
    """The day-of-month field."""
    if text == "?":
        text = "*"
    plain, last, last_workday, nearest = 0, False, False, 0
    for item in text.split(","):
        if item == "L":
            last = True
        elif item == "LW":
            last_workday = True
        elif found := _NEAREST.fullmatch(item):
            nearest |= 1 << DAY.value(found[1], item)
        else:
            plain |= mask(_sequence(DAY, item))
    return Days(plain, last, last_workday, nearest)


@lru_cache(maxsize=1024)
def parse_weekdays(text: str) -> Weekdays:
    """The day-of-week field."""
    if text == "?":
        text = "*"
    plain = nth = last = 0
    for item in text.split(","):
        if found := _NTH.fullmatch(item):
            week = int(found[2])
            if not 1 <= week <= 5:
                WEEKDAY.refuse(item, "names a week of the month that is not 1-5")
            nth |= 1 << (WEEKDAY.value(found[1], item) % 7 + 7 * (week - 1))
        elif found := _LAST.fullmatch(item):
            last |= 1 << WEEKDAY.value(found[1], item) % 7
        else:
            plain |= mask(value % 7 for value in _sequence(WEEKDAY, item))
    return Weekdays(plain, nth, last)


def _sequence(kind: Field, item: str) -> list[int]:
    found = _ITEM.fullmatch(item)
    if not found:
        kind.refuse(item, "is not understood" if item else "(an empty list element)")
    first, last, step = found["first"], found["last"], int(found["step"] or 1)
    if step == 0:
        kind.refuse(item, "has step 0")
    if first == "*":
        if last:
            kind.refuse(item, "is not understood")
        return list(range(kind.low, kind.high + 1, step))
    start = kind.value(first, item)
    if not last:
        end = kind.high if found["step"] else start
        return list(range(start, end + 1, step))
    end = kind.value(last, item)
    if end < start:  # wraps; weekday 7 is another name of 0, so that field has only 0-6 to wrap through
        if kind is WEEKDAY:
            start, high = start % 7, 6
        else:
            high = kind.high
        around = [*range(start, high + 1), *range(kind.low, end + 1)] if end < start else [*range(start, end + 1)]
        return around[::step]
    return list(range(start, end + 1, step))
