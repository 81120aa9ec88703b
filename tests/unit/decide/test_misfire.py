"""One judgement: the policies, the bounds, the books, and spans of centuries."""

from __future__ import annotations

import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcron.decide.bounds import jitter_offset
from fleetcron.decide.misfire import Facts, MissRange, NewTick, Pending, Verdict, judge, late_at, needs_judgement
from fleetcron.model import MISFIRES, Missed, Schedule
from fleetcron.triggers import Cron, Every, Once, Trigger

LEASE = timedelta(seconds=15)
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)


def schedule(trigger: Trigger, misfire: Any, next_at: datetime | None, **options: Any) -> Schedule:
    return Schedule(name="s", job="j", trigger=trigger, misfire=misfire, next_at=next_at, **options)


def facts(now: datetime, *pending: datetime | Pending) -> Facts:
    runs = (
        one if isinstance(one, Pending) else Pending(run_id=n, nominal_at=one) for n, one in enumerate(pending, start=1)
    )
    return Facts(now=now, pending=tuple(runs), lease=LEASE)


def fired(verdict: Verdict) -> list[datetime]:
    return [tick.nominal_at for tick in verdict.fire]


# ── C01: a night without schedulers ──────────────────────────────────────────────────────────────────────────────────

OUTAGE_START = at(2026, 5, 1)


@pytest.mark.parametrize("minutes", [101, 3 * 24 * 60])
@pytest.mark.parametrize("misfire", MISFIRES)
def test_c01_outage_of_a_minutely_job(misfire: Any, minutes: int) -> None:
    now = OUTAGE_START + minutes * MINUTE + timedelta(seconds=59.9)
    missed = minutes + 1  # both ends are ticks
    verdict = judge(schedule(Cron("* * * * *"), misfire, OUTAGE_START, misfire_grace=timedelta(seconds=30)), facts(now))
    last = OUTAGE_START + minutes * MINUTE
    assert verdict.next_at == last + MINUTE
    assert verdict.judged_until == last
    match misfire:
        case "skip":
            assert fired(verdict) == []
            assert verdict.misses == [MissRange(first=OUTAGE_START, last=last, count=missed, reason="late")]
        case "fire_once":
            told = Missed(first=OUTAGE_START, last=last - MINUTE, count=missed - 1)
            assert verdict.fire == [NewTick(nominal_at=last, missed=told)]
            assert verdict.misses == [
                MissRange(first=OUTAGE_START, last=last - MINUTE, count=missed - 1, reason="coalesced")
            ]
        case "fire_all":
            run = min(missed, 1000)
            assert fired(verdict) == [last - n * MINUTE for n in reversed(range(run))]
            assert all(tick.missed is None for tick in verdict.fire)
            left = [
                MissRange(first=OUTAGE_START, last=last - run * MINUTE, count=missed - run, reason="over catchup_limit")
            ]
            assert verdict.misses == (left if missed > run else [])


# ── C02: centuries of seconds ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("now", [at(2036, 5, 1), at(2200, 1, 1)], ids=["ten-years", "2200"])
@pytest.mark.parametrize("trigger", [Every(1), Cron("* * * * * *")], ids=["every", "cron"])
@pytest.mark.parametrize("misfire", MISFIRES)
def test_c02_missed_seconds_cost_nothing(misfire: Any, trigger: Trigger, now: datetime) -> None:
    begin = at(2026, 5, 1)
    one = schedule(trigger, misfire, begin)
    total = (now - begin) // SECOND + 1

    started = time.process_time()
    assert needs_judgement(one, now, LEASE)
    verdict = judge(one, facts(now))
    assert time.process_time() - started < 1

    tracemalloc.start()
    try:
        assert judge(one, facts(now)) == verdict
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()

    run = 1000 if misfire == "fire_all" else 1
    assert fired(verdict) == [now - n * SECOND for n in reversed(range(run))]
    assert [miss.count for miss in verdict.misses] == [total - run]
    assert verdict.next_at == now + SECOND


