"""Jobs and schedules on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from fleetcron.errors import StoreError
from fleetcron.model import Job, Schedule
from fleetcron.store import flows
from fleetcron.store.codec import job_spec, same_definition
from fleetcron.store.protocol import FirstFn
from fleetcron.store.sqlite import rows
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.session import Session, json_list
from fleetcron.store.sqlite.tx import SqliteTx


class Registry(SqliteBase):
    """The part of the store that keeps what to run, and when."""

    async def put_jobs(self, jobs: Sequence[Job]) -> dict[str, int]:
        """Register or change jobs; returns the ids of all registered jobs by name."""
        known = {job.name: job for job in await self.jobs()}
        changed = [job for job in jobs if job.name not in known or job_spec(known[job.name]) != job_spec(job)]
        if changed:
            await self.db.write("put_jobs", lambda session: _put_jobs(session, changed))
            known = {job.name: job for job in await self.jobs()}
        return {name: job.id for name, job in known.items()}

    async def jobs(self) -> list[Job]:
        return [
            rows.job(row) for row in await self.db.read("jobs", lambda session: session.records("jobs", session.now))
        ]

    async def remove_job(self, name: str, who: str) -> bool:
        """False when there is none. Raises StoreError while schedules, or runs that wait or run, need it."""

        async def remove(tx: SqliteTx) -> bool:
            if await tx.remove_job(name) is None:
                raise StoreError(
                    f"job {name!r} is still needed: remove its schedules and let or cancel its open runs first"
                )
            await tx.audit(who, "remove job", name)
            return True

        if not await self.db.read("remove_job", lambda session: session.fetch("job_ids", json_list([name]))):
            return False
        return await self.db.flow("remove_job", remove)

    async def put_schedules(self, schedules: Sequence[Schedule], who: str, first: FirstFn) -> list[str]:
        """Create schedules, by the thousand, or edit them, each in a transaction of its own; "created", "edited" or "unchanged" in order.

        What has not changed (an app that starts again) is told by one read.
        """
        names = json_list(schedule.name for schedule in schedules)
        found = await self.db.read("put_schedules", lambda session: session.records("schedules_named", names))
        known = {row["name"]: rows.schedule(row) for row in found}
        created: set[str] = set()
        for batch in flows.unknown(schedules, known):
            created |= await self.db.flow(
                "create_schedules", partial(flows.create_schedules, new=batch, who=who, first=first)
            )
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
            answers.append(
                await self.db.flow("put_schedule", partial(flows.put_schedule, new=new, who=who, first=first))
            )
        return answers

    async def schedules(
        self, *, name: str | None = None, job: str | None = None, limit: int = 1000, after: str | None = None
    ) -> list[Schedule]:
        found = await self.db.read(
            "schedules", lambda session: session.records("schedules", after or "", name, job, limit), slow=True
        )
        return rows.schedules(found)

    async def remove_schedule(self, name: str, who: str) -> bool:
        return await self.db.flow("remove_schedule", lambda tx: flows.remove_schedule(tx, name, who))

    async def pause_schedule(self, name: str, who: str) -> bool:
        return await self.db.flow("pause_schedule", lambda tx: flows.pause_schedule(tx, name, who))

    async def resume_schedule(self, name: str, who: str, at: datetime | None, first: FirstFn) -> bool:
        return await self.db.flow("resume_schedule", lambda tx: flows.resume_schedule(tx, name, who, at, first))


def _put_jobs(session: Session, jobs: Sequence[Job]) -> None:
    for job in jobs:
        session.execute(
            "put_job",
            session.now,
            session.take("job"),
            job.name,
            job.queue,
            job.priority,
            job.max_attempts,
            job.dead_letter,
            job_spec(job),
        )
