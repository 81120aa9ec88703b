"""The steps of `store.tx.Tx` on SQLite. They are coroutines because the protocol's are; none of them ever suspends
(`database.drive`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from fleetcron.clock import from_us, to_us
from fleetcron.decide.backfill import Chosen, Seen
from fleetcron.decide.limits import Limit, depth_us, per_us
from fleetcron.decide.misfire import MissRange
from fleetcron.model import Backfill, BackfillState, Missed, Queue, Schedule, Tenant
from fleetcron.store.codec import missed_from, missed_json, schedule_spec
from fleetcron.store.flows import let_run
from fleetcron.store.protocol import JOB_GATE, Claimed, NewRun
from fleetcron.store.sqlite import leases, place, rows
from fleetcron.store.sqlite.inserts import due_us, insert_runs
from fleetcron.store.sqlite.session import Session, at_or_none, json_list, us, us_or_none
from fleetcron.store.sqlite.ticks import NewTick, write_ticks

NO_TICKS_FOLLOW = ("paused", "schedule removed")
"""Why ticks are withdrawn for good: what a worker has claimed ahead is asked to stop. A new definition most often names the same instant, and
would find it taken by a run that does not run."""


class SqliteTx:
    """One open transaction. Whoever is in it is the only writer, so nothing here needs a lock of its own."""

    def __init__(self, session: Session, shards: int) -> None:
        self._s, self._shards = session, shards

    async def now(self) -> datetime:
        return self._s.moment

    async def led(self, shard: int, term: int) -> bool:
        return self._s.fetchval("led", self._s.now, shard, term) is not None

    async def lock_schedule(self, name: str) -> Schedule | None:
        found = self._s.records("schedules_named", json_list([name]))
        return rows.schedule(found[0]) if found else None

    async def share_job(self, name: str) -> bool:
        return bool(self._s.fetch("job_ids", json_list([name])))

    async def insert_schedules(
        self, schedules: Sequence[tuple[Schedule, datetime | None, datetime | None]]
    ) -> set[str]:
        return {schedule.name for schedule, next_at, prev_at in schedules if self._insert(schedule, next_at, prev_at)}

    def _insert(self, schedule: Schedule, next_at: datetime | None, prev_at: datetime | None) -> bool:
        inserted = self._s.fetchval(
            "schedule_insert", self._s.now, self._s.take("schedule"), schedule.name, schedule.job, at_or_none(next_at),
            at_or_none(prev_at), schedule.paused, schedule.misfire, schedule.overlap, schedule.tenant, schedule.queue,
            schedule.priority, us_or_none(schedule.start_deadline), schedule.payload, schedule_spec(schedule),
            schedule.tzdata, self._shards,
        )  # fmt: skip
        return inserted is not None

    async def update_schedule(
        self, old: Schedule, new: Schedule, next_at: datetime | None, prev_at: datetime | None
    ) -> None:
        self._s.execute(
            "schedule_update", self._s.now, old.id, new.job, at_or_none(next_at), at_or_none(prev_at), new.paused,
            new.misfire, new.overlap, new.tenant, new.queue, new.priority, us_or_none(new.start_deadline), new.payload,
            schedule_spec(new), new.tzdata,
        )  # fmt: skip

    async def pause_schedule(self, schedule_id: int, paused: bool, next_at: datetime | None) -> None:
        self._s.execute("schedule_pause", self._s.now, schedule_id, paused, at_or_none(next_at))

    async def retick(self, schedule: Schedule, next_at: datetime | None, tzdata: str) -> None:
        self._s.execute("schedule_retick", schedule.id, at_or_none(next_at), tzdata)

    async def delete_schedule(self, schedule_id: int) -> None:
        self._s.execute("schedule_delete", schedule_id)

    async def withdraw(self, schedule: Schedule, since: datetime, reason: str) -> list[datetime]:
        unstarted = self._s.fetch("open_ticks", schedule.name, to_us(since), *_let_run(schedule))
        waiting = [run for run in unstarted if place.take_out(self._s, run, attempts=0)]
        if reason in NO_TICKS_FOLLOW:
            self._s.execute("withdraw_ask", json_list({run[0] for run in unstarted} - {run[0] for run in waiting}))
        due = [run for run in waiting if run[6] <= self._s.now]
        self._s.execute("erase_runs", json_list(run[0] for run in waiting if run[6] > self._s.now))
        self._s.execute("miss_runs", self._s.now, json_list(run[0] for run in due), reason)
        return [from_us(run[6]) for run in due]

    async def first_due(self, schedule: Schedule) -> datetime | None:
        first = self._s.fetchval("first_due", schedule.queue, schedule.priority, schedule.tenant)
        return None if first is None else from_us(first)

    async def unstarted(self, schedule: Schedule, since: datetime) -> list[tuple[int, datetime, Missed | None]]:
        found = self._s.fetch("unstarted", self._s.now, schedule.name, to_us(since), *_let_run(schedule))
        return [(row[0], from_us(row[1]), missed_from(row[2])) for row in found]

    async def drop_ticks(self, run_ids: Sequence[int], reason: str) -> None:
        for run_id in run_ids:
            run = self._s.fetchrow("run_place", run_id)
            if run is not None:
                place.take_out(self._s, run)
        if run_ids:
            self._s.execute("miss_runs", self._s.now, json_list(run_ids), reason)

    async def held(self, worker: int, leased: Sequence[Claimed]) -> set[int]:
        return set(leases.held(self._s, worker, [(run.run_id, run.fence) for run in leased]))

    async def drop_leased(self, worker: int, leased: Sequence[Claimed], reason: str) -> list[int]:
        won = leases.end(self._s, worker, [(run.run_id, run.fence) for run in leased])
        if won:
            self._s.execute("miss_runs", self._s.now, json_list(won), reason)
        return list(won)

    async def keep_ticks(self, kept: Sequence[tuple[int, Missed | None]], again: timedelta) -> None:
        late_at = self._s.now + us(again)
        self._s.many("keep_ticks", [(late_at, run_id, missed_json(missed)) for run_id, missed in kept])

    async def late_runs(
        self, schedule: Schedule, ticks: Sequence[tuple[datetime, datetime | None, Missed | None]], again: timedelta
    ) -> list[str]:
        late_at = None if schedule.misfire is None else self._s.now + us(again)
        written = write_ticks(
            self._s,
            [
                NewTick(schedule.id, self._s.now, to_us(nominal_at), at_or_none(prev_at), late_at, missed_json(missed))
                for nominal_at, prev_at, missed in ticks
            ],
        )
        return [schedule.queue] if written else []

    async def judged(
        self,
        schedule: Schedule,
        until: datetime | None,
        next_at: datetime | None,
        prev_at: datetime | None,
        owed: Missed | None,
    ) -> None:
        self._s.execute(
            "judged", schedule.id, at_or_none(until), at_or_none(next_at), at_or_none(prev_at), missed_json(owed)
        )

    async def miss(self, schedule: str, policy: str, ranges: Sequence[MissRange]) -> None:
        self._s.many(
            "miss", [(schedule, to_us(m.first), to_us(m.last), m.count, m.reason, policy, self._s.now) for m in ranges]
        )

    async def take_ids(self, n: int) -> list[int]:
        first = self._s.take("run", n)
        return list(range(first, first + n))

    async def dedup_take(self, runs: Sequence[tuple[int, NewRun]]) -> set[int]:
        now, taken = self._s.now, set()
        for run_id, run in runs:
            scope, until = str(run.key_scope), None
            if isinstance(
                run.key_scope, timedelta
            ):  # it holds for that long from the due time, not from the submit (case C100)
                scope, until = "period", due_us(run, now) + us(run.key_scope)
            if self._s.fetchval("dedup_take", now, run.job, run.tenant, run.key, run_id, scope, until) is not None:
                taken.add(run_id)
        return taken

    async def dedup_find(self, runs: Sequence[NewRun]) -> dict[tuple[str, str, str], int]:
        found = {}
        for run in runs:
            holder = self._s.fetchval("dedup_find", run.job, run.tenant, run.key)
            if holder is not None and run.key is not None:
                found[run.job, run.tenant, run.key] = holder
        return found

    async def insert_with_ids(
        self, runs: Sequence[tuple[int, NewRun]], wake: Sequence[str], *, looked: bool
    ) -> dict[int, datetime]:
        """`wake` is not needed: whoever waits is woken by the commit."""
        if not looked and runs and {row[0] for row in self._s.fetch("queues_limited")} & {run.queue for _, run in runs}:
            return {}
        ids = [run_id for run_id, _ in runs]
        return dict(zip(ids, insert_runs(self._s, [run for _, run in runs], ids), strict=True))

    async def replace_run(self, run_id: int, new: NewRun) -> bool:
        run = self._s.fetchrow("run_place", run_id)
        if run is None or run[6] != "open":
            return False
        waiting = place.take_out(self._s, run)
        if waiting is None:
            return False
        due = due_us(new, self._s.now)
        self._s.execute("replace_run", run_id, new.payload, due, us_or_none(new.start_deadline))
        place.put(self._s, [(run[1], run[2], run[3], due, run_id, *waiting)])
        return True

    async def gate_lock(self, gate: str) -> None:
        """Nothing to do: the writer is the lock."""

    async def gate_state(self, gate: str, run: Claimed) -> tuple[int, int]:
        running, waiting = self._s.fetch("gate_state", gate, to_us(run.due_at), run.run_id)[0]
        return running, waiting

    async def gate_newer(self, gate: str, nominal_at: datetime) -> bool:
        return bool(self._s.fetchval("gate_newer", gate, to_us(nominal_at)))

    async def has_started(self, run_id: int) -> bool:
        return bool(self._s.fetchval("has_started", run_id))

    async def gate_take(self, worker: int, run: Claimed) -> bool:
        return self._s.fetchval("gate_take", worker, run.run_id, run.fence, run.gate) is not None

    async def gate_park(self, worker: int, run: Claimed) -> bool:
        assert run.gate is not None
        return self._park(worker, run, run.gate)

    def _park(self, worker: int, run: Claimed, gate: str) -> bool:
        if self._s.fetchval("gate_park", worker, run.run_id, run.fence, gate) is None:
            return False
        self._s.execute("gate_forgive", run.run_id, gate)
        leases.refund(self._s, leases.end(self._s, worker, [(run.run_id, run.fence)]).values())
        return True

    async def gate_replace(self, gate: str) -> list[tuple[str, datetime]]:
        self._s.execute("gate_ask", gate)
        waiting = self._s.fetch("gate_waiting", gate)
        self._s.execute("gate_clear", gate)
        self._s.execute("miss_runs", self._s.now, json_list(row[0] for row in waiting), "overlap: replaced")
        return [(row[1], from_us(row[2])) for row in waiting if row[1] is not None and not row[3]]

    async def remove_job(self, name: str) -> int | None:
        removed: int | None = self._s.fetchval("remove_job", name)
        return removed

    async def limiter(self, kind: str, name: str) -> Tenant | None:
        found = self._s.records("limiter_get", kind, name)
        return Tenant(**(found[0] | {"name": name, "paused": bool(found[0]["paused"])})) if found else None

    async def put_limiter(self, kind: str, limiter: Tenant) -> None:
        self._s.execute(
            "limiter_put", self._s.now, kind, limiter.name, limiter.rate, per_us(limiter.rate), limiter.burst, limiter.max_running,
            limiter.weight, limiter.paused, depth_us(limiter.rate, limiter.burst),
        )  # fmt: skip

    async def queue(self, name: str) -> Queue | None:
        found = self._s.records("queue_get", name)
        return Queue(**(found[0] | {"name": name, "paused": bool(found[0]["paused"])})) if found else None

    async def put_queue(self, queue: Queue) -> None:
        self._s.execute("queue_put", queue.name, queue.max_depth, queue.on_full, queue.paused)

    async def depth(self, queue: str, most: int) -> int:
        return int(self._s.fetchval("queue_depth", self._s.now, queue, most))

    async def job_limits(self, jobs: Sequence[str]) -> dict[str, Limit]:
        return {row[0]: Limit(*row[1:6]) for row in self._s.fetch("job_room", self._s.now, json_list(jobs))}

    async def job_take(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        taken = {r.run_id for r in runs if self._s.execute("job_take", worker, r.run_id, r.fence, job)}
        self._s.execute("limiter_take", self._s.now, "job", job, len(taken))
        return taken

    async def job_park(self, worker: int, job: str, runs: Sequence[Claimed]) -> set[int]:
        return {r.run_id for r in runs if self._park(worker, r, JOB_GATE + job)}

    async def limits_changed(self) -> None:
        self._s.execute("limits_changed")

    async def insert_backfill(self, new: Backfill) -> int:
        backfill_id = self._s.take("backfill")
        self._s.execute(
            "backfill_insert", self._s.now, backfill_id, new.schedule, to_us(new.start), to_us(new.end), new.order, new.mode, new.max_running,
            new.total,
        )  # fmt: skip
        return backfill_id

    async def lock_backfill(self, backfill_id: int) -> Backfill | None:
        found = self._s.records("backfill_lock", backfill_id)
        return rows.backfill(found[0]) if found else None

    async def fold_backfill(self, backfill_id: int) -> int:
        ended = dict(self._s.fetch("backfill_ended", backfill_id))
        if ended:
            done = sum(state in ("succeeded", "discarded") for state in ended.values())
            self._s.execute("backfill_forget", backfill_id, json_list(ended))
            self._s.execute("backfill_count", backfill_id, done, len(ended) - done)
        return len(self._s.fetch("backfill_open", backfill_id))

    async def seen_ticks(self, schedule: str, ticks: Sequence[datetime]) -> dict[datetime, list[Seen]]:
        return rows.seen(self._s.fetch("ticks_seen", schedule, json_list(map(to_us, ticks)))) if ticks else {}

    async def backfill_runs(self, backfill_id: int, schedule: Schedule, chosen: Sequence[Chosen]) -> int:
        first = self._s.take("run", len(chosen))
        self._s.many(
            "backfill_run_insert",
            [
                (
                    self._s.now,
                    run_id,
                    schedule.id,
                    to_us(c.nominal_at),
                    at_or_none(c.prev_at),
                    c.generation,
                    backfill_id,
                )
                for run_id, c in enumerate(chosen, first)
            ],
        )
        self._s.execute("backfill_list", backfill_id, json_list(range(first, first + len(chosen))))
        return place.put_runs(self._s, range(first, first + len(chosen)))

    async def note_backfill(self, backfill: Backfill, *, walked: bool) -> None:
        cursor = at_or_none(backfill.cursor)
        self._s.execute("backfill_note", backfill.id, cursor, backfill.created, backfill.existing, walked)

    async def end_backfill(self, backfill_id: int, state: BackfillState, reason: str | None) -> None:
        self._s.execute("backfill_state", self._s.now, backfill_id, state, reason)

    async def open_backfill_runs(self, backfill_id: int) -> list[int]:
        return [row[0] for row in self._s.fetch("backfill_open", backfill_id)]

    async def cancel_run(self, run_id: int) -> None:
        place.cancel(self._s, run_id)

    async def audit(self, who: str, what: str, subject: str) -> None:
        self._s.execute("audit", self._s.now, who, what, subject)

    async def audit_each(self, who: str, what: str, subjects: Sequence[str]) -> None:
        self._s.many("audit", [(self._s.now, who, what, subject) for subject in subjects])


def _let_run(schedule: Schedule) -> tuple[int | None, int]:
    until, ticks = let_run(schedule)
    return at_or_none(until), ticks
