"""The engine's side of contexts, in memory; and waiting with a bound."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from fleetcron.errors import LeaseLost
from fleetcron.worker.context import Context, RunFacts


class MemoryServices:
    """`Services` without a database. `lost`: run ids whose lease is gone."""

    def __init__(self, kind: str = "postgres") -> None:
        self.kind = kind
        self.steps: dict[tuple[int, str], str] = {}
        self.reports: list[tuple[int, float, float | None, str | None]] = []
        self.lost: set[int] = set()
        self.committed: list[Any] = []
        self.failing: Exception | None = None

    async def step_get(self, run_id: int, name: str) -> str | None:
        await asyncio.sleep(0)
        return self.steps.get((run_id, name))

    async def step_put(self, run: RunFacts, name: str, json: str) -> None:
        await asyncio.sleep(0)
        if run.run_id in self.lost:
            raise LeaseLost(f"run {run.run_id} is somebody else's")
        self.steps[run.run_id, name] = json

    async def progress(self, run: RunFacts, done: float, total: float | None, note: str | None) -> None:
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing
        self.reports.append((run.run_id, done, total, note))

    def transaction(self, context: Context) -> AbstractAsyncContextManager[Any]:
        return self._transaction(context)

    @contextlib.asynccontextmanager
    async def _transaction(self, context: Context) -> AsyncIterator[str]:
        yield "connection"
        self.committed.append(context.result)


def facts(run_id: int = 7, **changes: Any) -> RunFacts:
    known: dict[str, Any] = {"run_id": run_id, "fence": 99, "job": "job", "attempt": 1, "max_attempts": 3}
    return RunFacts(**(known | changes))


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until `true()`; fails after `seconds`."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.01)


async def written(path: Path) -> str:
    """What a handler writes into `path`, once it has."""
    await until(lambda: path.exists() and path.read_text() != "")
    return path.read_text()


def alive(pid: int) -> bool:
    """Is there such a process, and not just its remains?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc/self").exists()
