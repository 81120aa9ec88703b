"""A lock by its public surface, on both stores."""

from __future__ import annotations

import asyncio
import os
import socket
from datetime import timedelta

import pytest

from fleetcron import ConfigError, Fleet, FleetcronError, HeldLock, LockTimeout, StoreError
from fleetcron.embedded_postgres import EmbeddedPostgres
from fleetcron.node import Node, NodeOptions
from tests.locks.conftest import OpenFleet
from tests.locks.kit import delete, rows, until, waiters


async def test_one_holder_at_a_time_and_its_fence_rises(a: Fleet, b: Fleet) -> None:
    fences: list[int] = []
    inside = 0

    async def work(fleet: Fleet) -> None:
        nonlocal inside
        for _ in range(5):
            async with fleet.lock("reindex") as lock:
                inside += 1
                assert inside == 1
                fences.append(lock.fence)
                await asyncio.sleep(0)
                inside -= 1
                assert not lock.lost.is_set()

    await asyncio.gather(*(work(fleet) for fleet in (a, b, a, b)))
    assert len(fences) == 20
    assert fences == sorted(set(fences))


async def test_C37_a_late_holder_does_not_free_somebody_else_s_lock(a: Fleet, b: Fleet) -> None:
    """A's time runs out without a renewal (its keeper is stopped), B takes over, A releases: B still has it."""
    late = await a.lock("reindex", ttl="300ms").acquire()
    a._locks._keeper.stop()
    mine = await b.lock("reindex", ttl="10s", wait="5s").acquire()
    assert mine.fence > late.fence
    assert late.lost.is_set()
    await late.release()
    assert [(held.name, held.fence) for held in await a.locks()] == [("reindex", mine.fence)]
    with pytest.raises(LockTimeout):
        await a.lock("reindex", wait=0).acquire()
    assert not mine.lost.is_set()
    await mine.release()
    async with a.lock("reindex", wait=0) as again:
        assert again.fence > mine.fence


async def test_C38_fences_rise_through_release_pruning_and_a_new_start(a: Fleet, open_fleet: OpenFleet) -> None:
    fences = []
    for _ in range(3):
        async with a.lock("reindex") as lock:
            fences.append(lock.fence)
        assert await rows(a) == 0, "a released lock leaves nothing behind"
    await a.store.lock_take("reindex", "somebody who dies", "host", 1, timedelta(milliseconds=1))
    await asyncio.sleep(0.005)
    await a.store.lock_prune()
    assert await rows(a) == 0
    await a.store.prune_rest(timedelta(0))
    await a.close()
    reopened = await open_fleet()
    async with reopened.lock("reindex") as lock, reopened.lock("something else") as other:
        fences += [lock.fence, other.fence]
    assert fences == sorted(set(fences))


async def test_C38_taking_it_again_under_the_same_owner_is_not_re_entry(a: Fleet) -> None:
    """An owner is random for each acquisition, so there is no re-entry that might raise a fence: the second object waits, the first keeps its
    number through any number of renewals."""
    async with a.lock("reindex") as lock:
        fence = lock.fence
        for _ in range(5):
            assert await lock.renew()
        with pytest.raises(LockTimeout):
            await a.lock("reindex", wait=0).acquire()
        assert lock.fence == fence == (await a.locks())[0].fence


async def test_C38_fences_rise_though_somebody_deletes_the_rows(a: Fleet, b: Fleet) -> None:
    """By hand, in the database, while the lock is held: the next fence is higher all the same, and the holder is told."""
    first = await a.lock("reindex", ttl="600ms").acquire()
    await delete(a, "lock")
    second = await b.lock("reindex", ttl="10s", wait="5s").acquire()
    assert second.fence > first.fence
    await asyncio.wait_for(first.lost.wait(), 5)
    assert not await first.renew()
    await first.release()
    assert [held.fence for held in await a.locks()] == [second.fence]
    await second.release()