# ── C04, C05: late ticks under `skip` ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("written_ahead", [0, 12])
def test_c04_a_suspended_process_replays_nothing(written_ahead: int) -> None:
    """78 minutes of 10-second ticks; the ticker had written some ahead before it was suspended."""
    begin = at(2026, 5, 1)
    ahead = [begin + n * 10 * SECOND for n in range(written_ahead)]
    now = begin + 78 * MINUTE - 4 * SECOND  # 468 ticks, the last of them 6 s ago
    strict = schedule(
        Cron("*/10 * * * * *"), "skip", begin + written_ahead * 10 * SECOND, misfire_grace=timedelta(seconds=5)
    )
    verdict = judge(strict, facts(now, *ahead))
    assert verdict.fire == [] and verdict.keep == {}
    assert verdict.drop == list(range(1, written_ahead + 1))
    assert [(miss.first, miss.last, miss.count) for miss in verdict.misses] == [(begin, now - 6 * SECOND, 468)]
    assert verdict.next_at == begin + 78 * MINUTE


@pytest.mark.parametrize("written_ahead", [False, True])
@pytest.mark.parametrize(("grace", "runs"), [(0, []), (60, [at(2026, 5, 1, 16, 44, 30)])])
def test_c05_a_short_outage_never_starts_several_at_once(grace: int, runs: list[datetime], written_ahead: bool) -> None:
    """Every 15 s, down from 16:43:50 to 16:44:42."""
    now = at(2026, 5, 1, 16, 44, 42)
    ticks = [at(2026, 5, 1, 16, 44, second) for second in (0, 15, 30)]
    next_at = at(2026, 5, 1, 16, 44, 45) if written_ahead else ticks[0]
    one = schedule(Every(15), "skip", next_at, misfire_grace=timedelta(seconds=grace))
    verdict = judge(one, facts(now, *(ticks if written_ahead else ())))
    kept = [tick for n, tick in enumerate(ticks, start=1) if n in verdict.keep]
    assert (kept if written_ahead else fired(verdict)) == runs
    assert [miss.count for miss in verdict.misses] == [3 - len(runs)]
    assert {miss.reason for miss in verdict.misses} == {"late"}


def test_c05_grace_zero_lets_a_punctual_tick_start() -> None:
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), "skip", tick + MINUTE, misfire_grace=timedelta(0))
    assert judge(one, facts(tick + SECOND, tick)).keep == {1: None}
    assert judge(one, facts(tick + 1.001 * SECOND, tick)).drop == [1]


# ── fire_once: the chain ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_unfired_tick_takes_over_what_the_dropped_run_stood_for() -> None:
    tick = at(2026, 5, 1, 12)
    carried = Missed(first=tick - 9 * MINUTE, last=tick - MINUTE, count=9)
    one = schedule(Every(MINUTE), "fire_once", tick + MINUTE, judged_until=tick)
    verdict = judge(one, facts(tick + 3 * MINUTE, Pending(run_id=7, nominal_at=tick, missed=carried)))
    assert verdict.drop == [7] and verdict.keep == {}
    # 9 of old, the dropped run itself, and the two unfired ticks before the one that fires
    told = Missed(first=tick - 9 * MINUTE, last=tick + 2 * MINUTE, count=12)
    assert verdict.fire == [NewTick(nominal_at=tick + 3 * MINUTE, missed=told)]
    # … but only three are new: the nine have their record already
    assert [miss.count for miss in verdict.misses] == [3]


def test_a_kept_run_that_is_judged_again_is_kept_as_it_is() -> None:
    tick = at(2026, 5, 1, 12)
    carried = Missed(first=tick - 9 * MINUTE, last=tick - MINUTE, count=9)
    one = schedule(Every(MINUTE), "fire_once", tick + MINUTE, judged_until=tick)
    verdict = judge(one, facts(tick + 50 * SECOND, Pending(run_id=7, nominal_at=tick, missed=carried)))
    assert verdict == Verdict(keep={7: carried}, drop=[], fire=[], misses=[], next_at=tick + MINUTE, judged_until=tick)


