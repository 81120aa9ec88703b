"""`fleetcron.fence_ok` in the user's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from fleetcron import Fleet, LockTimeout
from tests.locks.conftest import OpenFleet

Connection = asyncpg.Connection  # type: ignore[type-arg]
OK = "SELECT fleetcron.fence_ok('reindex', $1)"


@pytest.fixture
async def a(open_pg_fleet: OpenFleet) -> Fleet:
    return await open_pg_fleet()


@pytest.fixture
async def b(open_pg_fleet: OpenFleet) -> Fleet:
    return await open_pg_fleet()


@pytest.fixture
async def db(a: Fleet, pg_url: str) -> AsyncIterator[Connection]:
    """A connection of the user's own."""
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


@pytest.fixture
async def other(a: Fleet, pg_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


async def take(fleet: Fleet, owner: str, ttl: float = 60) -> int | None:
    """Without anybody who renews."""
    return (await fleet.store.lock_take("reindex", owner, "host", 1, timedelta(seconds=ttl))).fence


async def test_true_for_the_holder_only(a: Fleet, db: Connection) -> None:
    assert not await db.fetchval(OK, 1)
    async with a.lock("reindex") as lock:
        assert await db.fetchval(OK, lock.fence)
        assert not await db.fetchval(OK, lock.fence - 1)
        assert not await db.fetchval(OK, lock.fence + 1)
        assert not await db.fetchval("SELECT fleetcron.fence_ok('another', $1)", lock.fence)
        assert await db.fetchval("SELECT fleetcron.fence_ok(lock => 'reindex', fence => $1)", lock.fence)
        assert not await db.fetchval(OK, None)
    assert not await db.fetchval(OK, lock.fence)


async def test_false_from_its_expiry_on_though_nobody_took_over(a: Fleet, db: Connection) -> None:
    fence = await take(a, "one", ttl=0.2)
    assert await db.fetchval(OK, fence)
    await asyncio.sleep(0.25)
    assert not await db.fetchval(OK, fence)


@pytest.mark.both_pg
async def test_a_takeover_waits_for_the_transaction(a: Fleet, b: Fleet, db: Connection) -> None:
    """The holder dies in the middle of its transaction: the next one has the lock when that is over, not before."""
    await db.execute("CREATE TABLE page (fence bigint, written_at timestamptz DEFAULT clock_timestamp())")
    fence = await take(a, "one", ttl=0.4)
    transaction = db.transaction()
    await transaction.start()
    assert await db.fetchval(OK, fence)
    waiting = asyncio.create_task(b.lock("reindex", wait="20s").acquire())
    await asyncio.sleep(1)
    assert not waiting.done()
    with pytest.raises(LockTimeout):
        await a.lock("reindex", wait=0).acquire()
    await a.store.lock_prune()
    await db.execute("INSERT INTO page (fence) VALUES ($1)", fence)
    await transaction.commit()
    lock = await asyncio.wait_for(waiting, 5)
    assert lock.fence > (fence or 0)
    assert await db.fetchval("SELECT written_at FROM page") < (await a.locks())[0].acquired_at
    assert not await db.fetchval(OK, fence)
    await lock.release()


@pytest.mark.both_pg
async def test_renewals_do_not_wait_for_the_transaction(a: Fleet, db: Connection) -> None:
    """A holder's own long transaction does not cost its lock, nor the others of its process."""
    async with a.lock("reindex", ttl="1500ms") as lock, a.lock("other", ttl="1500ms") as second, db.transaction():
        assert await db.fetchval(OK, lock.fence)
        await asyncio.sleep(1.8)
        assert await db.fetchval(OK, lock.fence)
        assert await lock.renew()
        assert not lock.lost.is_set() and not second.lost.is_set()


async def test_renewed_and_asked_in_turn(a: Fleet, db: Connection) -> None:
    """Each renewal is a new version of the row; the share lock goes with it."""
    async with a.lock("reindex") as lock, db.transaction():
        for _ in range(5):
            assert await db.fetchval(OK, lock.fence)
            assert await lock.renew()
        await lock.release()
        with pytest.raises(LockTimeout):
            await a.lock("reindex", wait=0).acquire()


async def test_whoever_gives_the_row_another_fence_waits(a: Fleet, db: Connection, other: Connection) -> None:
    """Whatever statement it is: the fence is a key, which a share lock on the row's key protects."""
    fence = await take(a, "one")
    await other.execute("SET lock_timeout = '200ms'")
    async with db.transaction():
        assert await db.fetchval(OK, fence)
        await other.execute("UPDATE fleetcron.lock SET expires_at = expires_at + interval '1 second'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute("UPDATE fleetcron.lock SET fence = fence + 1, owner = 'two'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await other.execute("DELETE FROM fleetcron.lock")
        assert await db.fetchval(OK, fence)


@pytest.mark.both_pg
async def test_giving_back_does_not_wait_for_the_transaction(a: Fleet, b: Fleet, db: Connection) -> None:
    """It ends the lock, but the next one still waits for the transaction."""
    lock = await a.lock("reindex").acquire()
    async with db.transaction():
        assert await db.fetchval(OK, lock.fence)
        await asyncio.wait_for(lock.release(), 2)
        assert await a.locks() == []
        waiting = asyncio.create_task(b.lock("reindex", wait="20s").acquire())
        await asyncio.sleep(0.6)
        assert not waiting.done()
        assert not await db.fetchval(OK, lock.fence)
    await (await asyncio.wait_for(waiting, 5)).release()


async def takeover(connection: Connection, a: Fleet) -> None:
    """The statement of a takeover, an hour from now, in a transaction that is still open."""
    later = await a.store.now() + timedelta(hours=1)
    statement = a.store.db.statements["lock_take"]  # type: ignore[attr-defined]
    row = await connection.fetchrow(statement, later, "reindex", "two", "host", 2, timedelta(hours=2))
    assert row is not None and row[0] is not None


@pytest.mark.both_pg
async def test_during_a_takeover_it_waits_and_says_no(a: Fleet, db: Connection, other: Connection) -> None:
    fence = await take(a, "one")
    transaction = other.transaction()
    await transaction.start()
    await takeover(other, a)
    asking = asyncio.create_task(db.fetchval(OK, fence))
    await asyncio.sleep(0.2)
    assert not asking.done()
    await transaction.commit()
    assert await asyncio.wait_for(asking, 5) is False


async def test_after_a_takeover_that_was_rolled_back_it_says_yes(a: Fleet, db: Connection, other: Connection) -> None:
    fence = await take(a, "one")
    transaction = other.transaction()
    await transaction.start()
    await takeover(other, a)
    asking = asyncio.create_task(db.fetchval(OK, fence))
    await asyncio.sleep(0.2)
    await transaction.rollback()
    assert await asyncio.wait_for(asking, 5) is True


@pytest.mark.both_pg
@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_an_old_snapshot_never_says_yes(a: Fleet, b: Fleet, db: Connection, isolation: str) -> None:
    """The lock changed hands after the transaction's snapshot: no, or a serialization failure."""
    fence = await take(a, "one")
    async with db.transaction(isolation=isolation):
        assert await db.fetchval("SELECT count(*) FROM fleetcron.lock") == 1
        await a.store.lock_release("reindex", "one")
        async with b.lock("reindex", wait=0):
            try:
                assert await db.fetchval(OK, fence) is False
            except asyncpg.SerializationError:
                return
            finally:
                assert [held.fence != fence for held in await b.locks()] == [True]


@pytest.mark.both_pg
async def test_an_old_snapshot_of_a_row_that_was_taken_over_in_place(a: Fleet, db: Connection) -> None:
    fence = await take(a, "one", ttl=0.3)
    async with db.transaction(isolation="repeatable_read"):
        assert await db.fetchval("SELECT count(*) FROM fleetcron.lock") == 1
        await asyncio.sleep(0.35)
        assert await take(a, "two") is not None
        try:
            assert await db.fetchval(OK, fence) is False
        except asyncpg.SerializationError:
            return


async def test_another_schema(open_pg_fleet: OpenFleet, db: Connection) -> None:
    theirs = await open_pg_fleet(schema="theirs")
    async with theirs.lock("reindex") as lock:
        assert await db.fetchval("SELECT theirs.fence_ok('reindex', $1)", lock.fence)
        assert not await db.fetchval(OK, lock.fence)
