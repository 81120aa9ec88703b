"""Runs on SQLite: inserting, looking, cancelling, replaying."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from fleetcron.clock import to_us
from fleetcron.model import Attempt, Care, DeadLetter, Leader, Miss, Node, QueueCounts, RunRecord
from fleetcron.store import flows
from fleetcron.store.callers import TO_SQLITE, Borrowed, here, kind, refused
from fleetcron.store.callers import Run as OnThread
from fleetcron.store.depths import insert_fresh
from fleetcron.store.protocol import Inserted, NewRun, RunFilter
from fleetcron.store.sqlite import place, rows
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.connection import translated
from fleetcron.store.sqlite.database import drive
from fleetcron.store.sqlite.session import Session, at_or_none, json_list
from fleetcron.store.sqlite.tx import SqliteTx

_NEWEST = 2**63 - 1


class Runs(SqliteBase):
    """The part of the store that users write to and look at."""

    async def insert(self, runs: Sequence[NewRun], *, wake: Sequence[str] = (), conn: Any = None) -> list[Inserted]:
        """Insert runs, in one transaction: ours, or the caller's own when `conn` is given (see store.callers), a
        connection to the same file. Then they exist when the caller commits. Whoever waits for work is woken,
        whatever `wake` names. Raises TypeError for a `conn` that is none."""
        if conn is None:
            return await self.db.write("insert", lambda session: self._insert(session, runs, wake))
        run, own = _unwrapped(conn)
        inserted: list[Inserted] = await run(lambda: self._insert_within(own(), runs))
        return inserted

    def _insert(self, session: Session, runs: Sequence[NewRun], wake: Sequence[str] = ()) -> list[Inserted]:
        if any(run.key is not None for run in runs):
            return drive(flows.insert_keyed(SqliteTx(session, self.db.shards), runs, wake))
        if not runs:
            return []
        first = session.take("run", len(runs))
        tx = SqliteTx(session, self.db.shards)
        due = drive(insert_fresh(tx, list(enumerate(runs, first)), wake))
        return [Inserted(run_id, True, due[run_id]) for run_id in range(first, first + len(runs))]

    def _insert_within(self, conn: sqlite3.Connection, runs: Sequence[NewRun]) -> list[Inserted]:
        """On the caller's connection and thread; a transaction is begun if the caller has none, and left to them
        to end."""
        with translated("insert", self.db.options.location):
            if not conn.in_transaction:
                conn.execute("BEGIN IMMEDIATE")
            session = Session(conn, self.db.statements, to_us(self.db.options.clock()))
            conn.execute("SAVEPOINT fleetcron_insert")
            try:
                inserted = self._insert(session, runs)
                if session.woke:
                    session.fetchval("wake_up")
            except BaseException:
                if conn.in_transaction:  # else SQLite itself has rolled everything back (disk full …)
                    conn.execute("ROLLBACK TO fleetcron_insert")
                    conn.execute("RELEASE fleetcron_insert")
                raise
            conn.execute("RELEASE fleetcron_insert")
            return inserted

    async def run(self, run_id: int, *, conn: Any = None) -> RunRecord | None:
        if conn is None:
            found = await self.db.read("run", lambda session: session.records("run", session.now, run_id))
        else:
            run, own = _unwrapped(conn)
            found = await run(lambda: self._look_within(own(), run_id))
        return rows.run_record(found[0]) if found else None

    def _look_within(self, conn: sqlite3.Connection, run_id: int) -> list[dict[str, Any]]:
        with translated("run", self.db.options.location):
            session = Session(conn, self.db.statements, to_us(self.db.options.clock()))
            return session.records("run", session.now, run_id)

    async def runs(self, where: RunFilter) -> list[RunRecord]:
        name = "runs" if where.key is None else "runs_of_key"
        after = _NEWEST if where.after is None else where.after
        args = (
            after, where.job, where.schedule, where.tenant, where.queue, where.key, at_or_none(where.since),
            at_or_none(where.until), where.state, where.limit,
        )  # fmt: skip
        found = await self.db.read("runs", lambda session: session.records(name, session.now, *args), slow=True)
        return [rows.run_record(row) for row in found]

    async def attempts(self, run_id: int) -> list[Attempt]:
        return [
            rows.attempt(row)
            for row in await self.db.read("attempts", lambda session: session.records("attempts", run_id))
        ]

    async def final(self, run_ids: Sequence[int]) -> list[int]:
        return [
            row[0] for row in await self.db.read("final", lambda session: session.fetch("final", json_list(run_ids)))
        ]

    async def cancel(self, run_id: int, who: str) -> str:
        """ "cancelled" (it waited), "asked" (its worker will stop it), "too late" (it had ended), or "unknown"."""
        return await self.db.write("cancel", lambda session: _cancel(session, run_id, who))

    async def misses(self, schedule: str | None, limit: int = 1000) -> list[Miss]:
        name, *args = ("misses", limit) if schedule is None else ("misses_of", schedule, limit)
        found = await self.db.read("misses", lambda session: session.records(str(name), *args), slow=True)
        return [rows.miss(row) for row in found]

    async def dead_letters(
        self, *, job: str | None = None, limit: int = 100, after: int | None = None
    ) -> list[DeadLetter]:
        below = _NEWEST if after is None else after
        name, *args = ("dead_letters", below, limit) if job is None else ("dead_letters_of", job, below, limit)
        found = await self.db.read("dead_letters", lambda session: session.records(str(name), *args), slow=True)
        return [rows.dead_letter(row) for row in found]

    async def replay(self, run_ids: Sequence[int], who: str) -> list[int]:
        """Open these dead letters again; returns those that were there (a letter of a job that is gone stays)."""
        return await self.db.write("replay", lambda session: _replay(session, run_ids, who))

    async def purge_dead(self, run_ids: Sequence[int]) -> int:
        return len(await self.db.write("purge_dead", lambda session: session.fetch("purge_dead", json_list(run_ids))))

    async def counts(self) -> dict[str, QueueCounts]:
        found = await self.db.read("counts", lambda session: session.fetch("counts", session.now), slow=True)
        return {row[0]: QueueCounts(scheduled=row[1], ready=row[2], running=row[3], retrying=row[4]) for row in found}

    async def care(self) -> Care | None:
        """Nothing to look at: a file has no dead rows."""
        return None

    async def unknown_jobs(self) -> dict[str, int]:
        found = await self.db.read(
            "unknown_jobs", lambda session: session.fetch("unknown_jobs", session.now), slow=True
        )
        return {row[0]: row[1] for row in found}

    async def nodes(self) -> list[Node]:
        return [
            rows.node(row) for row in await self.db.read("nodes", lambda session: session.records("nodes", session.now))
        ]

    async def leaders(self) -> list[Leader]:
        return [
            rows.leader(row)
            for row in await self.db.read("leaders", lambda session: session.records("leaders", session.now))
        ]

    async def read_progress(self, run_id: int) -> tuple[int, int | None, str | None] | None:
        """(done, total, note) as the handler last told."""
        row = await self.db.read("read_progress", lambda session: session.fetchrow("read_progress", run_id))
        return None if row is None else (row[0], row[1], row[2])


def _cancel(session: Session, run_id: int, who: str) -> str:
    answer = place.cancel(session, run_id)
    if answer != "unknown":
        session.execute("audit", session.now, who, f"cancel: {answer}", f"run {run_id}")
    return answer


def _replay(session: Session, run_ids: Sequence[int], who: str) -> list[int]:
    replayed = [row[0] for row in session.fetch("replay", session.now, json_list(run_ids))]
    if replayed:
        session.fetch("purge_dead", json_list(replayed))
        place.put_runs(session, replayed)
        session.execute("audit", session.now, who, "replay", f"{len(replayed)} runs: {replayed[:20]}")
    return replayed


def _unwrapped(conn: Any) -> tuple[OnThread, Callable[[], sqlite3.Connection]]:
    """How to call on the thread of the caller's connection, and how to get the driver's own there. Raises TypeError."""
    run: OnThread = here
    if isinstance(conn, Borrowed):
        conn, run = conn.conn, conn.run
    what = kind(conn)
    if what == "sqlite3":
        return run, lambda: conn
    if what == "sqlalchemy":
        return run, lambda: _drivers_own(conn)
    if what in ("sqlalchemy session", "sqlalchemy scoped session"):
        return run, lambda: _drivers_own(conn.connection())
    raise refused(conn, TO_SQLITE)


def _drivers_own(connection: Any) -> sqlite3.Connection:
    """The sqlite3 connection under one of SQLAlchemy's."""
    found = connection.connection.driver_connection
    if not isinstance(found, sqlite3.Connection):
        raise refused(found, TO_SQLITE)
    # Any statement will do: SQLAlchemy commits only what it knows to have begun.
    connection.exec_driver_sql("PRAGMA data_version")
    return found
