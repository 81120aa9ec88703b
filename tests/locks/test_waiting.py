"""The line before a lock: served in order, kept by who waits, lost by who died."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from urllib.parse import urlsplit

import asyncpg
import pytest

from fleetcron import Fleet, Lock, LockTimeout, lock
from fleetcron.embedded_postgres import EmbeddedPostgres
from tests.locks.conftest import OpenFleet
from tests.locks.kit import rows, until, waiters


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is told, or known beforehand, moves anybody."""
    monkeypatch.setattr(lock, "FIRST", 30.0)
    monkeypatch.setattr(lock, "BEHIND", 30.0)
    monkeypatch.setattr(lock, "PLACE", timedelta(minutes=5))


async def take_in_turn(fleet: Fleet, n: int, served: list[int]) -> None:
    async with fleet.lock("reindex"):
        served.append(n)


async def test_waiters_are_served_in_order_and_told_when(a: Fleet, b: Fleet, no_polling: None) -> None:
    served: list[int] = []
    tasks = []
    async with a.lock("reindex"):
        for n in range(8):
            tasks.append(asyncio.create_task(take_in_turn((a, b)[n % 2], n, served)))
            await waiters(a, n + 1)
        began = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert served == list(range(8))
    assert time.monotonic() - began < 5


async def test_whoever_tries_once_does_not_overtake_the_line(a: Fleet, b: Fleet) -> None:
    """The lock is free for the moment, but somebody waits for it (or did so less than its place lasts ago)."""
    await a.store.lock_wait("reindex", "first", timedelta(minutes=1))
    assert await a.locks() == []
    with pytest.raises(LockTimeout):
        await b.lock("reindex", wait=0).acquire()
    with pytest.raises(LockTimeout):
        await b.lock("reindex", wait="300ms").acquire()
    took = await a.store.lock_take("reindex", "first", "host", 1, timedelta(minutes=1))
    assert took.fence is not None