@pytest.mark.parametrize(("misfire", "reason"), [("fire_once", "coalesced"), ("skip", "late")])
def test_an_older_tick_does_not_run_after_a_newer_one_was_judged(misfire: Any, reason: str) -> None:
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), misfire, tick + 2 * MINUTE, judged_until=tick + MINUTE)
    verdict = judge(one, facts(tick + 90 * SECOND, tick))
    assert verdict.drop == [1] and verdict.keep == {}
    assert verdict.misses == [MissRange(first=tick, last=tick, count=1, reason=reason)]
    assert verdict.judged_until == tick + MINUTE


@pytest.mark.parametrize("misfire", ["fire_once", "skip"])
def test_a_newer_tick_in_another_workers_hands_stands_for_the_older_ones(misfire: Any) -> None:
    """Two workers took an outage's ticks; the one with the older half judges first. Only the newest may run late."""
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), misfire, tick + 4 * MINUTE, misfire_grace=timedelta(hours=1))
    now = tick + 3.5 * MINUTE
    first = judge(one, facts(now, tick, tick + MINUTE))
    assert first.keep == {} and first.drop == [1, 2]
    after = schedule(
        Every(MINUTE), misfire, first.next_at, misfire_grace=timedelta(hours=1), judged_until=first.judged_until
    )
    second = judge(after, facts(now, tick + 2 * MINUTE, tick + 3 * MINUTE))
    assert list(second.keep) == [2] and second.drop == [1]


@pytest.mark.parametrize("misfire", ["fire_once", "skip"])
def test_a_clock_that_went_back_runs_nothing_twice(misfire: Any) -> None:
    """A failover to a server whose clock is five minutes behind: what was judged stays judged."""
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), misfire, tick + 6 * MINUTE, judged_until=tick + 5 * MINUTE)
    verdict = judge(one, facts(tick + 30 * SECOND, tick))
    assert verdict.drop == [1] and verdict.keep == {}
    assert verdict.judged_until == tick + 5 * MINUTE


def test_skip_tells_the_run_what_was_missed() -> None:
    tick = at(2026, 5, 1, 12)
    verdict = judge(schedule(Every(MINUTE), "skip", tick), facts(tick + 2 * MINUTE))
    told = Missed(first=tick, last=tick + MINUTE, count=2)
    assert verdict.fire == [NewTick(nominal_at=tick + 2 * MINUTE, missed=told)]


# ── One-shots, bounds, jitter ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [0, 1000])
def test_a_one_shot_runs_whenever(limit: int) -> None:
    moment = at(2026, 5, 1)
    one = schedule(Once(moment), None, moment, catchup_limit=limit)
    verdict = judge(one, facts(moment + 9 * 365 * DAY))
    assert verdict == Verdict(
        keep={}, drop=[], fire=[NewTick(nominal_at=moment)], misses=[], next_at=None, judged_until=moment
    )
    waiting = schedule(Once(moment), None, None, catchup_limit=limit)
    assert judge(waiting, facts(moment + 9 * 365 * DAY, moment)).keep == {1: None}
    assert late_at(one, moment, None, LEASE) is None
    assert not needs_judgement(one, moment + 9 * 365 * DAY, LEASE)


def test_nothing_after_the_end_is_missed() -> None:
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), "fire_once", tick, end=tick + 2 * MINUTE)
    verdict = judge(one, facts(tick + DAY))
    assert fired(verdict) == [tick + 2 * MINUTE]  # the end itself is a tick
    assert [miss.count for miss in verdict.misses] == [2]
    assert verdict.next_at is None


def test_nothing_before_the_start_is_missed() -> None:
    tick = at(2026, 5, 1, 12)
    one = schedule(Every(MINUTE), "fire_all", tick, start=tick + 2 * MINUTE)  # a start moved by hand, next_at not
    verdict = judge(one, facts(tick + 3 * MINUTE))
    assert fired(verdict) == [tick + 2 * MINUTE, tick + 3 * MINUTE] and verdict.misses == []


