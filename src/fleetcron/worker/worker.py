"""One worker: a session kept by the heartbeat thread, a claimer, an intake, a runner and a completer on the worker's event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, ParamSpec

import msgspec

from fleetcron.clock import monotonic, sleep
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.store.protocol import Store, WorkerInfo
from fleetcron.store.wakeups import CANCELS, LIMITS, REGISTRY
from fleetcron.worker.claimer import Claimer
from fleetcron.worker.completer import Completer
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.entry import Entries, Entry
from fleetcron.worker.heartbeat import Heartbeat
from fleetcron.worker.intake import Intake
from fleetcron.worker.invoke import Invoker
from fleetcron.worker.lease import Lease
from fleetcron.worker.runner import Held, Runner

log = logging.getLogger("fleetcron.worker")

_P = ParamSpec("_P")
_REGISTRY_EVERY = 5.0
STOP_GRACE = timedelta(seconds=5)
"""How long stopped handlers may take to end before a draining worker leaves anyway."""


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker behaves; see the options of `fleetcron run`."""

    slots: int = 100
    queues: tuple[str, ...] | None = None
    lease: timedelta = timedelta(seconds=15)
    heartbeat: timedelta = timedelta(seconds=5)
    drain: timedelta = timedelta(seconds=30)
    max_result: int = 256 * 1024
    max_error: int = 64 * 1024
    ageing: timedelta = timedelta(minutes=1)


