"""Backfills on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fleetcron.clock import to_us
from fleetcron.decide.backfill import Seen
from fleetcron.model import Backfill, BackfillState
from fleetcron.store import backfills
from fleetcron.store.protocol import ActiveBackfill, Fed
from fleetcron.store.sqlite import rows
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.session import json_list

_NEWEST = 2**63 - 1


class Backfills(SqliteBase):
    """The part of the store that keeps backfills."""

    async def add_backfill(self, new: Backfill, who: str) -> Backfill:
        """Begin a backfill; returned as it is kept."""
        backfill_id = await self.db.flow("backfill", lambda tx: backfills.add_backfill(tx, new, who))
        return (await self.backfills(backfill_id=backfill_id))[0]

    async def backfills(
        self, *, backfill_id: int | None = None, schedule: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[Backfill]:
        """Backfills, newest first; `after` is an id cursor (exclusive)."""
        args = (backfill_id, schedule, _NEWEST if after is None else after, limit)
        found = await self.db.read("backfills", lambda session: session.records("backfills", *args), slow=True)
        return [rows.backfill(row) for row in found]

    async def steer_backfill(self, backfill_id: int, to: BackfillState, who: str) -> Backfill | None:
        """Pause, resume or cancel a backfill, see `store.backfills.steer`. None when there is none. Raises ConfigError."""
        if not await self.db.flow("steer_backfill", lambda tx: backfills.steer(tx, backfill_id, to, who)):
            return None
        return (await self.backfills(backfill_id=backfill_id))[0]

    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]:
        """The runs that these ticks have."""
        wanted = json_list(map(to_us, ticks))
        return rows.seen(
            await self.db.read("seen_ticks", lambda session: session.fetch("ticks_seen", schedule, wanted), slow=True)
        )

    async def active_backfills(self) -> list[ActiveBackfill]:
        """Backfills that may still create runs, or have open ones."""
        found = await self.db.read("active_backfills", lambda session: session.fetch("backfills_active"))
        return [ActiveBackfill(row[0], row[1], bool(row[2])) for row in found]

    async def feed(self, backfill_id: int, schedule: str, leader: tuple[int, int], *, full: Sequence[str] = ()) -> Fed:
        """Feed a backfill once, see `store.backfills.feed`. `full`: queues that take no more."""
        return await self.db.flow("feed", lambda tx: backfills.feed(tx, backfill_id, schedule, leader, full))
