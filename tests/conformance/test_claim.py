"""Claiming."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    AGES_AGO,
    LEASE,
    START,
    Clock,
    Hand,
    at,
    hand,
    insert,
    insert_keyed,
    insert_one,
    lane,
    lead,
    look,
    new,
    put,
    schedule,
    second,
    the_run,
)
from tests.conformance.kit import fired as fired_ticks


def ids(runs: list) -> list[int]:
    return [run.run_id for run in runs]


async def test_a_claim_gives_everything_that_a_worker_needs(store: Store, clock: Clock) -> None:
    await put(
        store,
        schedule(tenant="acme", queue="q", priority=3, payload='{"a":1}', overlap="skip", start_deadline=second(40)),
    )
    term = await lead(store)
    (run_id,) = await fired_ticks(store, term, "tick", at(60), late_at=at(75))
    clock.advance(61)
    worker = await hand(store)
    run = await worker.claim_one()
    assert run.fence > 0
    assert (run.run_id, run.attempt, run.job, run.payload) == (run_id, 1, "work", '{"a":1}')
    assert (run.due_at, run.nominal_at, run.prev_at, run.late_at, run.expires_at) == (
        at(60),
        at(60),
        START,
        at(75),
        at(100),
    )
    assert (run.schedule, run.tenant, run.queue, run.priority, run.key) == ("tick", "acme", "q", 3, None)
    assert (run.gate, run.overlap, run.late, run.missed, run.generation, run.deaths) == (
        "schedule:tick",
        "skip",
        False,
        None,
        0,
        0,
    )
    seen = await the_run(store, run_id)
    assert (seen.state, seen.started_at, seen.worker) == ("running", at(61), "here:4711")


async def test_the_claim_tells_the_time(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await insert_one(store)
    clock.advance(3)
    claim = await store.claim(worker.id, [lane()], limit=10, quantum=10, ahead=timedelta(0), jobs=None)
    assert claim.now == at(3)
    assert len(claim.runs) == 1


async def test_nothing_claimed_is_nothing_told(store: Store) -> None:
    worker = await hand(store)
    for lanes in ([], [lane()]):
        claim = await store.claim(worker.id, lanes, limit=10, quantum=10, ahead=timedelta(0), jobs=None)
        assert (claim.now, claim.runs) == (None, [])


async def test_the_longest_due_comes_first_and_then_the_lowest_id(store: Store) -> None:
    found = await insert(store, *(new(due_at=at(-s)) for s in (1, 5, 3, 3, 9)))
    worker = await hand(store)
    assert ids(await worker.claim(3)) == [found[4], found[1], found[2]]
    assert ids(await worker.claim(3)) == [found[3], found[0]]


async def test_what_is_not_due_waits(store: Store, clock: Clock) -> None:
    """Case C51: a delayed run is not claimed before it is due."""
    worker = await hand(store)
    run_id = await insert_one(store, delay=second(10))
    assert await worker.claim() == []
    clock.advance(9.999999)
    assert await worker.claim() == []
    clock.advance(0.000001)
    assert ids(await worker.claim()) == [run_id]


async def test_a_claim_ahead_starts_its_lease_at_the_due_time(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store, delay=second(10))
    assert await worker.claim(ahead=9.9) == []
    assert ids(await worker.claim(ahead=10)) == [run_id]
    seen = await the_run(store, run_id)
    assert (seen.state, seen.started_at) == ("scheduled", at(10))
    clock.advance(10)
    assert (await the_run(store, run_id)).state == "running"


async def test_lanes_are_taken_in_the_order_they_are_passed(store: Store) -> None:
    await insert(store, *(new(priority=p, tenant=t) for p in (0, 5, 9) for t in ("a", "b") for _ in range(2)))
    worker = await hand(store)
    order = [lane("b", priority=9), lane("a", priority=0), lane("a", priority=9), lane("b", priority=0)]
    taken = await worker.claim(5, lanes=order)
    assert sorted((run.priority, run.tenant) for run in taken) == [(0, "a"), (0, "a"), (9, "a"), (9, "b"), (9, "b")]


async def test_a_quantum_bounds_each_lane(store: Store) -> None:
    await insert(store, *(new(tenant=t) for t in ("a", "b", "c") for _ in range(5)))
    worker = await hand(store)
    taken = await worker.claim(100, quantum=2)
    assert sorted(run.tenant for run in taken) == ["a", "a", "b", "b", "c", "c"]
    taken = await worker.claim(3, quantum=2)
    assert sorted(run.tenant for run in taken) == ["a", "a", "b"]


async def test_only_the_lanes_passed_are_touched(store: Store) -> None:
    await insert(store, new(), new(queue="q"), new(priority=4), new(tenant="acme"))
    worker = await hand(store)
    (run,) = await worker.claim(lanes=[lane("acme"), lane("nobody"), lane(queue="nothing")])
    assert run.tenant == "acme"


async def test_a_worker_takes_only_the_jobs_it_knows(store: Store) -> None:
    """Case C105: what it has no handler for stays where it is."""
    known = await store.put_jobs([])
    found = await insert(store, *(new(("work", "other")[i % 2]) for i in range(6)))
    worker = await hand(store)
    assert await worker.claim(jobs=[]) == []
    assert await worker.claim(jobs=[999]) == []
    assert ids(await worker.claim(2, jobs=[known["other"], 999])) == [found[1], found[3]]
    assert ids(await worker.claim(jobs=None)) == [found[0], found[2], found[4], found[5]]


async def test_nothing_below_a_lanes_lower_bound_is_taken(store: Store) -> None:
    found = await insert(store, *(new(due_at=at(-s)) for s in (30, 20, 10)))
    worker = await hand(store)
    assert ids(await worker.claim(lanes=[lane(since=at(-20))])) == found[1:]
    assert ids(await worker.claim(lanes=[lane(since=AGES_AGO)])) == found[:1]


@pytest.mark.parametrize("how", ["unknown", "expired", "stopped", "rescued"])
async def test_a_dead_session_claims_nothing(store: Store, clock: Clock, how: str) -> None:
    worker = await hand(store)
    await insert_one(store)
    match how:
        case "unknown":
            worker = Hand(store, worker.id + 1000)
        case "expired":
            clock.advance(15)
        case "stopped":
            await store.stop_worker(worker.id)
        case "rescued":
            await store.rescue([worker.id], expired=False)
    assert await worker.claim() == []
    assert len(await (await hand(store)).claim()) == 1


async def test_a_late_tick_is_marked(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=1))
    await fired_ticks(store, term, "tick", at(60), late_at=at(75))
    clock.advance(75)
    worker = await hand(store)
    run = await worker.claim_one()
    assert run.late is False
    await worker.hand_back(run, started=False)
    clock.advance(0.000001)
    assert (await worker.claim_one()).late is True


async def test_fences_rise_over_everything(store: Store, clock: Clock) -> None:
    """Over runs, attempts, workers and their deaths: case C38's rule for what is handed to other systems."""
    fences: list[int] = []
    for round_ in range(5):
        worker = await hand(store)
        await insert(store, new(), new())
        runs = await worker.claim()
        assert all(run.fence > max(fences, default=0) for run in runs)
        fences += sorted(run.fence for run in runs)
        if round_ % 2:
            await worker.complete(*runs)
        else:
            clock.advance(20)
            await store.rescue()
            clock.advance(70)
    assert fences == sorted(set(fences))