def test_c95_lateness_counts_from_when_a_tick_is_due() -> None:
    """Counted from the instant, a spread of ten minutes would make most ticks misfires."""
    tick = at(2026, 5, 1)
    one = schedule(Cron("0 0 * * *"), "skip", tick, jitter=timedelta(minutes=10), misfire_grace=timedelta(seconds=10))
    due = tick + jitter_offset(one)
    assert due > tick + MINUTE  # else this test says nothing
    assert late_at(one, tick, tick + DAY, LEASE) == due + 10 * SECOND
    assert not needs_judgement(one, due + 9 * SECOND, LEASE)
    assert needs_judgement(one, due + 11 * SECOND, LEASE)
    # Not due yet: nothing to judge, in whichever form it exists.
    early = judge(one, facts(due - SECOND))
    assert early.fire == [] and early.misses == [] and early.next_at == tick
    carried = Missed(first=tick - DAY, last=tick - DAY, count=1)
    waiting = judge(
        schedule(Cron("0 0 * * *"), "skip", tick + DAY, jitter=timedelta(minutes=10)),
        facts(due - SECOND, Pending(run_id=1, nominal_at=tick, missed=carried)),
    )
    assert waiting.keep == {1: carried} and waiting.judged_until is None


def test_a_schedule_with_nothing_to_judge_stays_as_it_is() -> None:
    nothing = Verdict(keep={}, drop=[], fire=[], misses=[], next_at=None, judged_until=None)
    for misfire in MISFIRES:
        assert judge(schedule(Every(MINUTE), misfire, None), facts(at(2026, 5, 1))) == nothing


# ── When a tick is late ──────────────────────────────────────────────────────────────────────────────────────────────

TICK = at(2026, 5, 1, 12)


@pytest.mark.parametrize(
    ("misfire", "grace", "interval", "late_after"),
    [
        ("fire_all", 60, 10, 60),
        ("fire_all", 0, 10, 1),  # ON_TIME
        ("skip", 60, 3600, 60),  # grace
        ("skip", 60, 30, 30),  # superseded
        ("skip", 60, 5, 15),  # superseded, but a take-over needs a lease time
        ("skip", 60, None, 60),
        ("skip", 0, 5, 1),
        ("fire_once", 60, 30, 30),
        ("fire_once", 10, 5, 10),
    ],
)
def test_late_at(misfire: Any, grace: int, interval: int | None, late_after: int) -> None:
    one = schedule(Every(interval or 1), misfire, TICK, misfire_grace=timedelta(seconds=grace))
    following = TICK + interval * SECOND if interval else None
    assert late_at(one, TICK, following, LEASE) == TICK + late_after * SECOND


@pytest.mark.parametrize("misfire", MISFIRES)
def test_a_grace_of_a_million_years_is_for_ever(misfire: Any) -> None:
    one = schedule(Every(DAY, anchor=TICK), misfire, TICK, misfire_grace=timedelta.max, end=TICK)
    assert late_at(one, TICK, None, LEASE) == datetime.max.replace(tzinfo=UTC)
    assert not needs_judgement(one, at(9000, 1, 1), LEASE)


def test_needs_judgement_counts_only_what_is_due() -> None:
    one = schedule(Every(MINUTE), "skip", TICK)
    assert not needs_judgement(one, TICK - SECOND, LEASE)
    assert not needs_judgement(one, TICK, LEASE)
    assert not needs_judgement(one, TICK + 59 * SECOND, LEASE)
    assert needs_judgement(one, TICK + MINUTE, LEASE)  # two are due
    assert needs_judgement(schedule(Every(DAY, anchor=TICK), "skip", TICK), TICK + 61 * SECOND, LEASE)  # past its grace
    assert not needs_judgement(schedule(Every(MINUTE), "skip", None), TICK, LEASE)
    assert not needs_judgement(schedule(Every(MINUTE), "skip", TICK, end=TICK - SECOND), TICK + DAY, LEASE)


# ── The books balance, whatever the facts ────────────────────────────────────────────────────────────────────────────

TRIGGERS = [
    Every(7),
    Every("90s", anchor=at(2026, 3, 28, 23, 59, 59)),
    Cron("*/10 * * * * *"),
    Cron("* * * * *"),
    Cron("0 */2 * * *", "Europe/Berlin"),
    Cron("30 2 * * *", "Europe/Berlin"),  # in the gap
]


