"""Limits of tenants and queues: kept exactly, and never leaked."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleetcron.errors import QueueFull
from fleetcron.store.protocol import Claimed, Lane, LimitedClaim, Store
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
    insert_one,
    job,
    lane,
    lead,
    look,
    new,
    put,
    schedule,
    second,
    the_run,
)

SECOND = timedelta(seconds=1)


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
        worker = await hand(stores[n % 4], f"node-{n}")
        for turn in range(25):
            runs = await take(worker, *(lane(t) for t in tenants), quantum=5)
            for run in runs:
                running[run.tenant] += 1
                worst[run.tenant] = max(worst[run.tenant], running[run.tenant])
            await asyncio.sleep(0)
            for run in runs:  # before the statement: what the database sees ends later than what we count
                running[run.tenant] -= 1
                done[run.tenant] += 1
            if turn % 9 == 8:
                await stores[n % 4].stop_worker(worker.id)
                worker = await hand(stores[n % 4], f"node-{n}")
            elif runs:
                await worker.complete(*runs)

    await asyncio.gather(*(work(n) for n in range(12)))
    assert all(worst[name] <= most for name, most in tenants.items())
    assert all(done[name] >= 10 for name in tenants)


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


# queues


async def test_a_full_queue_takes_no_more(store: Store) -> None:
    await store.set_queue("q", {"max_depth": 3}, "ann")
    await insert(store, *(new(queue="q") for _ in range(2)))
    with pytest.raises(QueueFull, match="queue 'q' is full: 2 runs wait in it, and its max_depth is 3") as full:
        await insert(store, new(queue="q"), new(queue="q"))
    assert (full.value.queue, full.value.depth, full.value.limit, full.value.wait) == ("q", 2, 3, False)
    assert len(await look(store, "SELECT id FROM run")) == 2, "all or none"
    await insert_one(store, queue="q")
    assert await store.full_queues() == ["q"]
    with pytest.raises(QueueFull):
        await insert_one(store, queue="q")
    await insert(store, *(new(queue="another") for _ in range(10)))
    (run,) = await (await hand(store)).claim(1, queues=["q"])
    assert run.queue == "q"
    assert await store.full_queues() == []
    await insert_one(store, queue="q")
    assert [(q.name, q.depth, q.max_depth) for q in await store.queues()] == [("another", 10, None), ("q", 3, 3)]
    await store.set_queue("q", {"max_depth": None}, "ann")
    await insert(store, *(new(queue="q") for _ in range(10)))


async def test_what_is_due_later_is_not_held_back(store: Store, clock: Clock) -> None:
    await store.set_queue("q", {"max_depth": 2}, "ann")
    await insert(store, *(new(queue="q", delay=SECOND) for _ in range(5)), new(queue="q", due_at=at(3600)))
    assert await store.full_queues() == []
    await insert_one(store, queue="q")
    clock.advance(1)
    assert await store.full_queues() == ["q"]
    with pytest.raises(QueueFull):
        await insert_one(store, queue="q")


async def test_what_waits_for_a_gate_counts(store: Store) -> None:
    await store.set_queue("q", {"max_depth": 2}, "ann")
    ids = await insert(store, new(queue="q", gate="g"), new(queue="q", gate="g"))
    worker = await hand(store)
    runs = await worker.claim(2)
    assert [a.verdict for a in await store.admit(worker.id, runs)] == ["start", "parked"]
    await insert_one(store, queue="q")
    with pytest.raises(QueueFull):
        await insert_one(store, queue="q")
    assert ids


async def test_a_duplicate_finds_its_run_in_a_full_queue(store: Store) -> None:
    await store.set_queue("default", {"max_depth": 1}, "ann")
    first = await insert_keyed(store, "k")
    again = await insert_keyed(store, "k")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(QueueFull):
        await insert_keyed(store, "another")
    assert await look(store, "SELECT key FROM dedup") == [("k",)], "what was refused holds no key"


async def test_many_producers_at_once_do_not_overfill(store: Store, open_store: OpenStore) -> None:
    await store.set_queue("q", {"max_depth": 50, "on_full": "wait"}, "ann")
    stores = [await open_store() for _ in range(4)]

    async def produce(n: int) -> int:
        taken = 0
        for i in range(12):
            runs = (new(queue="q", key=f"{n}-{i}-{j}" if n % 2 else None) for j in range(3))
            with suppress(QueueFull):
                taken += len(await insert(stores[n % 4], *runs))
        return taken

    taken = sum(await asyncio.gather(*(produce(n) for n in range(8))))
    ((depth,),) = await look(store, "SELECT count(*) FROM ready")
    assert depth == taken == 48, "three at a time, and two places left over"


async def test_ticks_of_a_full_queue_are_left_to_wait(store: Store, clock: Clock) -> None:
    await put(store, schedule("a", queue="q"), schedule("b"))
    await lead(store)
    due = await store.due_schedules(0, at(600), 10)
    assert [s.name for s in due] == ["a", "b"]
    assert [s.name for s in await store.due_schedules(0, at(600), 10, without=["q"])] == ["b"]


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


# jobs


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
        for turn in range(40):
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

    await asyncio.gather(*(work(n) for n in range(9)))
    assert worst <= 3
    assert done >= 100
