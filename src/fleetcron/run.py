"""A run in the hands of whoever submitted or looked it up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from fleetcron.durations import parse_duration
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.model import Attempt, RunRecord, State
from fleetcron.worker.context import idempotency_key


class RunSource(Protocol):
    """Where a Run gets its news from."""

    async def _run_record(self, run_id: int) -> tuple[RunRecord, list[Attempt]]: ...
    async def _wait_final(self, run_id: int, timeout: float | None) -> None: ...
    async def cancel(self, run_id: int) -> str: ...


class Run:
    """A snapshot of a run; `refresh()` takes a new one. `created` is False when a dedup key matched: then it is the existing run, and
    `replaced` tells whether it took the payload and due time of this submit.

    `id job schedule tenant queue priority nominal_at due_at state attempt attempts result error key idempotency_key created_at started_at
    finished_at worker`. Times are aware, UTC; `result` is what the handler returned, decoded from JSON.
    """

    __slots__ = ("_record", "_source", "attempts", "created", "replaced")

    def __init__(
        self,
        source: RunSource,
        record: RunRecord,
        attempts: list[Attempt] | None = None,
        *,
        created: bool = False,
        replaced: bool = False,
    ) -> None:
        self._source, self._record = source, record
        self.attempts: list[Attempt] = attempts or []
        self.created, self.replaced = created, replaced

    id: int = property(lambda self: self._record.id)  # type: ignore[assignment]
    job: str = property(lambda self: self._record.job)  # type: ignore[assignment]
    schedule: str | None = property(lambda self: self._record.schedule)  # type: ignore[assignment]
    tenant: str = property(lambda self: self._record.tenant)  # type: ignore[assignment]
    queue: str = property(lambda self: self._record.queue)  # type: ignore[assignment]
    priority: int = property(lambda self: self._record.priority)  # type: ignore[assignment]
    nominal_at: datetime | None = property(lambda self: self._record.nominal_at)  # type: ignore[assignment]
    due_at: datetime = property(lambda self: self._record.due_at)  # type: ignore[assignment]
    state: State = property(lambda self: self._record.state)  # type: ignore[assignment]
    attempt: int = property(lambda self: self._record.attempt)  # type: ignore[assignment]
    error: str | None = property(lambda self: self._record.error)  # type: ignore[assignment]
    reason: str | None = property(lambda self: self._record.reason)  # type: ignore[assignment]
    key: str | None = property(lambda self: self._record.key)  # type: ignore[assignment]
    generation: int = property(lambda self: self._record.generation)  # type: ignore[assignment]
    created_at: datetime = property(lambda self: self._record.created_at)  # type: ignore[assignment]
    started_at: datetime | None = property(lambda self: self._record.started_at)  # type: ignore[assignment]
    finished_at: datetime | None = property(lambda self: self._record.finished_at)  # type: ignore[assignment]
    worker: str | None = property(lambda self: self._record.worker)  # type: ignore[assignment]

    @property
    def payload(self) -> Any:
        """The payload, decoded from JSON."""
        return msgspec.json.decode(self._record.payload)

    @property
    def result(self) -> Any:
        """What the handler returned, decoded from JSON; None while there is none."""
        return None if self._record.result is None else msgspec.json.decode(self._record.result)

    @property
    def idempotency_key(self) -> str:
        """The name of the work, the same for every attempt: what handlers see as `ctx.idempotency_key`."""
        r = self._record
        return idempotency_key(
            run_id=r.id, job=r.job, schedule=r.schedule, nominal_at=r.nominal_at, generation=r.generation
        )

    def __repr__(self) -> str:
        return f"<Run {self.id} {self.job} {self.state.value}>"

    async def refresh(self) -> Run:
        """Take a new snapshot, into this object. Raises NotFound when the run has been pruned."""
        self._record, self.attempts = await self._source._run_record(self.id)
        return self

    async def wait(self, timeout: Any = None) -> Run:
        """Until the run is final, then refreshed. Raises WaitTimeout (a TimeoutError) after `timeout`, a duration."""
        await self._source._wait_final(
            self.id,
            None if timeout is None else parse_duration(timeout, name="timeout", allow_zero=True).total_seconds(),
        )
        return await self.refresh()

    async def cancel(self) -> str:
        """Ask the run to end: "cancelled" (it waited), "asked" (its worker will stop it) or "too late" (it has ended)."""
        return await self._source.cancel(self.id)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able, by attribute name."""
        found: dict[str, Any] = msgspec.to_builtins(self._record)
        return found | {
            "payload": self.payload,
            "result": self.result,
            "idempotency_key": self.idempotency_key,
            "attempts": msgspec.to_builtins(self.attempts),
        }


class Waiters:
    """All waits of one event loop share one question to the database: "which of these have ended?"."""

    def __init__(
        self, final: Callable[[list[int]], Awaitable[list[int]]], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._final, self._sleep = final, sleep
        self._waiting: dict[int, list[Any]] = {}
        self._task: Any = None

    async def wait(self, run_id: int) -> None:
        """Until the run has ended (or no longer exists)."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, []).append(answer)
        if self._task is None:
            self._task = asyncio.create_task(self._poll())
        try:
            await answer
        finally:
            left = [a for a in self._waiting.get(run_id, []) if a is not answer]
            if left:
                self._waiting[run_id] = left
            else:
                self._waiting.pop(run_id, None)

    async def _poll(self) -> None:
        pause, known = 0.005, 0
        try:
            while self._waiting:
                try:
                    ended = await self._final(list(self._waiting))
                except StoreUnavailable:
                    ended = []  # waiting outlives a restart of the database; the caller's timeout bounds it
                for run_id in ended:
                    for answer in self._waiting.get(run_id, []):
                        if not answer.done():
                            answer.set_result(None)
                pause = 0.005 if ended or len(self._waiting) > known else min(pause * 1.5, 0.5)
                known = len(self._waiting)
                await self._sleep(pause)
        except Exception as error:  # noqa: BLE001  # handed to every waiter, none is left hanging
            self._fail(error)
        finally:
            self._task = None

    async def close(self) -> None:
        """Nobody waits any longer: who does gets a StoreError."""
        self._fail(StoreError("the fleet was closed while the run was waited for"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _fail(self, error: Exception) -> None:
        for answers in self._waiting.values():
            for answer in answers:
                if not answer.done():
                    answer.set_exception(error)
