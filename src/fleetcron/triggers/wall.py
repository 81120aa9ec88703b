"""The calendar without zones: which wall-clock seconds an expression matches.

Wall times are integers: seconds since 1970-01-01T00:00:00 *as the wall clock reads*. A year has only 14 shapes (leap or
not, weekday of 1 January), so an expression's days are at most 14 integers of 366 bits, made when first needed: "next
matching day" is a shift and a lowest bit, "how many" is a population count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache

from fleetcron.triggers.fields import Days, Weekdays

DAY_SECONDS = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
MIN_WALL = (1 - EPOCH_ORDINAL) * DAY_SECONDS
MAX_WALL = (date.max.toordinal() + 1 - EPOCH_ORDINAL) * DAY_SECONDS  # exclusive

_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EVERY_WEEK = sum(1 << 7 * week for week in range(5))


def lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def below(n: int) -> int:
    """The mask of the values 0 … n−1."""
    return (1 << n) - 1


def year_of(day: int) -> int:
    """The year of a day number (days since 1970-01-01)."""
    return date.fromordinal(day + EPOCH_ORDINAL).year


def first_day(year: int) -> int:
    """The day number of 1 January; also for the year after the last one."""
    past = year - 1
    return 365 * past + past // 4 - past // 100 + past // 400 + 1 - EPOCH_ORDINAL


def _rotate(week: int, first: int) -> int:
    """The 7-bit weekday mask, seen from a first day with weekday `first`: bit 0 is that day."""
    return (week | week << 7) >> first & 127


@dataclass(frozen=True, slots=True, eq=False)
class Dates:
    """The days that match the month, day-of-month and day-of-week fields. Day numbers count from 1970-01-01."""

    months: int
    days: Days
    weekdays: Weekdays
    both: bool  # a day field starts with a star: both must match; otherwise either may (Vixie, Debian)
    _years: dict[int, int] = field(default_factory=dict, init=False)

    @property
    def never(self) -> bool:
        """No year has such a day. (All 28 shapes of February occur in 400 years, so nothing less will do.)"""
        return not any(
            self._month(length, weekday)
            for month, most in enumerate(_LENGTHS, 1)
            if self.months >> month & 1
            for length in ((28, 29) if most == 28 else (most,))
            for weekday in range(7)
        )

    def has(self, day: int) -> bool:
        if not MIN_WALL <= day * DAY_SECONDS < MAX_WALL:
            return False
        year = year_of(day)
        return bool(self._year(year) >> (day - first_day(year)) & 1)

    def first(self, day: int, stop: int) -> int | None:
        """The first matching day in [day, stop)."""
        day = max(day, MIN_WALL // DAY_SECONDS)
        stop = min(stop, MAX_WALL // DAY_SECONDS)
        if day >= stop:
            return None
        year = year_of(day)
        start = first_day(year)
        bits = self._year(year) >> (day - start)
        while not bits:
            year += 1
            day = start = first_day(year)
            if day >= stop:
                return None
            bits = self._year(year)
        day += lowest(bits)
        return day if day < stop else None

    def last(self, day: int, stop: int) -> int | None:
        """The last matching day in [day, stop)."""
        day = max(day, MIN_WALL // DAY_SECONDS)
        stop = min(stop, MAX_WALL // DAY_SECONDS)
        if day >= stop:
            return None
        year = year_of(stop - 1)
        start = first_day(year)
        bits = self._year(year) & below(stop - start)
        while not bits:
            if start <= day:
                return None
            year -= 1
            start = first_day(year)
            bits = self._year(year)
        found = start + bits.bit_length() - 1
        return found if found >= day else None

    def count(self, day: int, stop: int) -> int:
        """How many days match in [day, stop)."""
        day = max(day, MIN_WALL // DAY_SECONDS)
        stop = min(stop, MAX_WALL // DAY_SECONDS)
        if day >= stop:
            return 0
        total, year = 0, year_of(day)
        start = first_day(year)
        while start < stop:
            bits = self._year(year) & below(min(stop - start, 366))
            total += (bits >> max(day - start, 0)).bit_count()
            year += 1
            start = first_day(year)
        return total

    def _year(self, year: int) -> int:
        """The matching days of a year, 1 January = bit 0."""
        start = first_day(year)
        leap = first_day(year + 1) - start == 366
        weekday = (start + 4) % 7  # 1970-01-01 was a Thursday
        key = weekday + 7 * leap
        bits = self._years.get(key)
        if bits is None:
            bits = offset = 0
            for month, length in enumerate(_LENGTHS, 1):
                length += leap and month == 2
                if self.months >> month & 1:
                    bits |= self._month(length, (weekday + offset) % 7) << offset
                offset += length
            self._years[key] = bits
        return bits

    def _month(self, length: int, first: int) -> int:
        """The matching days of a month of `length` days that starts on weekday `first`; the 1st = bit 0."""
        by_date = self.days.mask >> 1
        if self.days.last:
            by_date |= 1 << length - 1
        if self.days.last_workday:
            by_date |= 1 << _nearest_workday(length, length, first) - 1
        if self.days.nearest:
            for day in range(1, length + 1):
                if self.days.nearest >> day & 1:
                    by_date |= 1 << _nearest_workday(day, length, first) - 1
        by_weekday = _rotate(self.weekdays.mask, first) * _EVERY_WEEK
        if self.weekdays.nth:
            for week in range(5):
                by_weekday |= _rotate(self.weekdays.nth >> 7 * week & 127, first) << 7 * week
        if self.weekdays.last:
            by_weekday |= _rotate(self.weekdays.last, (first + length) % 7) << length - 7
        return (by_date & by_weekday if self.both else by_date | by_weekday) & below(length)


def _nearest_workday(day: int, length: int, first: int) -> int:
    """The Monday-Friday nearest to a day of the month, without leaving the month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


