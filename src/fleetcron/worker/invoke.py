"""From a job to its code: which executor or target a run goes to, and what the handler's context can ask of the engine."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fleetcron.errors import ConfigError, FleetcronError, LeaseLost
from fleetcron.payload import encode_result
from fleetcron.store.protocol import Store
from fleetcron.targets.shell import run_shell, shell_environment
from fleetcron.worker.context import Context, RunFacts, idempotency_key
from fleetcron.worker.entry import Entry
from fleetcron.worker.executors.async_ import AsyncExecutor
from fleetcron.worker.executors.base import Executor
from fleetcron.worker.executors.process import ProcessExecutor
from fleetcron.worker.executors.thread import ThreadExecutor

if TYPE_CHECKING:
    from fleetcron.worker.runner import Held

log = logging.getLogger("fleetcron.worker")


class ShellFailed(FleetcronError):  # the run's error, named as a person reads it
    """The command ended in any other way than with exit code 0."""


class StoreServices:
    """What a handler's context asks of the engine, answered by the store. `held` finds the run in this worker's hands."""

    def __init__(self, store: Store, max_result: int) -> None:
        self._store, self._max_result = store, max_result
        self.kind = store.kind
        self.held: dict[int, Held] = {}

    async def step_get(self, run_id: int, name: str) -> str | None:
        return await self._store.step_get(run_id, name)

    async def step_put(self, run: RunFacts, name: str, json: str) -> None:
        if not await self._store.step_put(self._worker(run), run.run_id, run.fence, name, json):
            raise LeaseLost(f"run {run.run_id}: step {name!r} was not kept, the lease is gone")

    async def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        await self._store.progress(
            self._worker(run), run.run_id, run.fence, int(done), None if total is None else int(total), note
        )

    @asynccontextmanager
    async def transaction(self, context: Context) -> AsyncIterator[Any]:
        """The handler's writes and the completion with `context.result`, together or not at all."""
        if self.kind != "postgres":
            raise ConfigError(
                "ctx.transaction() needs the PostgreSQL store; on SQLite use ctx.step() and idempotent writes"
            )
        run = context.facts
        held = self.held[run.run_id]
        started_at = datetime.fromtimestamp(held.started, UTC)

        def result() -> str | None:
            return None if context.result is None else encode_result(context.result, max_bytes=self._max_result)

        async with self._store.transaction(held.lease.worker, held.claimed, started_at, result) as connection:
            yield connection
        held.stop = "committed"

    def _worker(self, run: RunFacts) -> int:
        held = self.held.get(run.run_id)
        if held is None or held.claimed.fence != run.fence:
            raise LeaseLost(f"run {run.run_id}: it is no longer in this worker's hands")
        return held.lease.worker


class Invoker:
    """The executors and targets of one worker."""

    def __init__(self, store: Store, *, slots: int, max_result: int) -> None:
        self._services = StoreServices(store, max_result)
        self._async = AsyncExecutor(self._services)
        self._thread = ThreadExecutor(self._services, slots=slots)
        self._process = ProcessExecutor(self._services, slots=slots)
        self._executors: dict[str, Executor] = {"async": self._async, "thread": self._thread, "process": self._process}
        self._max_result = max_result

    async def invoke(self, entry: Entry, told: tuple[RunFacts, Held]) -> Any:
        """Run the code of a job; returns what it returned, raises what it raised."""
        facts, held = told
        if entry.shell is not None:
            return await self._shell(entry, facts)
        assert entry.handler is not None
        executor = self._executors[entry.executor]
        self._services.held[facts.run_id] = held
        try:
            return await executor.run(entry.handler, facts, held.claimed.payload, timeout=entry.timeout)
        finally:
            self._services.held.pop(facts.run_id, None)

    async def _shell(self, entry: Entry, facts: RunFacts) -> dict[str, Any]:
        assert entry.shell is not None
        key = idempotency_key(
            run_id=facts.run_id, job=facts.job, schedule=facts.schedule, nominal_at=facts.nominal_at, generation=facts.generation
        )  # fmt: skip
        env = shell_environment(
            run_id=facts.run_id, job=facts.job, schedule=facts.schedule, tenant=facts.tenant, nominal_at=facts.nominal_at,
            attempt=facts.attempt, idempotency_key=key, fence=facts.fence,
        )  # fmt: skip
        # JSON may double the length of what it quotes; half the limit leaves room.
        done = await run_shell(entry.shell, env=env, timeout=entry.timeout, max_output=self._max_result // 2)
        if not done.ok:
            tail = done.output[-2000:]
            raise ShellFailed(f"{done.reason()}{': ' + json.dumps(tail, ensure_ascii=False) if tail else ''}")
        return {"exit_code": done.exit_code, "output": done.output}

    def stopping(self, held: Held) -> None:
        """A handler is about to be stopped: tell its context first, so that `ctx.cancelled` is set when the cancellation arrives."""
        context = self._async.contexts.get(held.claimed.run_id)
        if context is not None:
            context.stop()

    def kill_children(self) -> None:
        """Kill child processes at once, from any thread: a strict job's lease ends."""
        self._process.kill_all()

    async def close(self) -> None:
        """End the executors; bounded."""
        await self._async.close()
        await self._thread.close()
        await self._process.close()
