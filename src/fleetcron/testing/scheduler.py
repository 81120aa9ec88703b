"""The scheduler role on virtual time: the real ticker, promoter, feeder and rescuer, and the election by the database's shard row.

Between two instants nothing happens, so a leader that lives need not renew every second or two: its term is granted for the whole way
ahead, which leaves the same row behind, and is cut to the election ttl at the instant at which it crashes or freezes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from fleetcron.election import DatabaseElector
from fleetcron.model import Schedule
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.feeder import Feeder
from fleetcron.scheduler.leadership import Leadership
from fleetcron.scheduler.promoter import promote
from fleetcron.scheduler.rescuer import Rescuer
from fleetcron.scheduler.ticker import Ticker, horizon
from fleetcron.store.protocol import BUCKET, Store, WorkerInfo
from fleetcron.testing.clock import STEP
from fleetcron.testing.link import Link
from fleetcron.testing.world import World

_FAR = datetime(9999, 1, 1, tzinfo=UTC)
_RETRY = timedelta(seconds=5)
"""Until the next try to write the ticks of a full queue. (The real ticker tries each second.)"""


class VirtualContact(Contact):
    """The database is watched without a gap for as long as any scheduler lives."""

    def __init__(self, world: World) -> None:
        super().__init__(world.fleet.store)
        self._world = world

    def seconds(self) -> float:
        return self._world.watched().total_seconds()


class VirtualLeadership(Leadership):
    """A shard's term, kept on virtual time."""

    def __init__(
        self,
        store: Store,
        info: WorkerInfo,
        shard: int,
        ttl: timedelta,
        contact: Contact,
        ahead: Callable[[], timedelta],
    ) -> None:
        super().__init__(store, DatabaseElector(), info, shard, ttl.total_seconds(), contact)
        self._ahead = ahead

    def term(self) -> int | None:
        return self._term

    async def step(self) -> bool:
        """Campaign if there is no term; returns True when one has just begun."""
        if self._term is None:
            self._term = await self._store.campaign(self.shard, self._node, self._ahead() + self._ttl)
            return self._term is not None
        return False

    async def renew(self) -> None:
        """Hold the term until the end of the present advance and a ttl more."""
        if self._term is not None and not await self._store.renew(
            self.shard, self._node.node, self._term, self._ahead() + self._ttl
        ):
            self.step_down("the database refused the renewal")

    async def leave(self) -> None:
        """Hold the term for one ttl from now, as if the last renewal had been sent at this instant."""
        if self._term is not None:
            await self._store.renew(self.shard, self._node.node, self._term, self._ttl)


