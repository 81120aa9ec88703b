"""Running past ranges of schedules: the part of `Fleet` for backfills."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime

import msgspec

from fleetcron.decide.backfill import portion, ticks, total
from fleetcron.declare import check_whole
from fleetcron.errors import ConfigError, NotFound
from fleetcron.model import Backfill, BackfillMode, BackfillOrder, BackfillState, Schedule
from fleetcron.store.protocol import Store
from fleetcron.store.wakeups import BACKFILLS, CANCELS
from fleetcron.triggers.base import utc

_BATCH = 1000
_MOST_RUNNING = 1000
"""The leader looks at each open run of a backfill ten times a second: 1,000 cost it some 3 ms each time."""


class Backfilling:
    """Needs an open store."""

    @property
    @abstractmethod
    def store(self) -> Store: ...
    @abstractmethod
    def _who(self) -> str: ...
    @abstractmethod
    async def get_schedule(self, name: str) -> Schedule: ...

    async def backfill(
        self,
        schedule: str,
        start: datetime,
        end: datetime,
        *,
        max_running: int = 1,
        order: BackfillOrder = "asc",
        mode: BackfillMode = "missing",
        dry_run: bool = False,
    ) -> Backfill:
        """Run the ticks of a schedule in [start, end), a past range, below all live work; returns at once, the leader does the rest.

        `max_running`: how many of its runs wait or run at a time; with 1 each tick starts when the one before has ended, whatever the retries.
        `order`: "asc" or "desc", newest first. `mode`: ticks that are "missing" (nothing ran for them), those that "failed", or "all", then
        as new runs beside the old ones. An end in the future is cut to now. `dry_run`: begin nothing; the answer tells what would be
        `created`. Raises NotFound, TypeError for naive times, ConfigError for a range without ticks or that has not begun."""
        start, end = utc("start", start), utc("end", end)
        if check_whole(max_running, "max_running", most=_MOST_RUNNING) is None:
            raise ConfigError(f"max_running=None: expected a whole number from 1 to {_MOST_RUNNING}")
        if order not in ("asc", "desc"):
            raise ConfigError(f"order={order!r}: expected 'asc' or 'desc'")
        if mode not in ("missing", "failed", "all"):
            raise ConfigError(f"mode={mode!r}: expected 'missing', 'failed' or 'all'")
        of = await self.get_schedule(schedule)
        if of.error is not None:
            raise ConfigError(f"backfill: schedule {schedule!r} cannot be evaluated here: {of.error}")
        end, count = total(of, start, end, await self.store.now())
        new = Backfill(
            schedule=schedule, start=start, end=end, order=order, mode=mode, max_running=max_running, total=count
        )
        if dry_run:
            return await self._tried(of, new)
        begun = await self.store.add_backfill(new, self._who())
        await self.store.notify([BACKFILLS])
        return begun

    async def _tried(self, of: Schedule, new: Backfill) -> Backfill:
        """As the leader would go about it, but with room for everything, and writing nothing."""
        if new.mode == "all":
            return msgspec.structs.replace(new, created=new.total, state="dry run")
        while look := ticks(of, new, _BATCH):
            seen = await self.store.seen_ticks(of.name, [tick.nominal_at for tick in look])
            part = portion(new.mode, look, seen, _BATCH)
            new = msgspec.structs.replace(
                new, cursor=part.cursor, created=new.created + len(part.run), existing=new.existing + part.existing
            )
        return msgspec.structs.replace(new, cursor=None, state="dry run")

    async def backfills(
        self, schedule: str | None = None, *, limit: int = 100, after: int | None = None
    ) -> list[Backfill]:
        """Backfills, newest first; `after`: the id to go on from."""
        check_whole(limit, "limit", most=100_000)
        return await self.store.backfills(schedule=schedule, limit=limit, after=after)

    async def get_backfill(self, backfill_id: int) -> Backfill:
        """One backfill. Raises NotFound."""
        found = await self.store.backfills(backfill_id=backfill_id)
        if not found:
            raise NotFound(f"there is no backfill {backfill_id}")
        return found[0]

    async def cancel_backfill(self, backfill_id: int) -> Backfill:
        """Create no more runs; those that wait are cancelled, those that run are asked to stop. One that has ended stays as it is. Raises
        NotFound."""
        cancelled = await self._steer(backfill_id, "cancelled")
        await self.store.notify([CANCELS])
        return cancelled

    async def pause_backfill(self, backfill_id: int) -> Backfill:
        """Create no more runs until it is resumed; those that there are go on. Raises NotFound, ConfigError when it has ended."""
        return await self._steer(backfill_id, "paused")

    async def resume_backfill(self, backfill_id: int) -> Backfill:
        """Go on with a paused backfill. Raises NotFound, ConfigError when it has ended."""
        resumed = await self._steer(backfill_id, "running")
        await self.store.notify([BACKFILLS])
        return resumed

    async def _steer(self, backfill_id: int, to: BackfillState) -> Backfill:
        steered = await self.store.steer_backfill(backfill_id, to, self._who())
        if steered is None:
            raise NotFound(f"there is no backfill {backfill_id}")
        return steered
