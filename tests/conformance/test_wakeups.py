"""Wake-ups, and the watch over the database."""

from __future__ import annotations

import asyncio

import pytest

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    Clock,
    fire,
    hand,
    insert,
    insert_one,
    judge,
    lead,
    new,
    put,
    schedule,
    second,
    the_run,
    the_schedule,
)

SOON = 3.0


class Ear:
    """Remembers what it was woken with."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._came = asyncio.Event()

    def __call__(self, message: str) -> None:
        self.heard.append(message)
        self._came.set()

    async def quiet(self) -> None:
        """Forget what came so far, the first look around included."""
        async with asyncio.timeout(SOON):
            await self._came.wait()
        await asyncio.sleep(0.1)
        self.heard.clear()
        self._came.clear()

    async def wait(self) -> list[str]:
        async with asyncio.timeout(SOON):
            await self._came.wait()
        return self.heard


async def listening(store: Store) -> Ear:
    """A store that listens. Everybody is woken once in the beginning, or by the first thing that happens."""
    ear = Ear()
    await store.listen(ear)
    await asyncio.sleep(0.05)
    await insert(store, new(), new())
    await store.notify(["default"])
    await ear.quiet()
    return ear


@pytest.mark.parametrize("what", ["insert", "keyed insert", "fire", "judge", "notify and insert"])
async def test_work_for_a_queue_wakes_whoever_listens(
    store: Store, open_store: OpenStore, clock: Clock, what: str
) -> None:
    other = await open_store()
    await put(store, schedule())
    clock.advance(120)
    term = await lead(store)
    ear = await listening(store)
    match what:
        case "insert":
            await other.insert([new()], wake=["default"])
        case "keyed insert":
            await other.insert([new(key="k")], wake=["default"])
        case "fire":
            await fire(other, term, await the_schedule(other), clock())
        case "judge":
            await judge(other, "tick", leader=(0, term))
        case "notify and insert":
            await other.insert([new()])
            await other.notify(["default"])
    assert set(await ear.wait()) <= {"default", ""}


async def test_closing_ends_the_listening(open_store: OpenStore) -> None:
    store = await open_store()
    await store.listen(Ear())
    await store.close()
    await store.close()


async def test_the_watch_counts_for_how_long_the_database_has_been_seen(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    """Whoever looks: the watch is the fleet's, not a node's."""
    other = await open_store()
    assert await store.watch() == 0
    for n in range(1, 6):
        clock.advance(2)
        assert await (other if n % 2 else store).watch() == 2 * n
    clock.advance(60)  # nobody looked: a gap
    assert await store.watch() == 0
    clock.advance(1)
    assert await store.watch() == 1
    clock.advance(-30)  # the clock of a new primary may be behind
    assert await store.watch() == 0


async def test_a_run_claimed_ahead_costs_an_attempt_once_it_has_started(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    ids = await insert(store, new(delay=second(5)), new(delay=second(6)))
    assert len(await worker.claim(ahead=10)) == 2
    await store.started(worker.id, ids[:1])
    await store.started(worker.id + 1, ids[1:])  # not its own: nothing
    clock.advance(20)
    assert (await store.rescue()).requeued == 2
    assert [(await the_run(store, i)).attempt for i in ids] == [1, 0]
    assert [[a.state for a in await store.attempts(i)] for i in ids] == [["lost"], []]


async def test_a_run_that_kills_its_worker_before_the_start_is_noted_ends_too(store: Store, clock: Clock) -> None:
    """Case C75: however quick it is."""
    run_id = await insert_one(store, delay=second(5))
    for _ in range(20):
        if (await the_run(store, run_id)).state.final:
            break
        await store.promote()
        due = (await the_run(store, run_id)).due_at
        clock.moment = due - second(1)
        worker = await hand(store)
        assert [run.run_id for run in await worker.claim(ahead=2)] == [run_id]
        clock.moment = due + second(20)
        await store.rescue()
    seen = await the_run(store, run_id)
    assert (seen.state, seen.error) == ("failed", "worker died")
