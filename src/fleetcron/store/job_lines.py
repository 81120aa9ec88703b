"""Limits of jobs: a run passes them before it starts, or waits in its job's line, `parked` at the gate "job:<name>". Written once for both
stores, each inside one transaction.

Who runs is read from `lease.job`, so that no crash can leak a slot, in a statement after the one that locks the job's limiter (see
`flows.admit`). Limiters are locked before gates, so that two admissions never wait for each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from fleetcron.decide.limits import NO_LIMIT, Limit
from fleetcron.model import Job, Tenant
from fleetcron.store.protocol import JOB_GATE, Admission, Claimed
from fleetcron.store.tx import Tx


class JobLimits:
    """What the limits of the jobs of some leased runs leave, in one transaction."""

    def __init__(self, tx: Tx, worker: int, left: Mapping[str, Limit]) -> None:
        self._tx, self._worker, self._left = tx, worker, dict(left)

    @classmethod
    async def of(cls, tx: Tx, worker: int, runs: Sequence[Claimed]) -> JobLimits:
        """Locks the limiters of their jobs."""
        jobs = sorted({run.job_limit for run in runs if run.job_limit is not None})
        return cls(tx, worker, await tx.job_limits(jobs) if jobs else {})

    def room(self, job: str | None) -> int:
        """How many more runs of this job may start."""
        return self._left[job].room() if job is not None and job in self._left else NO_LIMIT

    async def take(self, job: str | None, runs: Sequence[Claimed]) -> set[int]:
        """Let these in; returns those whose lease is still held."""
        if job is None or job not in self._left:
            return {run.run_id for run in runs}
        taken = await self._tx.job_take(self._worker, job, runs)
        self._left[job] = self._left[job].after(len(taken))
        return taken

    async def line(self, runs: Sequence[Claimed]) -> list[Admission]:
        """Runs that nothing holds back but the limits of their jobs: in order of their due time, as many start as may."""
        by_job: defaultdict[str, list[Claimed]] = defaultdict(list)
        for run in sorted(runs, key=lambda run: (run.due_at, run.run_id)):
            by_job[run.job_limit or ""].append(run)
        verdicts = []
        for job, theirs in sorted(by_job.items()):
            room = self.room(job)
            start, wait = theirs[:room], theirs[room:]
            if start:
                verdicts += [Admission(i, "start") for i in await self.take(job, start)]
            if wait:
                verdicts += [Admission(i, "parked") for i in await self._tx.job_park(self._worker, job, wait)]
        return verdicts


def in_line(run: Claimed) -> bool:
    """Does nothing but its job's limits hold this run back?"""
    return run.gate is not None and run.gate.startswith(JOB_GATE)


async def declare_limits(tx: Tx, jobs: Sequence[Job]) -> None:
    """The limits of jobs are those that the registry says."""
    for job in sorted(jobs, key=lambda job: job.name):
        await tx.put_limiter("job", _limiter(job, await tx.limiter("job", job.name)))
    await tx.limits_changed()


def undeclared(jobs: Sequence[Job], known: Mapping[str, Tenant]) -> list[Job]:
    """Those of these jobs whose limits are not what the store has."""
    return [
        job
        for job in jobs
        if _limits(job) != ((it.rate, it.burst, it.max_running) if (it := known.get(job.name)) else (None,) * 3)
    ]


def _limits(job: Job) -> tuple[str | None, int | None, int | None]:
    return job.rate, job.burst, job.max_running


def _limiter(job: Job, old: Tenant | None) -> Tenant:
    return Tenant(
        name=job.name,
        rate=job.rate,
        burst=job.burst,
        max_running=job.max_running,
        paused=old is not None and old.paused,
    )
