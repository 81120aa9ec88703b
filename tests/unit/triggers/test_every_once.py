"""Intervals and single instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.errors import TriggerError
from fleetcron.triggers import Every, Once, Trigger

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)
FIRST = datetime.min.replace(tzinfo=UTC)
INSTANTS = st.datetimes(timezones=st.just(UTC))
INTERVALS = st.timedeltas(timedelta(microseconds=1), timedelta(days=40_000))


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


# ── Every ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c47_the_rhythm_is_the_anchor_not_the_last_run() -> None:
    daily = Every("24h", anchor=at(2026, 3, 1, 1))
    # Two days missed, and a manual run at 11:30: the next tick is 01:00 all the same.
    assert daily.next(at(2026, 3, 3, 11, 30)) == at(2026, 3, 4, 1)
    assert daily.count(at(2026, 3, 1, 1), at(2026, 3, 3, 11, 30)) == 2


def test_c47_late_runs_do_not_accumulate() -> None:
    every_second, tick = Every(1), at(2026, 1, 1)
    for _ in range(1000):  # each run is asked for its successor 30 ms late
        following = every_second.next(tick + timedelta(milliseconds=30))
        assert following is not None
        tick = following
    assert tick == at(2026, 1, 1) + timedelta(seconds=1000)


def test_the_default_anchor_is_the_epoch() -> None:
    assert Every("90m") == Every(5400.0) == Every(timedelta(hours=1.5), anchor=EPOCH)
    assert Every("5m").next(at(2026, 1, 1, 0, 3)) == at(2026, 1, 1, 0, 5)
    assert Every("7d").next(FIRST) == EPOCH


def test_a_future_anchor_is_the_first_tick() -> None:
    anchor = at(2030, 5, 5, 5, 5, 5, 123_456)
    trigger = Every("250ms", anchor)
    assert trigger.next(at(2026, 1, 1)) == anchor and trigger.latest(at(2026, 1, 1)) is None
    assert trigger.next(anchor) == anchor + timedelta(milliseconds=250)
    assert trigger.count(at(2026, 1, 1), anchor) == 1


def test_elapsed_time_goes_through_a_change_of_clocks() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    start = datetime(2026, 3, 29, 1, 30, tzinfo=berlin)
    ticks = Every("1h", anchor=start).upcoming(start, 3)
    assert [tick.astimezone(berlin).hour for tick in ticks] == [3, 4, 5]
    assert {later - tick for tick, later in pairwise(ticks)} == {timedelta(hours=1)}


@pytest.mark.parametrize("days", [25, 50, 60, 400])
def test_c49_c50_long_intervals(days: int) -> None:
    trigger = Every(timedelta(days=days), anchor=at(2026, 1, 1))
    assert trigger.next(at(2026, 1, 1)) == at(2026, 1, 1) + timedelta(days=days)
    assert trigger.count(at(2026, 1, 1), at(2200, 1, 1)) == (at(2200, 1, 1) - at(2026, 1, 1)).days // days


def test_counts_without_listing() -> None:
    assert Every("1us").count(at(1970, 1, 1), at(2200, 1, 1)) == (at(2200, 1, 1) - EPOCH) // timedelta(microseconds=1)
    assert Every("1s").count(at(2026, 1, 2), at(2026, 1, 1)) == 0


@given(INTERVALS, INSTANTS, INSTANTS)
def test_next_and_latest(interval: timedelta, anchor: datetime, moment: datetime) -> None:
    trigger = Every(interval, anchor)
    following, latest = trigger.next(moment), trigger.latest(moment)
    if latest is not None:
        assert anchor <= latest <= moment and (latest - anchor) % interval == timedelta(0)
        assert moment - latest < interval
        assert trigger.next(latest) == following
    else:
        assert moment < anchor and following == anchor
    if following is not None:
        assert following > moment and trigger.latest(following) == following
        assert trigger.count(moment, following) == 1
        assert trigger.count(moment, following - timedelta(microseconds=1)) == 0
    else:
        assert LAST - moment < interval


@pytest.mark.parametrize("interval", ["1us", "1h", "3000000d", timedelta.max])
def test_no_overflow_at_the_ends(interval: timedelta | str) -> None:
    for anchor in (FIRST, EPOCH, LAST):
        trigger = Every(interval, anchor)
        assert trigger.next(LAST) is None
        assert trigger.latest(FIRST) == (FIRST if anchor == FIRST else None)
        assert trigger.count(FIRST, LAST) >= 0


@pytest.mark.parametrize(
    "interval", [0, -1, "0s", timedelta(0), timedelta(-1), True, float("nan"), "soon", None, 1e300]
)
def test_bad_intervals(interval: object) -> None:
    with pytest.raises(TriggerError, match="interval: "):
        Every(interval)  # type: ignore[arg-type]


# ── Once ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moment", [at(2027, 2, 5), at(2200, 1, 1), at(9999, 12, 31, 23, 59, 59, 999_999), at(1, 1, 1)])
def test_once(moment: datetime) -> None:
    trigger, tiny = Once(moment), timedelta(microseconds=1)
    assert trigger.next(moment) is None and trigger.latest(moment) == moment
    assert trigger.count(moment, LAST) == 0 and trigger.upcoming(moment, 9) == []
    if moment > FIRST:
        assert trigger.next(moment - tiny) == moment and trigger.latest(moment - tiny) is None
        assert trigger.upcoming(moment - tiny, 9) == [moment] and trigger.count(moment - tiny, moment) == 1
        assert trigger.upcoming(moment - tiny, 0) == []


@pytest.mark.parametrize("days", [25, 60, 400])
def test_c50_never_early(days: int) -> None:
    now = at(2026, 1, 1)
    assert Once(now + timedelta(days=days)).count(now, now + timedelta(days=days, microseconds=-1)) == 0


def test_once_is_kept_in_utc() -> None:
    # The repeated hour's two passes have one wall time and are two instants.
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=ZoneInfo("Europe/Berlin")) for fold in (0, 1))
    assert Once(first) == Once(at(2026, 10, 25, 0, 30)) != Once(second) == Once(at(2026, 10, 25, 1, 30))
    assert Once(first).at.tzinfo is UTC


# ── Both ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_naive_datetimes_are_refused_by_name() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    for name, call in {
        "anchor": lambda: Every("1h", naive),
        "at": lambda: Once(naive),
        "after": lambda: Every("1h").next(naive),
        "before": lambda: Once(EPOCH).latest(naive),
        "until": lambda: Every("1h").count(EPOCH, naive),
    }.items():
        with pytest.raises(TypeError, match=f"{name}: .*naive"):
            call()
    with pytest.raises(TypeError, match="at: "):
        Once("2026-01-01")  # type: ignore[arg-type]


def test_are_values_and_triggers() -> None:
    for trigger in (Every("1h"), Once(EPOCH)):
        assert isinstance(trigger, Trigger) and len({trigger, trigger}) == 1
    assert repr(Once(EPOCH)).startswith("Once(at=")
    with pytest.raises(AttributeError):
        Once(EPOCH).at = LAST  # type: ignore[misc]