async def test_C33_a_place_is_kept_alive_while_its_owner_waits(
    a: Fleet, b: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B waits for much longer than a place is kept; C comes later and does not overtake. A renews meanwhile."""
    monkeypatch.setattr(lock, "PLACE", timedelta(seconds=1.2))
    monkeypatch.setattr(lock, "BEHIND", 0.1)
    served: list[int] = []
    async with a.lock("reindex", ttl="2s"):
        early = asyncio.create_task(take_in_turn(b, 1, served))
        await waiters(a, 1)
        await asyncio.sleep(1.8)
        late = asyncio.create_task(take_in_turn(a, 2, served))
        await waiters(a, 2)
        await asyncio.sleep(0.9)
        await waiters(a, 2)
    await asyncio.wait_for(asyncio.gather(early, late), 5)
    assert served == [1, 2]


async def test_a_dead_waiter_s_place_lapses(a: Fleet, b: Fleet) -> None:
    await a.store.lock_wait("reindex", "somebody who dies", timedelta(milliseconds=700))
    began = time.monotonic()
    async with b.lock("reindex", wait="10s"):
        assert 0.4 < time.monotonic() - began < 5


async def test_a_place_that_lapsed_is_taken_up_again_where_it_was(a: Fleet) -> None:
    """Whoever could not say for a while that it waits is passed by, and is before the others again when it can."""
    store, ttl, long = a.store, timedelta(minutes=1), timedelta(minutes=1)
    await store.lock_wait("reindex", "one", timedelta(milliseconds=1))
    await store.lock_wait("reindex", "two", long)
    await asyncio.sleep(0.005)
    assert (await store.lock_take("reindex", "two", "host", 1, ttl)).first
    await store.lock_release("reindex", "two")
    await store.lock_wait("reindex", "three", long)
    await store.lock_prune()
    await store.lock_wait("reindex", "one", long)
    assert not (await store.lock_take("reindex", "three", "host", 1, ttl)).first
    assert (await store.lock_take("reindex", "one", "host", 1, ttl)).fence is not None


async def test_a_dead_holder_s_lock_is_taken_when_its_time_is_up(a: Fleet, b: Fleet, no_polling: None) -> None:
    await a.store.lock_take("reindex", "somebody who dies", "host", 1, timedelta(milliseconds=800))
    until = (await a.locks())[0].expires_at
    async with b.lock("reindex", wait="20s"):
        late = (await b.locks())[0].acquired_at - until
        assert timedelta(0) <= late < timedelta(seconds=3)


async def test_one_try_at_a_time_of_a_crowd(a: Fleet, b: Fleet) -> None:
    """A free lock and 40 at once who try once: exactly one has it."""

    async def try_once(fleet: Fleet) -> Lock | None:
        try:
            return await fleet.lock("reindex", wait=0).acquire()
        except LockTimeout:
            return None

    for _ in range(5):
        got = await asyncio.gather(*(try_once((a, b)[n % 2]) for n in range(40)))
        (held,) = (one for one in got if one is not None)
        await held.release()


async def test_waiting_outlasts_a_restart_of_the_database(crashable_postgres: EmbeddedPostgres) -> None:
    async with Fleet(crashable_postgres.url()) as fleet:
        await fleet.store.lock_take("reindex", "somebody", "host", 1, timedelta(seconds=3))
        waiting = asyncio.create_task(fleet.lock("reindex", wait="40s").acquire())
        await waiters(fleet, 1)
        crashable_postgres.kill()
        await asyncio.sleep(0.2)
        assert not waiting.done()
        crashable_postgres.start()
        held = await waiting
        assert [x.fence for x in await fleet.locks()] == [held.fence]
        await held.release()


async def test_without_notifications_polling_serves(
    pgbouncer_url: str, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind PgBouncer there is no LISTEN."""
    monkeypatch.setattr(lock, "PLACE", timedelta(minutes=1))
    async with Fleet(pgbouncer_url, pgbouncer=True) as one, Fleet(pgbouncer_url, pgbouncer=True) as two:
        served: list[int] = []
        async with one.lock("reindex", ttl="1s"):
            tasks = [asyncio.create_task(take_in_turn(two, 1, served))]
            await waiters(one, 1)
            await asyncio.sleep(1.2)
            tasks.append(asyncio.create_task(take_in_turn(one, 2, served)))
            await waiters(one, 2)
            assert served == []
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert served == [1, 2]
        assert await rows(Fleet(pg_url), "lock_waiter") == 0


async def test_another_schema(open_pg_fleet: OpenFleet, pg_url: str, no_polling: None) -> None:
    """Locks of one name in two fleets of one database know nothing of each other."""
    first, other, theirs = (
        await open_pg_fleet(),
        await open_pg_fleet(schema="other"),
        await open_pg_fleet(schema="other"),
    )
    async with first.lock("reindex", wait=0):
        async with other.lock("reindex", wait=0):
            waiting = asyncio.create_task(theirs.lock("reindex").acquire())
            await waiters(other, 1)
        await (await asyncio.wait_for(waiting, 5)).release()
    assert urlsplit(pg_url).scheme == "postgresql"


async def test_many_who_wait(a: Fleet, b: Fleet) -> None:
    """A hundred in line: each is served once."""
    served: list[int] = []
    async with a.lock("reindex"):
        tasks = [asyncio.create_task(take_in_turn((a, b)[n % 2], n, served)) for n in range(100)]

        async def all_there() -> bool:
            return [held.waiters for held in await a.locks()] == [100]

        await until(all_there, 20)
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert sorted(served) == list(range(100))


async def test_a_try_under_way_is_not_waited_for(open_pg_fleet: OpenFleet, pg_url: str) -> None:
    """Somebody has the name's mutex, and does not go on: one try says "not free", a wait goes on looking, and no statement hangs."""
    fleet = await open_pg_fleet()
    connection = await asyncpg.connect(pg_url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('fleetcron.lock:reindex', 0))")
    with pytest.raises(LockTimeout):
        await asyncio.wait_for(fleet.lock("reindex", wait=0).acquire(), 10)
    async with fleet.lock("another", wait=0):
        waiting = asyncio.create_task(fleet.lock("reindex").acquire())
        await asyncio.sleep(0.3)
        assert not waiting.done()
    await transaction.rollback()
    await (await asyncio.wait_for(waiting, 5)).release()
    await connection.close()
