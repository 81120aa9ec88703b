"""The leader's side on PostgreSQL: election, ticks, judgement, promotion, rescue, pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fleetcron.decide.misfire import Verdict
from fleetcron.model import ElectorState, Schedule
from fleetcron.store import flows
from fleetcron.store.codec import elector_to, schedule_from
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.protocol import Claimed, Crew, Fire, Fired, FirstFn, JudgeFn, Looked, Rescued, WorkerInfo


class Lead(PostgresBase):
    """The part of the store that scheduler nodes use. Every write names (shard, term), but for what anyone may do safely."""

    async def campaign(self, shard: int, node: WorkerInfo, ttl: timedelta) -> int | None:
        term: int | None = await self.db.fetchval(
            "campaign", self.clock_now(), shard, node.node, node.host, node.pid, ttl
        )
        return term

    async def renew(self, shard: int, node: str, term: int, ttl: timedelta) -> bool:
        return await self.db.fetchval("renew", self.clock_now(), shard, node, term, ttl) is not None

    async def resign(self, shard: int, node: str, term: int) -> bool:
        return await self.db.fetchval("resign", shard, node, term) is not None

    async def scheduler_beat(
        self, node: str, shards: int, ttl: timedelta, *, standing: bool, elector: ElectorState | None = None
    ) -> Crew:
        """Be counted among the schedulers for one ttl, unless not `standing`; open the shards that are missing. `elector`: for `nodes`."""
        row = await self.db.fetchrow(
            "scheduler_beat", self.clock_now(), node, shards, ttl, standing, elector_to(elector)
        )
        assert row is not None
        nodes = dict(zip(row["nodes"], row["wanted"], strict=True))
        return Crew(nodes, dict(zip(row["shards"], row["leaders"], strict=True)), row["remains"])

    async def campaign_many(
        self, shards: Sequence[int], node: WorkerInfo, ttl: timedelta, limit: int
    ) -> dict[int, int]:
        """Take over up to `limit` of the shards that nobody leads; the new terms by shard."""
        args = (list(shards), node.node, node.host, node.pid, ttl, limit)
        return {row[0]: row[1] for row in await self.db.fetch("campaign_many", self.clock_now(), *args)}

    async def renew_many(self, node: str, terms: Mapping[int, int], ttl: timedelta) -> set[int]:
        """Renew these leaderships (term by shard); the shards whose term is still in force."""
        args = (node, list(terms), list(terms.values()), ttl)
        return {row[0] for row in await self.db.fetch("renew_many", self.clock_now(), *args)}

    async def close_shards(self, count: int) -> int:
        """Go down to `count` shards; returns how many were closed."""
        return len(await self.db.fetch("shards_close", count))

    async def respread(self, limit: int = 5000) -> int:
        """Put up to `limit` schedules on the shards that their ids fall to; returns how many were moved."""
        return int(await self.db.fetchval("respread", limit))

    async def due_schedules(
        self, shard: int, horizon: datetime, limit: int, *, without: Sequence[str] = (), flying: Sequence[int] = ()
    ) -> list[Schedule]:
        """Schedules with ticks to write before the horizon, but for those whose queues have no room (`without`), and those that are just
        being written (`flying`, ids)."""
        found = await self.db.fetch("due_schedules", shard, horizon, limit, list(without), list(flying))
        return [schedule_from(row) for row in found]

    async def broken_schedules(self, shard: int, limit: int = 100) -> list[Schedule]:
        return [schedule_from(row) for row in await self.db.fetch("broken_schedules", shard, limit)]

    async def stale_zones(self, shard: int, tzdata: str, limit: int = 1000) -> list[Schedule]:
        return [schedule_from(row) for row in await self.db.fetch("stale_zones", shard, tzdata, limit)]

    async def schedule_error(self, schedule_id: int, error: str | None) -> None:
        await self.db.fetch("schedule_error", schedule_id, error)

    async def fire(self, shard: int, term: int, fires: Sequence[Fire], *, tzdata: str, until: datetime | None) -> Fired:
        ticks = [(f.schedule_id, t) for f in fires for t in f.ticks]
        row = await self.db.fetchrow(
            "fire",
            self.clock_now(),
            shard,
            term,
            [f.schedule_id for f in fires],
            [f.revision for f in fires],
            [f.old_next for f in fires],
            [f.new_next for f in fires],
            [f.prev_at for f in fires],
            tzdata,
            [i for i, _ in ticks],
            [t.nominal_at for _, t in ticks],
            [t.due_at for _, t in ticks],
            [t.late_at for _, t in ticks],
            [t.prev_at for _, t in ticks],
            until,
        )
        assert row is not None
        if row[3]:
            await self.notify(row[3])
        return Fired(row[0], row[1], row[2])

    async def notify(self, queues: Sequence[str]) -> None:
        await self.db.fetch("notify", list(queues))

    async def judge(
        self,
        schedule: str,
        leased: Sequence[Claimed],
        *,
        worker: int | None,
        leader: tuple[int, int] | None,
        lease: timedelta,
        decide: JudgeFn,
    ) -> Verdict | None:
        async with self.tx("judge") as tx:
            verdict, queues = await flows.judge(
                tx, schedule, leased, worker=worker, leader=leader, lease=lease, decide=decide
            )
        if queues:
            await self.notify(queues)
        return verdict

    async def late_ticks(self, after: Looked = None, limit: int = 10_000) -> tuple[list[str], Looked]:
        """Schedules with ticks that should have started and wait, among up to `limit` due ones after that place, oldest first; and the
        place to go on from (None: there were no more)."""
        row = await self.db.fetchrow("late_ticks", self.clock_now(), *(after or (None, None)), limit)
        assert row is not None
        return row[0], None if row[2] is None else (row[1], row[2])

    async def promote(self, limit: int = 5000) -> int:
        return int(await self.db.fetchval("promote", self.clock_now(), limit))

    async def timetable_due(self) -> bool:
        return bool(await self.db.fetchval("timetable_due", self.clock_now()))

    async def retick(self, name: str, leader: tuple[int, int], tzdata: str, first: FirstFn | None) -> bool:
        async with self.tx("retick") as tx:
            return await flows.retick(tx, name, leader, tzdata, first)

    async def rescue(self, suspects: Sequence[int] = (), *, expired: bool = True) -> Rescued:
        """Take back the runs of the suspects, and (`expired`) of sessions whose time is past."""
        if not suspects and not (expired and await self.db.fetchval("worker_expired", self.clock_now())):
            return Rescued([], 0, 0)
        async with self.db.transaction("rescue", self.clock_now()) as session:
            dead = [row[0] for row in await session.fetch("worker_lock", session.clock, list(suspects), expired)]
            if not dead:
                return Rescued([], 0, 0)
            row = await session.fetchrow("rescue", session.clock, dead)
        assert row is not None
        return Rescued(row[0], row[1], row[2])

    async def watch(self) -> float:
        """Note that the database is there; returns for how many seconds some scheduler has seen so without a gap."""
        return float(await self.db.fetchval("watch", self.clock_now()))

    async def absent(self) -> set[int]:
        if self.db.pgbouncer:
            return set()
        return {row[0] for row in await self.db.fetch("absent")}

    async def prune(self, older_than: timedelta, after: int, limit: int = 5000) -> tuple[int, int]:
        """Delete up to `limit` runs that ended before the retention, ids above `after`; returns (how many, the last id)."""
        row = await self.db.fetchrow("prune", self.clock_now(), older_than, after, limit)
        assert row is not None
        return row[0], row[1] or 0

    async def prune_rest(self, older_than: timedelta) -> None:
        await self.db.fetch("prune_rest", self.clock_now(), older_than)
