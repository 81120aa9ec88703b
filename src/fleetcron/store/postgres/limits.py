"""Limits on PostgreSQL: claims of limited tenants, and setting and looking at limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from fleetcron.decide.limits import MOST_UNPARKED, NO_LIMIT, Limit
from fleetcron.model import Job, Queue, Tenant
from fleetcron.store import depths
from fleetcron.store.codec import limits_from
from fleetcron.store.job_lines import declare_limits, undeclared
from fleetcron.store.postgres import rows
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.postgres.database import Session
from fleetcron.store.protocol import Claim, Lane, LimitedClaim, Limits

_PASSED_OVER = timedelta(milliseconds=5)
"""A tenant that another claim has in hand: that claim takes a millisecond or two."""


class Limiting(PostgresBase):
    """The part of the store that keeps limits, and keeps to them."""

    async def limits(self, known: int = -1) -> Limits | None:
        """Everything that limits; None when nothing has changed since the version `known`."""
        return limits_from([dict(row) for row in await self.db.fetch("limits", known)])

    async def set_tenant(self, name: str, changes: Mapping[str, Any], who: str) -> Tenant:
        async with self.tx("set_tenant") as tx:
            return await depths.set_tenant(tx, name, changes, who)

    async def set_queue(self, name: str, changes: Mapping[str, Any], who: str) -> Queue:
        async with self.tx("set_queue") as tx:
            return await depths.set_queue(tx, name, changes, who)

    async def limit_jobs(self, jobs: Sequence[Job]) -> bool:
        """Have the limits of these jobs be what their declarations say; False where they are so already."""
        limits = await self.limits()
        assert limits is not None
        if changed := undeclared(jobs, limits.jobs):
            async with self.tx("limit_jobs") as tx:
                await declare_limits(tx, changed)
        return bool(changed)

    async def pause_job(self, name: str, paused: bool, who: str) -> bool:
        """Have workers claim no runs of a job, or claim them again. False when there is no such job."""
        async with self.tx("pause_job") as tx:
            return await depths.pause_job(tx, name, paused, who)

    async def tenants(self) -> list[Tenant]:
        return [Tenant(**dict(row)) for row in await self.db.fetch("tenants")]

    async def queues(self) -> list[Queue]:
        return [Queue(**dict(row)) for row in await self.db.fetch("queues", self.clock_now())]

    async def full_queues(self) -> list[str]:
        """The queues in which no more may wait."""
        return [row[0] for row in await self.db.fetch("queues_full", self.clock_now())]

    async def mark_limited(self, worker: int, tenants: Sequence[str], jobs: Sequence[str]) -> None:
        """What the worker holds of these tenants and jobs counts against their limits from now on."""
        await self.db.fetch("limited_mark", worker, list(tenants), list(jobs))

    async def unpark_jobs(self) -> tuple[list[str], timedelta | None]:
        """As many runs as may start leave the lines of limited jobs; the queues to wake, and when to ask again (None: when something has
        ended)."""
        queues: set[str] = set()
        waits: list[timedelta] = []
        if jobs := [row[0] for row in await self.db.fetch("job_lines")]:
            left = {row[0]: Limit(*row[1:6]) for row in await self.db.fetch("job_room", self.clock_now(), jobs)}
            for job in jobs:
                if room := min(left[job].room() if job in left else NO_LIMIT, MOST_UNPARKED):
                    queues |= {row[0] for row in await self.db.fetch("job_unpark", job, room)}
                waits += [rest] if job in left and (rest := left[job].after(room).rest()) is not None else []
        return sorted(queues), min(waits, default=None)

    async def claim_limited(
        self,
        worker: int,
        lanes: Sequence[Lane],
        *,
        limit: int,
        quantum: int | Sequence[int],
        jobs: Sequence[int] | None,
    ) -> LimitedClaim:
        """`claim` for lanes of limited tenants; never ahead of the due time. Three statements in one transaction: lock the limiters, count
        what they leave, claim. A tenant that another claim has in hand is passed over."""
        quanta = [quantum] * len(lanes) if isinstance(quantum, int) else quantum
        async with self.db.transaction("claim_limited", self.clock_now()) as session:
            locked = [row[0] for row in await session.fetch("limiter_lock", sorted({lane.tenant for lane in lanes}))]
            found = await session.fetch("limiter_room", session.clock, locked) if locked else []
            left = {row[0]: Limit(*row[1:6]) for row in found}
            open_ = [(lane, most) for lane, most in zip(lanes, quanta, strict=True) if _room(left, lane) > 0]
            runs = await _claim(session, worker, open_, left, limit, jobs) if open_ else []
        claimed = [rows.claimed(row) for row in runs]
        for run in claimed:
            run.limited = True
            left[run.tenant] = left[run.tenant].after(1)
        rest: dict[str, timedelta | None] = {lane.tenant: _PASSED_OVER for lane in lanes if lane.tenant not in locked}
        rest |= {name: limited.rest() for name, limited in left.items() if limited.room() == 0}
        return LimitedClaim(Claim(runs[-1][21] if runs else None, claimed), rest)


def _room(left: Mapping[str, Limit], lane: Lane) -> int:
    return left[lane.tenant].room() if lane.tenant in left else 0


async def _claim(
    session: Session,
    worker: int,
    lanes: Sequence[tuple[Lane, int]],
    left: Mapping[str, Limit],
    limit: int,
    jobs: Sequence[int] | None,
) -> list[Any]:
    return await session.fetch(
        "claim_limited",
        session.clock,
        worker,
        [lane.queue for lane, _ in lanes],
        [lane.priority for lane, _ in lanes],
        [lane.tenant for lane, _ in lanes],
        [lane.first_due for lane, _ in lanes],
        [most for _, most in lanes],
        [_room(left, lane) for lane, _ in lanes],
        limit,
        None if jobs is None else list(jobs),
    )
