"""Keeping the locks of a process: what their holders may believe, and the renewals.

One thread for a fleet, with an event loop and a connection of its own: code that blocks the holder's event loop does not cost its locks. (C
code that holds the GIL does, like a frozen process; both find out by the clock, and the fence stops what they write.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar

from fleetcron.clock import MAX_WAIT, monotonic
from fleetcron.errors import FleetcronError
from fleetcron.store.protocol import Store

log = logging.getLogger("fleetcron.lock")

T = TypeVar("T")

RETRY = 0.5
"""Seconds, at most, until a renewal that failed is tried again."""
STOP_WITHIN = 10.0
"""Seconds in which the thread ends; closing a dead connection takes 5."""


class StoreSource(Protocol):
    """Where stores come from: a Fleet."""

    @property
    def store(self) -> Store: ...
    def make_store(self, *, pool_size: int = ..., application: str = ...) -> Store: ...


class Hold:
    """One acquisition of a lock.

    It is ours for sure until the send time of the last renewal that was answered (at first: of the acquisition), plus the ttl, minus a margin.
    From then on it is lost, and stays so: whoever asks is told, also in the first instruction after a thaw, before any thread has noticed.
    """

    def __init__(self, name: str, owner: str, fence: int, ttl: timedelta, sent_at: float) -> None:
        self.name, self.owner, self.fence, self.ttl = name, owner, fence, ttl
        self.span = ttl.total_seconds()
        self.interval = self.span / 3
        self._margin = min(1.0, self.span * 0.1)
        self.deadline, self.due = sent_at + self.span - self._margin, sent_at + self.interval
        self._lost = self._over = False
        self._watchers: list[Callable[[], None]] = []
        self._state = threading.RLock()

    @property
    def lost(self) -> bool:
        """Must its holder stop?"""
        with self._state:
            if not self._lost and not self._over and monotonic() >= self.deadline:
                self.lose()
            return self._lost

    def renewed(self, sent_at: float) -> None:
        """A renewal sent at `sent_at` (monotonic) was answered with yes."""
        with self._state:
            if not self.lost and not self._over:
                self.deadline = max(self.deadline, sent_at + self.span - self._margin)
                self.due = max(self.due, sent_at + self.interval)

    def lose(self) -> None:
        """It is somebody else's, or may be."""
        with self._state:
            if self._lost or self._over:
                return
            self._lost = True
            watchers, self._watchers = self._watchers, []
        for tell in watchers:
            tell()

    def end(self) -> None:
        """It was given back: from now on nothing can be lost."""
        with self._state:
            self._over = True

    def watch(self, tell: Callable[[], None]) -> None:
        """Call `tell`, from any thread, when it is lost; at once if it is."""
        with self._state:
            if not self.lost:
                self._watchers.append(tell)
                return
        tell()


class LostEvent(asyncio.Event):
    """Set when a lock is lost. `is_set` is true from the deadline on, whatever the event loop is busy with."""

    def __init__(self, hold: Hold | None = None) -> None:
        super().__init__()
        self._hold = hold
        if hold is not None:
            loop = asyncio.get_running_loop()
            hold.watch(lambda: self._tell(loop))

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits there
            loop.call_soon_threadsafe(self.set)

    def is_set(self) -> bool:
        return super().is_set() or (self._hold is not None and self._hold.lost)

    async def wait(self) -> Literal[True]:
        return True if self.is_set() else await super().wait()


class ThreadLostEvent(threading.Event):
    """The same for threads."""

    def __init__(self, hold: Hold | None = None) -> None:
        super().__init__()
        self._hold = hold
        if hold is not None:
            hold.watch(self.set)

    def is_set(self) -> bool:
        return super().is_set() or (self._hold is not None and self._hold.lost)

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set() or super().wait(timeout) or self.is_set()


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Its result, or TimeoutError; then it is left to itself. To cancel a statement takes a connection, and on a dead link minutes: closing
    the store ends it."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())  # looked at, as nobody else may
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        raise TimeoutError
    return task.result()


