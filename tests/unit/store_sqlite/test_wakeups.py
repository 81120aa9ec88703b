"""Wake-ups: what adds to `ready` rings, here at once and in other processes soon; nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetcron.store.sqlite import SqliteStore
from fleetcron.store.wakeups import CANCELS, REGISTRY
from tests.unit.store_sqlite.support import LEASE, claim, done, info, new, opened

SOON = 10.0
"""Seconds within which a ring is heard that comes; in milliseconds, but for a machine that stands still."""


class Ear:
    """Hears the wake-ups of one store."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._rung = asyncio.Event()

    def __call__(self, queue: str) -> None:
        self.heard.append(queue)
        self._rung.set()

    async def next(self) -> None:
        await asyncio.wait_for(self._rung.wait(), SOON)
        self._rung.clear()

    def forget(self) -> None:
        self.heard.clear()
        self._rung.clear()


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[SqliteStore, SqliteStore]]:
    """Two stores on one file, as two processes have."""
    stores = [await opened(tmp_path / "fleet.db") for _ in range(2)]
    yield stores[0], stores[1]
    for store in stores:
        await store.close()


async def listening(store: SqliteStore) -> Ear:
    ear = Ear()
    await store.listen(ear)
    await ear.next()  # the first one: something may have come before
    return ear


async def settled(store: SqliteStore, ear: Ear) -> None:
    """Its watcher has looked a first time, which may ring once more: whenever that is, on a machine that has much to do."""
    async with asyncio.timeout(SOON):
        while "" not in store.db.bell._seen:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)  # the ring has arrived
    ear.forget()


async def test_listening_begins_with_a_wake_up(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear = await listening(pair[0])
    assert ear.heard[0] == ""
    assert pair[0].listening and not pair[1].listening


async def test_what_others_add_is_heard_soon(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear = await listening(pair[0])
    for _ in range(10):
        ear.forget()
        await pair[1].insert([new()])
        await ear.next()
    assert set(ear.heard) == {""}


async def test_what_we_add_is_heard_by_the_commit(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear = await listening(pair[0])
    for _ in range(10):
        ear.forget()
        await pair[0].insert([new()])
        await asyncio.sleep(0)
        assert ear.heard


async def test_heartbeats_and_completions_wake_nobody(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear, other = await listening(pair[0]), await listening(pair[1])
    await asyncio.gather(settled(pair[0], ear), settled(pair[1], other))
    await pair[0].insert([new() for _ in range(10)])
    worker = await pair[0].start_worker(info(), LEASE)
    runs = await claim(pair[0], worker)
    await asyncio.gather(ear.next(), other.next())
    ear.forget()
    other.forget()
    for run in runs:
        await pair[0].beat(worker, LEASE)
        await pair[0].complete(worker, [done(run)])
        await pair[0].step_put(worker, run.run_id, run.fence, "s", "1")
    await asyncio.sleep(0.15)  # several looks
    assert (ear.heard, other.heard) == ([], [])


async def test_other_news_is_heard_by_everybody_and_once(pair: tuple[SqliteStore, SqliteStore]) -> None:
    """A run was asked to stop, the registry has changed …: what `notify` is told, here at once, in other processes soon."""
    mine, theirs = await listening(pair[0]), await listening(pair[1])
    await asyncio.gather(settled(pair[0], mine), settled(pair[1], theirs))
    for news in (CANCELS, REGISTRY, CANCELS):
        mine.forget()
        theirs.forget()
        await pair[0].notify([news, "a queue", ""])
        await mine.next()
        await theirs.next()
        await asyncio.sleep(0.1)  # several looks
        assert (mine.heard, theirs.heard) == ([news], [news])


async def test_queues_need_no_news(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear = await listening(pair[1])
    await settled(pair[1], ear)
    await pair[0].notify(["a queue", ""])
    await asyncio.sleep(0.1)  # several looks
    assert ear.heard == []


async def test_what_is_due_much_later_wakes_nobody_until_promoted(tmp_path: Path) -> None:
    now = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)
    store = await opened(tmp_path / "fleet.db", clock=lambda: now)
    ear = await listening(store)
    await settled(store, ear)
    await store.insert([new()])
    await ear.next()
    ear.forget()
    await store.insert([new(delay=timedelta(hours=1))])
    await asyncio.sleep(0.1)  # several looks
    assert ear.heard == []
    now += timedelta(hours=1)
    assert await store.promote() == 1
    await ear.next()
    await store.close()


async def test_after_closing_nobody_is_called(pair: tuple[SqliteStore, SqliteStore]) -> None:
    ear = await listening(pair[0])
    await pair[0].close()
    ear.forget()
    await pair[1].insert([new()])
    await asyncio.sleep(0.1)
    assert ear.heard == []
