"""Submitting: concurrent calls become one statement, and wake-ups are sent at most every 20 ms a queue.

A NOTIFY takes a cluster-wide lock at commit, so one a run would queue all commits behind each other; the first after a pause goes out with
the insert itself, later ones are gathered.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from fleetcron.clock import monotonic, sleep
from fleetcron.errors import FleetcronError, QueueFull, StoreError
from fleetcron.refusals import Refusals
from fleetcron.store import wakeups
from fleetcron.store.protocol import Inserted, NewRun, Store

log = logging.getLogger("fleetcron")

BATCH = 1000
_FLUSHES = 2
_NOTIFY_EVERY = 0.02
_FULL_PAUSE, _LONGEST_FULL_PAUSE = 0.05, 1.0
"""Seconds until a submit that waits for room in its queue tries again: doubled from try to try, and jittered."""


Waiting = tuple[NewRun, bool, "asyncio.Future[Inserted]"]
T = TypeVar("T")


class Submitter:
    """One event loop's submits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False
        self.waker, self.refusals = Waker(store), Refusals(store)

    async def submit(self, run: NewRun, *, soon: bool) -> Inserted:
        """Insert one run, together with whatever else is being submitted. `soon`: it may be due within the horizon. Raises QueueFull, or
        waits for room in a queue that was set so."""
        return await self.until_room(lambda: self._submit(run, soon=soon), 1)

    async def until_room(self, submit: Callable[[], Awaitable[T]], runs: int, *, wait: bool = True) -> T:
        """Submit so many runs; while their queue is full and was set to wait (and this caller can), again and again. Raises QueueFull where
        it was set to reject."""
        pause = _FULL_PAUSE
        while True:
            try:
                return await submit()
            except QueueFull as error:
                if not (wait and error.wait and error.coming <= error.limit):
                    self.refusals.note(error.queue, runs)
                    raise
            await sleep(pause * (0.5 + random.random()))
            pause = min(pause * 2, _LONGEST_FULL_PAUSE)

    async def _submit(self, run: NewRun, *, soon: bool) -> Inserted:
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

    async def _flush(self, batch: Sequence[Waiting]) -> None:
        """One statement; if it is refused (not for want of a database), one for each run, so that a bad one does not take others down."""
        if not batch:
            return
        now, later = self.waker.ration({wakeups.of_run(run) for run, soon, _ in batch if soon})
        try:
            found = await self._store.insert([run for run, _, _ in batch], wake=now)
        except QueueFull as error:
            await self._flush(_fitting(batch, error))
            return
        except FleetcronError as error:
            if len(batch) == 1 or not isinstance(error, StoreError):
                for _, _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                return
            for one in batch:
                await self._flush([one])
            return
        self.waker.send(later)
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
        await self.refusals.close()


def _fitting(batch: Sequence[Waiting], error: QueueFull) -> list[Waiting]:
    """What is left of a batch that did not fit: the runs of other queues, and as many of the full one's as there was room for. The others
    are told. One at least is: a batch that was refused does not come back as it was."""
    theirs = [waiting for waiting in batch if waiting[0].queue == error.queue]
    room = min(max(error.limit - error.depth, 0), len(theirs) - 1)
    refused = {id(waiting) for waiting in theirs[room:]}
    for _, _, answer in theirs[room:]:
        if not answer.done():
            answer.set_exception(QueueFull(error.queue, error.depth + room, error.limit, wait=error.wait))
    return [waiting for waiting in batch if id(waiting) not in refused]


class Waker:
    """Rations wake-ups."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sent: dict[str, float] = {}
        self._later: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def ration(self, wake_ups: Iterable[str]) -> tuple[list[str], list[str]]:
        """The wake-ups to send with an insert, and those to `send` once it is committed: they must not overtake it."""
        moment, now, later = monotonic(), [], []
        for wake_up in wakeups.gathered(wake_ups):
            queue = wakeups.queue_of(wake_up)
            if moment - self._sent.get(queue, float("-inf")) >= _NOTIFY_EVERY:
                self._sent[queue] = moment
                now.append(wake_up)
            else:
                later.append(wake_up)
        return now, later

    def send(self, wake_ups: Iterable[str]) -> None:
        """Send these within 20 ms."""
        self._later.update(wake_ups)
        if self._later and self._task is None:
            self._task = asyncio.create_task(self._send_later())

    async def _send_later(self) -> None:
        try:
            while self._later:
                await sleep(_NOTIFY_EVERY)
                later, self._later = wakeups.gathered(self._later), set()
                self._sent.update(dict.fromkeys(map(wakeups.queue_of, later), monotonic()))
                await self._store.notify(later)
        except StoreError as error:
            log.warning("a wake-up was not sent (workers poll): %s", error)
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
