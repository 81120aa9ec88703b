"""Cron against an independent model: a walker that does, minute by minute or second by second, what Debian's cron does.

The walker knows nothing of the engine: it steps real time, reads the wall clock from zoneinfo, and keeps crond's
"virtual time" for fixed jobs. Expressions are generated together with the value sets that they mean, so their text is
parsed by the engine only.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetcron.triggers import Cron

# (zone, the instant at which its offset changes): gaps and folds of 30 minutes to a day, at all times of day.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2024, 10, 5, 15, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2024, 10, 27, 1, tzinfo=UTC)),  # two hours
    ("Antarctica/Troll", datetime(2024, 3, 31, 1, tzinfo=UTC)),
    ("Asia/Beirut", datetime(2024, 3, 30, 22, tzinfo=UTC)),  # midnight is skipped
    ("America/Havana", datetime(2024, 11, 3, 5, tzinfo=UTC)),  # midnight comes twice
    ("Asia/Almaty", datetime(2024, 2, 29, 18, tzinfo=UTC)),  # a leap day's evening comes twice
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),  # a whole day is skipped
    ("Pacific/Kwajalein", datetime(1969, 9, 30, 13, tzinfo=UTC)),  # 23 hours back
    ("Antarctica/Casey", datetime(2018, 3, 10, 17, tzinfo=UTC)),  # three hours back
    ("Africa/Casablanca", datetime(2024, 3, 10, 2, tzinfo=UTC)),
]
MARGIN = timedelta(hours=30)
Days = Callable[[date], bool]


@dataclass(frozen=True)
class Expression:
    text: str
    seconds: frozenset[int] = field(repr=False)
    minutes: frozenset[int] = field(repr=False)
    hours: frozenset[int] = field(repr=False)
    day: Days = field(repr=False)
    fixed: bool

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.day(wall.date())
        )


def numbers(low: int, high: int, top: int | None = None) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A plain field's text and its values: stars, steps, ranges (also wrapped), lists. `v/n` runs to `top`."""
    value = st.integers(low, high)
    step = st.integers(1, high - low + 2)

    def span(first: int, last: int, n: int | None) -> tuple[str, frozenset[int]]:
        around = list(range(first, last + 1)) if first <= last else [*range(first, high + 1), *range(low, last + 1)]
        return f"{first}-{last}" + (f"/{n}" if n else ""), frozenset(around[:: n or 1])

    single = st.one_of(
        st.just(("*", frozenset(range(low, high + 1)))),
        step.map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n)))),
        value.map(lambda v: (str(v), frozenset({v}))),
        st.builds(lambda v, n: (f"{v}/{n}", frozenset(range(v, (top or high) + 1, n))), value, step),
        st.builds(span, value, value, st.none() | step),
    )
    several = st.lists(single, min_size=2, max_size=3)
    return single | several.map(
        lambda items: (",".join(text for text, _ in items), frozenset().union(*(values for _, values in items)))
    )


