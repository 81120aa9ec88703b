"""Jobs and schedules on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fleetcron.errors import StoreError
from fleetcron.model import Job, Schedule
from fleetcron.store import flows
from fleetcron.store.codec import job_from, job_spec, same_definition, schedule_from
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.protocol import FirstFn


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
        """False when there is none. Raises StoreError while schedules or open runs need it."""
        if await self.db.fetchval("job_exists", name) is None:
            return False
        async with self.tx("remove_job") as tx:
            if await tx.remove_job(name) is None:
                raise StoreError(
                    f"job {name!r} is still needed: remove its schedules and let or cancel its open runs first"
                )
            await tx.audit(who, "remove job", name)
            return True

    async def put_schedules(self, schedules: Sequence[Schedule], who: str, first: FirstFn) -> list[str]:
        """Create or edit schedules, each in a transaction of its own; "created", "edited" or "unchanged" in order.

        What has not changed (an app that starts again) is told by one read.
        """
        names = [s.name for s in schedules]
        known = {row["name"]: schedule_from(row) for row in await self.db.fetch("schedules_named", names)}
        answers = []
        for new in schedules:
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
