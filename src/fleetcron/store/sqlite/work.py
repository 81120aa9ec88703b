"""The worker's side on SQLite: session, claim, completion, gates."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any

from fleetcron.clock import from_us
from fleetcron.decide.fairness import Turns
from fleetcron.errors import StoreError
from fleetcron.store import flows
from fleetcron.store.protocol import Admission, Beat, Claim, Claimed, Done, Lane, Look, Settled, WorkerInfo
from fleetcron.store.sqlite import leases
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.processes import process_started
from fleetcron.store.sqlite.session import Session, json_list, json_list_or_none, us


class Work(SqliteBase):
    """The part of the store that workers use. Every write names (worker, run, fence)."""

    async def start_worker(self, info: WorkerInfo, ttl: timedelta) -> int:
        return await self.db.write("start_worker", lambda session: _start_worker(session, info, ttl))

    async def beat(self, worker: int, ttl: timedelta) -> Beat:
        return await self.db.write("beat", lambda session: _beat(session, worker, ttl))

    async def worker_jobs(self, worker: int, jobs: Sequence[int] | None) -> None:
        await self.db.write(
            "worker_jobs", lambda session: session.execute("worker_jobs", worker, json_list_or_none(jobs))
        )

    async def stop_worker(self, worker: int) -> int:
        """End a session in order; returns how many runs were handed back."""
        return await self.db.write("stop_worker", lambda session: leases.stop_worker(session, worker))

    async def now(self) -> datetime:
        """The host's clock, and the proof that the file can be read."""
        return await self.db.read("now", lambda session: (session.fetchval("wake_counts"), session.moment)[1])

    async def lanes(
        self, queues: Sequence[str] | None, limit: int = 10_000, known: Sequence[Lane] = (), begin: Turns | None = None
    ) -> Look:
        """`known` is not needed: there are no dead rows here, so that a lane's first row is found at once."""
        names = json_list_or_none(queues)
        starts = json_list([[*group, tenant] for group, tenant in (begin or {}).items()])
        return await self.db.read("lanes", lambda session: _look(session, names, limit, starts))

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
        return await self.db.write(
            "claim", lambda s: leases.claim(s, worker, lanes, limit=limit, quantum=quantum, ahead=ahead, jobs=jobs)
        )

    async def started(self, worker: int, run_ids: Sequence[int]) -> None:
        """Runs that were claimed ahead have started."""
        ids = json_list(run_ids)
        await self.db.write("started", lambda session: session.execute("started", worker, ids))

    async def complete(self, worker: int, done: Sequence[Done]) -> set[int]:
        return await self.db.write("complete", lambda session: leases.complete(session, worker, done))

    async def settle(self, worker: int, settled: Sequence[Settled]) -> set[int]:
        return await self.db.write("settle", lambda session: leases.settle(session, worker, settled))

    async def admit(self, worker: int, gated: Sequence[Claimed]) -> list[Admission]:
        return await self.db.flow("admit", lambda tx: flows.admit(tx, worker, gated))

    async def unpark(self) -> list[str]:
        if not await self.db.read("unpark", lambda session: session.fetch("gates_free")):
            return []  # the usual case: it costs no write lock
        return await self.db.write("unpark", leases.unpark)

    async def step_get(self, run_id: int, name: str) -> str | None:
        found: str | None = await self.db.read("step_get", lambda session: session.fetchval("step_get", run_id, name))
        return found

    async def step_put(self, worker: int, run_id: int, fence: int, name: str, result: str) -> bool:
        kept = await self.db.write(
            "step_put", lambda session: session.fetchval("step_put", worker, run_id, fence, name, result)
        )
        return kept is not None

    async def progress(
        self, worker: int, run_id: int, fence: int, done: int, total: int | None, note: str | None
    ) -> bool:
        args = (worker, run_id, fence, done, total, note)
        return (
            await self.db.write("progress", lambda session: session.fetchval("progress", session.now, *args))
            is not None
        )

    def transaction(
        self, worker: int, run: Claimed, started_at: datetime, result: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Raises StoreError: a file has one writer, and a handler that held it would stop everybody's heartbeats."""
        raise StoreError(
            "ctx.transaction() needs PostgreSQL. On SQLite: make the handler harmless to repeat, "
            "with ctx.step() or ctx.idempotency_key"
        )

    async def hold_presence(self, worker: int) -> bool:
        """False: SQLite has no session locks. `absent` asks the kernel instead."""
        return False

    def presence_lost(self) -> bool:
        return False

    async def drop_presence(self) -> None:
        """Nothing is held."""

    async def node_beat(self, info: WorkerInfo, ttl: timedelta) -> None:
        args = (
            info.node, info.host, info.pid, json_list(info.roles), json_list_or_none(info.queues), info.slots,
            info.version, info.tzdata, us(ttl),
        )  # fmt: skip
        await self.db.write("node_beat", lambda session: session.execute("node_beat", session.now, *args))

    async def node_end(self, node: str) -> None:
        silent = us(timedelta(hours=1))
        await self.db.write("node_end", lambda session: session.execute("node_end", session.now - silent, node))


def _start_worker(session: Session, info: WorkerInfo, ttl: timedelta) -> int:
    worker = session.take("worker")
    session.execute(
        "worker_start", session.now, worker, info.node, info.host, info.pid, process_started(info.pid),
        json_list_or_none(info.queues), json_list_or_none(info.jobs), info.slots, us(ttl),
    )  # fmt: skip
    session.execute("session_start", session.now, worker, info.node, info.host, info.pid)
    return worker


def _beat(session: Session, worker: int, ttl: timedelta) -> Beat:
    if session.fetchval("beat", session.now, worker, us(ttl)) is None:
        return Beat(False, session.moment, [])
    return Beat(True, session.moment, [row[0] for row in session.fetch("cancels", worker)])


def _look(session: Session, queues: str | None, limit: int, starts: str) -> Look:
    found = session.fetch("lanes", queues, limit, starts)
    return Look(
        session.moment,
        [Lane(row[0], row[1], row[2], from_us(row[3])) for row in found],
        session.fetchval("limits_version"),
    )
