"""From the timetable to `ready`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import Clock, at, hand, insert, insert_keyed, insert_one, look, new, second, the_run


async def test_nothing_to_promote(store: Store) -> None:
    assert await store.promote() == 0
    await insert_one(store, delay=timedelta(days=1))
    assert await store.promote() == 0


async def test_what_comes_within_the_horizon_moves(store: Store, clock: Clock) -> None:
    await insert(store, *(new(delay=second(s), priority=3, tenant="acme") for s in (150, 179.999999, 180, 600)))
    assert await store.promote() == 0
    clock.advance(59.999999)
    assert await store.promote() == 0
    clock.advance(0.000001)  # the horizon jumps with the minute
    assert await store.promote() == 2
    (lane,) = (await store.lanes(None)).lanes
    assert (lane.priority, lane.tenant, lane.first_due) == (3, "acme", at(150))
    assert await look(store, "SELECT count(*) FROM timetable") == [(2,)]


async def test_it_is_bounded_and_takes_the_earliest_first(store: Store, clock: Clock) -> None:
    ids = await insert(store, *(new(delay=second(600 - i)) for i in range(10)))
    clock.advance(600)
    assert await store.promote(4) == 4
    runs = await (await hand(store)).claim()
    assert [run.run_id for run in runs] == ids[:5:-1]
    assert [await store.promote(4), await store.promote(4), await store.promote(4)] == [4, 2, 0]


async def test_a_promoted_run_is_as_it_was(store: Store, clock: Clock) -> None:
    answer = await insert_keyed(
        store, delay=timedelta(hours=1), priority=2, tenant="acme", queue="q", start_deadline=second(30), gate="g"
    )
    before = await the_run(store, answer.id)
    clock.advance(3600)
    await store.promote()
    run = await (await hand(store)).claim_one()
    assert (run.run_id, run.attempt, run.due_at, run.expires_at) == (answer.id, 1, at(3600), at(3630))
    assert (run.queue, run.priority, run.tenant, run.gate, run.key) == ("q", 2, "acme", "g", "k")
    assert before.due_at == at(3600)


async def test_a_retry_keeps_its_attempt_through_the_timetable(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await insert_one(store)
    await worker.settle(await worker.claim_one(), delay=timedelta(hours=1))
    clock.advance(3600)
    await store.promote()
    assert (await (await hand(store)).claim_one()).attempt == 2


async def test_an_overdue_bucket_is_noticed(store: Store, clock: Clock) -> None:
    """By workers, so that execution never depends on a leader."""
    assert await store.timetable_due() is False
    await insert_one(store, delay=second(150))
    clock.advance(60)
    assert await store.timetable_due() is False  # the leader should promote it now
    clock.advance(59)
    assert await store.timetable_due() is False
    clock.advance(1)  # due in half a minute, and still in the timetable
    assert await store.timetable_due() is True
    await store.promote()
    assert await store.timetable_due() is False


async def test_several_at_once_lose_nothing_and_double_nothing(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    stores = [store, *[await open_store() for _ in range(3)]]
    ids = await insert(store, *(new(delay=second(600 + i % 7), payload=f'{{"n":{i}}}') for i in range(3000)))
    clock.advance(700)
    moved = 0

    async def promote(i: int) -> None:
        nonlocal moved
        while (n := await stores[i].promote(100)) or await look(store, "SELECT count(*) FROM timetable") != [(0,)]:
            moved += n

    await asyncio.gather(*map(promote, range(4)))
    assert moved == 3000
    assert [row[0] for row in await look(store, "SELECT run_id FROM ready ORDER BY run_id")] == ids


async def test_promotion_and_claims_together(store: Store, open_store: OpenStore, clock: Clock) -> None:
    other = await open_store()
    await insert(store, *(new(delay=second(600 + i)) for i in range(500)))
    clock.advance(1200)
    worker = await hand(store)
    taken: list[int] = []

    async def promote() -> None:
        while await other.promote(50):
            pass

    async def claim() -> None:
        for _ in range(40):
            runs = await worker.claim(30)
            taken.extend(await worker.complete(*runs))

    await asyncio.gather(promote(), claim())
    await claim()
    assert len(taken) == len(set(taken)) == 500
