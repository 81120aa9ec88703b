"""Bounds, first ticks, jitter, and what is written ahead."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.decide.misfire import Facts, judge, late_at
from fleetcron.decide.ticks import bounded_latest, bounded_next, first_tick, jitter_offset, plan
from fleetcron.model import Schedule
from fleetcron.triggers import Cron, Every, Once, Trigger

LEASE = timedelta(seconds=15)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def schedule(trigger: Trigger, misfire: Any = "skip", **options: Any) -> Schedule:
    return Schedule(**{"name": "s", "job": "j", "trigger": trigger, "misfire": misfire} | options)


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_start_and_end_are_ticks_themselves() -> None:
    one = schedule(Every(MINUTE), start=NOON, end=NOON + 2 * MINUTE)
    assert bounded_next(one, NOON - DAY) == NOON
    assert bounded_next(one, NOON) == NOON + MINUTE
    assert bounded_next(one, NOON + MINUTE) == NOON + 2 * MINUTE
    assert bounded_next(one, NOON + 2 * MINUTE) is None
    assert bounded_latest(one, NOON + DAY) == NOON + 2 * MINUTE
    assert bounded_latest(one, NOON) == NOON
    assert bounded_latest(one, NOON - SECOND) is None


def test_bounds_between_ticks() -> None:
    one = schedule(Every(MINUTE), start=NOON + SECOND, end=NOON + 119 * SECOND)
    assert bounded_next(one, NOON - DAY) == bounded_latest(one, NOON + DAY) == NOON + MINUTE


def test_a_schedule_that_ends_before_it_starts_has_no_ticks() -> None:
    one = schedule(Every(MINUTE), start=NOON + DAY, end=NOON)
    assert bounded_next(one, NOON - DAY) is bounded_latest(one, NOON + 9 * DAY) is first_tick(one, NOON) is None


# ── First ticks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c10_creation_never_back_fires() -> None:
    daily = schedule(Cron("0 0 * * *"), "fire_all", start=datetime(1970, 1, 1, tzinfo=UTC))
    assert first_tick(daily, NOON) == NOON + 12 * HOUR
    assert first_tick(schedule(Every(MINUTE)), NOON) == NOON + MINUTE  # strictly after: not the tick of this instant


def test_a_start_in_the_future_is_respected() -> None:
    assert first_tick(schedule(Every(MINUTE), start=NOON + DAY), NOON) == NOON + DAY


def test_c12_resume_starts_at_the_next_tick() -> None:
    one = schedule(Every(5), "fire_all", next_at=NOON + 5 * SECOND)
    assert first_tick(one, NOON + 22 * SECOND) == NOON + 25 * SECOND


def test_c13_an_edit_does_not_look_back() -> None:
    friday = datetime(2026, 5, 1, 2, 10, tzinfo=UTC)
    assert first_tick(schedule(Cron("0 23 * * wed,sun")), friday) == datetime(2026, 5, 3, 23, tzinfo=UTC)
    assert first_tick(schedule(Cron("0 5 * * *")), NOON) == NOON + 17 * HOUR


def test_a_one_shot_in_the_past_runs_at_once() -> None:
    one = schedule(Once(NOON), None)
    assert first_tick(one, NOON - HOUR) == first_tick(one, NOON) == first_tick(one, NOON + 99 * DAY) == NOON
    assert first_tick(schedule(Once(NOON), None, end=NOON - SECOND), NOON + DAY) is None
    ticks, new_next = plan(schedule(Once(NOON), None, next_at=NOON), NOON + 99 * DAY, NOON + 100 * DAY, LEASE)
    assert ticks == [(NOON, NOON, None)] and new_next is None


# ── C47: the rhythm does not drift ───────────────────────────────────────────────────────────────────────────────────


def test_c47_after_missed_ticks_the_rhythm_is_the_old_one() -> None:
    one_o_clock = datetime(2026, 5, 1, 1, tzinfo=UTC)
    one = schedule(Every(DAY, anchor=one_o_clock), "fire_once", next_at=one_o_clock + DAY)
    late = one_o_clock + 2 * DAY + timedelta(hours=10, minutes=30)  # two missed; evaluated at 11:30
    verdict = judge(one, Facts(now=late, pending=(), lease=LEASE))
    assert verdict.next_at == one_o_clock + 3 * DAY


def test_c47_late_scans_do_not_add_up() -> None:
    one = schedule(Every(1), "fire_all", next_at=NOON)
    now, written = NOON, []
    for _ in range(1000):
        now += SECOND + timedelta(milliseconds=30)
        ticks, new_next = plan(one, now, now + SECOND, LEASE)
        if not ticks:  # 30 ms a scan: now and then two are due at once
            verdict = judge(one, Facts(now=now, pending=(), lease=LEASE))
            written += [tick.nominal_at for tick in verdict.fire]
            new_next = verdict.next_at
        written += [tick.nominal_at for tick in ticks]
        one = schedule(Every(1), "fire_all", next_at=new_next)
    assert written == [NOON + n * SECOND for n in range(len(written))]
    assert abs(len(written) - 1030) <= 2


# ── Jitter ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_c95_jitter_spreads_evenly_and_stays() -> None:
    spread = timedelta(minutes=10)
    offsets = [jitter_offset(schedule(Every(DAY), name=f"tenant/{n}", jitter=spread)) for n in range(10_000)]
    assert min(offsets) >= timedelta(0) and max(offsets) < spread
    per_minute = [sum(offset // MINUTE == minute for offset in offsets) for minute in range(10)]
    assert min(per_minute) > 850 and max(per_minute) < 1150  # 1,000 ± 5 standard deviations
    # The same in every process, whatever its hash seed; and in the next version too.
    code = (
        "from datetime import timedelta; from fleetcron.decide.ticks import jitter_offset;"
        "from fleetcron.model import Schedule; from fleetcron.triggers import Every;"
        "print(jitter_offset(Schedule(name='ünï', job='j', trigger=Every(1), misfire='skip', jitter=timedelta(1))))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    here = jitter_offset(schedule(Every(1), name="ünï", jitter=DAY))
    assert answer.stdout.strip() == str(here) == "2:39:08.901720"


def test_no_jitter_no_offset() -> None:
    assert jitter_offset(schedule(Every(1))) == timedelta(0)


# ── Plans ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_in_two_parts_is_the_plan_in_one() -> None:
    one = schedule(Every(10), "skip", next_at=NOON, jitter=MINUTE, name="other")
    whole = plan(one, NOON, NOON + 2 * MINUTE, LEASE)
    first = plan(one, NOON, NOON + 2 * MINUTE, LEASE, limit=5)
    assert first.new_next == NOON + 50 * SECOND
    rest = plan(
        schedule(Every(10), next_at=first.new_next, jitter=MINUTE, name="other"), NOON, NOON + 2 * MINUTE, LEASE
    )
    assert first.ticks + rest.ticks == whole.ticks
    assert rest.new_next == whole.new_next == NOON + 2 * MINUTE  # the horizon itself is not written


def test_what_must_be_judged_is_not_written() -> None:
    one = schedule(Every(10), "fire_once", next_at=NOON)
    assert plan(one, NOON + 25 * SECOND, NOON + HOUR, LEASE) == ([], NOON)


def test_a_schedule_without_a_next_tick_plans_nothing() -> None:
    assert plan(schedule(Every(10)), NOON, NOON + HOUR, LEASE) == ([], None)
    ended = schedule(Every(10), next_at=NOON, end=NOON + 15 * SECOND)
    assert [tick.nominal_at for tick in plan(ended, NOON, NOON + HOUR, LEASE).ticks] == [NOON, NOON + 10 * SECOND]
    assert plan(ended, NOON, NOON + HOUR, LEASE).new_next is None


@settings(max_examples=100)
@given(
    trigger=st.sampled_from([Every(7), Every("1m"), Cron("*/5 * * * * *"), Cron("30 2 * * *", "Europe/Berlin")]),
    misfire=st.sampled_from(["fire_all", "fire_once", "skip"]),
    jitter=st.sampled_from([timedelta(0), MINUTE]),
    ahead=st.integers(-9, 200),
    horizon=st.integers(0, 300),
    limit=st.integers(1, 40),
    end=st.none() | st.integers(-60, 300),
)
def test_plans_hold_exactly_the_ticks_up_to_the_horizon(
    trigger: Trigger, misfire: Any, jitter: timedelta, ahead: int, horizon: int, limit: int, end: int | None
) -> None:
    begin = trigger.next(NOON + ahead * SECOND)
    assert begin is not None
    one = schedule(trigger, misfire, next_at=begin, jitter=jitter, end=None if end is None else NOON + end * SECOND)
    ticks, new_next = plan(one, NOON, NOON + horizon * SECOND, LEASE, limit)
    ticks_to_end = [tick for tick in [begin, *trigger.upcoming(begin, 100)] if one.end is None or tick <= one.end]
    expected = [tick for tick in ticks_to_end if tick < NOON + horizon * SECOND]
    due_already = [tick for tick in ticks_to_end if tick + jitter_offset(one) <= NOON]  # one at the horizon as well
    if len(due_already) > 1:
        assert (ticks, new_next) == ([], begin)
        return
    assert [tick.nominal_at for tick in ticks] == expected[:limit]
    for tick in ticks:
        assert tick.due_at == tick.nominal_at + jitter_offset(one)
        assert tick.late_at == late_at(one, tick.nominal_at, bounded_next(one, tick.nominal_at), LEASE)
    after = begin if not ticks else bounded_next(one, ticks[-1].nominal_at)
    assert new_next == (None if one.end is not None and begin > one.end else after)
