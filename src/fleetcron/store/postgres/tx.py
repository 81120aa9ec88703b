"""The steps of `store.tx.Tx` on PostgreSQL: one statement each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from fleetcron.clock import sleep
from fleetcron.decide.backfill import Chosen, Seen
from fleetcron.decide.limits import Limit, depth_us, per_us
from fleetcron.decide.misfire import MissRange
from fleetcron.errors import StoreUnavailable
from fleetcron.model import Backfill, BackfillState, Missed, Queue, Schedule, Tenant
from fleetcron.store.codec import missed_from, missed_json, schedule_from, schedule_spec
from fleetcron.store.flows import let_run
from fleetcron.store.postgres.database import Session
from fleetcron.store.protocol import JOB_GATE, Claimed, NewRun

DEDUP_UNTIL_STARTED, NOT_AHEAD = 1, 4
"""Flag of a ready row: its dedup key ends when it is claimed. (Flag 2, set in gate_park.sql: it has waited for a gate. Flag 8, set in
fire.sql: a tick that is judged if it does not start in time.)"""

_REPLACE_LOOKS = _CANCEL_LOOKS = 20
REMOVAL_WAIT = timedelta(milliseconds=300)
"""How long the removal of a job may hold up claims and submits, at a time."""


class PostgresTx:
    """One open transaction."""

    def __init__(self, session: Session, shards: int) -> None:
        self._s, self._shards = session, shards
        self._now: datetime | None = None

    async def now(self) -> datetime:
        if self._now is None:
            moment: datetime = self._s.clock or await self._s.connection.fetchval(self._s.statements["transaction_now"])
            self._now = moment
        return self._now

    async def led(self, shard: int, term: int) -> bool:
        return await self._s.fetchval("led", self._s.clock, shard, term) is not None

    async def lock_schedule(self, name: str) -> Schedule | None:
        row = await self._s.fetchrow("schedule_lock", name)
        return None if row is None else schedule_from(row)

    async def share_job(self, name: str) -> bool:
        return await self._s.fetchval("job_share", name) is not None

    async def insert_schedules(
        self, schedules: Sequence[tuple[Schedule, datetime | None, datetime | None]]
    ) -> set[str]:
        if not schedules:
            return set()
        columns = zip(*(insert_row(*one) for one in schedules), strict=True)
        return {row[0] for row in await self._s.fetch("schedules_insert", *map(list, columns), self._shards)}

    async def update_schedule(
        self, old: Schedule, new: Schedule, next_at: datetime | None, prev_at: datetime | None
    ) -> None:
        await self._s.fetch(
            "schedule_update", old.id, new.job, next_at, prev_at, new.paused, new.misfire, new.overlap, new.tenant, new.queue, new.priority,
            new.start_deadline, new.payload, schedule_spec(new), new.tzdata,
        )  # fmt: skip

    async def pause_schedule(self, schedule_id: int, paused: bool, next_at: datetime | None) -> None:
        await self._s.fetch("schedule_pause", schedule_id, paused, next_at)

    async def retick(self, schedule: Schedule, next_at: datetime | None, tzdata: str) -> None:
        await self._s.fetch("schedule_retick", schedule.id, next_at, tzdata)

    async def delete_schedule(self, schedule_id: int) -> None:
        await self._s.fetch("schedule_delete", schedule_id)

    async def withdraw(self, schedule: Schedule, since: datetime, reason: str) -> list[datetime]:
        rows = await self._s.fetch("withdraw", self._s.clock, schedule.name, since, reason, *let_run(schedule))
        return [row[0] for row in rows]

    async def first_due(self, schedule: Schedule) -> datetime | None:
        found: datetime | None = await self._s.fetchval("first_due", schedule.queue, schedule.priority, schedule.tenant)
        return found

    async def unstarted(self, schedule: Schedule, since: datetime) -> list[tuple[int, datetime, Missed | None]]:
        rows = await self._s.fetch("unstarted", self._s.clock, schedule.name, since, *let_run(schedule))
        return [(row[0], row[1], missed_from(row[2])) for row in rows]

    async def drop_ticks(self, run_ids: Sequence[int], reason: str) -> None:
        if run_ids:
            await self._s.fetch("drop_ticks", self._s.clock, list(run_ids), reason)

    async def held(self, worker: int, leased: Sequence[Claimed]) -> set[int]:
        rows = await self._s.fetch("lease_held", worker, [r.run_id for r in leased], [r.fence for r in leased])
        return {row[0] for row in rows}

    async def drop_leased(self, worker: int, leased: Sequence[Claimed], reason: str) -> list[int]:
        rows = await self._s.fetch(
            "drop_leased", self._s.clock, worker, [r.run_id for r in leased], [r.fence for r in leased], reason
        )
        return [row[0] for row in rows]

    async def keep_ticks(self, kept: Sequence[tuple[int, Missed | None]], again: timedelta) -> None:
        if kept:
            await self._s.fetch(
                "keep_ticks", self._s.clock, [i for i, _ in kept], [missed_json(m) for _, m in kept], again
            )

    async def late_runs(
        self, schedule: Schedule, ticks: Sequence[tuple[datetime, datetime | None, Missed | None]], again: timedelta
    ) -> list[str]:
        if not ticks:
            return []
        args = ([t[0] for t in ticks], [t[1] for t in ticks], [missed_json(t[2]) for t in ticks])
        rows = await self._s.fetch("late_run", self._s.clock, schedule.id, *args, again)
        return sorted({row[0] for row in rows})

    async def judged(
        self,
        schedule: Schedule,
        until: datetime | None,
        next_at: datetime | None,
        prev_at: datetime | None,
        owed: Missed | None,
    ) -> None:
        await self._s.fetch("judged", schedule.id, until, next_at, prev_at, missed_json(owed))

    async def miss(self, schedule: str, policy: str, ranges: Sequence[MissRange]) -> None:
        if ranges:
            columns = (
                [m.first for m in ranges],
                [m.last for m in ranges],
                [m.count for m in ranges],
                [m.reason for m in ranges],
            )
            await self._s.fetch("miss", schedule, policy, self._s.clock, *columns)

    async def take_ids(self, n: int) -> list[int]:
        return [row[0] for row in await self._s.fetch("take_ids", n)]

    async def dedup_take(self, runs: Sequence[tuple[int, NewRun]]) -> set[int]:
        if not runs:
            return set()
        rows = await self._s.fetch(
            "dedup_take",
            self._s.clock,
            [r.job for _, r in runs],
            [r.tenant for _, r in runs],
            [r.key for _, r in runs],
            [i for i, _ in runs],
            ["period" if isinstance(r.key_scope, timedelta) else r.key_scope for _, r in runs],
            [dedup_period(r) for _, r in runs],
            [r.due_at for _, r in runs],
        )
        return {row[0] for row in rows}

    async def dedup_find(self, runs: Sequence[NewRun]) -> dict[tuple[str, str, str], int]:
        rows = await self._s.fetch("dedup_find", [r.job for r in runs], [r.tenant for r in runs], [r.key for r in runs])
        return {(row[0], row[1], row[2]): row[3] for row in rows}

    async def insert_with_ids(
        self, runs: Sequence[tuple[int, NewRun]], wake: Sequence[str], *, looked: bool
    ) -> dict[int, datetime]:
        if not runs:
            return {}
        columns = insert_columns([r for _, r in runs], [i for i, _ in runs])
        rows = await self._s.fetch("insert", self._s.clock, *columns, list(wake), looked)
        return {row[0]: row[1] for row in rows}

    async def replace_run(self, run_id: int, new: NewRun) -> bool:
        args = (run_id, new.payload, new.due_at, new.delay, new.start_deadline)
        for _ in range(_REPLACE_LOOKS):
            answer = await self._s.fetchval("replace_run", self._s.clock, *args)
            if answer != "busy":
                return answer is not None
        raise StoreUnavailable(
            f"insert: run {run_id}, which is to be replaced, kept moving; nothing was written, try again"
        )

    async def gate_lock(self, gate: str) -> None:
        await self._s.fetch("gate_lock", gate)

    async def gate_state(self, gate: str, run: Claimed) -> tuple[int, int]:
        row = await self._s.fetchrow("gate_state", gate, run.due_at, run.run_id)
        assert row is not None
        return row[0], row[1]

    async def gate_newer(self, gate: str, nominal_at: datetime) -> bool:
        return bool(await self._s.fetchval("gate_newer", gate, nominal_at))

    async def has_started(self, run_id: int) -> bool:
        return bool(await self._s.fetchval("has_started", run_id))

    async def gate_take(self, worker: int, run: Claimed) -> bool:
        return await self._s.fetchval("gate_take", worker, run.run_id, run.fence, run.gate) is not None

    async def gate_park(self, worker: int, run: Claimed) -> bool:
        return await self._s.fetchval("gate_park", worker, run.run_id, run.fence, run.gate) is not None

    async def gate_replace(self, gate: str) -> list[tuple[str, datetime]]:
        rows = await self._s.fetch("gate_replace", self._s.clock, gate)
        return [(row[0], row[1]) for row in rows if row[0] is not None and row[2] == "missed"]

    async def remove_job(self, name: str) -> int | None:
        await self._s.connection.execute(f"SET LOCAL lock_timeout = {REMOVAL_WAIT // timedelta(milliseconds=1)}")
        await self._s.fetch("job_lock", name)
        await self._s.fetch("remove_job_wait")
        removed: int | None = await self._s.fetchval("remove_job", name)
        return removed

    async def limiter(self, kind: str, name: str) -> Tenant | None:
        row = await self._s.fetchrow("limiter_get", kind, name)
        return None if row is None else Tenant(name=name, **dict(row))

    async def put_limiter(self, kind: str, limiter: Tenant) -> None:
        await self._s.fetch(
            "limiter_put", self._s.clock, kind, limiter.name, limiter.rate, per_us(limiter.rate), limiter.burst, limiter.max_running,
            limiter.weight, limiter.paused, depth_us(limiter.rate, limiter.burst),
        )  # fmt: skip

    async def queue(self, name: str) -> Queue | None:
        row = await self._s.fetchrow("queue_get", name)
        return None if row is None else Queue(name=name, **dict(row))

    async def put_queue(self, queue: Queue) -> None:
        await self._s.fetch("queue_put", queue.name, queue.max_depth, queue.on_full, queue.paused)

    async def depth(self, queue: str, most: int) -> int:
        return int(await self._s.fetchval("queue_depth", self._s.clock, queue, most))

    async def job_limits(self, jobs: Sequence[str]) -> dict[str, Limit]:
        locked = [row[0] for row in await self._s.fetch("job_limit_lock", list(jobs))]
        rows = await self._s.fetch("job_room", self._s.clock, locked) if locked else []
        return {row[0]: Limit(*row[1:6]) for row in rows}

    async def job_take(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        held = ([r.run_id for r in runs], [r.fence for r in runs])
        return {row[0] for row in await self._s.fetch("job_take", self._s.clock, worker, *held, job)}

    async def job_park(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        held = ([r.run_id for r in runs], [r.fence for r in runs])
        return {row[0] for row in await self._s.fetch("job_park", worker, *held, JOB_GATE + job)}

    async def limits_changed(self) -> None:
        await self._s.fetch("limits_changed")

    async def insert_backfill(self, new: Backfill) -> int:
        args = (new.schedule, new.start, new.end, new.order, new.mode, new.max_running, new.total)
        return int(await self._s.fetchval("backfill_insert", self._s.clock, *args))

    async def lock_backfill(self, backfill_id: int) -> Backfill | None:
        row = await self._s.fetchrow("backfill_lock", backfill_id)
        return None if row is None else Backfill(**dict(row))

    async def fold_backfill(self, backfill_id: int) -> int:
        return int(await self._s.fetchval("backfill_fold", backfill_id))

    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]:
        return seen(await self._s.fetch("ticks_seen", schedule, list(ticks))) if ticks else {}

    async def backfill_runs(self, backfill_id: int, schedule: Schedule, chosen: Sequence[Chosen]) -> int:
        columns = ([c.nominal_at for c in chosen], [c.prev_at for c in chosen], [c.generation for c in chosen])
        return int(await self._s.fetchval("backfill_runs", self._s.clock, backfill_id, schedule.id, *columns))

    async def note_backfill(self, backfill: Backfill, *, walked: bool) -> None:
        args = (backfill.id, backfill.cursor, backfill.created, backfill.existing, walked)
        await self._s.fetch("backfill_note", *args)

    async def end_backfill(self, backfill_id: int, state: BackfillState, reason: str | None) -> None:
        await self._s.fetch("backfill_state", self._s.clock, backfill_id, state, reason)

    async def open_backfill_runs(self, backfill_id: int) -> list[int]:
        return [row[0] for row in await self._s.fetch("backfill_open", backfill_id)]

    async def cancel_run(self, run_id: int) -> None:
        for _ in range(_CANCEL_LOOKS):
            if await self._s.fetchval("cancel", self._s.clock, run_id) or await self._s.fetchval("final", [run_id]):
                return
            await sleep(0.01)  # between a claim's two tables in our snapshot: look again
        raise StoreUnavailable(f"cancel: run {run_id} kept moving; nothing was changed, try again")

    async def audit(self, who: str, what: str, subject: str) -> None:
        await self._s.fetch("audit", self._s.clock, who, what, subject)

    async def audit_each(self, who: str, what: str, subjects: Sequence[str]) -> None:
        await self._s.fetch("audit_each", self._s.clock, who, what, list(subjects))


def insert_row(schedule: Schedule, next_at: datetime | None, prev_at: datetime | None) -> tuple[Any, ...]:
    """A row of schedules_insert.sql."""
    return (
        schedule.name, schedule.job, next_at, prev_at, schedule.paused, schedule.misfire, schedule.overlap, schedule.tenant, schedule.queue,
        schedule.priority, schedule.start_deadline, schedule.payload, schedule_spec(schedule), schedule.tzdata,
    )  # fmt: skip


def seen(found: Sequence[Any]) -> dict[datetime, list[Seen]]:
    """The rows of ticks_seen.sql, by tick."""
    by_tick: dict[datetime, list[Seen]] = {}
    for nominal_at, generation, state, started in found:
        by_tick.setdefault(nominal_at, []).append(Seen(generation, state, started))
    return by_tick


def dedup_period(run: NewRun) -> timedelta | None:
    """How long a key with a time as its scope holds, from now: counted from the due time, not from the submit (case C100)."""
    if not isinstance(run.key_scope, timedelta):
        return None
    return run.key_scope + (run.delay or timedelta(0))


def insert_columns(runs: Sequence[NewRun], ids: Sequence[int | None]) -> list[list[Any]]:
    """The columns of insert.sql."""
    return [
        list(ids),
        [r.job for r in runs],
        [r.payload for r in runs],
        [r.queue for r in runs],
        [r.priority for r in runs],
        [r.tenant for r in runs],
        [r.due_at for r in runs],
        [r.delay for r in runs],
        [r.start_deadline for r in runs],
        [r.key for r in runs],
        [r.gate for r in runs],
        [0 if r.key is None else NOT_AHEAD | DEDUP_UNTIL_STARTED * (r.key_scope == "started") for r in runs],
    ]