@lru_cache(maxsize=2048)
def dates(months: int, days: Days, weekdays: Weekdays, both: bool) -> Dates:
    """One shared Dates for all expressions with the same day fields (most have `* * *`)."""
    return Dates(months, days, weekdays, both)


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of a day that match the hour, minute and second fields."""

    seconds: int
    minutes: int
    hours: int

    @property
    def per_hour(self) -> int:
        return self.minutes.bit_count() * self.seconds.bit_count()

    @property
    def per_day(self) -> int:
        return self.hours.bit_count() * self.per_hour

    def first(self, at: int) -> int:
        """The first match at or after second-of-day `at`, or -1."""
        hour, rest = divmod(at, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (bits := self.seconds >> second):
                return at + lowest(bits)
            if bits := self.minutes >> minute + 1:
                return hour * 3600 + (minute + 1 + lowest(bits)) * 60 + lowest(self.seconds)
        if bits := self.hours >> hour + 1:
            return (hour + 1 + lowest(bits)) * 3600 + lowest(self.minutes) * 60 + lowest(self.seconds)
        return -1

    def last(self, at: int) -> int:
        """The last match at or before second-of-day `at`, or -1."""
        hour, rest = divmod(at, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (bits := self.seconds & below(second + 1)):
                return hour * 3600 + minute * 60 + bits.bit_length() - 1
            if bits := self.minutes & below(minute):
                return hour * 3600 + (bits.bit_length() - 1) * 60 + self.seconds.bit_length() - 1
        if bits := self.hours & below(hour):
            return (bits.bit_length() - 1) * 3600 + (self.minutes.bit_length() - 1) * 60 + self.seconds.bit_length() - 1
        return -1

    def before(self, at: int) -> int:
        """How many matches lie before second-of-day `at`."""
        hour, rest = divmod(at, 3600)
        minute, second = divmod(rest, 60)
        total = (self.hours & below(hour)).bit_count() * self.per_hour
        if self.hours >> hour & 1:
            total += (self.minutes & below(minute)).bit_count() * self.seconds.bit_count()
            if self.minutes >> minute & 1:
                total += (self.seconds & below(second)).bit_count()
        return total


@dataclass(frozen=True, slots=True)
class Wall:
    """Dates × times: the matching wall-clock seconds. Every range is half-open, [low, high)."""

    dates: Dates
    times: Times

    def first(self, low: int, high: int = MAX_WALL) -> int | None:
        """The first match in [low, high)."""
        day, at = divmod(low, DAY_SECONDS)
        if low < high and (found := self.times.first(at)) >= 0 and self.dates.has(day):
            found += day * DAY_SECONDS
            return found if found < high else None
        next_day = self.dates.first(day + 1, -(-high // DAY_SECONDS))
        if next_day is None:
            return None
        found = next_day * DAY_SECONDS + self.times.first(0)
        return found if found < high else None

    def last(self, low: int, high: int) -> int | None:
        """The last match in [low, high)."""
        day, at = divmod(high - 1, DAY_SECONDS)
        if low < high and (found := self.times.last(at)) >= 0 and self.dates.has(day):
            found += day * DAY_SECONDS
            return found if found >= low else None
        last_day = self.dates.last(low // DAY_SECONDS, day)
        if last_day is None:
            return None
        found = last_day * DAY_SECONDS + self.times.last(DAY_SECONDS - 1)
        return found if found >= low else None

    def count(self, low: int, high: int) -> int:
        """How many matches lie in [low, high)."""
        if low >= high:
            return 0
        (first, start), (last, end) = divmod(low, DAY_SECONDS), divmod(high, DAY_SECONDS)
        total = self.dates.count(first, last) * self.times.per_day
        if end and self.dates.has(last):
            total += self.times.before(end)
        if start and self.dates.has(first):
            total -= self.times.before(start)
        return total