def last_of(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def nearest_workday(n: int, day: date) -> bool:
    """Is `day` the Monday-Friday nearest to the n-th, in the n-th's own month?"""
    if n > last_of(day):
        return False
    target = day.replace(day=n)
    candidates = [
        other
        for offset in (0, -1, 1, -2, 2)
        if (other := target + timedelta(days=offset)).month == day.month and other.weekday() < 5
    ]
    return candidates[0] == day


def last_workday(day: date) -> bool:
    days = (day.replace(day=n) for n in range(last_of(day), 0, -1))
    return next(other for other in days if other.weekday() < 5) == day


DATE_ITEMS: st.SearchStrategy[tuple[str, Days]] = st.one_of(
    numbers(1, 31).map(lambda found: (found[0], lambda day: day.day in found[1])),
    st.just(("L", lambda day: day.day == last_of(day))),
    st.just(("LW", last_workday)),
    st.integers(1, 31).map(lambda n: (f"{n}W", lambda day: nearest_workday(n, day))),
)
WEEKDAY_ITEMS: st.SearchStrategy[tuple[str, Days]] = st.one_of(
    # 7 is Sunday too: `5/2` is Friday and Sunday.
    numbers(0, 6, top=7).map(
        lambda found: (found[0], lambda day: bool({day.isoweekday(), day.isoweekday() % 7} & found[1]))
    ),
    st.builds(
        lambda d, n: (f"{d}#{n}", lambda day: day.isoweekday() % 7 == d % 7 and (day.day + 6) // 7 == n),
        st.integers(0, 7),
        st.integers(1, 5),
    ),
    st.integers(0, 7).map(
        lambda d: (f"{d}L", lambda day: day.isoweekday() % 7 == d % 7 and day.day + 7 > last_of(day))
    ),
)
STAR: tuple[str, Days] = ("*", lambda day: True)


def day_field(items: st.SearchStrategy[tuple[str, Days]]) -> st.SearchStrategy[tuple[str, Days]]:
    lists = st.lists(items, min_size=1, max_size=2).map(
        lambda chosen: (",".join(text for text, _ in chosen), lambda day: any(test(day) for _, test in chosen))
    )
    return st.just(STAR) | st.just(STAR) | lists


@st.composite
def expressions(draw: st.DrawFn, with_seconds: bool) -> Expression:
    seconds = draw(numbers(0, 59)) if with_seconds else ("0", frozenset({0}))
    minutes, hours = draw(numbers(0, 59)), draw(numbers(0, 23))
    dates, weekdays = draw(day_field(DATE_ITEMS)), draw(day_field(WEEKDAY_ITEMS))
    both = dates[0].startswith("*") or weekdays[0].startswith("*")

    def day(at: date) -> bool:
        return (dates[1](at) and weekdays[1](at)) if both else (dates[1](at) or weekdays[1](at))

    text = f"{minutes[0]} {hours[0]} {dates[0]} * {weekdays[0]}"
    fixed = not (minutes[0].startswith("*") or hours[0].startswith("*"))
    return Expression(
        f"{seconds[0]} {text}" if with_seconds else text, seconds[1], minutes[1], hours[1], lru_cache(day), fixed
    )


@lru_cache(maxsize=64)
def clock(zone: str, start: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """What the wall clock shows (naive) at every step of real time."""
    info, shown, moment = ZoneInfo(zone), [], start
    while moment <= end:
        shown.append((moment, moment.astimezone(info).replace(tzinfo=None)))
        moment += step
    return shown


def walk(expression: Expression, zone: str, start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    """The ticks in (start, end], as Debian's crond finds them."""
    shown = clock(zone, start, end, step)
    ticks, virtual = [], shown[0][1]
    for moment, wall in shown[1:]:
        if not expression.fixed:
            if expression.matches(wall):
                ticks.append(moment)
            continue
        # Fixed jobs run in virtual time: it catches up after a gap and waits out a repeated hour.
        due = False
        while virtual < wall:
            virtual += step
            due = due or expression.matches(virtual)
        if due:
            ticks.append(moment)
    return ticks


def agree(
    expression: Expression, zone: str, start: datetime, end: datetime, step: timedelta, picks: list[float]
) -> None:
    trigger = Cron(expression.text, zone)
    ticks = walk(expression, zone, start, end, step)

    found = trigger.upcoming(start, len(ticks))
    assert found == ticks, expression.text
    beyond = trigger.next(ticks[-1] if ticks else start)
    assert beyond is None or beyond > end

    moments = [start + (end - start) * pick for pick in picks]
    moments += ticks[:2] + ticks[-2:] + [tick - timedelta(microseconds=1) for tick in ticks[:2]]
    for moment in moments:
        at = bisect_right(ticks, moment)
        upcoming, latest = trigger.next(moment), trigger.latest(moment)
        assert (upcoming == ticks[at]) if at < len(ticks) else (upcoming is None or upcoming > end)
        if at:
            assert latest == ticks[at - 1]
        else:
            assert latest is None or latest <= start
        # The promise that callers rely on.
        if upcoming is not None:
            assert trigger.latest(upcoming) == upcoming
        if latest is not None and upcoming is not None:
            assert trigger.next(latest) == upcoming > moment
        for until in moments:
            inside = max(0, bisect_right(ticks, until) - at)
            assert trigger.count(moment, until) == inside, (expression.text, moment, until)
    assert trigger.count(start, end) == len(ticks) - bisect_left(ticks, start)


@settings(max_examples=250)
@given(
    expression=expressions(with_seconds=False),
    change=st.sampled_from(CHANGES),
    picks=st.lists(st.floats(0, 1), min_size=2, max_size=4),
)
@example(Expression("30 2 * * *", *map(frozenset, ({0}, {30}, {2})), lambda _: True, True), CHANGES[0], [0.5])
@example(Expression("30 2 * * *", *map(frozenset, ({0}, {30}, {2})), lambda _: True, True), CHANGES[1], [0.5])
def test_minutes(expression: Expression, change: tuple[str, datetime], picks: list[float]) -> None:
    zone, moment = change
    agree(expression, zone, moment - MARGIN, moment + MARGIN, timedelta(minutes=1), picks)


@settings(max_examples=60)
@given(
    expression=expressions(with_seconds=True),
    change=st.sampled_from([change for change in CHANGES if change[0] not in ("Pacific/Apia", "Pacific/Kwajalein")]),
    picks=st.lists(st.floats(0, 1), min_size=1, max_size=2),
)
def test_seconds(expression: Expression, change: tuple[str, datetime], picks: list[float]) -> None:
    zone, moment = change
    agree(expression, zone, moment - timedelta(minutes=20), moment + timedelta(minutes=70), timedelta(seconds=1), picks)


@settings(max_examples=60)
@given(expression=expressions(with_seconds=False), day=st.dates(date(1, 1, 3), date(9999, 12, 29)))
def test_any_day_of_the_calendar(expression: Expression, day: date) -> None:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    agree(expression, "UTC", start, start + timedelta(days=2), timedelta(minutes=1), [0.3])


@pytest.mark.parametrize(("zone", "moment"), CHANGES)
def test_the_changes_are_changes(zone: str, moment: datetime) -> None:
    info, second = ZoneInfo(zone), timedelta(seconds=1)
    assert moment.astimezone(info).utcoffset() != (moment - second).astimezone(info).utcoffset()
