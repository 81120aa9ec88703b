"""Ticks that should have started and wait: the leader sees each of them, wherever it lies and however it came back there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from fleetcron.clock import monotonic
from fleetcron.election import DatabaseElector
from fleetcron.scheduler import ticker
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.leadership import Leadership
from fleetcron.scheduler.ticker import Ticker
from fleetcron.store.protocol import Store
from fleetcron.triggers import Every, Once
from tests.conformance.kit import (
    LEASE,
    Clock,
    Hand,
    at,
    fired,
    hand,
    info,
    insert,
    judge,
    late,
    lead,
    look,
    new,
    put,
    runs_of,
    schedule,
    second,
    state,
)

DAY = timedelta(days=1)
HOURS = timedelta(hours=9)


async def written(store: Store, *names: str, due_at: datetime | None = None, **given: object) -> tuple[int, list[int]]:
    """Schedules with their first tick written, which is late a minute after it is due; (term, run ids)."""
    await put(store, *(schedule(name, **given) for name in names))
    term = await lead(store, ttl=DAY)
    ids = [await fired(store, term, name, at(60), due_at=due_at, late_at=at(120)) for name in names]
    return term, [run_id for (run_id,) in ids]


async def test_a_late_tick_behind_a_backlog_of_its_lane_is_seen(store: Store, clock: Clock) -> None:
    await written(store, "tick")
    await insert(store, *[new(due_at=at(-60))] * 600)
    clock.advance(200)
    assert await late(store) == ["tick"]


async def test_a_tick_is_late_after_its_own_instant_not_when_it_is_due(store: Store, clock: Clock) -> None:
    await written(store, "tick")
    for seconds, names in ((60, []), (60, []), (0.000001, ["tick"])):
        clock.advance(seconds)
        assert await late(store) == names


async def handed_back(store: Store, clock: Clock, worker: Hand) -> None:
    assert await worker.hand_back(await worker.claim_one(), started=False)


async def left_behind(store: Store, clock: Clock, worker: Hand) -> None:
    await worker.claim_one()
    await store.stop_worker(worker.id)


async def rescued(store: Store, clock: Clock, worker: Hand) -> None:
    await worker.claim_one(ahead=60)
    clock.advance(LEASE.total_seconds() + 1)
    assert (await store.rescue()).requeued == 1


async def put_off(store: Store, clock: Clock, worker: Hand) -> None:
    """By a clock that is set back: it is due beyond the horizon then."""
    (run,) = await worker.claim()
    clock.advance(-3600)
    assert await worker.hand_back(run, started=False)
    assert await look(store, "SELECT count(*) FROM timetable") == [(1,)]
    clock.advance(3600)
    assert await store.promote() == 1


Way = Callable[[Store, Clock, Hand], Awaitable[None]]


@pytest.mark.parametrize("way", [handed_back, left_behind, rescued, put_off])
async def test_a_tick_that_came_back_without_a_start_is_seen(store: Store, clock: Clock, way: Way) -> None:
    term, (run_id,) = await written(store, "tick", misfire="skip", misfire_grace=second(10))
    if way is not rescued:
        clock.advance(61)
    await way(store, clock, await hand(store, ttl=LEASE if way is rescued else HOURS))
    clock.advance(500)
    assert await late(store) == ["tick"]
    await judge(store, "tick", leader=(0, term))
    assert await state(store, run_id) == "missed"
    assert await late(store) == []


async def test_a_tick_written_long_ahead_is_seen_when_its_time_has_come(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=DAY)
    await fired(store, term, "tick", at(3600))
    assert await look(store, "SELECT count(*) FROM timetable") == [(1,)]
    clock.advance(7300)
    await store.promote()
    assert await late(store) == ["tick"]


@pytest.mark.parametrize("how", ["retry", "handed back", "rescued"])
async def test_what_has_had_a_start_is_not_seen(store: Store, clock: Clock, how: str) -> None:
    await written(store, "tick")
    clock.advance(61)
    worker = await hand(store, ttl=LEASE)
    run = await worker.claim_one()
    match how:
        case "retry":
            assert await worker.settle(run)
        case "handed back":
            assert await worker.hand_back(run, started=True)
        case "rescued":
            clock.advance(LEASE.total_seconds() + 1)
            assert (await store.rescue()).requeued == 1
    clock.advance(500)
    assert await state(store, run.run_id) in ("ready", "retrying")
    assert await late(store) == []


async def test_a_one_shot_is_never_late(store: Store, clock: Clock) -> None:
    await put(store, schedule(trigger=Once(at(60)), misfire=None))
    clock.advance(7200)
    term = await lead(store, ttl=DAY)
    await judge(store, "tick", leader=(0, term))
    assert len(await runs_of(store, "tick")) == 1
    clock.advance(7200)
    assert await late(store) == []


async def test_what_was_judged_and_kept_is_seen_again_a_lease_later_only(store: Store, clock: Clock) -> None:
    await put(store, schedule(trigger=Every(3600)))
    term = await lead(store, ttl=DAY)
    (run_id,) = await fired(store, term, "tick", at(3600))
    clock.advance(3661)
    await store.promote()
    assert await late(store) == ["tick"]
    verdict = await judge(store, "tick", leader=(0, term))
    assert (list(verdict.keep), verdict.drop) == ([run_id], [])
    assert await late(store) == []
    clock.advance(LEASE.total_seconds())
    assert await late(store) == []
    clock.advance(0.000001)
    assert await late(store) == ["tick"]


async def test_a_look_goes_on_where_the_last_one_ended(store: Store, clock: Clock) -> None:
    names = [f"s{n:02}" for n in range(25)]
    await written(store, *names[:20])
    await written_later(store, *names[20:])
    clock.advance(200)
    (first, after), looked = await store.late_ticks(limit=10), []
    assert first == names[:10]
    looked += first
    while after is not None:
        found, after = await store.late_ticks(after, limit=10)
        looked += found
    assert looked == names
    assert await store.late_ticks(limit=25) == (names, (at(65), max(await runs_of(store, names[-1]))))
    assert await store.late_ticks(limit=26) == (names, None)


async def written_later(store: Store, *names: str) -> None:
    """As `written`, but due later."""
    await put(store, *(schedule(name) for name in names))
    for name in names:
        await fired(store, 1, name, at(60), due_at=at(65), late_at=at(120))


async def test_one_look_tells_a_schedule_once(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=DAY)
    await fired(store, term, "tick", at(60), at(120), at(180))
    clock.advance(1000)
    await store.promote()
    assert await late(store) == ["tick"]


async def test_a_leader_comes_round_to_all_that_is_late(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch a second, however many there are: rescues must not wait for the last of them."""
    monkeypatch.setattr(ticker, "BATCH", 3)
    names = [f"s{n}" for n in range(7)]
    term, ids = await written(store, *names, misfire="skip", misfire_grace=second(10))
    clock.advance(600)
    leads = Leadership(store, DatabaseElector(), info(), 0, 3600, Contact(store))
    leads.begin(term, monotonic())
    leader = Ticker(store, leads, LEASE)
    for most in (3, 6, 7):
        await leader.judge_late()
        states = [await state(store, run_id) for run_id in ids]
        assert states == ["missed"] * most + ["ready"] * (7 - most)
