"""Runs on PostgreSQL: inserting, looking, cancelling, replaying."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fleetcron.clock import sleep
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.model import Attempt, Care, DeadLetter, Leader, Miss, Node, QueueCounts, RunRecord, TableSize
from fleetcron.store import flows
from fleetcron.store.codec import elector_from
from fleetcron.store.depths import insert_fresh
from fleetcron.store.postgres import rows
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.postgres.callers import callers_own, told
from fleetcron.store.postgres.database import Session, translated
from fleetcron.store.postgres.tx import PostgresTx, insert_columns
from fleetcron.store.protocol import Inserted, NewRun, RunFilter
from fleetcron.store.tx import KeysMoved

_CANCEL_LOOKS = _KEY_LOOKS = 20


class Runs(PostgresBase):
    """The part of the store that users write to and look at."""

    async def insert(self, runs: Sequence[NewRun], *, wake: Sequence[str] = (), conn: Any = None) -> list[Inserted]:
        """Insert runs, in one transaction: ours, or the caller's own when `conn` is given (see store.callers), and then without a NOTIFY: a
        pending one takes a cluster-wide lock at the caller's commit. Raises TypeError for a `conn` that is none."""
        if any(run.key is not None for run in runs):
            return await self._insert_keyed(runs, wake, conn)
        if conn is not None:
            async with self._within("insert", conn) as session:
                found: Sequence[Any] = await session.fetch(
                    "insert", session.clock, *insert_columns(runs, [None] * len(runs)), [], False
                )
                if runs and not found:
                    async with session.connection.transaction():
                        return await _into_limited(PostgresTx(session, self.shards), runs, ())
        else:
            if len(runs) > 1 and _alike(runs) and (alike := await self._insert_alike(runs, wake)):
                return alike
            found = await self.db.fetch(
                "insert", self.clock_now(), *insert_columns(runs, [None] * len(runs)), list(wake), False
            )
            if runs and not found:
                async with self.tx("insert") as tx:
                    return await _into_limited(tx, runs, wake)
        return [Inserted(row[0], True, row[1]) for row in found]

    async def _insert_alike(self, runs: Sequence[NewRun], wake: Sequence[str]) -> list[Inserted]:
        r = runs[0]
        row = await self.db.fetchrow(
            "insert_alike", self.clock_now(), r.due_at, r.delay, r.start_deadline, r.job, r.queue, r.priority, r.tenant, r.gate, list(wake),
            [run.payload for run in runs],
        )  # fmt: skip
        return [] if row is None else [Inserted(run_id, True, row[1]) for run_id in row[0]]

    @asynccontextmanager
    async def _within(self, where: str, conn: Any) -> AsyncIterator[Session]:
        """The caller's own connection."""
        with translated(where), told(where):
            yield Session(callers_own(conn), self.db.statements, self.clock_now())

    async def _insert_keyed(self, runs: Sequence[NewRun], wake: Sequence[str], conn: Any) -> list[Inserted]:
        for _ in range(_KEY_LOOKS):
            try:
                if conn is None:
                    async with self.tx("insert") as tx:
                        return await flows.insert_keyed(tx, runs, wake)
                async with self._within("insert", conn) as session, session.connection.transaction():
                    return await flows.insert_keyed(PostgresTx(session, self.shards), runs, ())
            except KeysMoved:
                continue
        raise StoreUnavailable("insert: its keys kept changing hands; nothing was written, try again")

    async def run(self, run_id: int, *, conn: Any = None) -> RunRecord | None:
        if conn is None:
            row = await self.db.fetchrow("run", self.clock_now(), [run_id])
        else:
            async with self._within("run", conn) as session:
                row = await session.fetchrow("run", session.clock, [run_id])
        return None if row is None else rows.run_record(row)

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        found = await self.db.fetch(
            "runs", self.clock_now(), where.after, where.job, where.schedule, where.tenant, where.queue, where.key, where.since, where.until,
            where.state, where.limit,
        )  # fmt: skip
        return [rows.run_record(row) for row in found]

    async def attempts(self, run_id: int) -> list[Attempt]:
        return [rows.attempt(row) for row in await self.db.fetch("attempts", run_id)]

    async def final(self, run_ids: Sequence[int]) -> list[int]:
        return [row[0] for row in await self.db.fetch("final", list(run_ids))]

    async def cancel(self, run_id: int, who: str) -> str:
        """ "cancelled" (it waited), "asked" (its worker will stop it), "too late" (it had ended), or "unknown"."""
        for _ in range(_CANCEL_LOOKS):
            answer = await self.db.fetchval("cancel", self.clock_now(), run_id)
            if answer is not None:
                async with self.tx("cancel") as tx:
                    await tx.audit(who, f"cancel: {answer}", f"run {run_id}")
                return str(answer)
            if await self.db.fetchrow("run", self.clock_now(), [run_id]) is None:
                return "unknown"
            await sleep(0.01)  # between a claim's two tables in our snapshot: look again
        raise StoreError(f"cancel: run {run_id} kept moving; try again")

    async def misses(self, schedule: str | None, limit: int = 1000) -> list[Miss]:
        return [Miss(**dict(row)) for row in await self.db.fetch("misses", schedule, limit)]

    async def dead_letters(
        self, *, job: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[DeadLetter]:
        return [DeadLetter(**dict(row)) for row in await self.db.fetch("dead_letters", job, after, limit)]

    async def replay(self, run_ids: Sequence[int], who: str) -> list[int]:
        replayed = [row[0] for row in await self.db.fetch("replay", self.clock_now(), list(run_ids))]
        if replayed:
            async with self.tx("replay") as tx:
                await tx.audit(who, "replay", f"{len(replayed)} runs: {replayed[:20]}")
        return replayed

    async def purge_dead(self, run_ids: Sequence[int]) -> int:
        return len(await self.db.fetch("purge_dead", list(run_ids)))

    async def counts(self) -> dict[str, QueueCounts]:
        found = await self.db.fetch("counts", self.clock_now())
        return {row[0]: QueueCounts(scheduled=row[1], ready=row[2], running=row[3], retrying=row[4]) for row in found}

    async def unknown_jobs(self) -> dict[str, int]:
        return {row[0]: row[1] for row in await self.db.fetch("unknown_jobs", self.clock_now())}

    async def care(self) -> Care | None:
        snapshot = await self.db.fetchrow("snapshots")
        tables = [TableSize(*row) for row in await self.db.fetch("table_sizes", self.db.schema)]
        return Care(None if snapshot is None else (snapshot[0], snapshot[1]), tables)

    async def nodes(self) -> list[Node]:
        found = await self.db.fetch("nodes", self.clock_now())
        return [Node(**{**dict(row), "elector": elector_from(row["elector"])}) for row in found]

    async def leaders(self) -> list[Leader]:
        return [Leader(**dict(row)) for row in await self.db.fetch("leaders", self.clock_now())]

    async def read_progress(self, run_id: int) -> tuple[int, int | None, str | None] | None:
        """(done, total, note) as the handler last told."""
        row = await self.db.fetchrow("read_progress", run_id)
        return None if row is None else (row[0], row[1], row[2])


def _alike(runs: Sequence[NewRun]) -> bool:
    """Do they differ in their payloads only? Told by identity, which copies of one model share, and which costs next to nothing."""
    f = runs[0]
    return all(
        r.job is f.job and r.queue is f.queue and r.tenant is f.tenant and r.priority == f.priority and r.due_at is f.due_at
        and r.delay is f.delay and r.start_deadline is f.start_deadline and r.gate is f.gate
        for r in runs
    )  # fmt: skip


async def _into_limited(tx: PostgresTx, runs: Sequence[NewRun], wake: Sequence[str]) -> list[Inserted]:
    """One of the queues has a depth."""
    ids = await tx.take_ids(len(runs))
    due = await insert_fresh(tx, list(zip(ids, runs, strict=True)), wake)
    return [Inserted(run_id, True, due[run_id]) for run_id in ids]