class Keeper:
    """Renews all locks of a fleet a third of their ttl after the last time: one statement for all that are due about now. Locks that could not
    be renewed are declared lost when their time is up, whether the database answers or not."""

    def __init__(self, source: StoreSource) -> None:
        self._source = source
        self._holds: dict[str, Hold] = {}
        self._sending: set[str] = set()  # owners
        self._state = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge: asyncio.Event | None = None
        self._stopping = False
        self._shared: Store | None = None
        self._own: asyncio.Task[Store] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, hold: Hold) -> None:
        """Renew it from now on. The thread starts with the first one."""
        with self._state:
            self._holds[hold.owner] = hold
            if self._thread is None:
                # SQLite's store serves any number of event loops, and of a database in memory there is only one.
                self._shared = self._source.store if self._source.store.kind == "sqlite" else None
                self._stopping = False
                self._thread = threading.Thread(target=self._run, name="fleetcron-locks", daemon=True)
                self._thread.start()
        self._wake()

    def drop(self, hold: Hold) -> None:
        """Renew it no more."""
        with self._state:
            self._holds.pop(hold.owner, None)

    @property
    def started(self) -> bool:
        """Is there a thread?"""
        return self._thread is not None

    def stop(self) -> list[Hold]:
        """End the thread; returns what is still held, which nobody renews any more. Blocks, bounded."""
        self._stopping = True
        self._wake()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(STOP_WITHIN)
        with self._state:
            left, self._holds = list(self._holds.values()), {}
        return left

    def _wake(self) -> None:
        loop, nudge = self._loop, self._nudge
        if loop is not None and nudge is not None:
            with suppress(RuntimeError):  # the thread is ending
                loop.call_soon_threadsafe(nudge.set)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception:
            log.exception("the renewal of locks ended by a fault of fleetcron's: all of them are lost")
            raise
        finally:
            if not self._stopping:
                for hold in self._held():
                    hold.lose()

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop, self._nudge = loop, asyncio.Event()
        try:
            if self._shared is None:  # now: when the first renewal is due it might be late, or no connection free
                self._own = asyncio.create_task(self._open())
            async with asyncio.TaskGroup() as group:
                sent: set[asyncio.Task[None]] = set()
                while not self._stopping:
                    self._nudge.clear()
                    self._bury()
                    if due := self._due(monotonic()):
                        task = group.create_task(self._renew(due))
                        sent.add(task)
                        task.add_done_callback(sent.discard)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._pause(monotonic())):
                            await self._nudge.wait()
                for task in sent:
                    task.cancel()
        finally:
            if self._loop is loop:  # else another thread has begun meanwhile
                self._loop = None
            await self._disconnect()

    def _held(self) -> list[Hold]:
        with self._state:
            return list(self._holds.values())

    def _bury(self) -> None:
        for hold in self._held():
            if hold.lost:
                self._lost(hold, f"it could not be renewed for {hold.span:g}s")

    def _lost(self, hold: Hold, why: str) -> None:
        with self._state:
            ours = self._holds.pop(hold.owner, None) is not None
        if ours:  # else it was given back meanwhile
            hold.lose()
            log.warning("lock %r (fence %d) is lost: %s", hold.name, hold.fence, why)

    def _due(self, now: float) -> list[Hold]:
        idle = [hold for hold in self._held() if hold.owner not in self._sending]
        if not any(hold.due <= now for hold in idle):
            return []
        return [hold for hold in idle if hold.due - now <= hold.interval / 4]

    def _pause(self, now: float) -> float:
        """Seconds until something is to be done; less if nudged."""
        moments = [hold.deadline for hold in self._held()]
        moments += [hold.due for hold in self._held() if hold.owner not in self._sending]
        return max(0.0, min(min(moments, default=now + MAX_WAIT) - now, MAX_WAIT))

    async def _renew(self, due: list[Hold]) -> None:
        """One try for these. A link that does not answer within an interval is given up, and the next try uses another."""
        owners, pause = {hold.owner for hold in due}, RETRY
        self._sending |= owners
        sent_at = monotonic()
        try:
            kept = await within(min(hold.interval for hold in due), self._send(due))
        except TimeoutError:
            log.warning("renewing %d locks: no answer from the database", len(due))
            self._forsake()
            pause = 0.0
        except FleetcronError as error:
            log.warning("renewing %d locks: %s", len(due), error)
        else:
            for hold in due:
                if hold.owner in kept:
                    hold.renewed(sent_at)
                else:
                    self._lost(hold, "it had expired when the database was asked to renew it")
            due = []
        finally:
            self._sending -= owners
        for hold in due:
            hold.due = monotonic() + min(hold.interval / 2, pause)
        self._wake()

    async def _send(self, due: Iterable[Hold]) -> set[str]:
        store = self._shared or await self._opened()
        return await store.lock_renew([(hold.name, hold.owner, hold.ttl) for hold in due])

    async def _opened(self) -> Store:
        """A store of this thread's own. Opening has its own time limit, and goes on when a try that waits for it has none left."""
        if self._own is None or (self._own.done() and (self._own.cancelled() or self._own.exception() is not None)):
            self._own = asyncio.create_task(self._open())
        return await asyncio.shield(self._own)

    async def _open(self) -> Store:
        store = self._source.make_store(pool_size=2, application="fleetcron-locks")
        await store.open()
        return store

    async def _disconnect(self) -> None:
        if self._own is not None and not self._own.done():
            self._own.cancel()
            await asyncio.wait({self._own}, timeout=1)
        self._forsake()
        self._own = None
        if self._closing:
            await asyncio.wait(self._closing)

    def _forsake(self) -> None:
        """Use another store from now on, unless this one is still being opened."""
        if self._own is not None and self._own.done():
            opened, self._own = self._own, None
            if not opened.cancelled() and opened.exception() is None:
                task = asyncio.ensure_future(opened.result().close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
