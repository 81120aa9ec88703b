"""Looking at a fleet and steering it: the part of `Fleet` that operators use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from fleetcron.backfilling import Backfilling
from fleetcron.decide.ticks import bounded_next, first_tick
from fleetcron.errors import ConfigError, NotFound
from fleetcron.limiting import Limiting
from fleetcron.model import (
    Attempt,
    DeadLetter,
    HeldLock,
    Job,
    Leader,
    Miss,
    Node,
    QueueCounts,
    RunRecord,
    Schedule,
    State,
)
from fleetcron.run import Run
from fleetcron.store.protocol import NewRun, RunFilter, Store
from fleetcron.store.wakeups import CANCELS, LIMITS, REGISTRY, SCHEDULES

T = TypeVar("T")


class Submitted(msgspec.Struct, frozen=True):
    """What `submit_many` did: lists in the order of the payloads. `created`: it is a new run; `replaced`: a run with the same key waited
    still, and took the payload and due time."""

    ids: list[int]
    created: list[bool]
    replaced: list[bool]


class Replayed(msgspec.Struct, frozen=True):
    """What a replay did: how many dead letters run again, how many were skipped, and why."""

    replayed: int
    skipped: int
    reasons: dict[str, int] = {}  # msgspec copies it for each instance


class Progress(msgspec.Struct, frozen=True):
    """How far a handler says it is."""

    done: int
    total: int | None
    note: str | None


class Page(list[T]):
    """A list with `.next`: the cursor to pass as `after=` for more, None at the end."""

    next: Any = None


class Management(Limiting, Backfilling):
    """Needs an open store."""

    _registry: dict[str, Job]

    @property
    @abstractmethod
    def store(self) -> Store: ...
    @abstractmethod
    def _who(self) -> str: ...

    # looking
    async def jobs(self) -> list[Job]:
        """The registry. `known` says whether a live worker can run it, `paused` whether its runs are held back."""
        return await self.store.jobs()

    async def schedules(self, *, job: str | None = None, limit: int = 100, after: str | None = None) -> Page[Schedule]:
        """Schedules by name."""
        found = Page(await self.store.schedules(job=job, limit=_limit(limit) + 1, after=after))
        return _page(found, limit, lambda s: s.name)

    async def get_schedule(self, name: str) -> Schedule:
        """One schedule. Raises NotFound."""
        found = await self.store.schedules(name=name)
        if not found:
            raise NotFound(f"no schedule is named {name!r}")
        return found[0]

    async def runs(
        self,
        *,
        job: str | None = None,
        schedule: str | None = None,
        state: str | None = None,
        tenant: str | None = None,
        queue: str | None = None,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> Page[Run]:
        """Runs, newest first; `since` and `until` bound the due time. Their `attempts` are not loaded: `refresh()` one for that."""
        if state is not None and state not in list(State):
            raise ConfigError(f"state={state!r}: expected one of {', '.join(State)}")
        where = RunFilter(
            job=job,
            schedule=schedule,
            state=state,
            tenant=tenant,
            queue=queue,
            key=key,
            since=_aware(since, "since"),
            until=_aware(until, "until"),
            limit=_limit(limit) + 1,
            after=after,
        )
        found = Page(Run(self, record) for record in await self.store.runs(where))  # type: ignore[arg-type]
        return _page(found, limit, lambda r: r.id)

    async def iter_runs(self, **filters: Any) -> AsyncIterator[Run]:
        """Every run that `runs` with these filters would list, page by page."""
        after = filters.pop("after", None)
        while True:
            page = await self.runs(after=after, **filters)
            for run in page:
                yield run
            if page.next is None:
                return
            after = page.next

    async def run(self, run_id: int) -> Run:
        """One run with its attempts. Raises NotFound."""
        record, attempts = await self._run_record(run_id)
        return Run(self, record, attempts)  # type: ignore[arg-type]

    async def _run_record(self, run_id: int, conn: Any = None) -> tuple[RunRecord, list[Attempt]]:
        """`conn`: look as the caller's own transaction sees it."""
        record = await self.store.run(run_id, conn=conn)
        if record is None:
            raise NotFound(f"there is no run {run_id}")
        return record, await self.store.attempts(run_id)

    async def progress(self, run_id: int) -> Progress | None:
        """What the handler of a run last told with `ctx.progress`, if it did."""
        found = await self.store.read_progress(run_id)
        return None if found is None else Progress(*found)

    async def counts(self) -> dict[str, QueueCounts]:
        """Open runs per queue: `scheduled ready running retrying`. Cheap."""
        return await self.store.counts()

    async def unknown_jobs(self) -> dict[str, int]:
        """Jobs that no live worker has a handler for, with their due runs."""
        return await self.store.unknown_jobs()

    async def misses(self, schedule: str | None = None, limit: int = 1000) -> list[Miss]:
        """Ticks that did not run, and why, newest first."""
        return await self.store.misses(schedule, _limit(limit))

    async def upcoming(self, schedule: str, n: int = 10) -> list[datetime]:
        """The next ticks of a schedule, as if it were not paused."""
        found = await self.get_schedule(schedule)
        ticks: list[datetime] = []
        moment: datetime | None = await self.store.now()
        while len(ticks) < n and moment is not None and (moment := bounded_next(found, moment)) is not None:
            ticks.append(moment)
        return ticks

    async def dead_letters(
        self, *, job: str | None = None, limit: int = 100, after: int | None = None
    ) -> Page[DeadLetter]:
        """Runs that used up their attempts, newest first."""
        found = Page(await self.store.dead_letters(job=job, limit=_limit(limit) + 1, after=after))
        return _page(found, limit, lambda d: d.run_id)

    async def dead_letter(self, run_id: int) -> DeadLetter:
        """The dead letter of one run. Raises NotFound."""
        found = await self.store.dead_letters(limit=1, after=run_id + 1)
        if not found or found[0].run_id != run_id:
            raise NotFound(f"run {run_id} is not a dead letter")
        return found[0]

    async def nodes(self) -> list[Node]:
        """Live nodes."""
        return await self.store.nodes()

    async def leaders(self) -> list[Leader]:
        """Who leads each shard; `node` is None where nobody does."""
        return await self.store.leaders()

    async def locks(self) -> list[HeldLock]:
        """The locks that are held, by name."""
        return await self.store.locks()

    # steering
    async def cancel(self, run_id: int) -> str:
        """End a run: "cancelled" (it waited), "asked" (its worker stops it within a heartbeat) or "too late". Raises NotFound."""
        answer = await self.store.cancel(run_id, self._who())
        if answer == "unknown":
            raise NotFound(f"there is no run {run_id}")
        if answer == "asked":
            await self.store.notify([CANCELS])
        return answer

    async def pause(self, name: str) -> None:
        """Pause a schedule: its ticks are not written, and what was written but has not started is withdrawn. Where no schedule has this
        name, the job that has it (see `pause_job`). Raises NotFound."""
        if await self.store.pause_schedule(name, self._who()):
            await self.store.notify([CANCELS])
        else:
            await self._pause_job(name, True, f"no schedule or job is named {name!r}")

    async def resume(self, name: str, at: datetime | None = None) -> None:
        """Resume a schedule, from now or from `at`; the time of the pause is not caught up. Where no schedule has this name, the job that
        has it. Raises NotFound."""
        if await self.store.resume_schedule(name, self._who(), _aware(at, "at"), first_tick):
            await self.store.notify([SCHEDULES])
        elif at is not None:
            raise NotFound(f"no schedule is named {name!r}")
        else:
            await self._pause_job(name, False, f"no schedule or job is named {name!r}")

    async def unschedule(self, name: str) -> None:
        """Remove a schedule and its ticks that have not started. Raises NotFound."""
        if not await self.store.remove_schedule(name, self._who()):
            raise NotFound(f"no schedule is named {name!r}")
        await self.store.notify([CANCELS])

    async def add_jobs(self, jobs: Sequence[Job]) -> list[str]:
        """Register jobs that need no Python (shell). Returns "created", "edited" or "unchanged", in order. Raises ConfigError when a name
        belongs to a job of another kind."""
        known = {job.name: job for job in await self.store.jobs()}
        answers = []
        for job in jobs:
            old = known.get(job.name)
            if old is not None and old.type != job.type:
                raise ConfigError(
                    f"job {job.name!r} is a {old.type} job of the fleet already; choose another name for this {job.type} job"
                )
            same = (
                old is not None and msgspec.structs.replace(old, id=job.id, known=job.known, paused=job.paused) == job
            )
            answers.append("created" if old is None else "unchanged" if same else "edited")
        if changed := [job for job, answer in zip(jobs, answers, strict=True) if answer != "unchanged"]:
            await self.store.put_jobs(changed)
            await self.store.notify([REGISTRY, LIMITS] if await self.store.limit_jobs(changed) else [REGISTRY])
        self._registry = known | {job.name: job for job in jobs}
        return answers

    async def remove_job(self, name: str) -> None:
        """Forget a job of the registry. Raises NotFound, and StoreError while schedules or waiting runs need it."""
        if not await self.store.remove_job(name, self._who()):
            raise NotFound(f"no job is named {name!r}")

    async def trigger(self, name: str) -> Run:
        """Run a schedule (or a job that needs no payload) now. The schedule's rhythm does not change. Raises NotFound."""
        found = await self.store.schedules(name=name)
        if found:
            s = found[0]
            new = NewRun(
                job=s.job,
                payload=s.payload,
                queue=s.queue,
                priority=s.priority,
                tenant=s.tenant,
                start_deadline=s.start_deadline,
            )
            inserted = (await self.store.insert([new], wake=[s.queue]))[0]
            return await self.run(inserted.id)
        return await self.submit(name)  # type: ignore[attr-defined,no-any-return]

    async def replay(
        self,
        run_id: int | None = None,
        *,
        job: str | None = None,
        schedule: str | None = None,
        tenant: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        all: bool = False,  # noqa: A002  # the word that the command line uses
    ) -> Replayed:
        """Run dead letters again: one, those that match, or all. Each is replayed once, also if two people press the button."""
        if run_id is not None:
            wanted = [run_id]
            if await self.store.run(run_id) is None:
                raise NotFound(f"there is no run {run_id}")
        else:
            if not all and not any((job, schedule, tenant, since, until)):
                raise ConfigError("replay: name a run, a filter (job, schedule, tenant, since, until), or all=True")
            since, until = _aware(since, "since"), _aware(until, "until")
            wanted, after = [], None
            while page := await self.store.dead_letters(job=job, limit=1000, after=after):
                after = page[-1].run_id
                wanted += [
                    d.run_id
                    for d in page
                    if (schedule is None or d.schedule == schedule)
                    and (tenant is None or d.tenant == tenant)
                    and (since is None or d.died_at >= since)
                    and (until is None or d.died_at < until)
                ]
        replayed = 0
        for i in range(0, len(wanted), 1000):
            replayed += len(await self.store.replay(wanted[i : i + 1000], self._who()))
        if replayed:
            await self.store.notify([""])
        skipped = len(wanted) - replayed
        return Replayed(
            replayed, skipped, {"not a dead letter any more (or its job is gone)": skipped} if skipped else {}
        )

    async def purge_dead(self, run_ids: Sequence[int]) -> int:
        """Forget dead letters; their runs stay in the history as failed."""
        return await self.store.purge_dead(run_ids)


def _limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 100_000:
        raise ConfigError(f"limit={limit!r}: expected a whole number from 1 to 100000")
    return limit


def _page(found: Page[T], limit: int, cursor: Any) -> Page[T]:
    if len(found) > limit:
        del found[limit:]
        found.next = cursor(found[-1])
    return found


def _aware(moment: datetime | None, name: str) -> datetime | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise TypeError(f"{name}: expected an aware datetime, got {moment!r}")
    return moment.astimezone(UTC)
