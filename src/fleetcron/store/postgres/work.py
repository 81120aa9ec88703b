"""The worker's side on PostgreSQL: session, claim, completion, gates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from fleetcron.decide.fairness import Turns
from fleetcron.errors import LeaseLost
from fleetcron.store import flows
from fleetcron.store.postgres import rows
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.postgres.database import translated
from fleetcron.store.protocol import Admission, Beat, Claim, Claimed, Done, Lane, Look, Settled, WorkerInfo


class Work(PostgresBase):
    """The part of the store that workers use. Every write names (worker, run, fence)."""

    _presence: asyncpg.Connection[asyncpg.Record] | None = None

    async def start_worker(self, info: WorkerInfo, ttl: timedelta) -> int:
        worker: int = await self.db.fetchval(
            "worker_start",
            self.clock_now(),
            info.node,
            info.host,
            info.pid,
            _list(info.queues),
            _list(info.jobs),
            info.slots,
            ttl,
        )
        return worker

    async def beat(self, worker: int, ttl: timedelta) -> Beat:
        row = await self.db.fetchrow("beat", self.clock_now(), worker, ttl)
        if row is None:
            return Beat(False, await self.now(), [])
        return Beat(True, row[0], row[1])

    async def worker_jobs(self, worker: int, jobs: Sequence[int] | None) -> None:
        """Say which jobs a session can run (None: all)."""
        await self.db.fetch("worker_jobs", worker, _list(jobs))

    async def stop_worker(self, worker: int) -> int:
        """End a session in order; returns how many runs were handed back."""
        async with self.db.transaction("worker_stop", self.clock_now()) as session:
            await session.fetch("worker_lock", session.clock, [worker], False)
            return int(await session.fetchval("worker_stop", session.clock, worker))

    async def now(self) -> datetime:
        moment: datetime = await self.db.fetchval("now", self.clock_now())
        return moment

    async def lanes(
        self, queues: Sequence[str] | None, limit: int = 10_000, known: Sequence[Lane] = (), begin: Turns | None = None
    ) -> Look:
        begin = begin or {}
        found = await self.db.fetch(
            "lanes",
            self.clock_now(),
            _list(queues),
            limit,
            _bounds(known),
            [queue for queue, _ in begin],
            [priority for _, priority in begin],
            list(begin.values()),
        )
        lanes = [Lane(row[2], row[3], row[4], row[5]) for row in found if row[2] is not None]
        return Look(found[0][0], lanes, found[0][1])

    async def claim(
        self,
        worker: int,
        lanes: Sequence[Lane],
        *,
        limit: int,
        quantum: int | Sequence[int],
        ahead: timedelta,
        jobs: Sequence[int] | None,
    ) -> Claim:
        found = await self.db.fetch(
            "claim",
            self.clock_now(),
            worker,
            [lane.queue for lane in lanes],
            [lane.priority for lane in lanes],
            [lane.tenant for lane in lanes],
            [lane.first_due for lane in lanes],
            ahead,
            limit,
            _list(jobs),
            [quantum] * len(lanes) if isinstance(quantum, int) else list(quantum),
        )
        claim = rows.claim(found)
        claim.limits = found[-1][22] if found else None
        return claim

    async def started(self, worker: int, run_ids: Sequence[int]) -> None:
        """Runs that were claimed ahead have started."""
        await self.db.fetch("started", worker, list(run_ids))

    async def complete(self, worker: int, done: Sequence[Done]) -> set[int]:
        won = await self.db.fetch(
            "complete",
            self.clock_now(),
            worker,
            *_outcomes(done),
        )
        return {row[0] for row in won}

    async def settle(self, worker: int, settled: Sequence[Settled]) -> set[int]:
        won = await self.db.fetch(
            "settle",
            self.clock_now(),
            worker,
            *(
                [getattr(s, field) for s in settled]
                for field in (
                    "run_id",
                    "fence",
                    "state",
                    "attempt",
                    "delay",
                    "record",
                    "started_at",
                    "error",
                    "traceback",
                    "result",
                    "reason",
                    "dead",
                    "handback",
                )
            ),
        )
        return {row[0] for row in won}

    async def admit(self, worker: int, gated: Sequence[Claimed]) -> list[Admission]:
        async with self.tx("admit") as tx:
            return await flows.admit(tx, worker, gated)

    async def unpark(self) -> list[str]:
        return [row[0] for row in await self.db.fetch("unpark")]

    async def step_get(self, run_id: int, name: str) -> str | None:
        found: str | None = await self.db.fetchval("step_get", run_id, name)
        return found

    async def step_put(self, worker: int, run_id: int, fence: int, name: str, result: str) -> bool:
        return await self.db.fetchval("step_put", worker, run_id, fence, name, result) is not None

    async def progress(
        self, worker: int, run_id: int, fence: int, done: int, total: int | None, note: str | None
    ) -> bool:
        return (
            await self.db.fetchval("progress", self.clock_now(), worker, run_id, fence, done, total, note) is not None
        )

    @asynccontextmanager
    async def transaction(self, worker: int, run: Claimed, started_at: datetime, result: Any) -> AsyncIterator[Any]:
        """An asyncpg connection in a transaction that also closes the run: the handler's writes and the completion commit together.

        It has a connection of its own, outside the pool: handlers that hold one must not starve heartbeats or completions (case C30).
        `result` is called at the end for the JSON text to keep. Raises LeaseLost, and rolls everything back, when the lease is gone;
        StoreUnavailable when the database goes away (at the commit itself: nobody knows, and the lease decides).
        """
        with translated("transaction"):
            connection = await asyncpg.connect(self.db.url, **self.db.handler_options())
        try:
            with translated("transaction"):
                transaction = connection.transaction()
                await transaction.start()
            try:
                yield connection
                text = result()
                args = _outcomes([Done(run.run_id, run.fence, started_at.timestamp(), text, keyed=True)])
                with translated("complete"):
                    async with asyncio.timeout(self.db.timeout):
                        await self.db.set_locally(connection)
                        won = await connection.fetch(self.db.statements["complete"], self.clock_now(), worker, *args)
                if not won:
                    raise LeaseLost(f"run {run.run_id}: the lease is gone, nothing was committed")
            except BaseException:
                with suppress(
                    asyncpg.PostgresError, asyncpg.InterfaceError, OSError
                ):  # the connection's end does it too
                    await transaction.rollback()
                raise
            with translated("commit"):
                await transaction.commit()
        finally:
            await connection.close(timeout=5)

    async def hold_presence(self, worker: int) -> bool:
        """Take the presence lock of a session on a connection of its own, or see that it is still held. False behind PgBouncer, where
        session locks mean nothing. Raises StoreUnavailable."""
        if self.db.pgbouncer:
            return False
        with translated("presence"):
            if self._presence is None or self._presence.is_closed():
                self._presence = await asyncpg.connect(self.db.url, **self.db.connect_options())
                await self._presence.execute(self.db.statements["presence_on"], worker)
                await self.db.fetch("presence_mark", worker)
            return True

    def presence_lost(self) -> bool:
        """Has the connection that holds the presence lock gone?"""
        return self._presence is not None and self._presence.is_closed()

    async def drop_presence(self) -> None:
        """Let the presence lock go."""
        connection, self._presence = self._presence, None
        if connection is not None and not connection.is_closed():
            connection.terminate()

    async def node_beat(self, info: WorkerInfo, ttl: timedelta) -> None:
        await self.db.fetch(
            "node_beat",
            self.clock_now(),
            info.node,
            info.host,
            info.pid,
            list(info.roles),
            _list(info.queues),
            info.slots,
            info.version,
            info.tzdata,
            ttl,
        )

    async def node_end(self, node: str) -> None:
        await self.db.fetch("node_end", self.clock_now(), node)


def _outcomes(done: Sequence[Done]) -> tuple[str, str, str, list[str | None] | None, list[int]]:
    """The parameters of complete.sql. Numbers travel as the text of an array: asyncpg's own arrays cost 0.25 µs a number, which is asked
    whether it is not perhaps an array itself; three of them were an eighth of a busy worker's CPU."""
    return (
        _array([d.run_id for d in done]),
        _array([d.fence for d in done]),
        _array([int(d.started * 1e6 + 0.5) for d in done]),
        [d.result for d in done] if any(d.result is not None for d in done) else None,
        [d.run_id for d in done if d.keyed],
    )


def _bounds(known: Sequence[Lane]) -> str:
    """The lower bounds, as lanes.sql looks them up."""
    bounds = {f"{lane.queue}\x1f{lane.priority}\x1f{lane.tenant}": lane.first_due for lane in known}
    return msgspec.json.encode(bounds).decode()


def _array(numbers: list[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
