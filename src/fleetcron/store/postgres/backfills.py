"""Backfills on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fleetcron.decide.backfill import Seen
from fleetcron.model import Backfill, BackfillState
from fleetcron.store import backfills
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.postgres.tx import seen
from fleetcron.store.protocol import ActiveBackfill, Fed


class Backfills(PostgresBase):
    """The part of the store that keeps backfills."""

    async def add_backfill(self, new: Backfill, who: str) -> Backfill:
        """Begin a backfill; returned as it is kept."""
        async with self.tx("backfill") as tx:
            backfill_id = await backfills.add_backfill(tx, new, who)
        return (await self.backfills(backfill_id=backfill_id))[0]

    async def backfills(
        self, *, backfill_id: int | None = None, schedule: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[Backfill]:
        """Backfills, newest first; `after` is an id cursor (exclusive)."""
        return [Backfill(**dict(row)) for row in await self.db.fetch("backfills", backfill_id, schedule, after, limit)]

    async def steer_backfill(self, backfill_id: int, to: BackfillState, who: str) -> Backfill | None:
        """Pause, resume or cancel a backfill, see `store.backfills.steer`. None when there is none. Raises ConfigError."""
        async with self.tx("steer_backfill") as tx:
            if not await backfills.steer(tx, backfill_id, to, who):
                return None
        return (await self.backfills(backfill_id=backfill_id))[0]

    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]:
        """The runs that these ticks have."""
        return seen(await self.db.fetch("ticks_seen", schedule, list(ticks)))

    async def active_backfills(self) -> list[ActiveBackfill]:
        """Backfills that may still create runs, or have open ones."""
        return [ActiveBackfill(*row) for row in await self.db.fetch("backfills_active")]

    async def feed(self, backfill_id: int, schedule: str, leader: tuple[int, int], *, full: Sequence[str] = ()) -> Fed:
        """Feed a backfill once, see `store.backfills.feed`. `full`: queues that take no more."""
        async with self.tx("feed") as tx:
            return await backfills.feed(tx, backfill_id, schedule, leader, full)
