"""Time zones as integers: when the offset from UTC changes, and what follows for wall clocks.

zoneinfo answers "what is the offset now" but not "when does it change", which is what exact counting and the DST rules
need. So the changes of a year are found by probing once (50 to 80 µs a zone and year, then cached), and everything
after that is integer arithmetic. Instants are seconds since the Unix epoch; `offset` is wall clock minus UTC.
"""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from fleetcron.errors import TriggerError
from fleetcron.triggers.base import EPOCH
from fleetcron.triggers.wall import DAY_SECONDS, MAX_WALL, MIN_WALL, first_day, year_of

# The two closest changes of any zone in tzdata 2025b and 2026f are 3.99 days apart (Freetown, 1939), so a stretch of
# 3 days holds at most one and bisecting finds it. A test holds every new zone data to that.
_PROBE = timedelta(days=3)
_SECOND = timedelta(seconds=1)
# Zone data lists changes one by one up to 2087 (Morocco's Ramadan); after that one yearly rule holds, and repeats with
# the calendar, every 400 years.
LISTED_UNTIL = 2100
_PERIOD = 400
_PERIOD_SECONDS = 146_097 * DAY_SECONDS
_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)
# Not zones: the host's own setting under another name, and copies that count leap seconds.
_HOST_FILES = ("localtime", "posixrules")


class Span(NamedTuple):
    """A stretch [start, end) of UTC with one offset. Spans also end with each UTC year, where nothing changes."""

    start: int
    end: int
    offset: int


