"""Limits on PostgreSQL: claims of limited tenants, and setting and looking at limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from fleetcron.decide.limits import MOST_UNPARKED, NO_LIMIT, Limit
from fleetcron.model import Job, Queue, Tenant
from fleetcron.store import depths
from fleetcron.store.codec import limits_from
from fleetcron.store.job_lines import declare_limits, undeclared
from fleetcron.store.postgres import rows
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.protocol import Lane, LimitedClaim, Limits

_decode = msgspec.json.Decoder(tuple[int, int | None, int | None, int | None, int]).decode
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

    async def refused(self, counts: Mapping[str, int]) -> None:
        """So many runs were refused by full queues."""
        for queue, runs in counts.items():
            await self.db.fetch("queue_refused", queue, runs)

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
        """`claim` for lanes of limited tenants; never ahead of the due time. A tenant that another claim has in hand is passed over."""
        found = await self.db.fetch(
            "claim_limited",
            self.clock_now(),
            worker,
            [lane.queue for lane in lanes],
            [lane.priority for lane in lanes],
            [lane.tenant for lane in lanes],
            [lane.first_due for lane in lanes],
            [quantum] * len(lanes) if isinstance(quantum, int) else list(quantum),
            limit,
            None if jobs is None else list(jobs),
        )
        claim = rows.claim([row for row in found if row[0] is not None])
        for run in claim.runs:
            run.limited = True
        taken = Counter(run.tenant for run in claim.runs)
        rest: dict[str, timedelta | None] = {}
        for row in found:
            if row[0] is None:
                tenant, before = row[9], row[4]
                rest[tenant] = _PASSED_OVER if before is None else Limit(*_decode(before)).after(taken[tenant]).rest()
        return LimitedClaim(claim, rest)
