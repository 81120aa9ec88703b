"""The dialect, its refusals, `H`, far dates, big counts and the value itself."""

from __future__ import annotations

import copy
import pickle
import time
import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.errors import TriggerError
from fleetcron.triggers import Cron, Trigger


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


# ── The dialect ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expr", "plain"),
    [
        ("0 9 * jan,Mar mon-fri", "0 9 * 1,3 1-5"),
        ("0 0 ? * 1", "0 0 * * 1"),
        ("0 0 1 * ?", "0 0 1 * *"),
        ("0 0 ? * ?", "0 0 * * *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
        ("0 0 * * SAT-SUN", "0 0 * * 0,6"),
        ("0 0 * * 0-7", "0 0 * * *"),
        ("0 0 * NOV-FEB *", "0 0 * 1,2,11,12 *"),
        ("0 0 28-3 * *", "0 0 1,2,3,28,29,30,31 * *"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("0 0 * * FRIL", "0 0 * * 5L"),
        ("0 0 * * mon#2", "0 0 * * 1#2"),
        ("@midnight", "0 0 * * *"),
        ("@MONTHLY", "0 0 1 * *"),
        ("  0   0\t1 * * ", "0 0 1 * *"),
        ("0 */10 * * * *", "*/10 * * * *"),
    ],
)
def test_two_ways_to_write_one_schedule(expr: str, plain: str) -> None:
    start = at(2026, 1, 1)
    assert Cron(expr).upcoming(start, 40) == Cron(plain).upcoming(start, 40)


def days_of(expr: str, year: int, month: int) -> list[int]:
    start = datetime(year, month, 1, tzinfo=UTC) - timedelta(seconds=1)
    return [tick.day for tick in Cron(expr).upcoming(start, 31) if (tick.year, tick.month) == (year, month)]


@pytest.mark.parametrize(
    ("days", "year", "month", "expected"),
    [
        ("1W", 2026, 8, [3]),  # 1 August is a Saturday: not Friday 31 July
        ("1W", 2026, 11, [2]),  # a Sunday
        ("31W", 2026, 5, [29]),  # a Sunday: not 1 June
        ("31W", 2026, 6, []),  # June has no 31st
        ("15W,LW", 2026, 8, [14, 31]),
        ("L,1", 2028, 2, [1, 29]),
        ("LW", 2026, 5, [29]),
    ],
)
def test_days_by_their_kind(days: str, year: int, month: int, expected: list[int]) -> None:
    assert days_of(f"0 0 {days} * *", year, month) == expected


@pytest.mark.parametrize(
    ("expr", "field", "value"),
    [
        ("61 * * * *", "minute", "61"),
        ("0 0 * FEBRUARY *", "month", "FEBRUARY"),
        ("0 0 * * 1#0", "weekday", "1#0"),
        ("0 0 * * 1#", "weekday", "1#"),
        ("0 0 * * L", "weekday", "L"),
        ("0 0 0W * *", "day of month", "0W"),
        ("0 0 WL * *", "day of month", "WL"),
        ("0 0 1-5W * *", "day of month", "1-5W"),
        ("0 0 L/2 * *", "day of month", "L/2"),
        ("0 0 L-3 * *", "day of month", "L-3"),
        ("0 0 1,? * *", "day of month", "?"),
        ("? 0 * * *", "minute", "?"),
        ("0 0 * ? *", "month", "?"),
        ("0 0 * * ?/2", "weekday", "?/2"),
        ("*-5 * * * *", "minute", "*-5"),
        ("*/5/2 * * * *", "minute", "*/5/2"),
        ("*/ * * * *", "minute", "*/"),
        ("1-2/0 * * * *", "minute", "1-2/0"),
        (", * * * *", "minute", ""),
        ("0 24-1 * * *", "hour", "24"),
        ("60 0 0 * * *", "second", "60"),
        ("0 0 * * * @", "weekday", "@"),
    ],
)
def test_refusals_name_the_field_and_its_value(expr: str, field: str, value: str) -> None:
    with pytest.raises(TriggerError, match="allowed are") as caught:
        Cron(expr)
    assert str(caught.value).startswith(f"{field}: ") and repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "expr",
    [
        None,
        5,
        b"* * * * *",
        "* * * * * * *",
        "@",
        "@every 5m",
        "* * * * *\n",
        "*\u00a0* * * *",
        "1," * 600 + "1 * * * *",
    ],
)
def test_refused_as_a_whole(expr: object) -> None:
    with pytest.raises(TriggerError, match="cron: "):
        Cron(expr)  # type: ignore[arg-type]


@given(st.text(max_size=30) | st.text("0123456789*/-,?LWH#@() ", max_size=30))
@settings(max_examples=300)
def test_any_text_is_a_trigger_or_a_trigger_error(text: str) -> None:
    try:
        trigger = Cron(text)
    except TriggerError:
        return
    tick = trigger.next(at(2026, 1, 1))
    assert tick is None or tick > at(2026, 1, 1)


