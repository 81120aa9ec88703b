"""Judging late ticks: the policies decide (unit tests), the store applies it to what waits, what is leased and what is not written yet."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from fleetcron.model import Misfire, Missed
from fleetcron.store.protocol import Claimed, Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    LEASE,
    MINUTE,
    Clock,
    Hand,
    at,
    fired,
    hand,
    insert_one,
    judge,
    late,
    lead,
    look,
    put,
    runs_of,
    schedule,
    second,
    state,
    the_run,
    the_schedule,
)

DAY = timedelta(days=1)


async def written(store: Store, n: int, **given: object) -> tuple[int, list[int]]:
    """A schedule with `n` ticks written, one a minute from the first on; (term, run ids)."""
    await put(store, schedule(**given))
    term = await lead(store, ttl=DAY)
    return term, await fired(store, term, "tick", *(at(60 * i) for i in range(1, n + 1)))


async def misses(store: Store) -> list[tuple[float, float, int, str]]:
    """(first, last, count, reason) in seconds, oldest first."""
    found = [
        ((m.first - at(0)).total_seconds(), (m.last - at(0)).total_seconds(), m.count, m.reason)
        for m in await store.misses("tick")
    ]
    return sorted(found)


def missed(first: float, last: float, count: int) -> Missed:
    return Missed(first=at(first), last=at(last), count=count)


async def states(store: Store, ids: list[int]) -> list[str]:
    return [await state(store, run_id) for run_id in ids]


async def late_claim(store: Store, clock: Clock, worker: Hand, limit: int = 100) -> list[Claimed]:
    """Everything is promoted; claim late ticks."""
    await store.promote()
    runs = await worker.claim(limit)
    assert all(run.late for run in runs)
    return runs


# A worker that has claimed late ticks
async def test_fire_once_keeps_the_latest_of_those_leased(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 3)
    clock.advance(1000)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker)
    # Ticks that nobody has written yet are later still: the latest due tick is not among those leased.
    verdict = await judge(store, "tick", runs, worker=worker.id)
    assert (verdict.keep, sorted(verdict.drop)) == ({}, ids)
    assert await states(store, ids) == ["missed"] * 3
    assert await misses(store) == [(60, 180, 3, "coalesced")]
    found = await the_schedule(store)
    assert (found.owed, found.next_at) == (missed(60, 180, 3), at(240))


async def test_the_kept_tick_is_told_of_the_others(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 3)
    clock.advance(235)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker, 2)
    first = await judge(store, "tick", runs, worker=worker.id)
    assert (first.keep, sorted(first.drop)) == ({ids[2]: missed(60, 120, 2)}, ids[:2])
    assert await states(store, ids) == ["missed", "missed", "ready"]
    run = await worker.claim_one()
    assert (run.run_id, run.late, run.missed) == (ids[2], False, missed(60, 120, 2))
    assert await misses(store) == [(60, 120, 2, "coalesced")]
    assert await worker.complete(run) == {ids[2]}


async def test_a_leased_tick_that_is_kept_stays_leased(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 3, misfire_grace=second(20))
    clock.advance(239)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker)
    verdict = await judge(store, "tick", runs, worker=worker.id)
    assert verdict.keep == {ids[2]: missed(60, 120, 2)}
    assert await states(store, ids) == ["missed", "missed", "running"]
    assert await worker.complete(*runs) == {ids[2]}


async def test_skip_keeps_nothing_that_is_older_than_the_grace(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 2, misfire="skip", misfire_grace=second(20))
    clock.advance(175)
    worker = await hand(store)
    verdict = await judge(store, "tick", await late_claim(store, clock, worker), worker=worker.id)
    assert verdict.keep == {}
    assert await states(store, ids) == ["missed", "missed"]
    assert await misses(store) == [(60, 120, 2, "late")]


async def test_fire_all_keeps_the_most_recent_up_to_its_limit(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 5, misfire="fire_all", catchup_limit=2)
    clock.advance(301 + 58)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker, 1)
    verdict = await judge(store, "tick", runs, worker=worker.id)
    assert (sorted(verdict.drop), set(verdict.keep)) == (ids[:3], set(ids[3:]))
    assert await states(store, ids) == ["missed"] * 3 + ["ready"] * 2
    assert await misses(store) == [(60, 180, 3, "over catchup_limit")]
    assert [run.missed for run in await worker.claim()] == [None, None]


async def test_what_another_worker_holds_is_judged_by_that_one(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 2, misfire_grace=second(20))
    clock.advance(179)
    a, b = await hand(store), await hand(store, "node-2")
    first, second_ = await late_claim(store, clock, a, 1), await late_claim(store, clock, b, 1)
    verdict = await judge(store, "tick", first, worker=a.id)
    assert verdict.drop == ids[:1]
    assert (await the_schedule(store)).owed == missed(60, 60, 1)  # no run could be told yet
    verdict = await judge(store, "tick", second_, worker=b.id)
    assert verdict.keep == {ids[1]: missed(60, 60, 1)}
    assert (await the_schedule(store)).owed is None
    assert await misses(store) == [(60, 60, 1, "coalesced")]


async def test_a_worker_leaves_unwritten_ticks_to_the_leader(store: Store, clock: Clock) -> None:
    term, ids = await written(store, 1)
    clock.advance(400)
    worker = await hand(store)
    await judge(store, "tick", await late_claim(store, clock, worker), worker=worker.id)
    assert await misses(store) == [(60, 60, 1, "coalesced")]
    assert (await the_schedule(store)).next_at == at(120)
    await judge(store, "tick", leader=(0, term))
    (kept,) = [i for i in await runs_of(store, "tick") if i not in ids]
    run = await worker.claim_one()
    assert (run.run_id, run.nominal_at, run.missed) == (kept, at(360), missed(60, 300, 5))
    assert await misses(store) == [(60, 60, 1, "coalesced"), (120, 300, 4, "coalesced")]


async def test_late_ticks_of_a_schedule_that_is_gone_are_closed(store: Store, clock: Clock) -> None:
    _, ids = await written(store, 2)
    clock.advance(185)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker)
    await store.remove_schedule("tick", "ann")
    assert await judge(store, "tick", runs, worker=worker.id) is None
    assert await states(store, ids) == ["missed", "missed"]
    assert await misses(store) == [
        (tick, tick, 1, "schedule removed") for tick in (60, 120, 180)
    ]  # the last was not written yet
    assert (await the_run(store, ids[0])).reason == "schedule removed"


async def test_a_leased_tick_whose_lease_is_lost_is_not_dropped(store: Store, clock: Clock) -> None:
    """Its next owner judges it."""
    _, ids = await written(store, 1, misfire="skip")
    clock.advance(400)
    worker = await hand(store)
    runs = await late_claim(store, clock, worker)
    await store.stop_worker(worker.id)
    again = await hand(store)
    (held,) = await again.claim()
    await judge(store, "tick", runs, worker=worker.id)
    assert await states(store, ids) == ["running"]
    await judge(store, "tick", [held], worker=again.id)
    assert await states(store, ids) == ["missed"]
    assert sum(m.count for m in await store.misses("tick")) == 1


# A leader
async def test_a_leader_writes_the_latest_of_the_unwritten_ticks(store: Store, clock: Clock) -> None:
    """Case C01: never a stop, however many were missed; and one run that knows of them."""
    await put(store, schedule())
    clock.advance(3 * 86_400 + 5)
    term = await lead(store, ttl=DAY)
    verdict = await judge(store, "tick", leader=(0, term))
    assert [tick.nominal_at for tick in verdict.fire] == [at(3 * 86_400)]
    assert await misses(store) == [(60, 3 * 86_400 - 60, 4319, "coalesced")]
    found = await the_schedule(store)
    assert (found.next_at, found.judged_until) == (at(3 * 86_400 + 60), at(3 * 86_400))
    run = await (await hand(store)).claim_one()
    assert (run.nominal_at, run.prev_at, run.due_at) == (at(3 * 86_400), at(3 * 86_400 - 60), clock())
    assert (run.missed, run.late) == (missed(60, 3 * 86_400 - 60, 4319), False)


async def test_a_late_run_that_does_not_start_either_is_judged_once_more(store: Store, clock: Clock) -> None:
    """Else two judgements of one long outage would leave two late runs."""
    await put(store, schedule())
    clock.advance(605)
    term = await lead(store, ttl=DAY)
    await judge(store, "tick", leader=(0, term))
    clock.advance(LEASE.total_seconds())
    assert await late(store) == []
    clock.advance(600)
    assert await late(store) == ["tick"]
    await judge(store, "tick", leader=(0, term))
    old, new = await runs_of(store, "tick")
    assert await states(store, [old, new]) == ["missed", "ready"]
    run = await (await hand(store)).claim_one()
    assert (run.run_id, run.missed) == (new, missed(60, 1140, 19))
    assert await misses(store) == [(60, 540, 9, "coalesced"), (600, 1140, 10, "coalesced")]


@pytest.mark.parametrize("change", ["pause", "remove", "edit"])
async def test_late_runs_that_wait_are_withdrawn_with_the_others(store: Store, clock: Clock, change: str) -> None:
    """Who stops a schedule to stop the flood after an outage must be obeyed."""
    await put(store, schedule(misfire="fire_all", catchup_limit=10))
    clock.advance(3605)
    term = await lead(store, ttl=DAY)
    await judge(store, "tick", leader=(0, term))
    worker = await hand(store)
    running = await worker.claim(2)
    clock.advance(5)
    match change:
        case "pause":
            await store.pause_schedule("tick", "ann")
        case "remove":
            await store.remove_schedule("tick", "ann")
        case "edit":
            await put(store, schedule(misfire="fire_all", catchup_limit=20))
    assert await states(store, await runs_of(store, "tick")) == ["running"] * 2 + ["missed"] * 8
    assert await worker.claim(ahead=120) == []
    assert len(await worker.complete(*running)) == 2
    assert sum(count for *_, count, _ in await misses(store)) == 58


async def test_a_leader_judges_what_waits_and_what_is_unwritten_as_one(store: Store, clock: Clock) -> None:
    term, ids = await written(store, 2)
    clock.advance(305)
    await store.promote()
    verdict = await judge(store, "tick", leader=(0, term))
    assert sorted(verdict.drop) == ids
    assert await misses(store) == [(60, 240, 4, "coalesced")]
    assert (await (await hand(store)).claim_one()).missed == missed(60, 240, 4)


async def test_fire_all_writes_each_missed_tick_oldest_first(store: Store, clock: Clock) -> None:
    await put(store, schedule(misfire="fire_all", catchup_limit=3))
    clock.advance(305)
    term = await lead(store, ttl=DAY)
    await judge(store, "tick", leader=(0, term))
    runs = await (await hand(store)).claim()
    assert [(run.nominal_at, run.prev_at) for run in runs] == [(at(s), at(s - 60)) for s in (180, 240, 300)]
    assert await misses(store) == [(60, 120, 2, "over catchup_limit")]


async def test_skip_writes_the_latest_only_within_the_grace(store: Store, clock: Clock) -> None:
    await put(store, schedule(misfire="skip", misfire_grace=second(10)))
    clock.advance(305)
    term = await lead(store, ttl=DAY)
    await judge(store, "tick", leader=(0, term))
    assert await misses(store) == [(60, 240, 4, "late")]
    assert (await (await hand(store)).claim_one()).nominal_at == at(300)
    clock.advance(75)  # 380: the tick of 360 is 20 s old
    await judge(store, "tick", leader=(0, term))
    assert await misses(store) == [(60, 240, 4, "late"), (360, 360, 1, "late")]
    assert (await the_schedule(store)).next_at == at(420)


@pytest.mark.parametrize("how", ["stale term", "expired", "no such schedule"])
async def test_who_may_not_judge_changes_nothing(store: Store, clock: Clock, how: str) -> None:
    await put(store, schedule())
    clock.advance(305)
    term = await lead(store)
    leader = (0, term + (how == "stale term"))
    if how == "expired":
        clock.advance(20)
    name = "nobody" if how == "no such schedule" else "tick"
    assert await judge(store, name, leader=leader) is None
    assert await runs_of(store, "tick") == []
    assert (await the_schedule(store)).next_at == at(60)
    assert await store.misses(None) == []


async def test_what_waits_too_long_is_seen_without_a_worker(store: Store, clock: Clock) -> None:
    await written(store, 2)
    await insert_one(store)
    clock.advance(60)
    await store.promote()
    assert await late(store) == []
    clock.advance(60)
    assert await late(store) == []
    clock.advance(0.000001)
    assert await late(store) == ["tick"]
    worker = await hand(store)
    await worker.claim()
    assert await late(store) == []  # in hands: those judge


@pytest.mark.parametrize("policy", ["fire_once", "skip", "fire_all"])
async def test_every_tick_ends_as_a_run_or_in_a_record(
    store: Store, open_store: OpenStore, clock: Clock, policy: Misfire
) -> None:
    """However the ticks of an outage lie spread over `ready`, workers and the future, and in whatever order those judge."""
    dice = random.Random(policy)
    stores = [store, await open_store()]
    await put(store, schedule(misfire=policy, catchup_limit=1000, misfire_grace=second(50)))
    term = await lead(store, ttl=DAY)
    ticks = told = 0
    for _ in range(12):
        begin = (await the_schedule(store)).next_at
        assert begin is not None
        ahead, unwritten = dice.randrange(5), dice.randrange(4)
        if ahead:
            await fired(store, term, "tick", *(begin + i * MINUTE for i in range(ahead)))
        clock.moment = begin + (ahead + unwritten) * MINUTE + second(45)
        ticks += ahead + unwritten + 1
        await store.promote()
        workers = [await hand(s, f"node-{i}") for i, s in enumerate(stores)]
        held = [(w, await w.claim(dice.randrange(1, 4))) for w in workers]
        judges = [judge(w.store, "tick", runs, worker=w.id) for w, runs in held if runs] + [
            judge(store, "tick", leader=(0, term))
        ]
        dice.shuffle(judges)
        if dice.randrange(2):
            await asyncio.gather(*judges)
        else:
            for it in judges:
                await it
        # Whoever holds a kept tick runs it; what waits is run by the next claim.
        for worker, runs in held:
            kept = [run for run in runs if await state(store, run.run_id) == "running"]
            await worker.complete(*kept)
        last = await workers[0].claim()
        told += sum(run.missed.count for run in last if run.missed)
        assert not any(run.late for run in last)
        await workers[0].complete(*last)
        for worker in workers:
            await store.stop_worker(worker.id)
    (ran,) = (await look(store, "SELECT count(*) FROM run WHERE state = 'succeeded'"))[0]
    (dropped,) = (await look(store, "SELECT count(*) FROM run WHERE state = 'missed'"))[0]
    assert await look(store, "SELECT count(*) FROM run WHERE state = 'open'") == [(0,)]
    recorded = sum(m.count for m in await store.misses("tick"))
    assert ran + recorded == ticks
    assert recorded >= dropped
    if policy == "fire_all":
        assert recorded == 0
    else:
        assert ran <= 12  # one late run for each outage at most
        assert told <= recorded
