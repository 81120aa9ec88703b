"""What happens between the claim and the slot: the rare cases, decided before anything starts.

Late ticks are judged by their misfire policy together with everything of their schedule that has not started; runs with a gate are
admitted or parked; runs past their start deadline or their attempts are closed. Everything else goes straight to the runner.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from fleetcron.clock import sleep
from fleetcron.decide.misfire import judge
from fleetcron.errors import StoreError
from fleetcron.store.protocol import JOB_GATE, Claimed, Settled, Store
from fleetcron.worker.completer import Completer, handed_back
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.entry import Entries
from fleetcron.worker.lease import Lease
from fleetcron.worker.runner import Held, Runner

log = logging.getLogger("fleetcron.worker")

_T = TypeVar("_T")
_UNKNOWN_BACKOFF = timedelta(seconds=5)


class Intake:
    """Takes claimed runs in; `stalled` ones wait here for their lease to be certain again."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        completer: Completer,
        clock: DbClock,
        entries: Entries,
        lease: timedelta,
        limited_jobs: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._limited_jobs = limited_jobs
        self._store, self._runner, self._completer, self._clock, self._entries, self._lease = (
            store,
            runner,
            completer,
            clock,
            entries,
            lease,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._stalled: list[Held] = []
        self.judging = 0

    def take(self, claimed: Sequence[Claimed], lease: Lease, *, ahead: bool = False) -> None:
        """Route claimed runs. A gate is asked when a run is due, not when it is claimed. `ahead`: they were claimed before they were due."""
        late: defaultdict[str, list[Claimed]] = defaultdict(list)
        gated: list[Claimed] = []
        ready: list[Held] = []
        limited = self._limited_jobs()
        now = None
        for run in claimed:
            entry = self._entries.get(run.job)
            if entry is not None and (limited or run.gate is not None):
                _gate(run, entry.job.name if entry.job.name in limited else None)
            if entry is None:
                self._completer.settled(lease.worker, _unknown(run))
            elif run.expires_at is not None and run.expires_at < (now := now or self._clock.moment()):
                self._completer.settled(lease.worker, _closed(run, "expired", "not started by its start deadline"))
            elif run.attempt > entry.job.max_attempts:
                self._completer.settled(
                    lease.worker, _closed(run, "failed", "attempts used up", dead=entry.job.dead_letter)
                )
            elif run.schedule is not None and (run.late or (run.schedule in late and run.late_at is not None)):
                late[run.schedule].append(run)
            elif run.gate is not None and run.due <= self._clock.now():
                gated.append(run)
            else:
                ready.append(Held(run, entry, lease, ahead))
        self._runner.add(ready)
        for schedule, runs in late.items():
            # Whatever else of the schedule is due and unstarted in our hands is judged along: a policy knows no second late run.
            # (What has no late_at is no misfire: it has had a start and waits for its next attempt, or has been judged already.)
            others = self._runner.unstarted_of(schedule=schedule)
            ahead = ahead or any(held.ahead for held in others)
            runs += [held.claimed for held in others]
        if late or gated:
            self._start(self._special(dict(late), gated, lease, ahead))

    def stale(self, held: Held) -> None:
        """A run that may not start as it is (see Runner)."""
        if held.lease.lost.is_set():
            log.warning(
                "run %d (%s): dropped before it started, its lease was lost", held.claimed.run_id, held.claimed.job
            )
        elif not held.lease.valid():
            self._stalled.append(held)
        else:
            self._retake([held], held.lease)

    def cancelled(self, held: Held) -> None:
        """A claimed run that was cancelled before it started."""
        self._completer.settled(held.lease.worker, _closed(held.claimed, "cancelled", "cancelled before it started"))

    def revive(self, lease: Lease) -> None:
        """The lease is certain again: what stalled may start, if it is still in time."""
        stalled, self._stalled = self._stalled, []
        self._retake([held for held in stalled if held.lease is lease], lease)

    def _retake(self, stale: Sequence[Held], lease: Lease) -> None:
        now = self._clock.now()
        for held in stale:
            held.claimed.late = held.claimed.late_at is not None and held.claimed.late_at.timestamp() < now
        self.take([held.claimed for held in stale], lease, ahead=any(held.ahead for held in stale))

    def give_back(self, held: Sequence[Held]) -> None:
        """Hand unstarted runs back, no attempt used."""
        for h in [*held, *self._stalled]:
            if not h.lease.lost.is_set():
                self.refuse([h.claimed], h.lease)
        self._stalled.clear()

    def refuse(self, runs: Sequence[Claimed], lease: Lease) -> None:
        """Hand claimed runs back that were not taken in, no attempt used."""
        for run in runs:
            self._completer.settled(lease.worker, handed_back(run.run_id, run.fence, run.attempt, None))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="fleetcron-intake")
        self._tasks.add(task)
        self.judging += 1
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self.judging -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("intake failed by a fault of fleetcron", exc_info=error)
        self._runner.room.set()

    async def _special(self, late: dict[str, list[Claimed]], gated: list[Claimed], lease: Lease, ahead: bool) -> None:
        for schedule, runs in late.items():
            gated += await self._judge(schedule, runs, lease)
        through = [run for run in gated if run.gate is None]
        gated = [run for run in gated if run.gate is not None]
        if gated:
            admissions = await self._again(lambda: self._store.admit(lease.worker, gated), lease)
            started = {a.run_id for a in admissions or () if a.verdict == "start"}
            through += [run for run in gated if run.run_id in started]
        for run in through:
            entry = self._entries.get(run.job)
            if entry is not None:
                self._runner.add([Held(run, entry, lease, ahead, admitted=True)])

    async def _judge(self, schedule: str, runs: list[Claimed], lease: Lease) -> list[Claimed]:
        """The ones of these late ticks that run after all."""
        verdict = await self._again(
            lambda: self._store.judge(
                schedule, runs, worker=lease.worker, leader=None, lease=self._lease, decide=judge
            ),
            lease,
        )
        if verdict is None:
            return []
        kept = []
        for run in runs:
            if run.run_id in verdict.keep:
                run.late, run.late_at, run.missed = False, None, verdict.keep[run.run_id]
                kept.append(run)
        return kept

    async def _again(self, ask: Callable[[], Awaitable[_T]], lease: Lease) -> _T | None:
        """Until the database answers or the lease is lost."""
        pause = 0.05
        while not lease.lost.is_set():
            try:
                return await ask()
            except StoreError as error:
                log.warning("a claimed run waits for the database: %s", error)
                await sleep(pause)
                pause = min(pause * 2, 1.0)
        return None

    async def settle(self) -> None:
        """Wait for what is being judged."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def _gate(run: Claimed, job_limit: str | None) -> None:
    """A run of a limited job has to pass a gate, its own or its job's; one that waited at its job's, which is not limited any more, has not."""
    run.job_limit = job_limit
    if run.gate is None and job_limit is not None:
        run.gate = JOB_GATE + job_limit
    elif run.gate is not None and job_limit is None and run.gate.startswith(JOB_GATE):
        run.gate = None


def _unknown(run: Claimed) -> Settled:
    return Settled(
        run_id=run.run_id,
        fence=run.fence,
        state="open",
        attempt=run.attempt - 1,
        delay=_UNKNOWN_BACKOFF,
        reason="no worker knows this job",
    )


def _closed(run: Claimed, state: str, reason: str, *, dead: bool = False) -> Settled:
    return Settled(
        run_id=run.run_id,
        fence=run.fence,
        state=state,
        attempt=run.attempt - 1,
        reason=reason,
        error=reason if state == "failed" else None,
        dead=dead,
    )