@pytest.mark.crash
async def test_C38_fences_rise_through_a_crash_of_the_database(crashable_postgres: EmbeddedPostgres) -> None:
    """kill -9 of the server between, and in the middle of, acquisitions."""
    fences = []
    async with Fleet(crashable_postgres.url()) as fleet:
        for _ in range(3):
            for _ in range(3):
                async with fleet.lock("reindex", ttl="1s") as lock:
                    fences.append(lock.fence)
            held = await fleet.lock("held", ttl="1s").acquire()
            fences.append(held.fence)
            await asyncio.to_thread(crashable_postgres.kill)
            await asyncio.to_thread(crashable_postgres.start)
            await held.release()
            async with fleet.lock("held", ttl="1s", wait="20s") as lock:
                fences.append(lock.fence)
    assert len(fences) == 15
    assert fences == sorted(set(fences))


async def test_rows_of_dead_holders_and_waiters_go_by_the_leader_s_housekeeping(
    a: Fleet, open_fleet: OpenFleet
) -> None:
    await a.store.lock_take("reindex", "somebody who dies", "host", 1, timedelta(milliseconds=1))
    await a.store.lock_wait("reindex", "another", timedelta(seconds=-31))
    node = Node(await open_fleet(), NodeOptions(roles=("scheduler",)))
    running = asyncio.create_task(node.run())

    async def gone() -> bool:
        return await rows(a, "lock") + await rows(a, "lock_waiter") == 0

    try:
        await until(gone, 20)
    finally:
        node.stop()
        await running


async def test_zero_tries_once_and_a_duration_waits_that_long(a: Fleet, b: Fleet) -> None:
    loop = asyncio.get_running_loop()
    async with a.lock("reindex"):
        began = loop.time()
        with pytest.raises(LockTimeout, match="'reindex' is not free"):
            await b.lock("reindex", wait=0).acquire()
        assert loop.time() - began < 1
        began = loop.time()
        with pytest.raises(TimeoutError, match=r"'reindex' was not free within 0\.3s|300ms"):
            await b.lock("reindex", wait="300ms").acquire()
        assert 0.3 <= loop.time() - began < 2
    assert await rows(b, "lock_waiter") == 0
    async with b.lock("reindex", wait=0):
        pass


async def test_a_lock_object_is_not_taken_twice(a: Fleet) -> None:
    async with a.lock("reindex") as lock:
        fence = lock.fence
        with pytest.raises(FleetcronError, match="held, or waited for, by this object"):
            await lock.acquire()
        with pytest.raises(LockTimeout):
            await a.lock("reindex", wait=0).acquire()
        assert lock.fence == fence
        assert [held.fence for held in await a.locks()] == [fence]
    await lock.release()
    async with lock as again:
        assert again is lock
        assert lock.fence > fence


async def test_before_it_is_taken(a: Fleet) -> None:
    lock = a.lock("reindex", ttl="5s")
    assert (lock.name, lock.ttl) == ("reindex", timedelta(seconds=5))
    assert repr(lock) == "<Lock 'reindex' not held>"
    assert not lock.lost.is_set()
    assert not await lock.renew()
    await lock.release()
    with pytest.raises(FleetcronError, match="never acquired"):
        lock.fence  # noqa: B018


async def test_listed(a: Fleet, b: Fleet) -> None:
    assert await b.locks() == []
    async with a.lock("z", ttl="20s") as lock, a.lock("reindex"):
        waiting = asyncio.create_task(b.lock("z").acquire())
        first, last = await b.locks()
        assert (first.name, first.waiters) == ("reindex", 0)

        async def stands_in_line() -> bool:
            return (await b.locks())[1].waiters == 1

        await until(stands_in_line)
        assert last == HeldLock(
            name="z", fence=lock.fence, owner=f"{socket.gethostname()}:{os.getpid()}", acquired_at=last.acquired_at,
            expires_at=last.acquired_at + timedelta(seconds=20), waiters=last.waiters,
        )  # fmt: skip
        assert abs(last.acquired_at - await a.store.now()) < timedelta(seconds=5)
    await (await waiting).release()


