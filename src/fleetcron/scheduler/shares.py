"""Which shards this node leads: one round every third of a ttl, two statements however many shards there are.

A round says that this scheduler lives and learns who else does and who leads what, renews all terms, gives up what is more than this
node's share, stands for what is less, and campaigns for those of them that the elector nominates it for. Shares are a pure decision
(`decide.shares`). A node whose elector cannot be reached is not counted: the others share what it cannot lead. A node whose database
cannot be reached gives its nominations back after a ttl: it would hold up somebody who can lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from fleetcron.clock import monotonic
from fleetcron.decide.shares import share
from fleetcron.election import Elector
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.leadership import Leadership
from fleetcron.store.protocol import Crew, Store, WorkerInfo

log = logging.getLogger("fleetcron.scheduler")

T = TypeVar("T")

OVERDUE = 3.0
"""Ttls after which a free shard is anybody's."""
LONGEST = 0.8
"""Ttls that a round may take: a path that swallows everything is found out before the last term ends."""
KEEP = 10.0
"""Ttls for which nothing is given up after such a shard was taken: else it would go back to nobody at once."""


class _Silence(StoreUnavailable):
    """The database has not said anything in time."""


class Shares:
    """The leaderships of one node, and the crew of schedulers as it last saw it. `shards`: how many this node was started with."""

    def __init__(
        self, store: Store, elector: Elector, node: WorkerInfo, shards: int, ttl: timedelta, contact: Contact
    ) -> None:
        self._store, self._elector, self._node, self._contact = store, elector, node, contact
        self._wanted, self._ttl, self._seconds = shards, ttl, ttl.total_seconds()
        self._leaderships: dict[int, Leadership] = {}
        self._free_since: dict[int, float] = {}
        self._keep_until, self._answered = 0.0, float("-inf")
        self._hurry = self._trouble = False
        self._counted = 0
        self._asked: set[asyncio.Task[Any]] = set()
        self.crew = Crew({}, {}, None)

    def led(self) -> list[Leadership]:
        """What this node leads, lowest shard first."""
        return [one for _, one in sorted(self._leaderships.items()) if one.term() is not None]

    def silent_for(self) -> float:
        """Seconds since the last round that the database answered; inf before the first."""
        return monotonic() - self._answered

    def terms(self) -> dict[int, int]:
        """The terms of what this node leads, by shard. Changes nothing, and may be asked on any thread."""
        return {one.shard: term for one in list(self._leaderships.values()) if (term := one.peek()) is not None}

    def housekeeper(self) -> Leadership | None:
        """The leadership that makes this node the one which does what is done once for all: that of the lowest shard that is led."""
        mine = self.led()
        others = [s for s, leader in self.crew.leaders.items() if leader not in {None, self._node.node}]
        return mine[0] if mine and mine[0].shard < min(others, default=mine[0].shard + 1) else None

    def pause(self) -> float:
        """Seconds until the next round: a third of the ttl, less when something is to be had or another's term runs out."""
        seconds = self._seconds / (10 if self._hurry else 3)
        if self.crew.remains is not None:
            seconds = min(seconds, self.crew.remains + 0.005)
        return max(seconds, 0.02)

    async def round(self) -> list[Leadership]:
        """One round; returns what this node has begun to lead. Never fails: doubt is stepping down."""
        try:
            began = await self._in_time(self._round(), self._seconds * LONGEST)
            self._answered, self._trouble = monotonic(), False
        except StoreError as error:
            if not self._trouble:
                log.warning("this node can lead nothing new for now, it tries again: %s", error)
            self._trouble, self._hurry = True, False
            self._contact.lost()
            if isinstance(error, _Silence):  # nothing is known that was not known before: each term has its deadline
                self.crew = Crew(self.crew.nodes, self.crew.leaders, None)
            else:
                self.crew = Crew({}, {}, None)
                for one in self.led():
                    one.step_down(f"the database did not answer: {error}")
            if monotonic() - self._answered > self._seconds:
                self._elector.stand((), (), 0)
            return []
        return began

    async def _in_time(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """A database that says nothing is one that does not answer, long before its own time limits (case C66). What was asked is not waited
        for: to give it up may take as long as an answer. Raises _Silence."""
        task = asyncio.create_task(work)
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
        if not task.done():
            raise _Silence(f"no answer within {seconds:g} s")
        return task.result()

    async def _round(self) -> list[Leadership]:
        me = self._node.node
        crew = await self._store.scheduler_beat(
            me, self._wanted, self._ttl, standing=self._elector.reached(), elector=self._elector.state()
        )
        await self._renew()
        for one in list(self._leaderships.values()):
            if one.owes():
                await one.resign()
        mine = {one.shard for one in self.led()}
        leaders = {shard: None if leader == me else leader for shard, leader in crew.leaders.items()}
        leaders |= dict.fromkeys(mine & leaders.keys(), me)
        self.crew = Crew(crew.nodes, leaders, crew.remains)
        self._count(len(leaders))
        now = monotonic()
        self._free_since = {s: self._free_since.get(s, now) for s, leader in leaders.items() if leader is None}
        overdue = [s for s, since in self._free_since.items() if now - since > OVERDUE * self._seconds]
        todo = share(me, crew.nodes, leaders, overdue=overdue)
        if now >= self._keep_until:
            if todo.give:
                log.info(
                    "giving up shards %s: another scheduler has less than its share", ", ".join(map(str, todo.give))
                )
            for shard in todo.give:
                await self._leaderships[shard].resign()
                mine.discard(shard)
        if overdue and todo.want:
            self._keep_until = now + KEEP * self._seconds
        self._hurry = bool(todo.want and todo.free)
        self._elector.stand(sorted(mine), todo.free, todo.want)
        # The lowest first: of more keys than it may hold an elector gives up the highest.
        began = await self._campaign([s for s in todo.free if self._elector.nominated(s)], todo.want)
        if began:
            won = {one.shard for one in began}
            self._elector.stand(sorted(mine | won), [s for s in todo.free if s not in won], todo.want - len(won))
        return began

    async def _renew(self) -> None:
        terms = {one.shard: term for one in self._leaderships.values() if (term := one.term()) is not None}
        if not terms:
            return
        sent = monotonic()
        renewed = await self._store.renew_many(self._node.node, terms, self._ttl)
        for shard in terms:
            if shard in renewed:
                self._leaderships[shard].renewed(sent)
            else:
                self._leaderships[shard].step_down("the database refused the renewal")

    async def _campaign(self, shards: list[int], limit: int) -> list[Leadership]:
        if not shards or not limit:
            return []
        sent, began = monotonic(), []
        for shard, term in (await self._store.campaign_many(shards, self._node, self._ttl, limit)).items():
            one = self._leaderships.setdefault(shard, self._new(shard))
            one.begin(term, sent)
            if one.term() is not None:
                began.append(one)
        if began:
            log.info("leading %s", ", ".join(f"shard {one.shard} in term {one.term()}" for one in began))
        return began

    def _new(self, shard: int) -> Leadership:
        return Leadership(self._store, self._elector, self._node, shard, self._seconds, self._contact)

    def _count(self, shards: int) -> None:
        if shards != self._counted and shards > self._wanted:
            log.info(
                "the fleet has %d shards, this node was started with %d: the larger number counts", shards, self._wanted
            )
        self._counted = shards

    async def resign(self) -> None:
        """Give everything up in order, and be counted no more. Takes a ttl at most."""
        try:
            await self._in_time(self._leave(), self._seconds)
        except StoreError as error:
            log.warning("could not sign off as a scheduler, the others wait for a ttl: %s", error)

    async def _leave(self) -> None:
        for one in list(self._leaderships.values()):
            await one.resign()
        await self._store.scheduler_beat(self._node.node, self._wanted, self._ttl, standing=False)
