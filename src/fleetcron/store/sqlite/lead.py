"""The leader's side on SQLite: election, ticks, judgement, promotion, rescue, pruning."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from fleetcron.clock import from_us, to_us
from fleetcron.decide.misfire import Verdict
from fleetcron.model import ElectorState, Schedule
from fleetcron.store import flows
from fleetcron.store.codec import elector_to
from fleetcron.store.protocol import Claimed, Crew, Fire, Fired, FirstFn, JudgeFn, Looked, Rescued, WorkerInfo
from fleetcron.store.sqlite import leases, rows, ticks
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.processes import process_gone
from fleetcron.store.sqlite.session import Session, json_list, us
from fleetcron.store.wakeups import CANCELS


class Lead(SqliteBase):
    """The part of the store that scheduler nodes use. Every write names (shard, term), but for what anyone may do
    safely."""

    async def campaign(self, shard: int, node: WorkerInfo, ttl: timedelta) -> int | None:
        """The new term, or None while somebody leads. What was written is read back and compared: a row count
        would also count a row that was only attempted (case C23)."""
        args = (shard, node.node, node.host, node.pid, us(ttl))
        row = await self.db.write("campaign", lambda session: session.fetchrow("campaign", session.now, *args))
        return row[1] if row is not None and row[0] == node.node else None

    async def renew(self, shard: int, node: str, term: int, ttl: timedelta) -> bool:
        renewed = await self.db.write(
            "renew", lambda session: session.fetchval("renew", session.now, shard, node, term, us(ttl))
        )
        return bool(renewed == term)

    async def resign(self, shard: int, node: str, term: int) -> bool:
        return bool(
            await self.db.write("resign", lambda session: session.fetchval("resign", shard, node, term)) == term
        )

    async def scheduler_beat(
        self, node: str, shards: int, ttl: timedelta, *, standing: bool, elector: ElectorState | None = None
    ) -> Crew:
        """Be counted among the schedulers for one ttl, unless not `standing`; open the shards that are missing. `elector`: for `nodes`."""
        span = us(ttl) if standing else 0
        state = elector_to(elector)
        return await self.db.write("scheduler_beat", lambda session: _beat(session, node, shards, span, state))

    async def campaign_many(
        self, shards: Sequence[int], node: WorkerInfo, ttl: timedelta, limit: int
    ) -> dict[int, int]:
        """Take over up to `limit` of the shards that nobody leads; the new terms by shard."""
        args = (json_list(shards), node.node, node.host, node.pid, us(ttl), limit)
        won = await self.db.write("campaign", lambda session: session.fetch("campaign_many", session.now, *args))
        return dict(won)

    async def renew_many(self, node: str, terms: Mapping[int, int], ttl: timedelta) -> set[int]:
        """Renew these leaderships (term by shard); the shards whose term is still in force."""
        args = (node, json_list(terms.items()), us(ttl))
        renewed = await self.db.write("renew", lambda session: session.fetch("renew_many", session.now, *args))
        return {row[0] for row in renewed}

    async def close_shards(self, count: int) -> int:
        """Go down to `count` shards; returns how many were closed."""
        return len(await self.db.write("shards_close", lambda session: session.fetch("shards_close", count)))

    async def respread(self, limit: int = 5000) -> int:
        """Put up to `limit` schedules on the shards that their ids fall to; returns how many were moved."""
        return await self.db.write("respread", lambda session: session.execute("respread", limit))

    async def due_schedules(
        self, shard: int, horizon: datetime, limit: int, *, without: Sequence[str] = (), flying: Sequence[int] = ()
    ) -> list[Schedule]:
        """Schedules with ticks to write before the horizon, but for those whose queues have no room (`without`), and those that are just
        being written (`flying`, ids)."""
        args = (shard, to_us(horizon), limit, json_list(without), json_list(flying))
        return rows.schedules(await self.db.read("due_schedules", lambda s: s.records("due_schedules", *args)))

    async def broken_schedules(self, shard: int, limit: int = 100) -> list[Schedule]:
        return rows.schedules(
            await self.db.read("broken_schedules", lambda s: s.records("broken_schedules", shard, limit))
        )

    async def stale_zones(self, shard: int, tzdata: str, limit: int = 1000) -> list[Schedule]:
        return rows.schedules(
            await self.db.read("stale_zones", lambda s: s.records("stale_zones", shard, tzdata, limit))
        )

    async def schedule_error(self, schedule_id: int, error: str | None) -> None:
        await self.db.write("schedule_error", lambda session: session.execute("schedule_error", schedule_id, error))

    async def fire(self, shard: int, term: int, fires: Sequence[Fire], *, tzdata: str, until: datetime | None) -> Fired:
        return await self.db.write("fire", lambda s: ticks.fire(s, shard, term, fires, tzdata=tzdata, until=until))

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
        verdict, _ = await self.db.flow(
            "judge",
            lambda tx: flows.judge(tx, schedule, leased, worker=worker, leader=leader, lease=lease, decide=decide),
        )
        return verdict

    async def late_ticks(self, after: Looked = None, limit: int = 10_000) -> tuple[list[str], Looked]:
        """Schedules with ticks that should have started and wait, among up to `limit` due ones after that place, oldest
        first; and the place to go on from (None: there were no more)."""
        place = (0, 0) if after is None else (to_us(after[0]), after[1])
        looked = await self.db.read(
            "late_ticks", lambda session: session.fetch("late_ticks", session.now, *place, limit)
        )
        names = sorted({name for _, _, name in looked if name is not None})
        return names, None if len(looked) < limit else (from_us(looked[-1][0]), looked[-1][1])

    async def promote(self, limit: int = 5000) -> int:
        due = await self.db.read("promote", lambda session: session.fetchval("timetable_due", session.horizon))
        return await self.db.write("promote", lambda session: ticks.promote(session, limit)) if due else 0

    async def timetable_due(self) -> bool:
        """Is a run due within half a minute that the leader has not promoted, as it should have a minute ago?"""
        soon = us(timedelta(seconds=30))
        return bool(
            await self.db.read(
                "timetable_due", lambda session: session.fetchval("timetable_due", session.now + soon + 1)
            )
        )

    async def retick(self, name: str, leader: tuple[int, int], tzdata: str, first: FirstFn | None) -> bool:
        return await self.db.flow("retick", lambda tx: flows.retick(tx, name, leader, tzdata, first))

    async def rescue(self, suspects: Sequence[int] = (), *, expired: bool = True) -> Rescued:
        """Take back the runs of the suspects, and (`expired`) of sessions whose time is past."""
        return Rescued(*await self.db.write("rescue", lambda session: leases.rescue(session, suspects, expired)))

    async def watch(self) -> float:
        """Note that the database is there; returns for how many seconds some scheduler has seen so without a gap."""
        return float(await self.db.write("watch", lambda session: session.fetchval("watch", session.now))) / 1_000_000

    async def absent(self) -> set[int]:
        """Worker sessions on this host whose process has ended: seen within a second of a kill -9, long before
        their lease ends."""
        here = await self.db.read("absent", lambda session: session.fetch("workers_here", socket.gethostname()))
        return {worker for worker, pid, started in here if process_gone(pid, started)}

    async def prune(self, older_than: timedelta, after: int, limit: int = 5000) -> tuple[int, int]:
        """Delete up to `limit` runs that ended before the retention, ids above `after`; returns (how many, the
        last id)."""
        return await self.db.write("prune", lambda session: ticks.prune(session, older_than, after, limit))

    async def prune_rest(self, older_than: timedelta) -> None:
        await self.db.write("prune_rest", lambda session: ticks.prune_rest(session, older_than))

    async def notify(self, queues: Sequence[str]) -> None:
        """Tell the news of other channels (a run was asked to stop …) to every process. There is none of queues: a commit
        that adds to `ready` is itself the wake-up."""
        channels = sorted({queue for queue in queues if queue.startswith(CANCELS[0])})
        if channels:
            counts = await self.db.write("notify", lambda s: [(s.fetchval("news", name), name) for name in channels])
            for count, channel in counts:
                self.db.bell.ring(count, channel)


def _beat(session: Session, node: str, shards: int, span: int, elector: str | None) -> Crew:
    session.execute("schedulers_gone", session.now - us(timedelta(hours=1)))
    session.execute("scheduler_beat", node, shards, session.now + span, elector)
    if span:
        session.execute("shards_open", shards)
    led = session.fetch("shards_led", session.now)
    remains = min((left for _, leader, left in led if leader not in {None, node}), default=None)
    return Crew(
        dict(session.fetch("schedulers_live", session.now)),
        {shard: leader for shard, leader, _ in led},
        None if remains is None else remains / 1_000_000,
    )
