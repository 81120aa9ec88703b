"""Heartbeats, in a thread of their own with an event loop and a connection of their own: a handler that blocks the worker's loop does
not cost its lease. (One that holds the GIL in C code does; then the newer attempt's outcome is the one that is kept.)
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from fleetcron.clock import monotonic, sleep
from fleetcron.errors import FleetcronError, StoreUnavailable
from fleetcron.store.protocol import Store, WorkerInfo
from fleetcron.worker.lease import Lease

log = logging.getLogger("fleetcron.worker")

PRESENCE_CHECK = 0.2
"""Seconds between looks at the presence connection: a lost one is taken again well within PRESENCE_TRUST."""
PRESENCE_TRUST = 0.5
"""Seconds that a session may be trusted after its presence lock was seen lost; the rescuer waits longer."""


class _Birth:
    """How the registration of one session went."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.session: Lease | None = None
        self.error: FleetcronError | None = None


class Heartbeat:
    """Keeps a session alive from `start` to `stop`, also while the worker drains. Callbacks run in the heartbeat's thread."""

    def __init__(
        self,
        make_store: Callable[[], Store],
        *,
        lease: timedelta,
        interval: timedelta,
        on_cancel: Callable[[list[int]], None],
        on_lost: Callable[[Lease], None],
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._make_store, self._lease, self._interval = make_store, lease, interval.total_seconds()
        self._on_cancel, self._on_lost, self._on_beat = on_cancel, on_lost, on_beat
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._nudge: asyncio.Event | None = None

    def start(self, info: WorkerInfo) -> Lease:
        """Register a session and begin to beat. Blocks until the session exists. Raises what registering raised."""
        self._stopping.clear()
        birth = _Birth()  # of this session alone: the thread of an earlier one may still be ending
        self._thread = threading.Thread(target=self._run, args=(info, birth), name="fleetcron-heartbeat", daemon=True)
        self._thread.start()
        birth.done.wait()
        if birth.error is not None:
            raise birth.error
        assert birth.session is not None
        return birth.session

    def stop(self) -> None:
        """End the session in order: what it still holds goes back. Blocks; bounded by the store's statement timeout."""
        self._stopping.set()
        self.beat_now()
        if self._thread is not None:
            self._thread.join(timeout=15)

    def beat_now(self) -> None:
        """Beat without waiting for the interval (a cancel is known to wait)."""
        if self._loop is not None and self._nudge is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._nudge.set)

    def _run(self, info: WorkerInfo, birth: _Birth) -> None:
        try:
            asyncio.run(self._main(info, birth))
        except FleetcronError as error:
            if birth.done.is_set():
                log.exception("the heartbeat of a worker ended by a fault")
            birth.error = error
        finally:
            birth.done.set()

    async def _main(self, info: WorkerInfo, birth: _Birth) -> None:
        self._loop, self._nudge = asyncio.get_running_loop(), asyncio.Event()
        store = self._make_store()
        await store.open()
        try:
            sent = monotonic()
            worker = await store.start_worker(info, self._lease)
            session = birth.session = Lease(worker, sent, self._lease)
            await self._hold_presence(store, session)
            birth.done.set()
            while not self._stopping.is_set() and not session.lost.is_set():
                await self._wait(store, session)
                if not self._stopping.is_set():
                    await self._beat(store, session)
            if not session.lost.is_set():
                try:
                    await store.stop_worker(worker)
                except StoreUnavailable as error:
                    log.warning("worker %d could not say goodbye, its lease will run out: %s", worker, error)
        finally:
            await store.close()

    async def _beat(self, store: Store, session: Lease) -> None:
        sent = monotonic()
        try:
            beat = await store.beat(session.worker, self._lease)
        except StoreUnavailable as error:
            log.warning("heartbeat of worker %d failed: %s", session.worker, error)
            return
        if not beat.alive:
            log.error("worker %d has lost its leases: its session was taken over", session.worker)
            session.lost.set()
            self._on_lost(session)
            return
        session.renewed(sent)
        self._on_beat()
        if beat.cancels:
            self._on_cancel(beat.cancels)

    async def _wait(self, store: Store, session: Lease) -> None:
        """Until the next beat is due: an interval, less after a failed beat, at once when nudged."""
        assert self._nudge is not None
        until = monotonic() + (self._interval if session.valid() else min(self._interval, 0.5))
        while (left := until - monotonic()) > 0 and not self._nudge.is_set():
            if store.presence_lost():
                session.shorten(monotonic() + PRESENCE_TRUST)
                await self._hold_presence(store, session)
                return
            try:
                await asyncio.wait_for(self._nudge.wait(), min(left, PRESENCE_CHECK))
            except TimeoutError:
                continue
        self._nudge.clear()

    async def _hold_presence(self, store: Store, session: Lease) -> None:
        try:
            await store.hold_presence(session.worker)
        except StoreUnavailable as error:
            log.warning("worker %d cannot hold its presence lock: %s", session.worker, error)
            await sleep(PRESENCE_CHECK)
