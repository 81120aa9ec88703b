"""Feeding backfills: giving each as many runs as its max_running leaves room for, until its range is dealt with.

A leader service like the ticker: every write names a term, and what was written is all that is remembered. Runs are due at once but of the
lowest priority there is, so that live work goes first (decide/backfill.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fleetcron.scheduler.leadership import Leadership
from fleetcron.store.protocol import ActiveBackfill, Store

log = logging.getLogger("fleetcron.scheduler")

PACE = 0.1
"""Seconds between looks while there are backfills: with one run at a time, about so long lies between two of them."""
IDLE = 1.0
"""Seconds between looks while there are none (a new one wakes the leader), or while they can go no further."""
_TURNS = 20
"""Times that one backfill is fed in a row when it finds room and passes over ticks that have their runs; then it is another's turn."""


class Feeder:
    """`leadership()`: the shard that this node may act for, or None. After a step: are there `active` backfills?"""

    def __init__(self, store: Store, leadership: Callable[[], Leadership | None]) -> None:
        self._store, self._leadership = store, leadership
        self.active = self._stuck = False

    def pause(self) -> float:
        """Seconds until the next step, unless woken."""
        return PACE if self.active and not self._stuck else IDLE

    async def step(self) -> bool:
        """Feed what is due; returns whether any backfill was given runs, or has ended."""
        self.active = self._stuck = False
        if self._leadership() is None:
            return False
        active = await self._store.active_backfills()
        due = [one for one in active if one.due]
        full = await self._store.full_queues() if due else []
        moved = [await self._feed(one, full) for one in due]
        self.active, self._stuck = bool(active), bool(due) and not any(moved)
        return any(moved)

    async def _feed(self, one: ActiveBackfill, full: list[str]) -> bool:
        moved = False
        for _ in range(_TURNS):
            leadership = self._leadership()
            term = None if leadership is None else leadership.term()
            if leadership is None or term is None:
                break
            fed = await self._store.feed(one.id, one.schedule, (leadership.shard, term), full=full)
            if not fed.led:
                leadership.step_down("its term is stale")
                break
            moved = moved or fed.ended or fed.created > 0
            if fed.created:
                await self._store.notify([fed.queue])
            if fed.ended:
                log.info("backfill %d of %s has ended", one.id, one.schedule)
            if not fed.more:
                break
        return moved