async def test_claims_by_eight_at_once_take_two_thousand_runs_once(store: Store, open_store: OpenStore) -> None:
    await insert(store, *(new(tenant=f"t{i % 7}", payload=f'{{"n":{i}}}') for i in range(2000)))
    stores = [store] + [await open_store() for _ in range(3)]
    workers = [await hand(stores[i % 4], f"node-{i}") for i in range(8)]
    taken: list = []

    async def work(worker: Hand) -> None:
        last = 0
        while runs := await worker.claim(37, quantum=11):
            assert min(run.fence for run in runs) > last  # each claim's fences are above those of the one before
            last = max(run.fence for run in runs)
            taken.extend(runs)
            assert await worker.complete(*runs) == {run.run_id for run in runs}

    while (await store.lanes(None)).lanes:  # a claim comes back short while others hold rows locked
        await asyncio.gather(*map(work, workers))
    assert len(taken) == 2000
    assert len({run.run_id for run in taken}) == 2000
    assert len({run.fence for run in taken}) == 2000
    assert await look(store, "SELECT state, count(*) FROM run GROUP BY state") == [("succeeded", 2000)]


@pytest.mark.parametrize("end", ["rescue", "stop"])
async def test_a_claim_that_races_the_end_of_its_session_keeps_nothing(
    store: Store, open_store: OpenStore, end: str
) -> None:
    """Either the claim came first and its runs go back with the others, or it finds no session."""
    other = await open_store()
    for _ in range(30):
        await insert(store, new(), new(), new())
        worker = await hand(store)
        ended = other.rescue([worker.id], expired=False) if end == "rescue" else other.stop_worker(worker.id)
        await asyncio.gather(worker.claim(), ended)
        assert await look(store, "SELECT count(*) FROM lease") == [(0,)]
        assert (await worker.beat(LEASE)).alive is False


async def test_a_keyed_run_is_claimed_with_its_key(store: Store) -> None:
    await insert_keyed(store, "the key")
    assert (await (await hand(store)).claim_one()).key == "the key"
