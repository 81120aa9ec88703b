"""Limits of jobs: kept over the whole fleet, by a line of their own that is in nobody's way, and never leaked."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fleetcron.store.protocol import Claimed, Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    LEASE,
    Clock,
    Hand,
    at,
    fired,
    hand,
    insert,
    insert_keyed,
    job,
    lead,
    new,
    put,
    schedule,
    second,
    the_run,
)


async def limit_job(store: Store, **limits: Any) -> None:
    assert await store.limit_jobs([job("work", **limits)])


async def come(worker: Hand, n: int = 100) -> list[Claimed]:
    """Claim, as a worker does that knows that the job is limited."""
    runs = await worker.claim(n)
    for run in runs:
        run.job_limit = "work"
        run.gate = run.gate or "job:work"
    return runs


async def let_in(worker: Hand, n: int = 100) -> list[Claimed]:
    runs = await come(worker, n)
    verdicts = {a.run_id: a.verdict for a in await worker.store.admit(worker.id, runs)}
    return [run for run in runs if verdicts[run.run_id] == "start"]


async def test_limits_of_a_job_are_what_it_declares(store: Store) -> None:
    assert not await store.limit_jobs([job("work"), job("other")])
    await limit_job(store, max_running=2, rate="5/s", burst=3)
    assert not await store.limit_jobs([job("work", max_running=2, rate="5/s", burst=3)])
    await store.pause_job("work", True, "ann")
    await limit_job(store)
    limits = await store.limits()
    assert limits is not None
    found = limits.jobs["work"]
    assert (found.max_running, found.rate, found.burst, found.paused) == (None, None, None, True)


async def test_no_more_of_a_job_start_than_may(store: Store) -> None:
    await limit_job(store, max_running=2)
    ids = await insert(store, *(new(tenant=f"t{n % 3}") for n in range(6)))
    worker = await hand(store)
    running = await let_in(worker)
    assert [run.run_id for run in running] == ids[:2]
    assert await store.unpark_jobs() == ([], None)
    assert await store.unpark() == [], "the line is none of its business"
    await worker.complete(running[0])
    assert await store.unpark_jobs() == (["default"], None)
    other = await hand(store, "node-2")
    assert [run.run_id for run in await let_in(other)] == ids[2:3]
    assert await let_in(other) == []
    assert [(await the_run(store, i)).attempt for i in ids] == [1] + [0] * 5, "a wait is no attempt"


@pytest.mark.parametrize("end", ["complete", "retry", "stop", "rescue"])
async def test_no_way_to_end_leaks_a_slot_of_a_job(store: Store, clock: Clock, end: str) -> None:
    await limit_job(store, max_running=2)
    await insert(store, *(new() for _ in range(5)))
    worker = await hand(store)
    running = await let_in(worker)
    for run in running:
        if end == "complete":
            await worker.complete(run)
        if end == "retry":
            await worker.settle(run, "open", delay=timedelta(hours=1))
    if end == "stop":
        await store.stop_worker(worker.id)
    if end == "rescue":
        clock.advance(LEASE.total_seconds() + 1)
        await store.rescue()
    assert (await store.unpark_jobs())[0] == ["default"]
    other = await hand(store, "node-2")
    assert len(await let_in(other)) == 2


async def test_a_job_s_rate(store: Store, clock: Clock) -> None:
    await limit_job(store, rate="10/s", burst=2)
    await insert(store, *(new() for _ in range(6)))
    worker = await hand(store)
    assert len(await let_in(worker)) == 2
    assert await store.unpark_jobs() == ([], second(0.1))
    clock.advance(0.3)
    queues, rest = await store.unpark_jobs()
    assert queues == ["default"]
    assert rest is not None
    assert len(await let_in(worker)) == 2
    clock.advance(0.1)
    await store.unpark_jobs()
    assert len(await let_in(worker)) == 1


async def test_who_waits_in_a_job_s_line_can_be_cancelled_and_withdrawn(store: Store, clock: Clock) -> None:
    await limit_job(store, max_running=1)
    worker = await hand(store, ttl=timedelta(hours=1))
    ids = await insert(store, new(), new(), new(key="k", on_duplicate="replace"))
    await let_in(worker)
    assert await store.cancel(ids[1], "ann") == "cancelled"
    again = await insert_keyed(store, "k", on_duplicate="replace", payload='{"n":2}')
    assert (again.id, again.created, (await the_run(store, ids[2])).payload) == (ids[2], False, '{"n":2}')
    await let_in(worker)
    await put(store, schedule(overlap="allow"))
    term = await lead(store, ttl=timedelta(hours=2))
    (tick,) = await fired(store, term, "tick", at(60))
    clock.advance(60)
    await let_in(worker)
    assert await store.pause_schedule("tick", "ann")
    assert (await the_run(store, tick)).state == "missed"


async def test_a_gate_and_a_job_s_limit_both_hold(store: Store) -> None:
    await limit_job(store, max_running=2)
    worker = await hand(store)
    a1, a2, b1, c1 = await insert(store, new(gate="a"), new(gate="a"), new(gate="b"), new(gate="c"))
    running = {run.run_id: run for run in await let_in(worker)}
    assert sorted(running) == [a1, b1]
    assert await store.unpark() == ["default"], "nobody holds c's gate"
    assert await let_in(worker) == []
    await worker.complete(running[a1])
    await store.unpark()
    assert [run.run_id for run in await let_in(worker)] == [a2]
    await worker.complete(running[b1])
    await store.unpark()
    assert [run.run_id for run in await let_in(worker)] == [c1]


async def test_admissions_at_once_never_overshoot(store: Store, open_store: OpenStore) -> None:
    await limit_job(store, max_running=3)
    await insert(store, *(new(gate=f"g{n % 7}" if n % 3 else None) for n in range(120)))
    stores = [await open_store() for _ in range(3)]
    running = worst = done = 0

    async def work(n: int) -> None:
        nonlocal running, worst, done
        mine = stores[n % 3]
        worker = await hand(mine, f"node-{n}")
        turn = 0
        while done < 100:
            turn += 1
            await mine.unpark_jobs()
            await mine.unpark()
            runs = await let_in(worker, 4)
            running += len(runs)
            worst = max(worst, running)
            await asyncio.sleep(0)
            running -= len(runs)
            done += len(runs)
            if turn % 13 == 12:
                await mine.stop_worker(worker.id)
                worker = await hand(mine, f"node-{n}")
            elif runs:
                await worker.complete(*runs)

    async with asyncio.timeout(100):
        await asyncio.gather(*(work(n) for n in range(9)))
    assert worst <= 3
