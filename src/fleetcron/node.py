"""One process of the fleet: it composes the roles, keeps scheduler and worker out of each other's way, and ends in order.

* The **scheduler** runs in a thread with an event loop and connections of its own: user code that blocks the main loop delays no renewal.
* A **worker** runs on the main loop of its process. With `processes` = 1 that is this process; with more, this process only watches over
  children, each a worker of its own, restarts those that die, and takes them along when it ends, however it ends.
* The first SIGTERM or SIGINT drains: no more claims, unstarted work handed back, running work let end. The second ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

import msgspec

import fleetcron
from fleetcron.clock import monotonic, sleep
from fleetcron.election import make_elector
from fleetcron.errors import StoreError
from fleetcron.fleet import Fleet
from fleetcron.scheduler.scheduler import CONNECTIONS, Scheduler, SchedulerOptions, SchedulerStatus
from fleetcron.store.protocol import WorkerInfo
from fleetcron.store.wakeups import BACKFILLS, SCHEDULES
from fleetcron.triggers import tzdata_version
from fleetcron.worker.worker import Worker, WorkerOptions

log = logging.getLogger("fleetcron.node")

ROLES = ("scheduler", "worker")
_NODE_BEAT = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds before a scheduler that died of a fault is begun anew: doubled from death to death."""
SETTLED = 30.0
"""One that lived this many seconds was well: the next one is not made to wait for the deaths before."""


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a node runs."""

    roles: tuple[str, ...] = ROLES
    slots: int = 100
    queues: tuple[str, ...] | None = None
    drain: timedelta = timedelta(seconds=30)
    listed: bool = True  # False: one worker process of a node whose parent process keeps the node's row


def node_info(options: NodeOptions, node: str | None = None) -> WorkerInfo:
    """Who this process is: a random id per start, never the host name (two nodes of one host must not renew each other's rows)."""
    return WorkerInfo(
        node=node or uuid.uuid4().hex,
        host=socket.gethostname(),
        pid=os.getpid(),
        roles=options.roles,
        queues=options.queues,
        slots=options.slots if "worker" in options.roles else 0,
        version=fleetcron.__version__,
        tzdata=tzdata_version(),
    )


class Node:
    """The roles of one process, on the loop that calls `run`."""

    def __init__(self, fleet: Fleet, options: NodeOptions, info: WorkerInfo | None = None) -> None:
        self._fleet, self._options = fleet, options
        self.info = info or node_info(options)
        self.scheduler: SchedulerThread | None = None
        self.worker: Worker | None = None
        self._stopping = asyncio.Event()

    async def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Until `stop`, then drain. Raises StoreUnavailable or SchemaMismatch when the database cannot be used at the start."""
        async with self._fleet as fleet:
            beat = asyncio.create_task(self._keep_node(), name="fleetcron-node") if self._options.listed else None
            try:
                if "scheduler" in self._options.roles:
                    self.scheduler = SchedulerThread(fleet, self.info)
                    self.scheduler.start()
                if "worker" in self._options.roles:
                    self.worker = self._make_worker(fleet)
                    await self.worker.start()
                started()
                if self.worker is not None:
                    working = asyncio.create_task(self.worker.run(), name="fleetcron-worker")
                    stop = asyncio.create_task(self._stopping.wait())
                    await asyncio.wait({working, stop}, return_when=asyncio.FIRST_COMPLETED)
                    stop.cancel()
                    self.worker.stop()
                    await working
                else:
                    await self._stopping.wait()
            finally:
                if self.scheduler is not None:
                    await asyncio.to_thread(self.scheduler.stop)
                if beat is not None:
                    beat.cancel()
                    await self._sign_off()

    async def _sign_off(self) -> None:
        try:
            await self._fleet.store.node_end(self.info.node)
        except StoreError as error:
            log.warning("could not sign off: %s", error)

    def stop(self) -> None:
        """Drain and return from `run`. Call on the node's loop."""
        self._stopping.set()
        if self.worker is not None:
            self.worker.stop()

    def _make_worker(self, fleet: Fleet) -> Worker:
        o = fleet.options
        return Worker(
            fleet.store,
            lambda: fleet.make_store(pool_size=2, application="fleetcron-heartbeat"),
            self.info,
            fleet.entries(),
            WorkerOptions(
                slots=self._options.slots,
                queues=self._options.queues,
                lease=o.lease,
                heartbeat=o.heartbeat,
                drain=self._options.drain,
                max_result=o.max_result,
                max_error=o.max_error,
                ageing=o.priority_ageing,
            ),
        )

    async def _keep_node(self) -> None:
        """Be listed. Nothing hangs on it."""
        while True:
            try:
                await self._fleet.store.node_beat(self.info, timedelta(seconds=3 * _NODE_BEAT))
            except StoreError as error:
                log.warning("the node's row was not renewed: %s", error)
            await sleep(_NODE_BEAT)


class SchedulerThread:
    """The scheduler role, on a thread with its own event loop and store. Raises ConfigError when the elector cannot be used."""

    def __init__(self, fleet: Fleet, info: WorkerInfo) -> None:
        self._fleet, self._info = fleet, info
        self._elector = make_elector(fleet.options.elector, info.node, fleet.options.election_ttl)
        self._thread = threading.Thread(target=self._run, name="fleetcron-scheduler", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.scheduler: Scheduler | None = None
        self._absent = "the database has not answered yet"  # why there is no scheduler
        self._stopped = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def status(self) -> SchedulerStatus:
        """How the scheduler is, from memory, on any thread. A follower whose elector or database is away says so."""
        scheduler = self.scheduler
        if scheduler is not None:
            return scheduler.status()
        return SchedulerStatus(ready=False, why=self._absent, leading={}, elector=self._elector.state())

    def stop(self) -> None:
        """Resign and end. Blocks, bounded."""
        self._stopped.set()
        if self._loop is not None and self.scheduler is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.scheduler.stop)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        """Until stopped. What a scheduler dies of (a fault of ours) does not leave its node without one in silence: it is told, and another one
        begins."""
        self._loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE
        while not self._stopped.is_set():
            began = monotonic()
            try:
                await self._serve()
            except Exception:  # told below, and begun anew: a node must not be without its scheduler in silence
                self.scheduler, self._absent = None, "it has ended by a fault, and starts again"
                pause = FIRST_PAUSE if monotonic() - began > SETTLED else min(pause * 2, LONGEST_PAUSE)
                log.exception("the scheduler has ended by a fault of fleetcron's, and starts again in %g s", pause)
                again_at = monotonic() + pause
                while monotonic() < again_at and not self._stopped.is_set():
                    await sleep(0.1)
                self._elector = make_elector(
                    self._fleet.options.elector, self._info.node, self._fleet.options.election_ttl
                )

    async def _serve(self) -> None:
        """The store is opened until it works: a node whose database is away is a follower that tries again."""
        o = self._fleet.options
        options = SchedulerOptions(lease=o.lease, election_ttl=o.election_ttl, retention=o.retention, shards=o.shards)
        store = self._fleet.make_store(
            pool_size=CONNECTIONS, application="fleetcron-scheduler", custom_plans=True, idle_timeout=o.election_ttl
        )
        pause = 0.2
        while not self._stopped.is_set():
            try:
                await store.open()
                break
            except StoreError as error:
                log.warning("the scheduler waits for the database: %s", error)
                await sleep(pause)
                pause = min(pause * 2, 2.0)
        else:
            return
        try:
            scheduler = self.scheduler = Scheduler(store, self._elector, self._info, options)
            loop = asyncio.get_running_loop()

            def wake(channel: str) -> None:
                if channel in ("", SCHEDULES, BACKFILLS):
                    loop.call_soon_threadsafe(scheduler.wake, channel)

            await store.listen(wake)
            if not self._stopped.is_set():
                await scheduler.run()
        finally:
            await store.close()


def on_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], names: Sequence[str] = ("SIGTERM", "SIGINT")
) -> None:
    """The first signal calls `stop` on the loop; the second ends the process at once, children included. Call in the main thread.

    Not `loop.add_signal_handler`: that waits for the loop's next turn, and the second signal is for when there is none (a handler blocks).
    """
    seen: list[int] = []

    def drain() -> None:
        log.info("%s: draining; a second signal ends at once", signal.Signals(seen[0]).name)
        stop()

    def caught(number: int, _frame: object) -> None:
        seen.append(number)
        if len(seen) > 1:
            end_at_once()
        with suppress(RuntimeError):  # the loop has closed: this process is ending anyway
            loop.call_soon_threadsafe(drain)

    for name in names:
        signal.signal(getattr(signal, name), caught)


def end_at_once() -> NoReturn:
    """Leave without a goodbye, from anywhere: also from a signal handler, which may hold any lock. Child processes see their pipe close and
    end themselves; what ran will be given to another worker."""
    with suppress(OSError):
        os.write(2, b"fleetcron: ending at once; what runs will be given to another worker\n")
    os._exit(130)
