"""Locks for synchronous code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from fleetcron import Fleet, FleetcronError, LockTimeout
from fleetcron.blocking import BlockingFleet


@pytest.fixture
def a(store_url: str) -> Iterator[BlockingFleet]:
    with Fleet(store_url).blocking as fleet:
        yield fleet


@pytest.fixture
def b(store_url: str, a: BlockingFleet) -> Iterator[BlockingFleet]:
    with Fleet(store_url).blocking as fleet:
        yield fleet


def test_held_and_renewed_while_the_caller_works(a: BlockingFleet, b: BlockingFleet) -> None:
    with a.lock("reindex", ttl="1500ms") as lock:
        assert isinstance(lock.lost, threading.Event)
        assert (lock.name, lock.ttl) == ("reindex", timedelta(seconds=1.5))
        time.sleep(1.8)
        assert not lock.lost.is_set()
        assert lock.renew()
        assert [held.fence for held in b.locks()] == [lock.fence]
        with pytest.raises(LockTimeout):
            b.lock("reindex", wait=0).acquire()
        assert repr(lock) == f"<Lock 'reindex' fence {lock.fence}>"
    assert b.locks() == []
    with b.lock("reindex", wait=0) as mine:
        assert mine.fence > lock.fence


def test_threads_exclude_each_other_in_turn(a: BlockingFleet) -> None:
    fences: list[int] = []
    inside = threading.Lock()

    def work() -> None:
        for _ in range(3):
            with a.lock("reindex") as lock:
                assert inside.acquire(blocking=False)
                fences.append(lock.fence)
                inside.release()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(fences) == 15
    assert fences == sorted(set(fences))


def test_lost(a: BlockingFleet, b: BlockingFleet) -> None:
    lock = a.lock("reindex", ttl="1500ms").acquire()
    assert not lock.lost.wait(0.01)
    a._call(a.store.lock_release("reindex", lock._lock.hold.owner))
    with b.lock("reindex", wait=0):
        assert lock.lost.wait(5)
        assert not lock.renew()
        lock.release()
        assert len(b.locks()) == 1


def test_misuse(a: BlockingFleet) -> None:
    lock = a.lock("reindex")
    with pytest.raises(FleetcronError, match="never acquired"):
        lock.fence  # noqa: B018
    lock.release()
    assert not lock.lost.is_set()
    with lock, pytest.raises(FleetcronError, match="held, or waited for"):
        lock.acquire()
    assert a.locks() == []


def test_ctrl_c_while_waiting_leaves_nothing(
    a: BlockingFleet, b: BlockingFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is interrupted; what its background thread was waiting for must not be taken, and renewed for ever, later."""
    lock = a.lock("reindex")
    interrupted = KeyboardInterrupt()

    def result(self: object, timeout: float | None = None) -> None:
        monkeypatch.undo()
        end = time.monotonic() + 5
        while b.locks()[0].waiters == 0:
            assert time.monotonic() < end
            time.sleep(0.01)
        raise interrupted

    with b.lock("reindex"):
        b.locks()
        monkeypatch.setattr("concurrent.futures.Future.result", result)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    time.sleep(0.2)
    assert b.locks() == []
