"""Queues with a depth: who is refused, and that as many as may wait in them, and no more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from fleetcron.errors import QueueFull
from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import Clock, at, hand, insert, insert_keyed, insert_one, lead, look, new, put, schedule

SECOND = timedelta(seconds=1)


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