@st.composite
def situations(draw: st.DrawFn) -> tuple[Schedule, Facts, list[datetime]]:
    """A schedule, facts, and its unfired ticks up to now, listed the slow way."""
    trigger = draw(st.sampled_from(TRIGGERS))
    base = at(2026, 3, 29) + timedelta(seconds=draw(st.integers(0, 7200)))
    ticks = trigger.upcoming(base, 40)
    written = draw(st.integers(0, 30))  # ticks[:written] exist as runs
    reach = draw(st.integers(0, 39))
    now = ticks[reach] + timedelta(microseconds=draw(st.integers(0, 90_000_000)))
    end = draw(st.none() | st.sampled_from(ticks).map(lambda tick: tick + timedelta(seconds=1)))
    chosen = [tick for tick in ticks[:written] if tick <= now and draw(st.booleans())]
    carried = st.none() | st.integers(1, 9).map(lambda n: Missed(first=base - 9 * DAY, last=base - DAY, count=n))
    pending = tuple(Pending(run_id=100 - n, nominal_at=tick, missed=draw(carried)) for n, tick in enumerate(chosen))
    one = Schedule(
        name="s",
        job="j",
        trigger=trigger,
        misfire=draw(st.sampled_from(MISFIRES)),
        misfire_grace=timedelta(seconds=draw(st.sampled_from([0, 10, 60, 3600]))),
        catchup_limit=draw(st.sampled_from([0, 1, 3, 1000])),
        end=end,
        next_at=ticks[written],
        judged_until=draw(st.none() | st.sampled_from(ticks[: written + 1])) if written else None,
    )
    listed = [
        tick for tick in trigger.upcoming(base, 200) if one.next_at <= tick <= now and (end is None or tick <= end)
    ]
    return one, Facts(now=now, pending=pending, lease=LEASE), listed


@settings(max_examples=300)
@given(situations())
def test_every_tick_is_either_a_run_or_in_the_books(situation: tuple[Schedule, Facts, list[datetime]]) -> None:
    one, known, unfired = situation
    verdict = judge(one, known)
    runs = {run.run_id: run for run in known.pending}

    assert set(verdict.keep) | set(verdict.drop) == set(runs)
    assert len(verdict.keep) + len(verdict.drop) == len(runs)
    ran = [runs[run_id].nominal_at for run_id in verdict.keep] + fired(verdict)
    everything = [run.nominal_at for run in known.pending] + unfired
    assert ran == everything[len(everything) - len(ran) :]  # the most recent ones, oldest first
    lost = everything[: len(everything) - len(ran)]
    assert [(miss.first, miss.last, miss.count) for miss in verdict.misses] == (
        [(lost[0], lost[-1], len(lost))] if lost else []
    )
    assert verdict.next_at == (following(one, known.now) if unfired else one.next_at)
    considered = [moment for moment in (one.judged_until, *everything[-1:]) if moment]
    assert verdict.judged_until == (max(considered) if considered else None)

    told = [*verdict.keep.values(), *(tick.missed for tick in verdict.fire)]
    if one.misfire == "fire_all":
        assert len(ran) == min(one.catchup_limit, len(everything))
        assert told == [run.missed for run in known.pending if run.run_id in verdict.keep] + [None] * len(verdict.fire)
        return
    assert len(ran) <= 1
    if ran:
        carried = [run.missed.count for run in known.pending if run.missed]
        assert (told[0].count if told[0] else 0) == len(lost) + sum(carried)
    if one.misfire == "skip" and ran:
        assert known.now - ran[0] <= max(one.misfire_grace, SECOND)
    if one.misfire == "fire_once" and unfired and (one.judged_until is None or one.judged_until < unfired[-1]):
        assert ran == [unfired[-1]]


def following(one: Schedule, now: datetime) -> datetime | None:
    tick = one.trigger.next(now)
    return None if tick is None or (one.end is not None and tick > one.end) else tick


@settings(max_examples=200)
@given(situations())
def test_needs_judgement_agrees_with_the_list(situation: tuple[Schedule, Facts, list[datetime]]) -> None:
    one, known, unfired = situation
    answer = needs_judgement(one, known.now, LEASE)
    if len(unfired) == 1:
        late = late_at(one, unfired[0], following(one, unfired[0]), LEASE)
        assert answer is (late is not None and known.now > late)
    else:
        assert answer is (len(unfired) > 1)