class Worker:
    """`make_store` opens a further store, for the heartbeat's thread. The given `store` is used on the worker's loop and stays open.
    `heartbeat` makes the keeper of its session (tests pass one that beats on a settable clock)."""

    def __init__(
        self,
        store: Store,
        make_store: Callable[[], Store],
        info: WorkerInfo,
        entries: Sequence[Entry],
        options: WorkerOptions,
        *,
        heartbeat: Callable[..., Heartbeat] = Heartbeat,
    ) -> None:
        self._store, self._info, self._options = store, info, options
        self.entries = Entries(entries)
        self.clock = DbClock(getattr(store, "clock", None))
        self.completer = Completer(store, on_lost=self._lost_outcome, on_flushed=self._flushed)
        self.invoker = Invoker(store, slots=options.slots, max_result=options.max_result)
        self.runner = Runner(
            slots=options.slots,
            clock=self.clock,
            completer=self.completer,
            entries=self.entries,
            invoker=self.invoker,
            max_result=options.max_result,
            max_error=options.max_error,
            on_stale=self._stale,
        )
        self.intake = Intake(
            store,
            self.runner,
            self.completer,
            self.clock,
            self.entries,
            options.lease,
            lambda: self.claimer.allowance.limited_jobs,
        )
        self.claimer = Claimer(
            store,
            self.runner,
            self.intake,
            self.clock,
            session=lambda: self.lease,
            jobs=self._claimable,
            queues=options.queues,
            ageing=options.ageing,
        )
        self.heartbeat = heartbeat(
            make_store,
            lease=options.lease,
            interval=options.heartbeat,
            on_cancel=self._threadsafe(self._cancel),
            on_lost=self._threadsafe(self._lost),
            on_beat=self._threadsafe(self._beaten),
        )
        self.lease: Lease | None = None
        self.jobs: list[int] | None = None
        self.lost_outcomes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._registered: asyncio.Task[None] | None = None
        self._strict: asyncio.Task[None] | None = None
        self._gated = False
        self._background: set[asyncio.Task[None]] = set()

    # life
    async def start(self) -> None:
        """Register a session and listen for wake-ups. Raises StoreUnavailable."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        await self.refresh()
        await self._register()
        await self._store.listen(self._woken)
        self._registered = asyncio.create_task(self._keep_registry(), name="fleetcron-registry")
        if any(e.job.strict for e in self.entries.items().values()):
            self._strict = asyncio.create_task(self._watch_strict(), name="fleetcron-strict")

    async def run(self) -> None:
        """Work until `stop` is called, then drain."""
        await self.claimer.run()
        await self.drain()

    def stop(self) -> None:
        """Claim no more; `run` then drains and returns."""
        self.claimer.stop()

    async def drain(self) -> None:
        """Hand back what has not started, let what runs end (bounded), hand back the rest, say goodbye. Heartbeats last until then."""
        await self.intake.settle()
        self.intake.give_back(self.runner.unstarted())
        if not await self.runner.idle(self._options.drain):
            count = self.runner.stop_all("shutdown")
            log.warning("stopping %d runs that did not end within %s; they are handed back", count, self._options.drain)
            await self.runner.idle(STOP_GRACE)
        await self._flush_all()
        try:
            await self._store.notify([""])  # whatever was handed back: others need not wait for their next sweep
        except StoreError as error:
            log.warning("the others were not told of what was handed back (they poll): %s", error)
        for task in (self._registered, self._strict):
            if task is not None:
                task.cancel()
        await asyncio.to_thread(self.heartbeat.stop)
        await self.runner.close()
        await self.invoker.close()

    async def _flush_all(self) -> None:
        try:
            await asyncio.wait_for(self.completer.drain(), self._options.lease.total_seconds())
        except TimeoutError:
            log.error("leaving with outcomes that the database did not take; those runs will be rescued")  # noqa: TRY400  # the timeout says it all

    async def _register(self) -> None:
        info = msgspec.structs.replace(self._info, jobs=None if self.jobs is None else tuple(self.jobs))
        self.lease = await asyncio.to_thread(self.heartbeat.start, info)

    # registry
    def _claimable(self) -> list[int] | None:
        """The ids of the jobs whose runs to claim: those that can be run here, but for paused ones; None for all."""
        paused = self.claimer.allowance.paused_jobs
        return [i for name, i in self.entries.ids.items() if name not in paused] if paused else self.jobs

    async def refresh(self) -> bool:
        """Read the registry; returns whether the set of jobs that can be run here has changed."""
        before, self.jobs = self.jobs, self.entries.refresh(await self._store.jobs())
        return before != self.jobs

    async def _keep_registry(self) -> None:
        while True:
            await sleep(_REGISTRY_EVERY)
            try:
                if await self.refresh() and self.lease is not None:
                    await self._store.worker_jobs(self.lease.worker, self.jobs)
                    self.claimer.wake()
            except StoreError as error:
                log.warning("reading the job registry failed: %s", error)

    def _woken(self, queue: str) -> None:
        """A wake-up from the store; SQLite's come from another thread."""
        assert self._loop is not None
        if threading.get_ident() == self._thread:
            self._wake(queue)
        else:
            self._loop.call_soon_threadsafe(self._wake, queue)

    def _wake(self, queue: str) -> None:
        if queue == CANCELS:
            self.heartbeat.beat_now()
        elif queue == REGISTRY:
            self._spawn(self._registry_changed())
        elif queue == LIMITS:
            self.claimer.limits_changed()
        elif not queue.startswith("\x01"):
            self.claimer.wake(queue)

    async def _registry_changed(self) -> None:
        try:
            if await self.refresh() and self.lease is not None:
                await self._store.worker_jobs(self.lease.worker, self.jobs)
            self.claimer.wake()
        except StoreError as error:
            log.warning("reading the job registry failed: %s", error)

    # what the heartbeat's thread tells
    def _threadsafe(self, callback: Callable[_P, None]) -> Callable[_P, None]:
        def later(*args: _P.args, **kwargs: _P.kwargs) -> None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(partial(callback, *args, **kwargs))

        return later

    def _cancel(self, run_ids: list[int]) -> None:
        for run_id in run_ids:
            if self.runner.stop(run_id, "cancel"):
                continue
            for held in self.runner.unstarted_of(run_id):
                self.intake.cancelled(held)

    def _beaten(self) -> None:
        if self.lease is not None:
            self.intake.revive(self.lease)

    def _lost(self, lease: Lease) -> None:
        """The session is gone: stop what runs under it, drop what has not started, begin a new one."""
        stopped = self.runner.stop_all("lost", lease=lease)
        dropped = len(self.runner.unstarted(lease))
        log.error(
            "worker %d lost its session: %d runs stopped, %d dropped before they started",
            lease.worker,
            stopped,
            dropped,
        )
        if self.lease is lease and not self.claimer.stopping:
            self.lease = None
            self._spawn(self._register_again())

    async def _register_again(self) -> None:
        pause = 0.1
        while not self.claimer.stopping:
            try:
                await self._register()
            except StoreError as error:
                log.warning("a new session waits for the database: %s", error)
                await sleep(pause)
                pause = min(pause * 2, 2.0)
            else:
                self.claimer.wake()
                return

    async def _watch_strict(self) -> None:
        """Stop strict jobs at the deadline itself: before anybody else may start them."""
        while True:
            await sleep(0.05)
            for run_id, held in list(self.runner.running.items()):
                if held.entry.job.strict and monotonic() >= held.lease.deadline:
                    self.runner.stop(run_id, "lost")

    # what the others tell
    def _stale(self, held: Held) -> None:
        self.intake.stale(held)

    def _lost_outcome(self, run_id: int) -> None:
        self.lost_outcomes += 1
        log.warning("run %d: its outcome came too late and was refused, the lease had gone", run_id)

    def _flushed(self, reopened: bool) -> None:
        if reopened:
            self.claimer.wake()  # a retry may be due soon: its time sets the timer
        if self.runner.limited_ended:
            ended, self.runner.limited_ended = self.runner.limited_ended, set()
            self.claimer.ended(ended)
        if self.runner.gated_ended:
            self.runner.gated_ended = False
            self._spawn(self._unpark())

    async def _unpark(self) -> None:
        try:
            await self.claimer.open_lines()
            for queue in await self._store.unpark():
                self.claimer.wake(queue, sweep=True)  # they are due as they were, before what was claimed meanwhile
                await self._store.notify([queue])
        except StoreUnavailable as error:
            log.warning("opening gates waits for the leader's next round: %s", error)

    async def catch_up(self) -> None:
        """Wait until what is done on the side (opening gates, a new session, a changed registry) is done."""
        while self._background:
            await asyncio.wait(list(self._background))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
