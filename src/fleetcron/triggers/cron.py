"""Cron expressions with Debian's rules for daylight saving time.

Two kinds of expression (Debian's cron(8), "daylight saving time"):
* **fixed**: neither the minute nor the hour field starts with `*`. It means wall-clock times. A skipped one runs at the
  end of the gap, once however many were skipped; one that comes twice runs on its first pass.
* **wildcard**: follows elapsed time. What the wall clock shows decides: skipped times never run, repeated
  ones run twice.

Both reduce to one sentence. A fixed job's ticks are, for every matching wall time, *the first instant at which the
clock shows that time or a later one*; that is monotonic, so next, latest and count are one look-up in the plain
calendar. A wildcard job's ticks are the instants whose wall time matches; between two changes of offset that is the
plain calendar, shifted. See docs/decisions/0010-cron-engine.md for why this is our own code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from fleetcron.errors import TriggerError
from fleetcron.triggers import fields, words
from fleetcron.triggers.base import EPOCH, Trigger, utc
from fleetcron.triggers.hashed import resolve
from fleetcron.triggers.wall import DAY_SECONDS, MAX_WALL, MIN_WALL, Times, Wall, dates, first_day
from fleetcron.triggers.zones import LISTED_UNTIL, Span, Zone, zone

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_KINDS = (fields.SECOND, fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
_STRANGE = re.compile(r"[^0-9A-Za-z*?/,#@() \t-]")
# All 60 minutes and 60 seconds listed, and every other field too, are about 600 characters.
_LONGEST = 1000
# A wildcard job can sit wholly inside a yearly gap (`* 2 25-31 3 */7` in Berlin) and never fire, though its days exist.
# Once the listed changes of a zone have ended, a year's ticks depend on its shape alone, and all 14 shapes of a year
# come within 40 years: what has not fired by then never does.
_LISTED_UNTIL, _ALL_SHAPES = first_day(LISTED_UNTIL) * DAY_SECONDS, 41 * 366 * DAY_SECONDS


@dataclass(frozen=True, slots=True)
class Plan:
    """A parsed expression."""

    wall: Wall
    fixed: bool
    never: bool


@dataclass(frozen=True, slots=True, init=False)
class Cron(Trigger):
    """A cron expression in a time zone.

    `expr`: five fields (minute, hour, day of month, month, weekday), six with seconds FIRST, or a macro (@daily …).
    Day fields: if one starts with `*` both must match, otherwise either may (Vixie, Debian). `fields` describes the
    dialect. `tz`: an IANA zone name. `name`: what `H` items (`H H * * *`, `H/15`, `H(0-29)`) take their values from,
    usually the schedule's name; `expr` then holds the plain numbers.
    Raises TriggerError naming the field and its value. An expression that can never fire (30 February) is accepted;
    its `next()` is None at once.
    """

    expr: str
    tz: str
    plan: Plan = field(repr=False, compare=False)
    zone: Zone = field(repr=False, compare=False)

    def __init__(self, expr: str, tz: str = "UTC", *, name: str | None = None) -> None:
        texts = _split(expr)
        if any("H" in text for text in texts):
            texts = [resolve(kind, text, name) for kind, text in zip(_KINDS[-len(texts) :], texts, strict=True)]
        object.__setattr__(self, "expr", expr.strip().lower() if "@" in expr else " ".join(texts))
        object.__setattr__(self, "tz", tz)
        object.__setattr__(self, "plan", _plan(*texts))
        object.__setattr__(self, "zone", zone(tz))

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str]]:
        return Cron, (self.expr, self.tz)  # plan and zone are caches

    def next(self, after: datetime) -> datetime | None:
        moment = _floor(utc("after", after)) + 1
        if self.plan.never:
            return None
        wall = self.plan.wall
        if self.plan.fixed:
            match = wall.first(self.zone.high_water(moment - 1) + 1)
            return None if match is None else _instant(self.zone.reached(match))
        for span in self.zone.forward(moment):
            match = wall.first(max(moment, span.start) + span.offset, span.end + span.offset)
            if match is not None:
                return _instant(match - span.offset)
            if span.start > max(moment, _LISTED_UNTIL) + _ALL_SHAPES:
                break
        return None

    def latest(self, before: datetime) -> datetime | None:
        moment = _floor(utc("before", before))
        if self.plan.never:
            return None
        wall = self.plan.wall
        if self.plan.fixed:
            match = wall.last(MIN_WALL, self.zone.high_water(moment) + 1)
            return None if match is None else _instant(self.zone.reached(match))
        for span in self.zone.backward(moment):
            match = wall.last(span.start + span.offset, min(moment + 1, span.end) + span.offset)
            if match is not None:
                return _instant(match - span.offset)
        return None

    def count(self, after: datetime, until: datetime) -> int:
        low, high = _floor(utc("after", after)) + 1, _floor(utc("until", until)) + 1
        if self.plan.never or low >= high:
            return 0
        return self._count_fixed(low, high) if self.plan.fixed else self._count_wildcard(low, high)

    def explain(self) -> str:
        return f"{words.describe(self.plan.wall)} ({self.tz})"

    def to_dict(self) -> dict[str, Any]:
        return {"type": "cron", "expr": self.expr, "tz": self.tz}

    def _count_wildcard(self, low: int, high: int) -> int:
        total = 0
        for start, end, offset in self.zone.forward(low):
            if start >= high:
                break
            total += self.plan.wall.count(max(low, start) + offset, min(high, end) + offset)
        return total

    def _count_fixed(self, low: int, high: int) -> int:
        """Matching wall times reached in [low, high), minus those that share the instant at the end of a gap."""
        wall, zone = self.plan.wall, self.zone
        total = wall.count(zone.high_water(low - 1) + 1, zone.high_water(high - 1) + 1)
        before: Span | None = None
        for span in zone.forward(low - 1):
            if span.start >= high:
                break
            if before is not None and span.offset > before.offset:
                skipped = wall.count(span.start + before.offset, span.start + span.offset + 1)
                total -= max(0, skipped - 1)
            before = span
        return total


def _split(expr: str) -> list[str]:
    """The fields in upper case, macros replaced."""
    if not isinstance(expr, str):
        raise TriggerError(f"cron: expected text such as '0 2 * * *', got {expr!r}")
    if len(expr) > _LONGEST:
        raise TriggerError(f"cron: an expression of {len(expr)} characters; at most {_LONGEST} are allowed")
    if found := _STRANGE.search(expr):
        raise TriggerError(f"cron: {expr!r} contains {found[0]!r}; allowed are ASCII digits, letters and * ? / , - #")
    texts = expr.split()
    if texts and texts[0].startswith("@"):
        macro = MACROS.get(texts[0].lower())
        if macro is None or len(texts) > 1:
            raise TriggerError(f"cron: {expr!r} is not a macro; allowed are {', '.join(MACROS)}, alone")
        return macro.split()
    if len(texts) not in (5, 6):
        raise TriggerError(
            f"cron: {expr!r} has {len(texts)} fields; expected 5 (minute hour day month weekday), or 6, seconds first"
        )
    return [text.upper() for text in texts]


@lru_cache(maxsize=8192)
def _plan(*texts: str) -> Plan:
    """Shared by all triggers with the same fields, whatever their zone."""
    second, minute, hour, day, month, weekday = ("0", *texts)[-6:]
    times = Times(
        fields.parse_plain(fields.SECOND, second),
        fields.parse_plain(fields.MINUTE, minute),
        fields.parse_plain(fields.HOUR, hour),
    )
    days = dates(
        fields.parse_plain(fields.MONTH, month),
        fields.parse_days(day),
        fields.parse_weekdays(weekday),
        fields.starred(day) or fields.starred(weekday),
    )
    return Plan(Wall(days, times), not (minute.startswith("*") or hour.startswith("*")), days.never)


def _floor(moment: datetime) -> int:
    """Seconds since the epoch, rounded down: ticks are whole seconds, so "after 10:09:59.9" is "after 10:09:59"."""
    since = moment - EPOCH
    return since.days * DAY_SECONDS + since.seconds


def _instant(moment: int | None) -> datetime | None:
    if moment is None or not MIN_WALL <= moment < MAX_WALL:
        return None
    return EPOCH + timedelta(seconds=moment)