# ── H ────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_h_needs_a_name() -> None:
    with pytest.raises(TriggerError, match=r"minute: 'H' .* name"):
        Cron("H * * * *")
    with pytest.raises(TriggerError, match=r"hour: 'H/4' .* name"):
        Cron("0 H/4 * * *", name="")


def test_h_is_stable_and_written_out() -> None:
    # These numbers are stored in databases: another hash would move every such schedule on upgrade.
    assert Cron("H H * * *", name="reports/42").expr == "29 16 * * *"
    assert Cron("H H * * *", "Europe/Berlin", name="reports/42") == Cron("29 16 * * *", "Europe/Berlin")
    assert Cron("0 9 * * THU", name="unused") == Cron("0 9 * * THU")


def test_h_spreads_names_over_its_range() -> None:
    minutes = Counter(Cron("H(0-29) * * * *", name=f"job/{n}").expr.split()[0] for n in range(3000))
    assert set(minutes) == {str(minute) for minute in range(30)}
    assert max(minutes.values()) < 2 * min(minutes.values())


@pytest.mark.parametrize("name", ["a", "reports/42", "\u00fc", "\ud800"])
def test_h_with_a_step_keeps_the_pace(name: str) -> None:
    for expr, gap in [("H/15 * * * *", 15), ("0 H/6 * * *", 360), ("H(0-29)/10 * * * *", 10)]:
        ticks = Cron(expr, name=name).upcoming(at(2026, 1, 1), 12)
        gaps = {(later - tick) // timedelta(minutes=1) for tick, later in pairwise(ticks)}
        assert gap in gaps
        if "(" not in expr:
            assert gaps == {gap}


@given(st.text(min_size=1))
@settings(max_examples=60)
def test_h_day_exists_in_every_month(name: str) -> None:
    assert Cron("0 0 H * *", name=name).count(at(2026, 1, 1) - timedelta(seconds=1), at(2026, 12, 31)) == 12
    assert Cron("H H H H H", name=name).next(at(2026, 1, 1)) is not None


@pytest.mark.parametrize("item", ["H(5)", "H(30-10)", "H(0-60)", "H/0", "HH", "H-5", "5-H", "H(0-29", "H()"])
def test_h_malformed(item: str) -> None:
    with pytest.raises(TriggerError, match="minute: "):
        Cron(f"{item} * * * *", name="a")


# ── Zones ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "tz",
    [
        *("", "Mars/Phobos", "../../etc/passwd", "/etc/localtime", "Europe", "Europe/", "localtime", "posixrules"),
        *(
            "right/Europe/Berlin",
            "tzdata.zi",
            "Europe/Berlin\0",
            "Europe/../UTC",
            "x" * 5000,
            "Zürich",
            None,
            1,
            ["UTC"],
        ),
    ],
)
def test_zone_is_checked_at_construction(tz: object) -> None:
    with pytest.raises(TriggerError, match="tz: "):
        Cron("0 0 * * *", tz)  # type: ignore[arg-type]


def test_arguments_may_be_in_any_zone_and_answers_are_utc() -> None:
    trigger = Cron("30 2 * * *", "Europe/Berlin")
    # The repeated hour's second pass, by zoneinfo: 45 minutes after today's tick, though its wall clock is earlier.
    second_pass = datetime(2026, 10, 25, 2, 15, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert trigger.next(second_pass) == at(2026, 10, 26, 1, 30)
    assert trigger.latest(second_pass) == at(2026, 10, 25, 0, 30)
    tick = trigger.next(datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-11))))
    assert tick is not None and tick.tzinfo is UTC


@pytest.mark.parametrize("method", ["next", "latest", "upcoming", "count"])
def test_naive_arguments_are_refused_by_name(method: str) -> None:
    naive, aware = datetime(2026, 1, 1), at(2026, 1, 1)  # noqa: DTZ001
    trigger = Cron("0 0 * * *")
    calls = {
        "next": [("after", lambda: trigger.next(naive))],
        "latest": [("before", lambda: trigger.latest(naive))],
        "upcoming": [("after", lambda: trigger.upcoming(naive, 0))],
        "count": [("after", lambda: trigger.count(naive, aware)), ("until", lambda: trigger.count(aware, naive))],
    }
    for name, call in calls[method]:
        with pytest.raises(TypeError, match=f"{name}: .*naive"):
            call()


# ── Far dates, never, big counts ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Asia/Tokyo", "Pacific/Kiritimati"])
@pytest.mark.parametrize("expr", ["* * * * *", "0 0 1 1 *", "30 2 * * *", "* * * * * *", "0 0 29 2 *"])
def test_the_ends_of_the_calendar(expr: str, tz: str) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    trigger = Cron(expr, tz)
    assert trigger.next(last) is None
    final, initial = trigger.latest(last), trigger.next(first)
    assert final is not None and final.year > 9990 and trigger.next(final) is None
    assert initial is not None and initial.year < 10 and trigger.latest(initial) == initial
    assert trigger.upcoming(final - timedelta(seconds=1), 5) == [final]
    assert trigger.count(final, last) == 0
    before_all = trigger.latest(first)
    assert before_all is None or before_all == first


