"""Worker sessions: heartbeats and their end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetcron.store.protocol import Store
from tests.conformance.kit import (
    LEASE,
    Clock,
    Hand,
    at,
    fired,
    hand,
    insert,
    insert_one,
    lead,
    look,
    new,
    put,
    schedule,
    second,
    state,
    the_run,
)


async def test_each_session_has_an_id_of_its_own(store: Store) -> None:
    """Also those of one process on one host: case C21."""
    ids = [(await hand(store)).id for _ in range(3)]
    assert len(set(ids)) == 3


async def test_a_beat_renews_the_session(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    for _ in range(5):
        clock.advance(14)
        beat = await worker.beat()
        assert (beat.alive, beat.now, beat.cancels) == (True, clock.moment, [])
    assert (await store.rescue()).workers == []


async def test_a_session_past_its_time_is_renewed_until_it_is_rescued(store: Store, clock: Clock) -> None:
    """After a database was away for longer than a lease, every session is past its time: the workers report, and nothing is run again."""
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    clock.advance(60)
    beat = await worker.beat()
    assert (beat.alive, beat.now) == (True, at(60))
    assert (await store.rescue()).workers == []
    clock.advance(60)
    assert (await store.rescue()).workers == [worker.id]
    for _ in range(2):
        beat = await worker.beat()
        assert (beat.alive, beat.now) == (False, at(120))
    assert await worker.complete(run) == set()
    assert await state(store, run_id) == "retrying"


async def test_a_session_past_its_time_claims_nothing_before_it_is_renewed(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await insert_one(store)
    clock.advance(60)
    assert await worker.claim() == []
    assert (await worker.beat()).alive
    assert len(await worker.claim()) == 1


async def test_the_time_of_a_beat_is_its_own(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await worker.beat(second(60))
    clock.advance(59)
    assert (await store.rescue()).workers == []
    assert (await worker.beat(second(1))).alive
    clock.advance(1.000001)
    assert (await store.rescue()).workers == [worker.id]


async def test_an_unknown_session_does_not_live(store: Store) -> None:
    assert (await Hand(store, 4711).beat()).alive is False


async def test_a_beat_carries_the_runs_to_stop(store: Store) -> None:
    """Case C102: seen within a heartbeat, in every mode."""
    worker, other = await hand(store), await hand(store, "node-2")
    await insert(store, *(new() for _ in range(4)))
    mine, theirs = await worker.claim(3), await other.claim(3)
    for run in (mine[0], mine[2], theirs[0]):
        assert await store.cancel(run.run_id, "ann") == "asked"
    for _ in range(2):  # until it is told of: an answer may be lost
        assert sorted((await worker.beat()).cancels) == [mine[0].run_id, mine[2].run_id]
    await worker.settle(mine[0], "cancelled", record="cancelled")
    assert (await worker.beat()).cancels == [mine[2].run_id]
    assert (await other.beat()).cancels == [theirs[0].run_id]


async def test_a_session_that_stops_hands_back_what_it_holds(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    found = await insert(store, new(), new(delay=second(30), tenant="acme", priority=2))
    await worker.claim(ahead=60)
    assert await store.stop_worker(worker.id) == 2
    assert await store.stop_worker(worker.id) == 0
    assert [await state(store, run_id) for run_id in found] == ["ready", "scheduled"]
    assert (await worker.beat()).alive is False
    again = await (await hand(store)).claim(ahead=60)
    assert [(run.run_id, run.attempt, run.due_at) for run in again] == [(found[0], 1, at(0)), (found[1], 1, at(30))]


async def test_a_session_that_stops_with_nothing_left(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store)
    await worker.complete(await worker.claim_one())
    assert await store.stop_worker(worker.id) == 0
    assert await store.stop_worker(4711) == 0


async def test_what_was_asked_to_stop_does_not_go_back(store: Store) -> None:
    """Case C101: after an accepted cancel there is no retry, also when its worker stops without a word on it."""
    worker = await hand(store)
    first = await insert_one(store, key="k")
    found = [first, *await insert(store, new())]
    await worker.claim()
    assert await store.cancel(found[0], "ann") == "asked"
    assert await store.stop_worker(worker.id) == 1
    assert [await state(store, run_id) for run_id in found] == ["cancelled", "ready"]
    assert (await the_run(store, found[0])).finished_at == at(0)
    assert (await store.insert([new(key="k")]))[0].created


async def test_a_retry_that_a_stopping_session_hands_back_keeps_its_attempt(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.settle(await worker.claim_one())
    await worker.claim_one()
    await store.stop_worker(worker.id)
    assert await state(store, run_id) == "retrying"
    assert (await (await hand(store)).claim_one()).attempt == 2


async def test_history_names_sessions_that_are_gone(store: Store) -> None:
    worker = await hand(store, host="alpha", pid=12)
    run_id = await insert_one(store)
    await worker.complete(await worker.claim_one())
    await store.stop_worker(worker.id)
    assert (await the_run(store, run_id)).worker == "alpha:12"
    assert [a.worker for a in await store.attempts(run_id)] == ["alpha:12"]


@pytest.mark.parametrize(("end", "word"), [("stop", "stopped"), ("rescue", "died")])
async def test_the_history_of_sessions_says_how_they_ended(store: Store, clock: Clock, end: str, word: str) -> None:
    worker = await hand(store)
    clock.advance(20)
    if end == "stop":
        await store.stop_worker(worker.id)
    else:
        await store.rescue()
    assert await look(store, "SELECT id, ended FROM session") == [(worker.id, word)]


async def test_a_tick_in_the_hands_of_a_stopping_session_can_still_be_late(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=1))
    await fired(store, term, "tick", at(60), late_at=at(75))
    clock.advance(58)
    worker = await hand(store, ttl=LEASE)
    await worker.claim_one(ahead=10)
    await store.stop_worker(worker.id)
    clock.advance(60)
    assert (await (await hand(store)).claim_one()).late is True