class Zone:
    """The offsets of one zone, by UTC year."""

    __slots__ = ("_info", "_years", "key")

    def __init__(self, key: str, info: zoneinfo.ZoneInfo) -> None:
        self.key = key
        self._info = info
        self._years: dict[int, tuple[Span, ...]] = {}

    def forward(self, moment: int) -> Iterator[Span]:
        """The spans from the one that holds `moment` to the end of the calendar."""
        moment = max(moment, MIN_WALL)
        if moment >= MAX_WALL:
            return
        year = year_of(moment // DAY_SECONDS)
        for span in self.year(year):
            if span.end > moment:
                yield span
        while year < 9999:
            year += 1
            yield from self.year(year)

    def backward(self, moment: int) -> Iterator[Span]:
        """The spans from the one that holds `moment` back to the beginning of the calendar."""
        moment = min(moment, MAX_WALL - 1)
        if moment < MIN_WALL:
            return
        year = year_of(moment // DAY_SECONDS)
        for span in reversed(self.year(year)):
            if span.start <= moment:
                yield span
        while year > 1:
            year -= 1
            yield from reversed(self.year(year))

    def high_water(self, moment: int) -> int:
        """The latest time that the wall clock has shown up to and including `moment`.

        Usually what it shows now; in a repeated hour, the top of that hour.
        """
        # No offset is a day long, so what was shown two days ago cannot be ahead of now.
        shown = moment - 2 * DAY_SECONDS
        for span in self.backward(moment):
            shown = max(shown, min(moment, span.end - 1) + span.offset)
            if span.start <= moment - 2 * DAY_SECONDS:
                break
        return shown

    def reached(self, wall: int) -> int | None:
        """The first instant whose wall clock shows `wall` or later; None outside the calendar.

        Itself if it exists, its first pass if it comes twice, the end of the gap if it is skipped.
        """
        for span in self.forward(wall - DAY_SECONDS):
            if wall - span.offset < MIN_WALL:  # shown, if ever, before the calendar begins
                return None
            moment = max(span.start, wall - span.offset)
            if moment < span.end:
                return moment
        return None

    def year(self, year: int) -> tuple[Span, ...]:
        """The spans of a UTC year, in order."""
        spans = self._years.get(year)
        if spans is None:
            if year >= LISTED_UNTIL + _PERIOD:
                periods = (year - LISTED_UNTIL) // _PERIOD
                shift = periods * _PERIOD_SECONDS
                near = self.year(year - periods * _PERIOD)
                return tuple(Span(start + shift, end + shift, offset) for start, end, offset in near)
            spans = self._years[year] = self._probe(year)
        return spans

    def _probe(self, year: int) -> tuple[Span, ...]:
        start, end = first_day(year) * DAY_SECONDS, first_day(year + 1) * DAY_SECONDS
        # fromutc() would leave the calendar within a day of its ends; no zone changes there.
        low = self._at(max(start, MIN_WALL + DAY_SECONDS))
        top = self._at(min(end, MAX_WALL - DAY_SECONDS) - 1)
        offset = self._offset(low)
        spans = []
        while low < top:
            high = low + _PROBE if top - low > _PROBE else top
            after = self._offset(high)
            if after != offset:
                change = self._change(low, high)
                spans.append(Span(start, change, offset // _SECOND))
                start, offset = change, after
            low = high
        spans.append(Span(start, end, offset // _SECOND))
        return tuple(spans)

    def _change(self, low: datetime, high: datetime) -> int:
        """The second of the one change in (low, high]."""
        offset = self._offset(low)
        seconds = (high - low) // _SECOND
        while seconds > 1:
            middle = low + (seconds // 2) * _SECOND
            if self._offset(middle) == offset:
                low = middle
                seconds -= seconds // 2
            else:
                seconds //= 2
        return (low - self._at(0)) // _SECOND + 1

    def _at(self, moment: int) -> datetime:
        """An instant as fromutc() wants it: UTC's clock under this zone's name."""
        return (EPOCH + moment * _SECOND).replace(tzinfo=self._info)

    def _offset(self, utc: datetime) -> timedelta:
        return self._info.fromutc(utc) - utc  # two times of one zone: Python subtracts their clocks


def zone(key: str) -> Zone:
    """The zone of an IANA name. Raises TriggerError naming it for anything else; never the host's local time."""
    if not isinstance(key, str) or not key:
        raise TriggerError(f"tz: {key!r} is not a zone name; expected an IANA name such as 'UTC' or 'Europe/Berlin'")
    if not _NAME.fullmatch(key) or key in _HOST_FILES or key.startswith("right/"):
        raise TriggerError(f"tz: {key!r} is not an IANA zone name such as 'UTC' or 'Europe/Berlin'")
    return _load(key)


@lru_cache(maxsize=1024)
def _load(key: str) -> Zone:
    try:
        return Zone(key, zoneinfo.ZoneInfo(key))
    except (
        zoneinfo.ZoneInfoNotFoundError,
        ValueError,
        OSError,
    ):  # unknown; not zone data; a directory, a name too long
        raise TriggerError(
            f"tz: no zone named {key!r} in {tzdata_version()}; expected an IANA name such as 'UTC' or 'Europe/Berlin'"
        ) from None


@lru_cache(maxsize=1)
def tzdata_version() -> str:
    """Which zone data this process uses: "system 2025b" or "tzdata 2026.6" (the PyPI package).

    zoneinfo prefers the system's. Where that carries no version, a hash of its files stands in ("system #0f3a…"), so
    that two nodes show the same text if, and only if, they would compute the same ticks.
    """
    for root in map(Path, zoneinfo.TZPATH):
        if not (root / "Europe" / "London").is_file():
            continue
        for name, pattern in (("tzdata.zi", r"# version (\S+)"), ("+VERSION", r"(\S+)")):
            try:
                with (root / name).open(encoding="ascii", errors="replace") as file:
                    found = re.match(pattern, file.readline(200))
            except OSError:
                continue
            if found:
                return f"system {found[1]}"
        digest = blake2b(digest_size=6)
        for key in sorted(zoneinfo.available_timezones()):
            try:
                digest.update(key.encode() + (root / key).read_bytes())
            except OSError:
                continue
        return f"system #{digest.hexdigest()}"
    from importlib import metadata  # lazy: costs 20 to 40 ms, and most hosts have the system's files

    try:
        return f"tzdata {metadata.version('tzdata')}"
    except metadata.PackageNotFoundError:
        return "none"