async def test_renew_asks_the_database(a: Fleet, b: Fleet) -> None:
    async with a.lock("reindex", ttl="10s") as lock:
        before = (await a.locks())[0].expires_at
        await asyncio.sleep(0.01)
        assert await lock.renew()
        assert (await a.locks())[0].expires_at > before
        await a.store.lock_release("reindex", lock._hold.owner)  # type: ignore[union-attr]
        async with b.lock("reindex", wait=0) as mine:
            assert not await lock.renew()
            assert lock.lost.is_set()
            await asyncio.wait_for(lock.lost.wait(), 1)
            assert repr(lock) == f"<Lock 'reindex' lost, fence {lock.fence}>"
            await lock.release()
            assert [held.fence for held in await a.locks()] == [mine.fence]


async def test_what_a_release_finds_out(a: Fleet, b: Fleet) -> None:
    """Somebody else has it by then: nothing happens, and `lost` says that the work was not covered to its end."""
    lock = await a.lock("reindex").acquire()
    await a.store.lock_release("reindex", lock._hold.owner)  # type: ignore[union-attr]
    async with b.lock("reindex", wait=0):
        assert not lock.lost.is_set()
        await lock.release()
        assert lock.lost.is_set()
        assert len(await a.locks()) == 1
    fine = await a.lock("reindex", ttl="200ms").acquire()
    await fine.release()
    await asyncio.sleep(0.3)
    assert not fine.lost.is_set(), "what was given back in time is not lost later"


async def test_whoever_stops_waiting_leaves_nothing_behind(a: Fleet, b: Fleet) -> None:
    async with a.lock("reindex"):
        waiting = asyncio.create_task(b.lock("reindex").acquire())
        await waiters(a, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await waiters(a, 0)
    for moment in range(12):  # at any point of an acquisition
        taking = asyncio.create_task(b.lock("reindex").acquire())
        for _ in range(moment):
            await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait({taking})
        if not taking.cancelled():
            await taking.result().release()
    async with a.lock("reindex", wait="5s"):
        pass


async def test_an_error_inside_gives_it_back(a: Fleet, b: Fleet) -> None:
    with pytest.raises(ZeroDivisionError):
        async with a.lock("reindex"):
            raise ZeroDivisionError
    async with b.lock("reindex", wait=0):
        pass


async def test_closing_a_fleet_gives_back_what_it_holds_and_says_so(a: Fleet, b: Fleet) -> None:
    lock = await a.lock("reindex").acquire()
    await a.close()
    assert lock.lost.is_set()
    async with b.lock("reindex", wait=0):
        await lock.release()
        assert len(await b.locks()) == 1
    with pytest.raises(StoreError, match="not open"):
        await a.lock("reindex").acquire()
    await a.open()
    async with a.lock("reindex", ttl="1500ms", wait=0) as again:
        await asyncio.sleep(2)
        assert not again.lost.is_set(), "the keeper of a fleet that was opened again works"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("", {}, "lock ''"),
        ("two\nlines", {}, "control characters"),
        ("x" * 201, {}, "1 to 200 characters"),
        ("x", {"ttl": 0}, "ttl: must be longer than zero"),
        ("x", {"ttl": "50ms"}, "expected 100ms to 365d"),
        ("x", {"ttl": "366d"}, "expected 100ms to 365d"),
        ("x", {"ttl": "soon"}, "ttl: 'soon' is not a duration"),
        ("x", {"wait": -1}, "wait: -1 is negative"),
    ],
)
def test_wrong_options_are_refused_at_once(name: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Fleet("sqlite:///:memory:").lock(name, **options)


async def test_a_database_in_memory_has_locks_too() -> None:
    async with Fleet("sqlite:///:memory:") as fleet, fleet.lock("reindex", ttl="1500ms") as lock:
        await asyncio.sleep(2)
        assert await lock.renew()
