"""The scheduler role of a node: it campaigns for its share of the shards and runs the services of those that it leads.

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
from fleetcron.model import ElectorState
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.feeder import Feeder
from fleetcron.scheduler.leadership import Leadership
from fleetcron.scheduler.promoter import promote
from fleetcron.scheduler.pruner import prune
from fleetcron.scheduler.rescuer import Rescuer
from fleetcron.scheduler.shares import Shares
from fleetcron.scheduler.ticker import Ticker
from fleetcron.store.protocol import Store, WorkerInfo
from fleetcron.store.wakeups import BACKFILLS, SCHEDULES

log = logging.getLogger("fleetcron.scheduler")

CONNECTIONS = 8
"""Connections of a scheduler's store, however many shards it leads: TICKING tickers, a round, the watch, housekeeping, and one to spare."""
TICKING = 4
"""Tickers that talk to the database at a time: the rounds that renew terms must never wait for them."""
SCAN = 1.0
"""Seconds between looks for ticks to write, when nothing wakes a ticker."""
LATE_SCANS = 3
"""Looks that a leader may miss before its node is not ready."""
RESPREAD = 60.0
"""Seconds after which schedules are looked for that an older program, or one with another number in mind, put on another shard."""
BATCH = 5000


class SchedulerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler behaves."""

    lease: timedelta = timedelta(seconds=15)
    election_ttl: timedelta = timedelta(seconds=5)
    retention: timedelta = timedelta(days=30)
    shards: int = 1
    shrink_after: timedelta = timedelta(
        minutes=1
    )  # with no scheduler that wants so many shards: longer than a restart takes


class SchedulerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler is, for whoever asks whether its node is ready. `leading`: terms by shard; `why`: what is wrong, None when `ready`."""

    ready: bool
    why: str | None
    leading: dict[int, int]
    elector: ElectorState


class _Service:
    """A service of a leader, run every so many seconds; `spare`: how often nodes that do not lead run it too, as it is safe for anyone."""

    def __init__(
        self, name: str, every: float, step: Callable[[], Awaitable[object]], spare: float | None = None
    ) -> None:
        self.name, self.every, self.step, self.spare = name, every, step, spare
        self.next = 0.0


class _Ticking:
    """A shard that this node leads, or has led a moment ago: its ticker, and what wakes it."""

    def __init__(self, ticker: Ticker, leadership: Leadership) -> None:
        self.ticker, self.leadership, self.woken = ticker, leadership, asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.scanned = monotonic()  # the end of the last full look; at first, when this node began to lead


