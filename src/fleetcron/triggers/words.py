"""A parsed cron expression in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise, product

from fleetcron.triggers.fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, Field
from fleetcron.triggers.wall import Dates, Times, Wall

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("", "January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("first", "second", "third", "fourth", "fifth")
_FEW = 6  # so many clock times are listed one by one
_CLOCK_TIME = re.compile(r"at \d\d:")


def describe(wall: Wall) -> str:
    """For example "at 09:00 on Monday to Friday" or "every 5 minutes from 09:00 to 17:59 in January"."""
    if wall.dates.never:
        return "never (no such day exists)"
    months = _values(wall.dates.months, MONTH)
    season = "" if len(months) == 12 else f" in {_list(months, MONTH, _MONTHS.__getitem__)}"
    when, day = _times(wall.times), _days(wall.dates, season)
    if not day and _CLOCK_TIME.match(when):
        when += " every day"
    return f"{when} {day}" if day else when + season


def _times(times: Times) -> str:
    seconds, minutes, hours = (
        _values(bits, kind) for bits, kind in ((times.seconds, SECOND), (times.minutes, MINUTE), (times.hours, HOUR))
    )
    if times.per_day <= _FEW:
        shown = (
            f"{h:02}:{m:02}" + (f":{s:02}" if seconds != [0] else "") for h, m, s in product(hours, minutes, seconds)
        )
        return f"at {_join(list(shown))}"
    parts = []
    if seconds != [0]:
        parts.append(_pace(seconds, SECOND))
    if len(minutes) < 60 or not parts:
        parts.append(_pace(minutes, MINUTE))
    elif parts[0].startswith("at second"):
        parts.append("of every minute")
    if minutes == [0] and seconds == [0]:  # on the hour
        step = _step(hours, HOUR)
        if step:
            return "every hour" if step == 1 else f"every {step} hours"
        if (run := _run(hours, HOUR)) and len(hours) > 2:
            return f"every hour from {run[0]:02}:00 to {run[1]:02}:00"
        return f"at {_join([f'{hour:02}:00' for hour in hours])}"
    if len(hours) < 24:
        if run := _run(hours, HOUR):
            parts.append(f"from {run[0]:02}:00 to {run[1]:02}:59")
        elif step := _step(hours, HOUR):
            parts.append(f"of every {_ordinal(step)} hour")
        else:
            parts.append(f"of hour {_list(hours, HOUR)}")
    elif parts[-1].startswith("at minute"):
        parts.append("of every hour")
    return " ".join(parts)


def _pace(values: list[int], kind: Field) -> str:
    step = _step(values, kind)
    if step == 1:
        return f"every {kind.name}"
    return f"every {step} {kind.name}s" if step else f"at {kind.name} {_list(values, kind)}"


def _days(dates: Dates, season: str) -> str:
    """Which days of the season; empty if all."""
    by_date, by_weekday = _by_date(dates), _by_weekday(dates)
    if by_date and by_weekday:
        if dates.both:
            return f"on {by_date}{season}, if it is {by_weekday}"
        return f"on {by_date} or on {by_weekday}{season and ',' + season}"
    return f"on {by_date or by_weekday}{season}" if by_date or by_weekday else ""


def _by_date(dates: Dates) -> str:
    """Which days of the month; empty if all."""
    days = dates.days
    listed = _values(days.mask, DAY)
    if len(listed) == 31:
        return ""
    names = [f"day {_list(listed, DAY)}"] if listed else []
    names += [f"the weekday nearest to day {day}" for day in _values(days.nearest, DAY)]
    if days.last:
        names.append("the last day")
    if days.last_workday:
        names.append("the last weekday (Monday to Friday)")
    return f"{_join(names)} of the month"


def _by_weekday(dates: Dates) -> str:
    """Which days of the week; empty if all."""
    weekdays = dates.weekdays
    listed = [day for day in (1, 2, 3, 4, 5, 6, 0) if weekdays.mask >> day & 1]
    if len(listed) == 7:
        return ""
    names = [_list(listed, WEEKDAY, _WEEKDAYS.__getitem__)] if listed else []
    special = [
        f"the {_NTH[week]} {_WEEKDAYS[day]}"
        for week in range(5)
        for day in range(7)
        if weekdays.nth >> 7 * week + day & 1
    ]
    special += [f"the last {_WEEKDAYS[day]}" for day in range(7) if weekdays.last >> day & 1]
    if special:
        names.append(f"{_join(special)} of the month")
    return _join(names)


def _values(bits: int, kind: Field) -> list[int]:
    return [value for value in range(kind.low, kind.high + 1) if bits >> value & 1]


def _list(values: list[int], kind: Field, name: Callable[[int], str] = str) -> str:
    """ "9 to 17", "22 to 2", "0, 15 and 45", "1 to 31 in steps of 2"."""
    if len(values) > 2:
        if run := _run(values, kind):
            return f"{name(run[0])} to {name(run[1])}"
        steps = {b - a for a, b in pairwise(values)}
        if len(values) > 4 and len(steps) == 1:
            return f"{name(values[0])} to {name(values[-1])} in steps of {steps.pop()}"
    return _join([name(value) for value in values])


def _run(values: list[int], kind: Field) -> tuple[int, int] | None:
    """First and last of consecutive values, also around the end of the field (22, 23, 0, 1)."""
    size = 7 if kind is WEEKDAY else kind.high - kind.low + 1
    present = set(values)
    starts = [v for v in values if (v - kind.low - 1) % size + kind.low not in present]
    if len(starts) != 1:
        return None
    last = (starts[0] - kind.low + len(values) - 1) % size + kind.low
    return starts[0], last


def _step(values: list[int], kind: Field) -> int | None:
    """n if the values are every n-th one, evenly also around the end of the field."""
    size = kind.high - kind.low + 1
    step, rest = divmod(size, len(values))
    return step if not rest and values == list(range(kind.low, kind.high + 1, step)) else None


def _ordinal(n: int) -> str:
    return f"{n}{ {2: 'nd', 3: 'rd'}.get(n, 'th') }"


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
