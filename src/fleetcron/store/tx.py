"""The small steps that `flows` is written in: one database transaction, opened by the adapter, in which these may be called in any order.

Each step is one statement on PostgreSQL and one or a few on SQLite. Steps never decide; decisions lie in `fleetcron.decide`.
Lock order: shard, schedule, backfill, gate, ready / timetable, lease, run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from fleetcron.decide.backfill import Chosen, Seen
from fleetcron.decide.limits import Limit
from fleetcron.decide.misfire import MissRange
from fleetcron.errors import StoreUnavailable
from fleetcron.model import Backfill, BackfillState, Missed, Queue, Schedule, Tenant
from fleetcron.store.protocol import Claimed, NewRun


class KeysMoved(StoreUnavailable):
    """Dedup keys changed hands between two statements of an insert: nothing is written, it begins anew."""


class Tx(Protocol):
    """One open transaction."""

    async def now(self) -> datetime:
        """The database's time, the same for the whole transaction."""
        ...

    # leadership
    async def led(self, shard: int, term: int) -> bool:
        """Is this term in force? Holds off a takeover until the transaction ends."""
        ...

    # schedules
    async def lock_schedule(self, name: str) -> Schedule | None:
        """The schedule, locked; None when there is none."""
        ...

    async def share_job(self, name: str) -> bool:
        """Is there such a job? It stays until the transaction ends."""
        ...

    async def insert_schedules(
        self, schedules: Sequence[tuple[Schedule, datetime | None, datetime | None]]
    ) -> set[str]:
        """Insert (schedule, next_at, prev_at) each, but for names that are taken; the names that were not."""
        ...

    async def update_schedule(
        self, old: Schedule, new: Schedule, next_at: datetime | None, prev_at: datetime | None
    ) -> None:
        """Replace the definition of a locked schedule: revision + 1, error and judged_until forgotten."""
        ...

    async def pause_schedule(self, schedule_id: int, paused: bool, next_at: datetime | None) -> None: ...
    async def retick(self, schedule: Schedule, next_at: datetime | None, tzdata: str) -> None:
        """Set the next tick of a locked schedule, and the zone data it was computed with."""
        ...

    async def delete_schedule(self, schedule_id: int) -> None: ...

    async def withdraw(self, schedule: Schedule, since: datetime, reason: str) -> list[datetime]:
        """Take back unstarted ticks with nominal_at ≥ since, and older ones that a judgement let run (`flows.let_run`).

        Future ones vanish; due ones become `missed` and are returned, in order."""
        ...

    async def first_due(self, schedule: Schedule) -> datetime | None:
        """The first due time waiting in `ready` in the schedule's lane, or in `timetable`."""
        ...

    async def unstarted(self, schedule: Schedule, since: datetime) -> list[tuple[int, datetime, Missed | None]]:
        """(run id, nominal_at, missed) of ticks that wait in `ready` and can be misfires, each locked: since ≤ nominal_at ≤ now, and older
        ones that a judgement let run (`flows.let_run`)."""
        ...

    async def drop_ticks(self, run_ids: Sequence[int], reason: str) -> None:
        """Waiting ticks judged away: out of `ready`, state missed."""
        ...

    async def held(self, worker: int, leased: Sequence[Claimed]) -> set[int]:
        """Those of these leases that the worker still holds; they stay its own until the transaction ends."""
        ...

    async def drop_leased(self, worker: int, leased: Sequence[Claimed], reason: str) -> list[int]:
        """Leased, unstarted ticks judged away; returns those whose lease was still held. (One that had a start is cancelled.)"""
        ...

    async def keep_ticks(self, kept: Sequence[tuple[int, Missed | None]], again: timedelta) -> None:
        """Late ticks that run after all, told what was judged away for them; judged once more if not started within `again`."""
        ...

    async def late_runs(
        self, schedule: Schedule, ticks: Sequence[tuple[datetime, datetime | None, Missed | None]], again: timedelta
    ) -> list[str]:
        """Write late ticks (nominal_at, prev_at, missed) as runs due now; returns the queues to wake. `again` as in keep_ticks."""
        ...

    async def judged(
        self,
        schedule: Schedule,
        until: datetime | None,
        next_at: datetime | None,
        prev_at: datetime | None,
        owed: Missed | None,
    ) -> None:
        """Note how far a locked schedule has been judged, its next tick, and what no run has been told of yet."""
        ...

    async def miss(self, schedule: str, policy: str, ranges: Sequence[MissRange]) -> None: ...

    # keyed inserts
    async def take_ids(self, n: int) -> list[int]: ...

    async def dedup_take(self, runs: Sequence[tuple[int, NewRun]]) -> set[int]:
        """Claim the keys of these (id, run) pairs, distinct and sorted by (job, tenant, key); returns the ids that got theirs."""
        ...

    async def dedup_find(self, runs: Sequence[NewRun]) -> dict[tuple[str, str, str], int]:
        """Who holds these (job, tenant, key)."""
        ...

    async def insert_with_ids(
        self, runs: Sequence[tuple[int, NewRun]], wake: Sequence[str], *, looked: bool
    ) -> dict[int, datetime]:
        """Insert runs under these ids; returns their due times. Unless the depths of their queues were looked at, nothing is inserted into
        a queue that has a limit, and the answer is empty."""
        ...

    async def replace_run(self, run_id: int, new: NewRun) -> bool:
        """The waiting run takes the newer payload and due time; False when it no longer waits."""
        ...

    # gates
    async def gate_lock(self, gate: str) -> None: ...
    async def gate_state(self, gate: str, run: Claimed) -> tuple[int, int]:
        """(leases holding the gate, runs parked there before this one), as committed before the lock was granted. While the gate is held,
        whoever is parked counts as before."""
        ...

    async def gate_newer(self, gate: str, nominal_at: datetime) -> bool:
        """Does a newer tick hold the gate, or wait for it?"""
        ...

    async def has_started(self, run_id: int) -> bool:
        """Has an earlier attempt of this run started?"""
        ...

    async def gate_take(self, worker: int, run: Claimed) -> bool: ...
    async def gate_park(self, worker: int, run: Claimed) -> bool: ...
    async def gate_replace(self, gate: str) -> list[tuple[str, datetime]]:
        """Ask the holders to stop, close the parked; returns (schedule, nominal_at) of the ticks that are missed: those that had a start
        are cancelled."""
        ...

    async def remove_job(self, name: str) -> int | None:
        """The id of the job removed; None while schedules or waiting runs need it."""
        ...

    # limits
    async def limiter(self, kind: str, name: str) -> Tenant | None:
        """What limits a tenant or a job ("tenant", "job"), locked."""
        ...

    async def put_limiter(self, kind: str, limiter: Tenant) -> None: ...
    async def queue(self, name: str) -> Queue | None:
        """What limits a queue, locked: nobody else fills it until this transaction ends."""
        ...

    async def put_queue(self, queue: Queue) -> None: ...
    async def depth(self, queue: str, most: int) -> int:
        """How many runs of the queue are due and wait, counted no further than `most`, as committed before the queue was locked."""
        ...

    async def job_limits(self, jobs: Sequence[str]) -> dict[str, Limit]:
        """What the limits of these jobs leave, each locked, as committed before the locks were granted; jobs without limits are left out."""
        ...

    async def job_take(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        """Leased runs are let in: they count, and take their tokens. Returns those whose lease is still held."""
        ...

    async def job_park(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        """Leased runs wait in the job's line; returns those whose lease was still held."""
        ...

    async def limits_changed(self) -> None: ...

    # backfills
    async def insert_backfill(self, new: Backfill) -> int: ...
    async def lock_backfill(self, backfill_id: int) -> Backfill | None: ...
    async def fold_backfill(self, backfill_id: int) -> int:
        """Count those of a locked backfill's runs that have ended; returns how many are open, as committed before the lock was granted."""
        ...

    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]: ...
    async def backfill_runs(self, backfill_id: int, schedule: Schedule, chosen: Sequence[Chosen]) -> int:
        """Write ticks as runs due now, in this order, by the schedule's present definition; returns how many are new."""
        ...

    async def note_backfill(self, backfill: Backfill, *, walked: bool) -> None:
        """Note how far a locked backfill is. `walked`: every tick of the range has been looked at."""
        ...

    async def end_backfill(self, backfill_id: int, state: BackfillState, reason: str | None) -> None:
        """Put a locked backfill into a state."""
        ...

    async def open_backfill_runs(self, backfill_id: int) -> list[int]: ...
    async def cancel_run(self, run_id: int) -> None:
        """End a run if it waits, ask its worker to stop it if it runs."""
        ...

    async def audit(self, who: str, what: str, subject: str) -> None: ...
    async def audit_each(self, who: str, what: str, subjects: Sequence[str]) -> None: ...
