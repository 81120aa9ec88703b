"""The scheduler role of a node: it campaigns for its shards and runs the services of those that it leads.

It lives on an event loop and connections of its own (node.py gives it a thread): nothing that user code does delays a renewal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from fleetcron.clock import monotonic, sleep
from fleetcron.election import Elector
from fleetcron.errors import FleetcronError, StoreUnavailable
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.leadership import Leadership
from fleetcron.scheduler.promoter import promote
from fleetcron.scheduler.pruner import prune
from fleetcron.scheduler.rescuer import Rescuer
from fleetcron.scheduler.ticker import Ticker
from fleetcron.store.protocol import Store, WorkerInfo

log = logging.getLogger("fleetcron.scheduler")


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler behaves."""

    lease: timedelta = timedelta(seconds=15)
    election_ttl: timedelta = timedelta(seconds=5)
    retention: timedelta = timedelta(days=30)
    shards: int = 1


class _Service:
    """A service of a leader, run every so many seconds; `spare`: how often nodes that do not lead run it too, as it is safe for anyone."""

    def __init__(self, name: str, every: float, step: Callable[[], Awaitable[object]], spare: float | None = None) -> None:
        self.name, self.every, self.step, self.spare = name, every, step, spare
        self.next = 0.0


class Scheduler:
    """All shards of one node."""

    def __init__(self, store: Store, elector: Elector, info: WorkerInfo, options: SchedulerOptions) -> None:
        self._store, self._elector, self._options = store, elector, options
        self.contact = Contact(store)
        ttl = options.election_ttl.total_seconds()
        self.shards = [Leadership(store, elector, info, shard, ttl, self.contact) for shard in range(options.shards)]
        self.tickers = [Ticker(store, leadership, options.lease) for leadership in self.shards]
        self.rescuer = Rescuer(store, self.contact, options.lease)
        self._pause = ttl / 5
        self._woken = asyncio.Event()
        self._stopping = False
        self.scanned = float("-inf")  # monotonic time of the last full round of a leader's ticker

    def wake(self, channel: str = "") -> None:
        """A schedule may have changed."""
        self._woken.set()

    def stop(self) -> None:
        """Resign and return from `run`."""
        self._stopping = True
        self._woken.set()

    def leading(self) -> bool:
        return any(leadership.term() is not None for leadership in self.shards)

    async def run(self) -> None:
        """Until stopped. Survives the database and the elector being away."""
        await self._elector.start()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._campaign(leadership)) for leadership in self.shards]
                tasks += [group.create_task(self._tick(n)) for n in range(len(self.shards))]
                tasks += [group.create_task(self._watch()), group.create_task(self._housekeeping())]
        finally:
            for leadership in self.shards:
                await leadership.resign()
            await self._elector.stop()

    async def _campaign(self, leadership: Leadership) -> None:
        while not self._stopping:
            if await leadership.step():
                self.wake()
            await self._until(monotonic() + self._pause, woken=False)

    async def _watch(self) -> None:
        """Every node looks at the database once a second, leading or not (see contact.py)."""
        while not self._stopping:
            await self._guarded("watching the database", self.contact.look)
            await self._until(monotonic() + 1.0, woken=False)

    async def _tick(self, n: int) -> None:
        """Write ticks ahead: when woken, and every second, which also finds what nobody told of."""
        ticker, leadership = self.tickers[n], self.shards[n]
        mended = float("-inf")
        while not self._stopping:
            self._woken.clear()
            if leadership.term() is not None:
                if monotonic() - mended >= 30:
                    await self._guarded("mending schedules", ticker.mend)
                    mended = monotonic()
                if await self._guarded("writing ticks", ticker.step):
                    self.scanned = monotonic()
            else:
                mended = float("-inf")
            await self._until(monotonic() + 1.0)

    async def _housekeeping(self) -> None:
        """What one node does for all: that which leads shard 0."""
        services = [
            _Service("rescuing", 0.25, self.rescuer.step, spare=1.0),  # a leader and a worker may die together
            _Service("opening gates", 1.0, self._unpark),
            _Service("judging late ticks", 1.0, self.tickers[0].judge_late),
            _Service("promoting", 5.0, lambda: promote(self._store)),
            _Service("pruning", 60.0, lambda: prune(self._store, self._options.retention)),
        ]
        while not self._stopping:
            for service in services:
                every = service.every if self.shards[0].term() is not None else service.spare
                if every is not None and monotonic() >= service.next and not self._stopping:
                    service.next = monotonic() + every
                    await self._guarded(service.name, service.step)
            await self._until(monotonic() + 0.25, woken=False)

    async def _unpark(self) -> None:
        if queues := await self._store.unpark():
            await self._store.notify(queues)

    async def _guarded(self, what: str, step: Callable[[], Awaitable[object]]) -> bool:
        """Run a service's step; a failure is logged and tried again at its next turn. Doubt about the database ends the contact."""
        try:
            await step()
        except StoreUnavailable as error:
            self.contact.lost()
            log.warning("%s waits for the database: %s", what, error)
            return False
        except FleetcronError:
            log.exception("%s failed", what)
            return False
        return True

    async def _until(self, moment: float, *, woken: bool = True) -> None:
        """Wait until then, in short steps when only a stop may cut it short."""
        while (left := moment - monotonic()) > 0 and not self._stopping:
            if not woken:
                await sleep(min(left, 0.25))
                continue
            try:
                async with asyncio.timeout(left):
                    await self._woken.wait()
            except TimeoutError:
                pass
            return
