"""Limits of tenants: kept exactly, and never leaked."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleetcron.store.protocol import Claimed, Lane, LimitedClaim, Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    LEASE,
    Clock,
    Hand,
    at,
    hand,
    insert,
    insert_one,
    lane,
    look,
    new,
    second,
    the_run,
)


async def limit(store: Store, name: str = "acme", **changes: Any) -> None:
    if "burst" not in changes and changes.get("rate"):
        changes["burst"] = 1
    await store.set_tenant(name, changes, "ann")


async def ask(worker: Hand, *lanes: Lane, limit: int = 100, quantum: int = 100, jobs: Any = None) -> LimitedClaim:
    return await worker.store.claim_limited(worker.id, lanes or [lane("acme")], limit=limit, quantum=quantum, jobs=jobs)


async def take(worker: Hand, *lanes: Lane, **how: Any) -> list[Claimed]:
    return (await ask(worker, *lanes, **how)).claim.runs


async def backlog(store: Store, n: int, tenant: str = "acme", **given: Any) -> list[int]:
    return await insert(store, *(new(tenant=tenant, **given) for _ in range(n)))


async def test_no_more_run_at_once_than_may(store: Store) -> None:
    await limit(store, max_running=3)
    ids = await backlog(store, 10)
    worker, other = await hand(store), await hand(store, "node-2")
    claim = await ask(worker)
    assert [run.run_id for run in claim.claim.runs] == ids[:3]
    assert all(run.limited for run in claim.claim.runs)
    assert claim.rest == {"acme": None}
    assert (await ask(other)).rest == {"acme": None}
    assert (await store.tenants())[0].running == 3
    await worker.complete(claim.claim.runs[0])
    assert [run.run_id for run in await take(other)] == [ids[3]]


ENDS = ["complete", "fail", "retry", "hand back", "cancel", "stop", "rescue", "drop"]


@pytest.mark.parametrize("end", ENDS)
async def test_no_way_to_end_leaks_a_slot(store: Store, clock: Clock, end: str) -> None:
    await limit(store, max_running=2)
    await backlog(store, 2)
    worker = await hand(store)
    runs = await take(worker)
    assert len(runs) == 2
    await backlog(store, 5)
    assert await take(worker) == []
    for run in runs:
        match end:
            case "complete":
                await worker.complete(run)
            case "fail":
                await worker.settle(run, "failed")
            case "retry":
                await worker.settle(run, "open", delay=timedelta(hours=1))
            case "hand back":
                await worker.hand_back(run, started=True)
            case "cancel":
                assert await store.cancel(run.run_id, "ann") == "asked"
                await worker.settle(run, "cancelled", record="cancelled")
            case "drop":
                run.gate = run.gate or "g"
                assert [a.verdict for a in await store.admit(worker.id, [run])] in (["start"], ["parked"])
    if end == "stop":
        await store.stop_worker(worker.id)
    if end == "rescue":
        clock.advance(LEASE.total_seconds() + 1)
        assert (await store.rescue()).workers == [worker.id]
    if end == "drop":  # one holds the gate and runs, the other is parked and holds nothing
        assert len(await take(worker)) == 1
        return
    other = await hand(store, "node-2")
    assert len(await take(other)) == 2
    assert await take(other) == []


async def test_a_rate_lets_a_burst_and_then_one_after_the_other(store: Store, clock: Clock) -> None:
    await limit(store, rate="10/s", burst=4)
    await backlog(store, 30)
    worker = await hand(store, ttl=timedelta(hours=2))
    claim = await ask(worker)
    assert len(claim.claim.runs) == 4
    assert claim.rest == {"acme": second(0.1)}
    clock.advance(0.09)
    assert await take(worker) == []
    clock.advance(0.01)
    assert len(await take(worker)) == 1
    clock.advance(0.35)
    claim = await ask(worker)
    assert len(claim.claim.runs) == 3
    assert claim.rest == {"acme": second(0.05)}
    clock.advance(3600)
    assert len(await take(worker)) == 4, "a bucket grows no deeper than its burst"


@pytest.mark.parametrize(("rate", "burst"), [("7/s", 3), ("100/m", 1), ("3/7s", 5), ("1000/s", 10)])
async def test_starts_in_any_window_stay_within_the_rate(store: Store, clock: Clock, rate: str, burst: int) -> None:
    count, _, period = rate.partition("/")
    seconds = {"s": 1.0, "m": 60.0, "7s": 7.0}[period] / int(count)
    await limit(store, rate=rate, burst=burst)
    await backlog(store, 200)
    worker = await hand(store, ttl=timedelta(hours=5))
    starts: list[datetime] = []
    for n in range(120):
        starts += [clock()] * len(await take(worker, limit=1 + n % 5))
        clock.advance(seconds * [0.3, 0.9, 0.05, 2.2, 1.0][n % 5])
    assert len(starts) > 60
    for i, begin in enumerate(starts):
        for j in range(i, len(starts)):
            assert j - i + 1 <= (starts[j] - begin).total_seconds() / seconds + burst + 1e-6


async def test_retries_take_a_token_like_any_start(store: Store, clock: Clock) -> None:
    await limit(store, rate="1/m")
    await backlog(store, 1)
    worker = await hand(store, ttl=timedelta(hours=1))
    (run,) = await take(worker)
    await worker.settle(run, "open", delay=timedelta(seconds=1))
    clock.advance(30)
    assert await take(worker) == []
    clock.advance(30)
    assert len(await take(worker)) == 1


async def test_a_token_of_what_has_not_started_is_given_back(store: Store, clock: Clock) -> None:
    await limit(store, rate="1/m")
    await backlog(store, 2)
    worker = await hand(store, ttl=timedelta(hours=1))
    (run,) = await take(worker)
    assert await take(worker) == []
    await worker.hand_back(run, started=True)
    assert await take(worker) == []
    clock.advance(60)
    (run,) = await take(worker)
    clock.advance(1)
    await worker.hand_back(run, started=False)
    assert len(await take(worker)) == 1


async def test_a_token_of_an_earlier_time_cannot_be_given_back(store: Store, clock: Clock) -> None:
    """Since it was taken the bucket has been full again, and its whole burst has started: one more would be one too many."""
    await limit(store, rate="1/m", burst=2)
    await backlog(store, 5)
    worker = await hand(store, ttl=timedelta(hours=1))
    (run,) = await take(worker, limit=1)
    clock.advance(61)
    assert len(await take(worker)) == 2
    await worker.hand_back(run, started=False)
    assert await take(worker) == []


async def test_a_token_goes_back_when_the_gate_was_closed(store: Store, clock: Clock) -> None:
    await limit(store, rate="1/m", burst=2)
    ids = await backlog(store, 2, gate="g")
    free = await backlog(store, 1)
    worker = await hand(store)
    runs = await take(worker)
    assert [a.verdict for a in await store.admit(worker.id, runs)] == ["start", "parked"]
    assert [run.run_id for run in await take(worker)] == free
    assert await take(worker) == []
    assert ids


async def test_a_limit_is_one_over_all_lanes_of_a_tenant(store: Store) -> None:
    await limit(store, max_running=5)
    await backlog(store, 3, priority=2)
    await backlog(store, 3, queue="other")
    await backlog(store, 3)
    worker = await hand(store)
    lanes = [lane("acme", priority=2), lane("acme", queue="other"), lane("acme")]
    runs = await take(worker, *lanes, quantum=3)
    assert Counter((run.queue, run.priority) for run in runs) == {("default", 2): 3, ("other", 5): 2}
    assert await take(worker, *lanes) == []


async def test_tenants_do_not_know_each_others_limits(store: Store) -> None:
    await limit(store, "a", max_running=1)
    await limit(store, "b", rate="1/h")
    await limit(store, "c", max_running=2)
    for tenant in "abc":
        await backlog(store, 5, tenant)
    worker = await hand(store)
    claim = await ask(worker, lane("a"), lane("b"), lane("c"))
    assert Counter(run.tenant for run in claim.claim.runs) == {"a": 1, "b": 1, "c": 2}
    assert claim.rest == {"a": None, "b": timedelta(hours=1), "c": None}


async def test_both_limits_of_a_tenant_hold(store: Store, clock: Clock) -> None:
    await limit(store, rate="10/s", burst=5, max_running=2)
    await backlog(store, 10)
    worker = await hand(store)
    runs = await take(worker)
    assert len(runs) == 2
    await worker.complete(*runs)
    runs = await take(worker)
    await worker.complete(*runs)
    assert len(runs) == 2
    claim = await ask(worker)
    assert len(claim.claim.runs) == 1
    assert claim.rest == {"acme": second(0.1)}


async def test_nothing_is_claimed_ahead_or_for_jobs_that_are_not_known(store: Store) -> None:
    await limit(store, max_running=5)
    await backlog(store, 1, due_at=at(1))
    await insert_one(store, "other", tenant="acme")
    ids = await store.put_jobs([])
    worker = await hand(store)
    assert await take(worker, jobs=[ids["work"]]) == []
    assert [run.job for run in await take(worker)] == ["other"]


ENOUGH = 60


async def test_claims_at_once_never_overshoot(store: Store, open_store: OpenStore) -> None:
    """Twelve claimers at three limited tenants, with ends and deaths among them."""
    tenants = {"a": 1, "b": 3, "c": 7}
    for name, most in tenants.items():
        await limit(store, name, max_running=most)
        await backlog(store, 150, name)
    stores = [await open_store() for _ in range(4)]
    done: Counter[str] = Counter()
    worst: Counter[str] = Counter()
    running: Counter[str] = Counter()

    async def work(n: int) -> None:
        worker, turn = await hand(stores[n % 4], f"node-{n}"), 0
        while min(done[name] for name in tenants) < ENOUGH:
            turn += 1
            runs = await take(worker, *(lane(t) for t in tenants), quantum=5)
            for run in runs:
                running[run.tenant] += 1
                worst[run.tenant] = max(worst[run.tenant], running[run.tenant])
            await asyncio.sleep(0)
            for run in runs:  # before the statement: what the database sees ends later than what we count
                running[run.tenant] -= 1
                done[run.tenant] += 1
            if turn % 9 == n % 9:
                await stores[n % 4].stop_worker(worker.id)
                worker = await hand(stores[n % 4], f"node-{n}")
            elif runs:
                await worker.complete(*runs)

    async with asyncio.timeout(100):
        await asyncio.gather(*(work(n) for n in range(12)))
    assert all(worst[name] <= most for name, most in tenants.items())


async def test_what_was_claimed_before_the_limit_counts(store: Store) -> None:
    await backlog(store, 10)
    worker = await hand(store)
    held = await worker.claim(4)
    await limit(store, max_running=5)
    await store.mark_limited(worker.id, ["acme"], [])
    assert len(await take(worker)) == 1
    await worker.complete(*held)
    assert len(await take(worker)) == 4


async def test_limits_are_read_again_when_one_has_changed(store: Store) -> None:
    first = await store.limits()
    assert first is not None
    assert await store.limits(first.version) is None
    await limit(store, rate="5/s", burst=2, weight=3)
    await store.set_queue("q", {"max_depth": 10, "on_full": "wait"}, "ann")
    assert await store.pause_job("work", True, "ann")
    assert not await store.pause_job("nobody", True, "ann")
    limits = await store.limits(first.version)
    assert limits is not None
    assert (limits.tenants["acme"].rate, limits.tenants["acme"].burst, limits.tenants["acme"].weight) == ("5/s", 2, 3)
    assert limits.queues["q"].max_depth == 10
    assert limits.queues["q"].on_full == "wait"
    assert limits.jobs["work"].paused
    await store.pause_job("work", False, "ann")
    await store.set_tenant("acme", {"paused": True}, "ann")
    after = await store.limits(limits.version)
    assert after is not None
    assert not after.jobs["work"].paused
    assert after.tenants["acme"].rate == "5/s", "what is not named stays"
    assert after.tenants["acme"].paused


async def test_a_paused_tenant_is_not_claimed(store: Store) -> None:
    await limit(store, max_running=5, paused=True)
    await backlog(store, 3)
    worker = await hand(store)
    assert await take(worker) == []
    await limit(store, paused=False)
    assert len(await take(worker)) == 3


async def test_a_changed_rate_holds_at_once(store: Store, clock: Clock) -> None:
    await limit(store, rate="1/d", burst=3)
    await backlog(store, 20)
    worker = await hand(store)
    assert len(await take(worker)) == 3
    await limit(store, rate="10/s", burst=3)
    assert await take(worker) == [], "a new rate is no new burst"
    clock.advance(0.2)
    assert len(await take(worker)) == 2
    await limit(store, rate=None)
    assert len(await take(worker)) == 15


async def test_settings_leave_a_trace(store: Store) -> None:
    await limit(store, rate="5/s", burst=2)
    await store.set_queue("q", {"max_depth": 1}, "bob")
    found = await look(store, "SELECT who, what, subject FROM audit WHERE what LIKE 'set %' ORDER BY id")
    assert found == [("ann", "set tenant: burst=2, rate=5/s", "acme"), ("bob", "set queue: max_depth=1", "q")]


async def test_a_cancelled_run_frees_its_slot_only_when_it_has_stopped(store: Store) -> None:
    await limit(store, max_running=1)
    ids = await backlog(store, 2)
    worker = await hand(store)
    (run,) = await take(worker)
    assert await store.cancel(ids[0], "ann") == "asked"
    assert await take(worker) == []
    await worker.settle(run, "cancelled", record="cancelled")
    assert [r.run_id for r in await take(worker)] == ids[1:]
    assert (await the_run(store, ids[0])).state == "cancelled"
