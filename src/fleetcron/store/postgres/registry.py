"""Jobs and schedules on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import asyncpg

from fleetcron.clock import sleep
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.model import Job, Schedule
from fleetcron.store import flows
from fleetcron.store.codec import job_from, job_spec, same_definition, schedule_from
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.protocol import FirstFn

_REMOVAL_TRIES, _REMOVAL_PAUSE = 5, 0.2


class Registry(PostgresBase):
    """The part of the store that keeps what to run, and when."""

    async def put_jobs(self, jobs: Sequence[Job]) -> dict[str, int]:
        """Register or change jobs; returns the ids of all registered jobs by name."""
        if jobs:
            async with self.db.transaction("put_jobs", self.clock_now()) as session:
                for job in sorted(jobs, key=lambda j: j.name):
                    await session.fetch(
                        "put_job", job.name, job.queue, job.priority, job.max_attempts, job.dead_letter, job_spec(job)
                    )
        return {job.name: job.id for job in await self.jobs()}

    async def jobs(self) -> list[Job]:
        return [job_from(row) for row in await self.db.fetch("jobs", self.clock_now())]

    async def remove_job(self, name: str, who: str) -> bool:
        """False when there is none. Raises StoreError while schedules or open runs need it, and StoreUnavailable while a transaction is
        open that has submitted runs, of whatever job: one of this may be among them."""
        if await self.db.fetchval("job_exists", name) is None:
            return False
        for _ in range(_REMOVAL_TRIES):
            try:
                async with self.tx("remove_job") as tx:
                    if await tx.remove_job(name) is None:
                        raise StoreError(
                            f"job {name!r} is still needed: remove its schedules and let or cancel its open runs first"
                        )
                    await tx.audit(who, "remove job", name)
                    return True
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                    raise
            await sleep(_REMOVAL_PAUSE)
        raise StoreUnavailable(
            f"job {name!r} was not removed: somebody's open transaction has submitted runs, or edits a schedule; try again when it has ended"
        )

    async def put_schedules(self, schedules: Sequence[Schedule], who: str, first: FirstFn) -> list[str]:
        """Create schedules, by the thousand, or edit them, each in a transaction of its own; "created", "edited" or "unchanged" in order.

        What has not changed (an app that starts again) is told by one read.
        """
        names = [s.name for s in schedules]
        known = {row["name"]: schedule_from(row) for row in await self.db.fetch("schedules_named", names)}
        created: set[str] = set()
        for batch in flows.unknown(schedules, known):
            async with self.tx("create_schedules") as tx:
                created |= await flows.create_schedules(tx, batch, who, first)
        answers = []
        for new in schedules:
            if new.name in created:
                created.remove(new.name)  # a second one of this name is an edit
                answers.append("created")
                continue
            old = known.get(new.name)
            if old is not None and old.error is None and same_definition(old, new):
                answers.append("unchanged")
                continue
            async with self.tx("put_schedule") as tx:
                answers.append(await flows.put_schedule(tx, new, who, first))
        return answers

    async def schedules(
        self, *, name: str | None = None, job: str | None = None, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        return [schedule_from(row) for row in await self.db.fetch("schedules", after or "", name, job, limit)]

    async def remove_schedule(self, name: str, who: str) -> bool:
        async with self.tx("remove_schedule") as tx:
            return await flows.remove_schedule(tx, name, who)

    async def pause_schedule(self, name: str, who: str) -> bool:
        async with self.tx("pause_schedule") as tx:
            return await flows.pause_schedule(tx, name, who)

    async def resume_schedule(self, name: str, who: str, at: datetime | None, first: FirstFn) -> bool:
        async with self.tx("resume_schedule") as tx:
            return await flows.resume_schedule(tx, name, who, at, first)
