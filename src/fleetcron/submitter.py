"""Submitting: concurrent calls become one statement, and wake-ups are sent at most every 20 ms a queue.

A NOTIFY takes a cluster-wide lock at commit, so one a run would queue all commits behind each other; the first after a pause goes out with
the insert itself, later ones are gathered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from fleetcron.clock import monotonic, sleep
from fleetcron.errors import FleetcronError, StoreError
from fleetcron.store.protocol import Inserted, NewRun, Store

log = logging.getLogger("fleetcron")

BATCH = 1000
_FLUSHES = 2
_NOTIFY_EVERY = 0.02


class Submitter:
    """One event loop's submits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[NewRun, bool, asyncio.Future[Inserted]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self.waker = Waker(store)

    async def submit(self, run: NewRun, *, soon: bool) -> Inserted:
        """Insert one run, together with whatever else is being submitted. `soon`: it may be due within the horizon."""
        answer: asyncio.Future[Inserted] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, soon, answer))
        if not self._scheduled and len(self._tasks) < _FLUSHES:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)
        return await answer

    def _start(self) -> None:
        self._scheduled = False
        batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        if batch:
            task = asyncio.create_task(self._flush(batch))
            self._tasks.add(task)
            task.add_done_callback(self._flushed)

    def _flushed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start)

    async def _flush(self, batch: Sequence[tuple[NewRun, bool, asyncio.Future[Inserted]]]) -> None:
        """One statement; if it is refused (not for want of a database), one for each run, so that a bad one does not take others down."""
        try:
            found = await self._store.insert(
                [run for run, _, _ in batch], wake=self.waker.now(run.queue for run, soon, _ in batch if soon)
            )
        except FleetcronError as error:
            if len(batch) == 1 or not isinstance(error, StoreError):
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                return
            for one in batch:
                await self._flush([one])
            return
        for (_, _, answer), inserted in zip(batch, found, strict=True):
            if not answer.done():
                answer.set_result(inserted)

    async def close(self) -> None:
        """Let what was handed in be written."""
        while self._tasks or self._waiting:
            if not self._tasks:
                self._start()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.waker.close()


class Waker:
    """Rations wake-ups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sent: dict[str, float] = {}
        self._later: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def now(self, queues: Iterable[str]) -> list[str]:
        """The queues to wake at once; the others are woken within 20 ms."""
        moment, at_once = monotonic(), []
        for queue in set(queues):
            if moment - self._sent.get(queue, float("-inf")) >= _NOTIFY_EVERY:
                self._sent[queue] = moment
                at_once.append(queue)
            else:
                self._later.add(queue)
        if self._later and self._task is None:
            self._task = asyncio.create_task(self._send_later())
        return at_once

    async def _send_later(self) -> None:
        try:
            while self._later:
                await sleep(_NOTIFY_EVERY)
                queues, self._later = self._later, set()
                moment = monotonic()
                self._sent.update(dict.fromkeys(queues, moment))
                await self._store.notify(sorted(queues))
        except StoreError as error:
            log.warning("a wake-up was not sent (workers poll): %s", error)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
