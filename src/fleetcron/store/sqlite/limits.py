"""Limits on SQLite: claims of limited tenants, and setting and looking at limits. The one writer is the lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from fleetcron.decide.limits import MOST_UNPARKED, NO_LIMIT, Limit
from fleetcron.model import Job, Queue, Tenant
from fleetcron.store import depths
from fleetcron.store.codec import limits_from
from fleetcron.store.job_lines import declare_limits, undeclared
from fleetcron.store.protocol import Claim, Claimed, Lane, LimitedClaim, Limits
from fleetcron.store.sqlite import leases, place
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.session import Session, json_list


class Limiting(SqliteBase):
    """The part of the store that keeps limits, and keeps to them."""

    async def limits(self, known: int = -1) -> Limits | None:
        """Everything that limits; None when nothing has changed since the version `known`."""
        return limits_from(await self.db.read("limits", lambda session: session.records("limits", known)))

    async def set_tenant(self, name: str, changes: Mapping[str, Any], who: str) -> Tenant:
        return await self.db.flow("set_tenant", lambda tx: depths.set_tenant(tx, name, changes, who))

    async def set_queue(self, name: str, changes: Mapping[str, Any], who: str) -> Queue:
        return await self.db.flow("set_queue", lambda tx: depths.set_queue(tx, name, changes, who))

    async def limit_jobs(self, jobs: Sequence[Job]) -> bool:
        """Have the limits of these jobs be what their declarations say; False where they are so already."""
        limits = await self.limits()
        assert limits is not None
        if changed := undeclared(jobs, limits.jobs):
            await self.db.flow("limit_jobs", lambda tx: declare_limits(tx, changed))
        return bool(changed)

    async def pause_job(self, name: str, paused: bool, who: str) -> bool:
        """Have workers claim no runs of a job, or claim them again. False when there is no such job."""
        return await self.db.flow("pause_job", lambda tx: depths.pause_job(tx, name, paused, who))

    async def tenants(self) -> list[Tenant]:
        found = await self.db.read("tenants", lambda session: session.records("tenants"), slow=True)
        return [Tenant(**(row | {"paused": bool(row["paused"])})) for row in found]

    async def queues(self) -> list[Queue]:
        found = await self.db.read("queues", lambda session: session.records("queues", session.now), slow=True)
        return [Queue(**(row | {"paused": bool(row["paused"])})) for row in found]

    async def refused(self, counts: Mapping[str, int]) -> None:
        """So many runs were refused by full queues."""
        await self.db.write("refused", lambda session: session.many("queue_refused", list(counts.items())))

    async def full_queues(self) -> list[str]:
        """The queues in which no more may wait."""
        return await self.db.read("full_queues", _full)

    async def mark_limited(self, worker: int, tenants: Sequence[str], jobs: Sequence[str]) -> None:
        """What the worker holds of these tenants and jobs counts against their limits from now on."""
        args = (worker, json_list(tenants), json_list(jobs))
        await self.db.write("mark_limited", lambda session: session.execute("limited_mark", *args))

    async def unpark_jobs(self) -> tuple[list[str], timedelta | None]:
        """As many runs as may start leave the lines of limited jobs; the queues to wake, and when to ask again (None: when something has
        ended)."""
        if not await self.db.read("unpark_jobs", lambda session: session.fetch("job_lines")):
            return [], None  # the usual case: it costs no write lock
        return await self.db.write("unpark_jobs", _unpark)

    async def claim_limited(
        self,
        worker: int,
        lanes: Sequence[Lane],
        *,
        limit: int,
        quantum: int | Sequence[int],
        jobs: Sequence[int] | None,
    ) -> LimitedClaim:
        """`claim` for lanes of limited tenants; never ahead of the due time. Where the limits leave nothing, it costs no write lock."""
        quanta = [quantum] * len(lanes) if isinstance(quantum, int) else quantum
        left = await self.db.read("claim_limited", lambda session: _left(session, lanes))
        if not any(found.room() > 0 for found in left.values()):
            return LimitedClaim(Claim(None, []), {name: found.rest() for name, found in left.items()})
        return await self.db.write(
            "claim_limited", lambda session: _claim(session, worker, list(zip(lanes, quanta, strict=True)), limit, jobs)
        )


def _unpark(session: Session) -> tuple[list[str], timedelta | None]:
    jobs = [row[0] for row in session.fetch("job_lines")]
    left = {row[0]: Limit(*row[1:6]) for row in session.fetch("job_room", session.now, json_list(jobs))}
    queues: set[str] = set()
    waits = []
    for job in jobs:
        room = left[job].room() if job in left else NO_LIMIT
        line = session.fetch("job_line", job, min(room, MOST_UNPARKED)) if room else []
        for row in line:
            session.fetch("parked_delete", row[8], row[3], row[4], place.ANY_ATTEMPTS)
        if line:
            session.many("ready_insert", [row[:8] for row in line])
            session.woke = True
        queues |= {row[0] for row in line}
        waits += [rest] if job in left and (rest := left[job].after(len(line)).rest()) is not None else []
    return sorted(queues), min(waits, default=None)


def _full(session: Session) -> list[str]:
    limited = session.fetch("queues_limited")
    return [name for name, limit, _ in limited if session.fetchval("queue_depth", session.now, name, limit) >= limit]


def _left(session: Session, lanes: Sequence[Lane]) -> dict[str, Limit]:
    names = json_list(sorted({lane.tenant for lane in lanes}))
    return {row[0]: Limit(*row[1:6]) for row in session.fetch("limiter_room", session.now, names)}


def _claim(
    session: Session, worker: int, lanes: Sequence[tuple[Lane, int]], limit: int, jobs: Sequence[int] | None
) -> LimitedClaim:
    left = _left(session, [lane for lane, _ in lanes])
    runs: list[Claimed] = []
    for lane, quantum in lanes:
        room = left[lane.tenant].room() if lane.tenant in left else 0
        if (most := min(quantum, limit - len(runs), room)) > 0:
            claim = leases.claim(session, worker, [lane], limit=most, quantum=most, ahead=timedelta(0), jobs=jobs)
            left[lane.tenant] = left[lane.tenant].after(len(claim.runs))
            runs += claim.runs
    runs.sort(key=lambda run: (run.due_at, run.run_id))
    for run in runs:
        run.limited = True
    session.many("lease_limit", [(worker, run.run_id, run.tenant) for run in runs])
    for tenant, n in Counter(run.tenant for run in runs).items():
        session.execute("limiter_take", session.now, "tenant", tenant, n)
    rest = {name: found.rest() for name, found in left.items() if found.room() == 0}
    return LimitedClaim(Claim(session.moment if runs else None, runs), rest)
