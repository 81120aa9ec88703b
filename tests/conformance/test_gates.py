"""Gates: runs that must not overlap."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from fleetcron.model import Overlap
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
    insert_one,
    late,
    lead,
    look,
    new,
    put,
    schedule,
    state,
    the_run,
)

HOURS = timedelta(hours=2)


async def verdicts(worker: Hand, runs: list[Claimed]) -> dict[int, str]:
    return {a.run_id: a.verdict for a in await worker.store.admit(worker.id, runs)}


async def enter(worker: Hand, limit: int = 100) -> dict[int, str]:
    """Claim, and ask to pass the gates."""
    return await verdicts(worker, await worker.claim(limit))


async def gated(store: Store, n: int, gate: str = "g") -> list[int]:
    return await insert(store, *(new(gate=gate) for _ in range(n)))


async def ticks(store: Store, policy: Overlap, n: int, clock: Clock) -> list[int]:
    """`n` ticks of a schedule with this policy, all due."""
    await put(store, schedule(overlap=policy))
    term = await lead(store, ttl=HOURS)
    ids = await fired(store, term, "tick", *(at(60 * i) for i in range(1, n + 1)))
    clock.advance(60 * n)
    await store.promote()
    return ids


async def end(worker: Hand, run: Claimed) -> list[str]:
    """A holder ends; the queues that have something again."""
    assert await worker.complete(run) == {run.run_id}
    return await worker.store.unpark()


async def test_the_first_starts_and_the_others_wait(store: Store) -> None:
    worker = await hand(store)
    ids = await gated(store, 3)
    assert await enter(worker) == {ids[0]: "start", ids[1]: "parked", ids[2]: "parked"}
    assert [await state(store, i) for i in ids] == ["running", "ready", "ready"]
    assert await worker.claim() == []
    assert (await the_run(store, ids[1])).attempt == 0


async def test_gates_do_not_know_each_other(store: Store) -> None:
    worker = await hand(store)
    ids = [*await gated(store, 2, "a"), *await gated(store, 2, "b")]
    assert await enter(worker) == {ids[0]: "start", ids[1]: "parked", ids[2]: "start", ids[3]: "parked"}


async def test_waiting_runs_get_their_turn_in_order_until_none_is_left(store: Store) -> None:
    worker = await hand(store)
    ids = await gated(store, 5)
    runs = {run.run_id: run for run in await worker.claim()}
    assert list((await verdicts(worker, list(runs.values()))).values()) == ["start"] + ["parked"] * 4
    assert await store.unpark() == []  # somebody holds it
    holder = runs[ids[0]]
    for run_id in ids[1:]:
        assert await end(worker, holder) == ["default"]
        (holder,) = await worker.claim()
        assert holder.run_id == run_id
        assert await verdicts(worker, [holder]) == {run_id: "start"}
    assert await end(worker, holder) == []


async def test_the_longest_due_is_first_in_line(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store, gate="g")
    holder = await worker.claim_one()
    await verdicts(worker, [holder])
    late, early = await insert(store, new(gate="g", due_at=at(-1)), new(gate="g", due_at=at(-5)))
    await enter(worker)
    await end(worker, holder)
    assert (await worker.claim_one()).run_id == early
    assert await state(store, late) == "ready"


async def test_who_comes_while_others_wait_does_not_overtake(store: Store) -> None:
    """The gate is free for a moment, between an end and the turn of the next."""
    worker = await hand(store)
    first, second_ = await gated(store, 2)
    runs = await worker.claim()
    await verdicts(worker, runs)
    await worker.complete(next(run for run in runs if run.run_id == first))
    (third,) = await gated(store, 1)
    assert await enter(worker) == {third: "parked"}
    assert await store.unpark() == ["default"]
    assert await enter(worker) == {second_: "start"}


async def test_an_admission_without_a_lease_is_none(store: Store) -> None:
    worker, other = await hand(store), await hand(store, "node-2")
    await gated(store, 1)
    run = await worker.claim_one()
    assert await verdicts(other, [run]) == {}
    await worker.complete(run)
    assert await verdicts(worker, [run]) == {}
    assert await store.admit(worker.id, []) == []


@pytest.mark.parametrize("death", ["completes", "fails", "is retried", "is rescued", "stops"])
async def test_however_a_holder_ends_the_gate_is_free(store: Store, clock: Clock, death: str) -> None:
    """Cases C55, C81: a crash cannot leak a gate, because holding it is having the lease."""
    holder, worker = await hand(store), await hand(store, "node-2", ttl=HOURS)
    ids = await gated(store, 2)
    run = await holder.claim_one()
    await verdicts(holder, [run])
    assert await enter(worker) == {ids[1]: "parked"}
    match death:
        case "completes":
            await holder.complete(run)
        case "fails":
            await holder.settle(run, "failed", dead=True)
        case "is retried":
            await holder.settle(run, delay=timedelta(hours=1))
        case "is rescued":
            clock.advance(20)
            assert (await store.rescue()).workers == [holder.id]
        case "stops":
            await store.stop_worker(holder.id)
    assert await store.unpark() == ["default"]
    claimed = {r.run_id: r for r in await worker.claim()}
    assert await verdicts(worker, [claimed[ids[1]]]) == {ids[1]: "start"}


async def test_a_cancelled_holder_keeps_the_gate_until_it_has_stopped(store: Store) -> None:
    worker = await hand(store)
    ids = await gated(store, 2)
    runs = await worker.claim()
    await verdicts(worker, runs)
    assert await store.cancel(ids[0], "ann") == "asked"
    assert await store.unpark() == []
    await worker.settle(runs[0], "cancelled", record="cancelled")
    assert await store.unpark() == ["default"]


async def test_a_retry_passes_its_gate_again(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    first, second_ = await gated(store, 2)
    runs = await worker.claim()
    await verdicts(worker, runs)
    clock.advance(1)
    await worker.settle(runs[0])  # due now, later than the other, which waits already
    assert await enter(worker) == {first: "parked"}
    await store.unpark()
    (turn,) = await worker.claim()
    assert (turn.run_id, turn.attempt) == (second_, 1)
    assert await verdicts(worker, [turn]) == {second_: "start"}
    await end(worker, turn)
    (again,) = await worker.claim()
    assert (again.run_id, again.attempt) == (first, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("queue_all", ["start", "parked", "parked"]),
        ("queue_one", ["start", "parked", "missed"]),
        ("skip", ["start", "missed", "missed"]),
    ],
)
async def test_what_a_tick_does_while_an_older_one_runs(
    store: Store, clock: Clock, policy: Overlap, expected: list[str]
) -> None:
    ids = await ticks(store, policy, 3, clock)
    worker = await hand(store, ttl=HOURS)
    assert list((await enter(worker)).values()) == expected
    dropped = [i for i, verdict in zip(ids, expected, strict=True) if verdict == "missed"]
    assert [i for i in ids if await state(store, i) == "missed"] == dropped
    assert {(await the_run(store, i)).reason for i in dropped} <= {"overlap"}
    misses = await store.misses("tick")
    assert sorted(m.first for m in misses) == sorted([(await the_run(store, i)).nominal_at for i in dropped])
    assert {(m.count, m.reason, m.policy) for m in misses} <= {(1, "overlap", policy)}


async def test_at_most_one_waits_under_queue_one_whatever_the_order(store: Store, clock: Clock) -> None:
    """Case C11: an older one that comes after a newer one does not make them two."""
    ids = await ticks(store, "queue_one", 3, clock)
    worker = await hand(store, ttl=HOURS)
    runs = {run.run_id: run for run in await worker.claim()}
    seen = [await verdicts(worker, [runs[i]]) for i in (ids[0], ids[2], ids[1])]
    assert seen == [{ids[0]: "start"}, {ids[2]: "parked"}, {ids[1]: "missed"}]


async def test_queue_one_lets_the_waiting_one_start(store: Store, clock: Clock) -> None:
    ids = await ticks(store, "queue_one", 2, clock)
    worker = await hand(store, ttl=HOURS)
    runs = await worker.claim()
    await verdicts(worker, runs)
    await end(worker, runs[0])
    assert await enter(worker) == {ids[1]: "start"}


async def test_replace_asks_the_running_one_to_stop_and_takes_its_place(store: Store, clock: Clock) -> None:
    ids = await ticks(store, "replace", 3, clock)
    worker = await hand(store, ttl=HOURS)
    runs = {run.run_id: run for run in await worker.claim()}
    assert await verdicts(worker, [runs[ids[0]]]) == {ids[0]: "start"}
    assert await verdicts(worker, [runs[ids[1]]]) == {ids[1]: "parked"}
    assert (await worker.beat()).cancels == [ids[0]]
    assert await verdicts(worker, [runs[ids[2]]]) == {ids[2]: "parked"}  # the newest; who waited is missed
    assert [await state(store, i) for i in ids] == ["running", "missed", "ready"]
    (miss,) = await store.misses("tick")
    assert (miss.first, miss.count, miss.reason, miss.policy) == (at(120), 1, "overlap", "replace")
    await worker.settle(runs[ids[0]], "cancelled", record="cancelled")
    assert await store.unpark() == ["default"]
    assert await enter(worker) == {ids[2]: "start"}


async def test_replace_leaves_no_older_one_waiting_when_the_gate_is_free(store: Store, clock: Clock) -> None:
    """Between the end of the running one and the turn of the next, a newer tick comes: it is the one to run."""
    ids = await ticks(store, "replace", 3, clock)
    worker = await hand(store, ttl=HOURS)
    runs = {run.run_id: run for run in await worker.claim()}
    await verdicts(worker, [runs[ids[0]]])
    await verdicts(worker, [runs[ids[1]]])
    await worker.settle(runs[ids[0]], "cancelled", record="cancelled")
    assert await verdicts(worker, [runs[ids[2]]]) == {ids[2]: "start"}
    assert [await state(store, i) for i in ids] == ["cancelled", "missed", "running"]
    assert [m.first for m in await store.misses("tick")] == [at(120)]


@pytest.mark.parametrize("newer", ["runs", "waits"])
async def test_an_older_tick_that_comes_late_does_not_replace_a_newer_one(
    store: Store, clock: Clock, newer: str
) -> None:
    """Two workers claim two ticks, and the newer one is quicker at the gate."""
    ids = await ticks(store, "replace", 3, clock)
    worker = await hand(store, ttl=HOURS)
    runs = {run.run_id: run for run in await worker.claim()}
    if newer == "waits":
        await verdicts(worker, [runs[ids[0]]])
    expected = {"runs": "start", "waits": "parked"}[newer]
    assert await verdicts(worker, [runs[ids[2]]]) == {ids[2]: expected}
    assert await verdicts(worker, [runs[ids[1]]]) == {ids[1]: "missed"}
    assert [m.first for m in await store.misses("tick")] == [at(120)]
    if newer == "runs":
        assert (await worker.beat()).cancels == []


async def test_a_tick_that_waited_for_its_turn_is_no_misfire(store: Store, clock: Clock) -> None:
    """Its policy said that it waits: being late is the point."""
    ids = await ticks(store, "queue_all", 2, clock)
    worker = await hand(store, ttl=HOURS)
    runs = await worker.claim()
    await verdicts(worker, runs)
    clock.advance(3600)
    await end(worker, runs[0])
    for _ in range(2):
        (run,) = await worker.claim()
        assert (run.run_id, run.late) == (ids[1], False)
        await worker.hand_back(run, started=False)
    assert await late(store) == []


async def test_two_in_one_call_are_not_both_admitted(store: Store) -> None:
    worker = await hand(store)
    ids = await gated(store, 20)
    assert Counter((await enter(worker)).values()) == {"start": 1, "parked": 19}
    assert await look(store, "SELECT run_id FROM lease") == [(ids[0],)]


async def test_never_two_holders_and_nobody_is_forgotten(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """Case C93: four workers, three gates, admissions and ends in any order; crashes, too."""
    dice = random.Random(93)
    stores = [store, *[await open_store() for _ in range(3)]]
    gates = ["a", "b", "c"]
    ids = await insert(store, *(new(gate=dice.choice(gates)) for _ in range(90)))
    inside: Counter[str] = Counter()
    done: list[int] = []

    async def work(i: int) -> None:
        worker = await hand(stores[i], f"node-{i}", ttl=HOURS)
        for _ in range(40):
            runs = await worker.claim(dice.randrange(1, 6))
            starts = await verdicts(worker, runs)
            mine = [run for run in runs if starts.get(run.run_id) == "start"]
            for run in mine:
                assert run.gate is not None
                inside[run.gate] += 1
                assert inside[run.gate] == 1
            await asyncio.sleep(0)
            for run in mine:
                inside[run.gate or ""] -= 1
            if dice.randrange(6) == 0:
                await store.stop_worker(worker.id)  # its runs go back; a handler that counts would not know
                worker = await hand(stores[i], f"node-{i}", ttl=HOURS)
            else:
                done.extend(await worker.complete(*mine))
            await stores[i].unpark()
        await store.stop_worker(worker.id)

    for _ in range(10):
        await asyncio.gather(*map(work, range(4)))
        if len(done) == len(ids):
            break
    assert sorted(done) == ids
    assert await look(store, "SELECT count(*) FROM parked") == [(0,)]


async def test_unparking_by_several_at_once_frees_each_once(store: Store, open_store: OpenStore) -> None:
    other = await open_store()
    worker = await hand(store, ttl=HOURS)
    for _ in range(8):
        await gated(store, 4)
        runs = await worker.claim()
        await verdicts(worker, runs)
        await worker.complete(*runs[:1])
        await asyncio.gather(
            store.unpark(), other.unpark(), store.unpark()
        )  # more than one may go back: they ask again at the gate
        waiting = await look(store, "SELECT run_id FROM ready UNION ALL SELECT run_id FROM parked")
        assert len(waiting) == len(set(waiting)) == 3
        while left := await worker.claim():
            await worker.complete(*[run for run in left if run.run_id in await verdicts(worker, left)])
            await store.unpark()


async def test_a_gate_of_a_session_past_its_time_is_held_until_the_rescue(store: Store, clock: Clock) -> None:
    """Whether the holder still runs nobody knows before its lease is taken away."""
    worker = await hand(store, ttl=LEASE)
    ids = await gated(store, 2)
    await enter(worker)
    clock.advance(60)
    assert await store.unpark() == []
    await store.rescue()
    assert await store.unpark() == ["default"]
    assert await state(store, ids[0]) == "retrying"
