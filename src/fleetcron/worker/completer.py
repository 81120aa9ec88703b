"""Writing outcomes down, in batches that form by themselves: while one flush is under way the next one gathers.

An outcome is never dropped: while the database is away it is kept and tried again, and one that did not win (the lease was gone) is
reported as lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from fleetcron.clock import sleep
from fleetcron.errors import StoreUnavailable
from fleetcron.store.protocol import Done, Settled, Store

log = logging.getLogger("fleetcron.worker")

BATCH = 500
"""Outcomes a statement: past this the gain per run is below 2 % and the latency of the statement begins to show."""
FLUSHES = 2
"""Flushes in flight: one on the wire while the database works on the other."""


class Completer:
    """`on_lost(run_id)` is told of outcomes that came too late; `on_flushed(reopened)` after each flush: did it put a run back?."""

    def __init__(
        self,
        store: Store,
        *,
        on_lost: Callable[[int], None],
        on_flushed: Callable[[bool], None],
    ) -> None:
        self._store, self._on_lost, self._on_flushed = store, on_lost, on_flushed
        self._done: dict[int, list[Done]] = {}
        self._settled: dict[int, list[Settled]] = {}
        self._started: dict[int, list[int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = self._reopened = False
        self.idle = asyncio.Event()
        self.idle.set()

    def done(self, worker: int, outcome: Done) -> None:
        """A run succeeded."""
        batch = self._done.get(worker)
        if batch is None:
            self._done[worker] = [outcome]
        else:
            batch.append(outcome)
        if not self._scheduled:
            self._schedule()

    def started(self, worker: int, run_id: int) -> None:
        """A run that was claimed ahead has started. Not awaited by anybody: if it is never told, the run counts as untouched."""
        self._started.setdefault(worker, []).append(run_id)
        if not self._scheduled:
            self._schedule()

    def settled(self, worker: int, outcome: Settled) -> None:
        """An attempt ended in another way."""
        self._settled.setdefault(worker, []).append(outcome)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self.idle.clear()
        asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        while len(self._tasks) < FLUSHES and (self._done or self._settled or self._started):
            task = asyncio.create_task(self._flush(), name="fleetcron-flush")
            self._tasks.add(task)
            task.add_done_callback(self._finished)
            if not self._take_possible():
                break

    def _take_possible(self) -> bool:
        """A flush that was just created takes its batch when it first runs: start a second one only for what exceeds one batch."""
        return sum(map(len, self._done.values())) > BATCH * len(self._tasks)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # a fault of ours must not be swallowed
        if self._done or self._settled or self._started:
            self._schedule()
        elif not self._tasks:
            self.idle.set()
        reopened, self._reopened = self._reopened, False
        self._on_flushed(reopened)

    async def _flush(self) -> None:
        started, self._started = self._started, {}
        for worker, run_ids in started.items():
            try:
                await self._store.started(worker, run_ids)
            except StoreUnavailable as error:
                log.warning("%d starts were not noted: %s", len(run_ids), error)
        if self._settled:
            worker = next(iter(self._settled))
            settled, rest = self._settled[worker][:BATCH], self._settled[worker][BATCH:]
            if rest:
                self._settled[worker] = rest
            else:
                del self._settled[worker]
            won = await self._write("settle", worker, settled)
            self._reopened = self._reopened or any(s.state == "open" for s in settled)
            self._report(won, [s.run_id for s in settled])
        if self._done:
            worker = next(iter(self._done))
            done, more = self._done[worker][:BATCH], self._done[worker][BATCH:]
            if more:
                self._done[worker] = more
            else:
                del self._done[worker]
            won = await self._write("complete", worker, done)
            if len(won) != len(done):
                self._report(won, [d.run_id for d in done])

    async def _write(self, what: str, worker: int, outcomes: Sequence[Done] | Sequence[Settled]) -> set[int]:
        """Until the database takes it: whether it still counts is then decided by the lease, not by us."""
        pause = 0.05
        while True:
            try:
                won: set[int] = await getattr(self._store, what)(worker, outcomes)
                return won
            except StoreUnavailable as error:
                log.warning("%s of %d outcomes waits for the database: %s", what, len(outcomes), error)
                await sleep(pause)
                pause = min(pause * 2, 1.0)

    def _report(self, won: set[int], asked: Sequence[int]) -> None:
        for run_id in asked:
            if run_id not in won:
                self._on_lost(run_id)

    async def drain(self) -> None:
        """Wait until everything is written."""
        await self.idle.wait()


def handed_back(run_id: int, fence: int, attempt: int, started_at: datetime | None) -> Settled:
    """A run given back by a worker that ends: no attempt used."""
    return Settled(
        run_id=run_id,
        fence=fence,
        state="open",
        attempt=attempt - 1,
        record=None if started_at is None else "released",
        started_at=started_at,
        reason=None if started_at is None else "handed back by a worker that was stopped",
        handback=True,
    )