def test_what_the_wall_clock_showed_before_the_calendar_is_no_tick() -> None:
    # Tokyo's clock read 09:18:59 at the first instant: that day's 02:30 was before it.
    trigger, first = Cron("30 2 * * *", "Asia/Tokyo"), datetime.min.replace(tzinfo=UTC)
    assert trigger.latest(first) is None
    assert trigger.count(first, at(1, 1, 3)) == 2


def test_arguments_beyond_the_calendar_are_its_ends() -> None:
    ahead, behind = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    trigger = Cron("* * * * *")
    assert trigger.next(datetime.max.replace(tzinfo=behind)) is None
    assert trigger.next(datetime.min.replace(tzinfo=ahead)) == at(1, 1, 1, 0, 1)


@pytest.mark.parametrize("tz", ["Europe/Berlin", "Europe/Paris", "Europe/Rome"])
def test_never_is_answered_at_once(tz: str) -> None:
    began = time.perf_counter()
    never = Cron("0 0 30 2 *", tz)
    assert never.next(at(2026, 1, 1)) is None and never.latest(at(2026, 1, 1)) is None
    assert never.count(at(2026, 1, 1), at(9999, 1, 1)) == 0 and never.upcoming(at(2026, 1, 1), 3) == []
    assert time.perf_counter() - began < 0.05


def test_a_wildcard_inside_the_yearly_gap_never_fires_again() -> None:
    # Hour 2 of the last Sunday of March: its days exist, its minutes do not. It fired before Germany had summer time.
    trigger = Cron("* 2 25-31 3 */7", "Europe/Berlin")
    assert trigger.next(at(2026, 1, 1)) is None
    assert trigger.count(at(1981, 1, 1), at(2200, 1, 1)) == 0
    assert trigger.latest(at(2026, 1, 1)) == at(1980, 3, 30, 1, 59)


@pytest.mark.parametrize(("expr", "after", "expected"), [("0 0 * 2 1#5", 2072, 2112), ("0 0 29 2 *", 2096, 2104)])
def test_search_reaches_far(expr: str, after: int, expected: int) -> None:
    assert Cron(expr).next(at(after, 3, 1)) == at(expected, 2, 29)


def test_counting_ten_years_of_seconds_costs_neither_time_nor_memory() -> None:
    for tz in ("UTC", "America/New_York"):
        trigger = Cron("* * * * * *", tz)
        tracemalloc.start()
        began = time.perf_counter()
        assert trigger.count(at(2016, 1, 1), at(2026, 1, 1)) == 3653 * 86_400
        # A wildcard follows elapsed time, so zones cannot add or lose a second.
        assert trigger.count(at(2026, 1, 1), at(2200, 1, 1)) == (at(2200, 1, 1) - at(2026, 1, 1)) // timedelta(
            seconds=1
        )
        assert time.perf_counter() - began < 1
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()


def test_a_fixed_job_runs_exactly_daily_through_centuries() -> None:
    trigger = Cron("30 2 * * *", "Europe/Berlin")
    assert trigger.count(at(1990, 1, 1), at(2190, 1, 1)) == (at(2190, 1, 1) - at(1990, 1, 1)).days


@given(
    expr=st.sampled_from(["*/7 * * * *", "15,45 1-3 * * *", "0 0 * * *", "30 2 * * 7", "5 4 L * FRI", "@hourly"]),
    tz=st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Gaza"]),
    start=st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    cuts=st.lists(st.integers(0, 40 * 366 * 86_400), min_size=2, max_size=2).map(sorted),
)
@settings(max_examples=60)
def test_counts_add_up(expr: str, tz: str, start: datetime, cuts: list[int]) -> None:
    trigger = Cron(expr, tz)
    middle, end = (start + timedelta(seconds=cut) for cut in cuts)
    assert trigger.count(start, middle) + trigger.count(middle, end) == trigger.count(start, end)
    assert trigger.count(end, start) == 0 or start == end


# ── The value ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_is_a_value() -> None:
    trigger = Cron("0 9 * * mon-fri", tz="Europe/Berlin")
    assert isinstance(trigger, Trigger)
    assert trigger == Cron("0  9 * * MON-FRI", "Europe/Berlin") and hash(trigger) == hash(
        Cron(trigger.expr, trigger.tz)
    )
    assert trigger != Cron("0 9 * * MON-FRI") != Cron("0 9 * * 1-5")
    assert repr(trigger) == "Cron(expr='0 9 * * MON-FRI', tz='Europe/Berlin')"
    for twin in (copy.deepcopy(trigger), pickle.loads(pickle.dumps(trigger))):
        assert twin == trigger and twin.next(at(2026, 1, 1)) == trigger.next(at(2026, 1, 1))
    with pytest.raises(AttributeError):
        trigger.expr = "* * * * *"  # type: ignore[misc]


@pytest.mark.parametrize("n", [-1, True, 1.5, "3"])
def test_upcoming_wants_a_whole_number(n: object) -> None:
    with pytest.raises(ValueError, match="n: "):
        Cron("0 0 * * *").upcoming(at(2026, 1, 1), n)  # type: ignore[arg-type]