class Scheduler:
    """All shards of one node."""

    def __init__(self, store: Store, elector: Elector, info: WorkerInfo, options: SchedulerOptions) -> None:
        self._store, self._options, self.elector = store, options, elector
        self.contact = Contact(store)
        self.shares = Shares(store, elector, info, options.shards, options.election_ttl, self.contact)
        self.rescuer = Rescuer(store, self.contact, options.lease)
        self.feeder = Feeder(store, self.shares.housekeeper)
        self._feed_now = asyncio.Event()
        self._ticking: dict[int, _Ticking] = {}
        self._turns = asyncio.Semaphore(TICKING)
        self._changed = asyncio.Event()
        self._stopping = False
        self._too_many_since: float | None = None
        self._respread_at = 0.0
        self._spread_over = 0

    def wake(self, channel: str = "") -> None:
        """A schedule may have changed, or a backfill."""
        if channel == BACKFILLS:
            self._feed_now.set()
            return
        for ticking in self._ticking.values():
            ticking.woken.set()

    def stop(self) -> None:
        """Resign and return from `run`."""
        self._stopping = True
        self._changed.set()
        self._feed_now.set()
        self.wake()

    def leading(self) -> list[int]:
        """The shards that this node leads."""
        return [one.shard for one in self.shares.led()]

    def status(self) -> SchedulerStatus:
        """From memory, at once, on any thread. Not ready: when it could not lead if it had to, or leads and does not write ticks."""
        elector = self.elector.state()
        led = self.shares.terms()
        ticking = [one for shard in led if (one := self._ticking.get(shard)) is not None]  # one may just be beginning
        late = [one.leadership.shard for one in ticking if monotonic() - one.scanned > LATE_SCANS * SCAN]
        why = None
        if self.shares.silent_for() > self._options.election_ttl.total_seconds():
            why = "the database does not answer"
        elif not elector.reached:
            why = elector.words()
        elif late:
            why = f"it leads shards {', '.join(map(str, late))}, and has not looked for ticks to write for {LATE_SCANS * SCAN:g} s"
        return SchedulerStatus(ready=why is None, why=why, leading=led, elector=elector)

    async def run(self) -> None:
        """Until stopped. Survives the database and the elector being away."""
        await self.elector.start(self._changed.set)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [self._lead(group), self._watch(), self._housekeeping(), self._feed()]
                for task in tasks:
                    group.create_task(task)
        finally:
            await self.shares.resign()
            await self.elector.stop()

    async def _lead(self, group: asyncio.TaskGroup) -> None:
        """Round after round, sooner when the elector has changed its mind."""
        while not self._stopping:
            self._changed.clear()
            for leadership in await self.shares.round():
                self._tick_from_now_on(leadership, group)
            await self._until(monotonic() + self.shares.pause(), self._changed)

    def _tick_from_now_on(self, leadership: Leadership, group: asyncio.TaskGroup) -> None:
        shard = leadership.shard
        if shard not in self._ticking:
            self._ticking[shard] = _Ticking(Ticker(self._store, leadership, self._options.lease), leadership)
        ticking = self._ticking[shard]
        ticking.woken.set()
        if ticking.task is None or ticking.task.done():
            ticking.scanned = monotonic()
            ticking.task = group.create_task(self._tick(ticking))

    async def _watch(self) -> None:
        """Every node looks at the database once a second, leading or not (see contact.py)."""
        while not self._stopping:
            await self._guarded("watching the database", self.contact.look)
            await self._until(monotonic() + 1.0)

    async def _tick(self, ticking: _Ticking) -> None:
        """Write ticks ahead while this node leads: when woken, and every second, which also finds what nobody told of."""
        ticker, mended, of = ticking.ticker, 0.0, None
        while not self._stopping and (term := ticking.leadership.term()) is not None:
            ticking.woken.clear()
            async with self._turns:
                if term != of or monotonic() - mended >= 30:
                    await self._guarded("mending schedules", ticker.mend)
                    mended, of = monotonic(), term
                if await self._guarded("writing ticks", ticker.step):
                    ticking.scanned = monotonic()
            await self._until(monotonic() + SCAN, ticking.woken)

    async def _housekeeping(self) -> None:
        """What one node does for all: that which leads the lowest shard that is led."""
        services = [
            _Service("rescuing", 0.25, self.rescuer.step, spare=1.0),  # a leader and a worker may die together
            _Service("opening gates", 1.0, self._unpark),
            _Service("judging late ticks", 1.0, self._judge_late),
            _Service("promoting", 5.0, lambda: promote(self._store)),
            _Service("counting shards", 1.0, self._count_shards),
            _Service("forgetting locks", 20.0, self._store.lock_prune),
            _Service("pruning", 60.0, lambda: prune(self._store, self._options.retention)),
        ]
        while not self._stopping:
            for service in services:
                every = service.every if self.shares.housekeeper() is not None else service.spare
                if every is not None and monotonic() >= service.next and not self._stopping:
                    service.next = monotonic() + every
                    await self._guarded(service.name, service.step)
            if self.shares.housekeeper() is None:
                self._too_many_since, self._spread_over = None, 0
            await self._until(monotonic() + 0.25)

    async def _feed(self) -> None:
        """Of one node, like the housekeeping; a task of its own, as a long pruning must not hold a backfill up."""
        while not self._stopping:
            self._feed_now.clear()
            await self._guarded("feeding backfills", self.feeder.step)
            await self._until(monotonic() + self.feeder.pause(), self._feed_now)

    async def _unpark(self) -> None:
        from_lines, _ = await self._store.unpark_jobs()
        if queues := sorted({*from_lines, *await self._store.unpark()}):
            await self._store.notify(queues)

    async def _judge_late(self) -> None:
        if (leadership := self.shares.housekeeper()) is not None and leadership.shard in self._ticking:
            await self._ticking[leadership.shard].ticker.judge_late()

    async def _count_shards(self) -> None:
        """The number of shards is the largest that a live scheduler was started with. It grows at once, when that scheduler says that it
        lives, and shrinks when there has been none for a while: a restart must not move every schedule twice."""
        crew, now = self.shares.crew, monotonic()
        most, count = max(crew.nodes.values(), default=0), len(crew.leaders)
        if not most or most >= count:
            self._too_many_since = None
        elif self._too_many_since is None:
            self._too_many_since = now
        elif now - self._too_many_since >= self._options.shrink_after.total_seconds():
            log.warning("going down from %d to %d shards", count, most)
            await self._store.close_shards(most)
            self._too_many_since, count = None, most
        if count != self._spread_over or now >= self._respread_at:
            moved = await self._respread()
            self._spread_over, self._respread_at = count, now + RESPREAD
            if moved:
                log.info("moved %d schedules to the shards that they fall to, of %d", moved, count)
                await self._store.notify([SCHEDULES])

    async def _respread(self) -> int:
        moved = 0
        while (batch := await self._store.respread(BATCH)) > 0:
            moved += batch
            await sleep(0.01)
        return moved

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

    async def _until(self, moment: float, event: asyncio.Event | None = None) -> None:
        """Wait until then or until the event; in short steps when only a stop may cut it short."""
        while (left := moment - monotonic()) > 0 and not self._stopping:
            if event is None:
                await sleep(min(left, 0.25))
                continue
            try:
                async with asyncio.timeout(left):
                    await event.wait()
            except TimeoutError:
                pass
            return
