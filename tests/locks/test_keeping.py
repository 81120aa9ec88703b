"""Renewal in the background, and what a holder may believe when it does not work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from fleetcron import Fleet, LockTimeout, StoreUnavailable
from tests.locks.kit import rows
from tests.support.proxy import Proxy


async def test_a_blocked_event_loop_keeps_its_lock(a: Fleet, b: Fleet) -> None:
    async with a.lock("reindex", ttl="1500ms") as lock:
        time.sleep(1.8)
        assert not lock.lost.is_set()
        with pytest.raises(LockTimeout):
            await b.lock("reindex", wait=0).acquire()
        assert await lock.renew()


async def test_one_thread_renews_all_locks_of_a_fleet_with_few_statements(pg_url: str) -> None:
    def keepers() -> int:
        return sum(thread.name == "fleetcron-locks" for thread in threading.enumerate())

    connection = await asyncpg.connect(pg_url)
    await connection.execute("CREATE EXTENSION pg_stat_statements")
    async with Fleet(pg_url) as fleet, AsyncExitStack() as stack:
        assert keepers() == 0
        locks = [await stack.enter_async_context(fleet.lock(f"lock {n}", ttl="2s")) for n in range(60)]
        await asyncio.sleep(3)
        assert not any(lock.lost.is_set() for lock in locks)
        assert len(await fleet.locks()) == 60
        assert keepers() == 1
    calls, renewed = await connection.fetchrow(
        "SELECT sum(calls), sum(rows) FROM pg_stat_statements WHERE query LIKE '%SET expires_at = n.now + ours.ttl%' "
        "AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    await connection.close()
    assert renewed >= 60 * 3
    assert calls <= 20, "locks that are due about now share a statement"
    assert keepers() == 0


class Link:
    """A fleet behind a link that can be cut."""

    def __init__(self, proxy: Proxy, fleet: Fleet) -> None:
        self.proxy, self.fleet = proxy, fleet


@pytest.fixture
async def link(pg_url: str) -> AsyncIterator[Link]:
    async with Proxy.to(pg_url) as proxy, Fleet(proxy.url) as fleet:
        yield Link(proxy, fleet)
        await proxy.heal()


async def test_a_holder_that_is_cut_off_knows_before_anybody_else_can_have_it(link: Link, pg_url: str) -> None:
    async with Fleet(pg_url) as other:
        lock = await link.fleet.lock("reindex", ttl="2s").acquire()
        link.proxy.blackhole()
        began = time.monotonic()
        told: list[float] = []
        assert lock.hold is not None
        lock.hold.watch(lambda: told.append(time.monotonic()))
        mine = await other.lock("reindex", wait="20s").acquire()
        taken = time.monotonic()
        assert mine.fence > lock.fence
        assert 1.0 < told[0] - began < taken - began, "the ttl less a margin, at the holder; all of it, at the database"
        await asyncio.wait_for(lock.lost.wait(), 10)
        assert not await lock.renew()
        began = time.monotonic()
        await lock.release()
        assert time.monotonic() - began < 6, "giving back does not wait for the database for longer than the ttl"
        assert [held.fence for held in await other.locks()] == [mine.fence]


async def test_a_blocked_and_cut_off_holder_sees_that_it_is_late(link: Link) -> None:
    lock = await link.fleet.lock("reindex", ttl="500ms").acquire()
    link.proxy.blackhole()
    time.sleep(0.6)
    assert lock.lost.is_set(), "the event loop has not run since, so nobody can have told it"
    await link.proxy.heal()


async def test_an_outage_shorter_than_the_ttl_costs_nothing(link: Link) -> None:
    lock = await link.fleet.lock("reindex", ttl="3s").acquire()
    await asyncio.sleep(1.2)  # so that there is a connection that renews
    link.proxy.blackhole()
    await asyncio.sleep(1.5)
    await link.proxy.heal()
    await asyncio.sleep(1.2)
    link.proxy.reset()
    await asyncio.sleep(1.2)
    link.proxy.refuse()
    await asyncio.sleep(1)
    await link.proxy.heal()
    await asyncio.sleep(2)
    assert not lock.lost.is_set()
    assert await lock.renew()
    await lock.release()


async def test_a_link_that_has_died_in_silence_is_replaced(link: Link) -> None:
    """Nothing ever comes back on the old connections, as after a router that forgot them; new ones work."""
    lock = await link.fleet.lock("reindex", ttl="3s").acquire()
    await asyncio.sleep(1.2)
    async with Proxy.to(link.proxy._url) as fresh:
        link.proxy.blackhole()
        link.fleet.options = Fleet(fresh.url).options  # the address of the database has moved
        await asyncio.sleep(4)
        assert not lock.lost.is_set()
        assert len(await link.fleet.make_store().pending_migrations()) == 0
        await link.proxy.heal()
        await lock.release()


async def test_a_lock_that_was_taken_away_is_lost_within_a_renewal(a: Fleet, b: Fleet) -> None:
    """By an operator, by a database that was restored, by a clock that jumped: the holder is told, and goes on to the end."""
    lock = await a.lock("reindex", ttl="6s").acquire()
    await a.store.lock_release("reindex", lock._hold.owner)  # type: ignore[union-attr]
    async with b.lock("reindex", wait=0) as mine:
        await asyncio.wait_for(lock.lost.wait(), 5)  # it renews every third of its ttl
        await lock.release()
        assert [held.fence for held in await b.locks()] == [mine.fence]
        assert not mine.lost.is_set()


async def test_what_comes_after_a_lost_lock(a: Fleet) -> None:
    """The object can be used again: `lost` is of its own for each acquisition."""
    lock = await a.lock("reindex", ttl="1500ms").acquire()
    lost, fence = lock.lost, lock.fence
    await a.store.lock_release("reindex", lock._hold.owner)  # type: ignore[union-attr]
    await asyncio.wait_for(lost.wait(), 10)
    await lock.release()
    async with lock:
        assert lost.is_set() and not lock.lost.is_set()
        assert lock.fence > fence
        await asyncio.sleep(1.6)
        assert not lock.lost.is_set()
    assert await rows(a) == 0


async def test_the_database_is_away_at_the_first_try(link: Link) -> None:
    link.proxy.refuse()
    with pytest.raises(StoreUnavailable):
        await link.fleet.lock("reindex").acquire()
    await link.proxy.heal()
    async with link.fleet.lock("reindex", wait="5s"):
        pass


async def test_a_wait_ends_in_time_though_the_database_does_not_answer(link: Link, pg_url: str) -> None:
    async with Fleet(pg_url) as other, other.lock("reindex"):
        waiting = asyncio.create_task(link.fleet.lock("reindex", wait="1500ms").acquire())
        began = time.monotonic()
        await asyncio.sleep(0.3)
        link.proxy.blackhole()
        with pytest.raises(LockTimeout):
            await waiting
        assert 1.4 < time.monotonic() - began < 8
        await link.proxy.heal()
