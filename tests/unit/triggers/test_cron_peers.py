"""Cron against two libraries, on what they and we mean alike. Both are development dependencies only."""

from __future__ import annotations

from datetime import UTC, datetime

from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleetcron.triggers import Cron

STARTS = st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def plain(low: int, high: int, star: bool = True) -> st.SearchStrategy[str]:
    """Values, rising ranges, steps and lists."""
    value = st.integers(low, high)
    rising = st.tuples(value, value).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: f"{pair[0]}-{pair[1]}")
    step = st.integers(2, 9)
    item = st.one_of(value.map(str), rising, st.builds(lambda text, n: f"{text}/{n}", rising, step))
    lists = st.lists(item, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), step.map(lambda n: f"*/{n}"), lists) if star else lists


def fields(days: st.SearchStrategy[tuple[str, str]]) -> st.SearchStrategy[str]:
    return st.builds(
        lambda minute, hour, day, month: f"{minute} {hour} {day[0]} {month} {day[1]}",
        plain(0, 59),
        plain(0, 23),
        days,
        plain(1, 12),
    )


DATES, WEEKDAYS = plain(1, 31, star=False), plain(0, 6, star=False)
STARS = st.sampled_from(["*", "*/2", "*/3", "*/7"])
# Where both day fields are restricted and one by */n, croniter means OR; Vixie, Debian, cronsim and we mean AND.
COMMON = st.one_of(
    st.tuples(st.just("*"), st.just("*")),
    st.tuples(DATES | st.just("L"), st.just("*")),
    st.tuples(st.just("*"), WEEKDAYS | st.sampled_from(["1#1", "3#2", "5#5"])),
    st.tuples(DATES, WEEKDAYS),
)
EVERYTHING = COMMON | st.tuples(DATES, STARS) | st.tuples(STARS, WEEKDAYS) | st.tuples(STARS, STARS)


@given(expr=fields(COMMON), start=STARTS)
@settings(max_examples=150)
def test_croniter(expr: str, start: datetime) -> None:
    trigger = Cron(expr)
    ours = trigger.upcoming(start, 5)
    assume(ours)
    peer = croniter(expr, start)
    assert ours == [peer.get_next(datetime) for _ in ours]
    assert trigger.latest(start) == croniter(expr, start.replace(microsecond=0).replace(microsecond=1)).get_prev(
        datetime
    )


@given(expr=fields(EVERYTHING), start=STARTS)
@settings(max_examples=150)
def test_cronsim(expr: str, start: datetime) -> None:
    ours = Cron(expr).upcoming(start, 5)
    assume(ours)
    peer = CronSim(expr, start)
    assert ours == [next(peer) for _ in ours]
