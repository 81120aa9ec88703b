"""Dedup keys: how long they hold, who wins, what becomes of the others."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from fleetcron.model import KeyScope
from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import Clock, at, hand, insert_keyed, look, new, second, state, the_run

HOUR = timedelta(hours=1)


async def taken(store: Store, **given: object) -> bool:
    """Does the key refuse a second run?"""
    return not (await insert_keyed(store, **given)).created


async def test_the_first_of_equal_keys_wins_and_the_second_is_told_its_id(store: Store) -> None:
    first = await insert_keyed(store, payload='{"n":1}')
    second_ = await insert_keyed(store, payload='{"n":2}')
    assert (first.created, second_.created) == (True, False)
    assert second_.id == first.id
    assert (await the_run(store, first.id)).payload == '{"n":1}'
    assert await look(store, "SELECT count(*) FROM run") == [(1,)]


async def test_a_key_belongs_to_a_job_and_a_tenant(store: Store) -> None:
    answers = await store.insert(
        [new(key="k"), new(key="k", tenant="acme"), new("other", key="k"), new(key="K"), new(), new()]
    )
    assert all(a.created for a in answers)
    assert len({a.id for a in answers}) == 6


@pytest.mark.parametrize("end", ["complete", "failed", "discarded", "cancelled", "expired", "missed"])
async def test_finished_scope_holds_until_the_run_has_ended(store: Store, end: str) -> None:
    """Case C97: a key that covers only waiting jobs lets a second one start while the first runs."""
    worker = await hand(store)
    await insert_keyed(store)
    run = await worker.claim_one()
    assert await taken(store)
    if end == "complete":
        await worker.complete(run)
    else:
        await worker.settle(run, end)
    assert not await taken(store)


async def test_finished_scope_holds_while_the_run_is_retried(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await insert_keyed(store)
    await worker.settle(await worker.claim_one(), delay=HOUR)
    assert await taken(store)
    clock.advance(3600)
    assert await taken(store)
    await store.promote()
    worker = await hand(store)
    await worker.complete(await worker.claim_one())
    assert not await taken(store)


async def test_finished_scope_ends_with_a_cancel(store: Store) -> None:
    first = await insert_keyed(store)
    assert await store.cancel(first.id, "ann") == "cancelled"
    assert not await taken(store)


async def test_finished_scope_outlives_a_rescue_and_ends_with_the_last_attempt(store: Store, clock: Clock) -> None:
    await insert_keyed(store)
    for attempt in (1, 2, 3):
        run = await (await hand(store)).claim_one()
        assert run.attempt == attempt
        assert await taken(store)
        clock.advance(20)
        await store.rescue()
        clock.advance(5)
    assert not await taken(store)


async def test_started_scope_holds_until_the_run_is_claimed(store: Store) -> None:
    worker = await hand(store)
    first = await insert_keyed(store, key_scope="started")
    assert await taken(store, key_scope="started")
    assert (await worker.claim_one()).run_id == first.id
    again = await insert_keyed(store, key_scope="started")
    assert again.created and again.id != first.id


async def test_the_end_of_an_older_run_does_not_free_the_key_of_a_newer_one(store: Store) -> None:
    worker = await hand(store)
    await insert_keyed(store, key_scope="started")
    older = await worker.claim_one()
    await insert_keyed(store, key_scope="started")
    await worker.complete(older)
    assert await taken(store, key_scope="started")


@pytest.mark.parametrize(("scope", "held"), [("finished", True), ("started", False)])
async def test_a_key_is_kept_through_the_timetable(store: Store, clock: Clock, scope: KeyScope, held: bool) -> None:
    await insert_keyed(store, key_scope=scope, delay=HOUR)
    clock.advance(3600)
    assert await store.promote() == 1
    assert await taken(store, key_scope=scope, delay=HOUR)
    await (await hand(store)).claim_one()
    assert await taken(store, key_scope=scope, delay=HOUR) is held


async def test_a_period_holds_though_the_run_has_ended(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    first = await insert_keyed(store, key_scope=HOUR)
    await worker.complete(await worker.claim_one())
    clock.advance(3599)
    again = await insert_keyed(store, key_scope=HOUR)
    assert (again.id, again.created) == (first.id, False)
    clock.advance(1)
    again = await insert_keyed(store, key_scope=HOUR)
    assert again.created and again.id != first.id
    assert await taken(store, key_scope=HOUR)


@pytest.mark.parametrize("when", [{"due_at": at(3 * 3600)}, {"delay": 3 * HOUR}])
async def test_a_period_counts_from_the_due_time(store: Store, clock: Clock, when: dict[str, object]) -> None:
    """Case C100: not from the submit."""
    await insert_keyed(store, key_scope=HOUR, **when)
    clock.advance(2 * 3600)  # the period from the submit has passed twice
    assert await taken(store, key_scope=HOUR, **when)
    clock.advance(2 * 3600 - 1)
    assert await taken(store, key_scope=HOUR, **when)
    clock.advance(1)
    assert not await taken(store, key_scope=HOUR, **when)


async def test_equal_keys_in_one_batch(store: Store) -> None:
    """Case C100: uniqueness holds within one call, too."""
    keys = [f"k{i // 2}" if i < 500 else None if i % 10 == 0 else f"u{i}" for i in range(1000)]
    answers = await store.insert(
        [new(key=key, payload=f'{{"n":{i}}}', key_scope=HOUR, delay=3 * HOUR) for i, key in enumerate(keys)]
    )
    assert [a.created for a in answers] == [i >= 500 or i % 2 == 0 for i in range(1000)]
    assert all(answers[i].id == answers[i - 1].id for i in range(1, 500, 2))
    assert all(a.due_at == at(3 * 3600) for a in answers if a.created)
    created = [a.id for a in answers if a.created]
    assert created == sorted(set(created)) and len(created) == 750
    assert (await the_run(store, answers[41].id)).payload == '{"n":40}'


async def test_replace_gives_the_waiting_run_the_last_payload(store: Store) -> None:
    """Case C98: six events within the debounce time; the last one must be the one that is processed."""
    first = await insert_keyed(store, payload='{"n":1}', delay=second(5))
    for n in range(2, 7):
        again = await insert_keyed(store, payload=f'{{"n":{n}}}', delay=second(5 + n), on_duplicate="replace")
        assert (again.id, again.created) == (first.id, False)
    run = await the_run(store, first.id)
    assert (run.payload, run.due_at, run.state) == ('{"n":6}', at(11), "scheduled")
    assert await look(store, "SELECT count(*) FROM run") == [(1,)]


async def test_replace_within_one_batch(store: Store) -> None:
    answers = await store.insert([new(key="k", payload=f'{{"n":{n}}}', on_duplicate="replace") for n in range(1, 7)])
    assert [a.created for a in answers] == [True, False, False, False, False, False]
    assert len({a.id for a in answers}) == 1
    assert (await the_run(store, answers[0].id)).payload == '{"n":6}'


@pytest.mark.parametrize(("before", "after"), [(5, 3600), (3600, 5), (3600, 7200), (0, 5)])
async def test_replace_moves_a_run_between_ready_and_timetable(
    store: Store, clock: Clock, before: int, after: int
) -> None:
    first = await insert_keyed(store, delay=second(before))
    await insert_keyed(store, delay=second(after), on_duplicate="replace")
    assert (await the_run(store, first.id)).due_at == at(after)
    assert await look(store, "SELECT count(*) FROM ready") == [(int(after < 120),)]
    clock.advance(after)
    await store.promote()
    assert (await (await hand(store)).claim_one()).run_id == first.id


async def test_replace_moves_the_start_deadline_too(store: Store, clock: Clock) -> None:
    """Else the run would expire before it is due."""
    await insert_keyed(store, delay=HOUR, start_deadline=timedelta(minutes=10))
    await insert_keyed(store, delay=3 * HOUR, start_deadline=timedelta(minutes=10), on_duplicate="replace")
    clock.advance(3 * 3600)
    await store.promote()
    assert (await (await hand(store)).claim_one()).expires_at == at(3 * 3600 + 600)


async def test_replace_does_not_touch_a_run_that_a_worker_has(store: Store) -> None:
    worker = await hand(store)
    first = await insert_keyed(store, payload='{"n":1}')
    run = await worker.claim_one()
    again = await insert_keyed(store, payload='{"n":2}', delay=HOUR, on_duplicate="replace")
    assert (again.id, again.created) == (first.id, False)
    assert (await the_run(store, first.id)).payload == '{"n":1}'
    assert await worker.complete(run) == {first.id}


async def test_a_replaced_run_keeps_its_key(store: Store) -> None:
    worker = await hand(store)
    await insert_keyed(store, key_scope="started")
    await insert_keyed(store, key_scope="started", on_duplicate="replace")
    assert await taken(store, key_scope="started")
    await worker.claim_one()
    assert not await taken(store, key_scope="started")


async def test_many_at_once_make_one_run(store: Store, open_store: OpenStore) -> None:
    others = [store] + [await open_store() for _ in range(3)]
    for round_ in range(20):
        answers = await asyncio.gather(*(insert_keyed(others[i % 4], f"k{round_}") for i in range(8)))
        assert sum(a.created for a in answers) == 1
        assert len({a.id for a in answers}) == 1
    assert await look(store, "SELECT count(*) FROM run") == [(20,)]


async def test_batches_with_the_same_keys_in_other_orders_do_not_block_each_other(
    store: Store, open_store: OpenStore
) -> None:
    """Two that lock the same keys in opposite orders are a deadlock."""
    others = [store, await open_store()]
    keys = [f"k{i}" for i in range(200)]
    answers = await asyncio.gather(
        *(others[i % 2].insert([new(key=key) for key in (keys if i % 2 else reversed(keys))]) for i in range(6)),
    )
    assert sum(a.created for batch in answers for a in batch) == 200


async def test_no_overlap_in_many_races(store: Store, open_store: OpenStore) -> None:
    """Case C97: submitters and workers race; two runs of one key are never open at once."""
    stores = [store, await open_store()]
    workers = [await hand(s) for s in stores]
    open_now: set[int] = set()
    created = 0

    async def submit(i: int) -> None:
        nonlocal created
        answer = await insert_keyed(stores[i % 2])
        created += answer.created

    async def work(i: int) -> None:
        for run in await workers[i % 2].claim(1):
            open_now.add(run.run_id)
            assert len(open_now) == 1
            await asyncio.sleep(0)
            open_now.discard(run.run_id)
            await workers[i % 2].complete(run)

    for _ in range(60):
        await asyncio.gather(*(f(i) for i in range(2) for f in (submit, work, submit)))
    assert created > 30
    for run in await workers[0].claim():
        await workers[0].complete(run)
    assert await look(store, "SELECT count(*) FROM run WHERE state = 'succeeded'") == [(created,)]
    assert await state(store, (await insert_keyed(store)).id) == "ready"


async def test_batches_of_ends_and_of_keys_do_not_block_each_other(store: Store, open_store: OpenStore) -> None:
    """Ends free keys, inserts take them: whoever locks several must do so in one order."""
    other = await open_store()
    worker = await hand(store)
    keys = [f"k{i}" for i in range(40)]
    for round_ in range(15):
        await store.insert([new(key=key) for key in (keys if round_ % 2 else reversed(keys))])
        runs = await worker.claim()
        inserts = [other.insert([new(key=key) for key in order]) for order in (keys, keys[::-1], keys)]
        answers = await asyncio.gather(worker.complete(*runs), *inserts)
        assert len(answers[0]) == 40
        await worker.complete(*await worker.claim())


async def test_replace_reaches_a_run_that_waits_for_its_turn(store: Store) -> None:
    worker = await hand(store)
    await store.insert([new(gate="g")])
    first = await insert_keyed(store, gate="g", payload='{"n":1}')
    await store.admit(worker.id, await worker.claim())
    await insert_keyed(store, gate="g", payload='{"n":2}', on_duplicate="replace")
    assert (await the_run(store, first.id)).payload == '{"n":2}'