class VirtualScheduler:
    """One scheduler. `step` does everything that is to be done at the present instant."""

    def __init__(self, world: World, info: WorkerInfo) -> None:
        self._world, self._options = world, world.fleet.options
        self.link = Link(world.fleet.store, world.clock, world.timeline, world.late)
        store = cast("Store", self.link)
        self.contact = VirtualContact(world)
        self.shards = [
            VirtualLeadership(store, info, shard, self._options.election_ttl, self.contact, world.ahead)
            for shard in range(self._options.shards)
        ]
        self.tickers = [Ticker(store, leadership, self._options.lease) for leadership in self.shards]
        self.rescuer = Rescuer(store, self.contact, self._options.lease)
        self.feeder = Feeder(store, lambda: self.shards[0] if self.leads() else None)
        self._store = store
        self._heads: list[Schedule | None] = [None] * len(self.shards)
        self._promoted: datetime | None = None
        self._blocked = False
        self._stirred = 0
        self._fresh = self._owes_rescue = True
        self._frozen_at = world.clock.elapsed
        self.alive, self.frozen = True, False

    def leads(self, shard: int = 0) -> bool:
        return self.alive and not self.frozen and self.shards[shard].term() is not None

    # life
    async def begin(self) -> None:
        """An advance begins: hold the terms until its end; what was changed from outside is looked at."""
        self._fresh = True
        for leadership in self.shards:
            await leadership.renew()

    async def leave(self) -> None:
        """Crash or freeze: the terms run out by themselves."""
        for leadership in self.shards:
            await leadership.leave()
        self._world.timeline.add(self._world.clock.now + self._options.election_ttl + STEP)

    def freeze(self) -> None:
        self.frozen, self._frozen_at = True, self._world.clock.elapsed

    def thaw(self) -> None:
        """Find out for how long it was away: terms past their trust are given up."""
        self.frozen = False
        if self._world.clock.elapsed - self._frozen_at > self._options.election_ttl * 0.9:
            for leadership in self.shards:
                leadership.step_down("its time ran out")
        self._fresh = self._owes_rescue = True

    async def resign(self) -> None:
        for leadership in self.shards:
            await leadership.resign()

    # work
    async def step(self) -> bool:
        """Returns whether anything was done that somebody else may have to react to."""
        moved = False
        for leadership, ticker in zip(self.shards, self.tickers, strict=True):
            began = await leadership.step()
            if leadership.term() is not None:
                moved |= began | await self._tick(ticker, leadership.shard, look=began or self._fresh)
        moved |= await self._housekeeping() if self.leads() else await self._rescue()
        self._fresh, self._stirred = False, self._world.stirred
        return moved

    async def _tick(self, ticker: Ticker, shard: int, *, look: bool) -> bool:
        if look:
            await ticker.mend()
        before = self._heads[shard]
        if look or self._blocked or (self._stirred != self._world.stirred and not self._within(before)):
            before = await self._look(shard)
        if before is None or not self._within(before):
            return False
        await ticker.step()
        after = await self._look(shard)
        self._blocked = self._within(after)
        if self._blocked:  # its queue is full: see when the others are due
            await self._look(shard, without=await self._store.full_queues())
        return after is None or (after.id, after.revision, after.next_at) != (
            before.id,
            before.revision,
            before.next_at,
        )

    def _within(self, schedule: Schedule | None) -> bool:
        """Are ticks of it to be written now?"""
        return (
            schedule is not None and schedule.next_at is not None and schedule.next_at < horizon(self._world.clock.now)
        )

    async def _look(self, shard: int, without: Sequence[str] = ()) -> Schedule | None:
        """The schedule whose ticks are to be written next."""
        found = await self._store.due_schedules(shard, _FAR, 1, without=without)
        self._heads[shard] = found[0] if found else None
        return self._heads[shard]

    async def _housekeeping(self) -> bool:
        now, moved = self._world.clock.now, False
        minute = now.replace(second=0, microsecond=0)
        if self._fresh or self._promoted != minute:
            self._promoted = minute
            moved |= await promote(self._store) > 0
        rescued = await self._rescue()
        if self._fresh or rescued:
            moved |= bool(await self._store.unpark()) or bool((await self._store.unpark_jobs())[0]) or rescued
        if self._fresh or self.feeder.active:
            moved |= await self.feeder.step()
        if self._fresh or self._world.waiting(now - STEP):
            judged = self.link.judged
            await self.tickers[0].judge_late()
            moved |= self.link.judged > judged
        return moved

    async def _rescue(self) -> bool:
        self._owes_rescue |= self._fresh or self._world.anyone_overdue()
        if not self._owes_rescue:
            return False
        left = self._options.lease.total_seconds() - self.contact.seconds()
        if left > 0:
            self._world.timeline.add(self._world.clock.now + timedelta(seconds=left))
            return False
        done = await self.rescuer.step()
        self._owes_rescue = False
        self._world.overdue_seen()
        return done is not None and bool(done.workers)

    def next_instant(self) -> datetime | None:
        """When ticks are to be written next: a schedule's next tick comes within the horizon at the minute before its own."""
        now = self._world.clock.now
        instants = [now + _RETRY] if self._blocked else []
        for shard, head in enumerate(self._heads):
            if not self.leads(shard):
                if not self._world.someone_leads(shard):
                    instants.append(now + self._options.election_ttl)
            elif head is not None and head.next_at is not None:
                instants.append(head.next_at.replace(second=0, microsecond=0) - BUCKET)
        return min((instant for instant in instants if instant > now), default=None)
