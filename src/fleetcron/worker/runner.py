"""Running claimed runs: slots, their timers, and what an end means.

A slot is one resident task that takes run after run; a handler that never waits costs no task of its own. Slots yield to the loop every
few runs, and a slot whose task was cancelled or whose context variables a handler changed is replaced, so that no run sees another's.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from fleetcron.clock import MAX_WAIT, monotonic
from fleetcron.decide.retry import describe_error, outcome
from fleetcron.payload import encode_result
from fleetcron.store.protocol import Claimed, Done, Settled
from fleetcron.worker.completer import Completer, handed_back
from fleetcron.worker.context import RunFacts
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.entry import Entries, Entry
from fleetcron.worker.invoke import Invoker
from fleetcron.worker.lease import Lease

log = logging.getLogger("fleetcron.worker")

_YIELD_EVERY = 32


class Held(msgspec.Struct, eq=False):
    """A claimed run in this worker's hands. `stop` says why its handler is being stopped: "cancel", "lost", "shutdown" or "refused"."""

    claimed: Claimed
    entry: Entry
    lease: Lease
    ahead: bool = False  # claimed before it was due: the store wants to know when it starts
    admitted: bool = False  # its gate, if it has one, has let it pass
    started: float = 0.0
    stop: str | None = None
    task: asyncio.Task[None] | None = None


class Runner:
    """`slots` runs at a time. `on_stale(held)` takes back a run that may not start as it is: its lease or its tick ran late in our
    hands, or it was claimed ahead and its gate has yet to be asked."""

    def __init__(
        self,
        *,
        slots: int,
        clock: DbClock,
        completer: Completer,
        entries: Entries,
        invoker: Invoker,
        max_result: int,
        max_error: int,
        on_stale: Callable[[Held], None],
    ) -> None:
        self.slots, self._clock, self._completer, self._entries, self._invoker = (
            slots,
            clock,
            completer,
            entries,
            invoker,
        )
        self._max_result, self._max_error = max_result, max_error
        self._on_stale = on_stale
        self._ready: deque[Held] = deque()
        self._timers: list[tuple[float, int, Held]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.running: dict[int, Held] = {}
        self._sleeping: deque[asyncio.Future[None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._base = contextvars.copy_context()
        self._waking = False
        self.gated_ended = False  # a run that held a gate has ended: somebody may pass
        self.limited_ended: set[str] = set()  # tenants of limited runs that have ended: another one may start
        self.low_water = 0  # the claimer is told when no more than this many wait
        self.finished = 0  # runs ended so far: the claimer's measure of speed
        self.room = asyncio.Event()  # set whenever a slot or the buffer may have become free
        self._random = random.Random().random

    # what the claimer asks
    def busy(self) -> int:
        """Slots in use."""
        return len(self.running)

    def waiting(self) -> int:
        """Runs due and waiting for a slot."""
        return len(self._ready)

    def pending(self) -> int:
        """Runs waiting for their due time."""
        return len(self._timers)

    # intake
    def add(self, several: Sequence[Held]) -> None:
        """Start each at its due time, or as soon as a slot is free."""
        now, first = self._clock.now(), self._timers[0][2] if self._timers else None
        for held in several:
            due = held.claimed.due
            if due <= now:
                self._ready.append(held)
            else:
                held.ahead = True
                heapq.heappush(self._timers, (due, held.claimed.run_id, held))
        if self._timers and self._timers[0][2] is not first:
            self._arm()
        if self._ready:
            self._wake()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._timers:
            wait = min(max(self._timers[0][0] - self._clock.now(), 0.0), MAX_WAIT)
            self._timer = asyncio.get_running_loop().call_later(wait, self.ring)

    def ring(self) -> None:
        """Move what has come due to the slots; never early: a timer that fires before its time is armed again."""
        now = self._clock.now()
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heapq.heappop(self._timers)[2])
        self._arm()
        if self._ready:
            self._wake()

    def _wake(self) -> None:
        """Have one more slot look for work. One is enough: a slot that is about to run a handler wakes the next while there is more."""
        while self._sleeping:
            sleeper = self._sleeping.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if len(self._tasks) < self.slots:
            self._spawn()

    def _spawn(self) -> None:
        task = asyncio.get_running_loop().create_task(self._slot(), name="fleetcron-slot", context=self._base.copy())
        self._tasks.add(task)
        task.add_done_callback(self._slot_ended)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("a slot ended by a fault of fleetcron", exc_info=error)
        if self._ready:
            self._wake()

    async def _slot(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        fresh, streak = contextvars.copy_context(), 0
        while True:
            if not self._ready:
                self.room.set()
                sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._sleeping.append(sleeper)
                await sleeper
                streak = 0
                continue
            held = self._ready.popleft()
            if self._ready and not self._waking:
                self._waking = True
                asyncio.get_running_loop().call_soon(self._wake_next)
            held.task = task
            await self._run(held)
            if held.stop is not None or contextvars.copy_context() != fresh:
                return  # replaced: see _slot_ended
            streak += 1
            if streak >= _YIELD_EVERY:
                streak = 0
                self.room.set()
                await asyncio.sleep(0)  # noqa: TID251  # not a wait: lets the loop turn

    def _wake_next(self) -> None:
        self._waking = False
        if self._ready:
            self._wake()

    # one run
    async def _run(self, held: Held) -> None:  # noqa: PLR0912  # the hot path, kept in one piece
        run, entry = held.claimed, held.entry
        moment = monotonic()
        if not held.lease.valid_at(moment) or held.stop is not None:
            held.stop = held.stop or "refused"
            self._on_stale(held)
            return
        now = self._clock.at(moment)
        if (run.gate is not None and not held.admitted) or (
            run.late_at is not None and now > run.late_at.timestamp() and not run.late
        ):
            held.stop = "refused"
            self._on_stale(held)
            return
        held.started = now
        self.running[run.run_id] = held
        if held.ahead:
            self._completer.started(held.lease.worker, run.run_id)
        error: BaseException | None = None
        result: object = None
        interrupted = False
        try:
            if (
                entry.handler is not None
                and entry.executor == "async"
                and not entry.handler.takes_context
                and entry.timeout is None
            ):
                result = await entry.handler.fn(**entry.handler.arguments(run.payload))
            else:
                result = await self._invoker.invoke(entry, self.facts(held))
        except asyncio.CancelledError as cancelled:
            interrupted = held.stop is not None
            error = cancelled
        except GeneratorExit:
            raise
        except BaseException as raised:  # noqa: BLE001  # whatever a handler raises is the outcome of its run, never the worker's end
            error = raised
        finally:
            del self.running[run.run_id]
        self.finished += 1
        if run.gate is not None:
            self.gated_ended = True
        if run.limited:
            self.limited_ended.add(run.tenant)
        if error is None and held.stop != "committed":
            # Also when it was being stopped and ended by itself first: the work is done. If the lease is gone, this does not win.
            text = None if result is None else encode_result(result, max_bytes=self._max_result)
            self._completer.done(
                held.lease.worker, Done(run.run_id, run.fence, now, text, run.key is not None, run.attempt)
            )
        else:
            self._close(held, error, datetime.fromtimestamp(now, UTC), interrupted=interrupted)
        if len(self._ready) <= self.low_water:
            self.room.set()

    def facts(self, held: Held) -> tuple[RunFacts, Held]:
        """What the handler may ask about its run."""
        run, entry = held.claimed, held.entry
        deadline = None if entry.timeout is None else datetime.fromtimestamp(held.started + entry.timeout, UTC)
        interval = None if run.prev_at is None or run.nominal_at is None else (run.prev_at, run.nominal_at)
        return RunFacts.of(run, max_attempts=entry.job.max_attempts, interval=interval, deadline=deadline), held

    def _close(self, held: Held, error: BaseException | None, started_at: datetime, *, interrupted: bool) -> None:
        run, entry, worker = held.claimed, held.entry, held.lease.worker
        match held.stop:
            case "lost":
                log.warning("run %d (%s): stopped, its lease was lost", run.run_id, run.job)
                return
            case "committed":
                return  # ctx.transaction() has closed it
            case "shutdown" if interrupted:
                self._completer.settled(worker, handed_back(run.run_id, run.fence, run.attempt, started_at))
                return
            case "cancel":
                cancelled = Settled(
                    run_id=run.run_id,
                    fence=run.fence,
                    state="cancelled",
                    attempt=run.attempt,
                    record="cancelled",
                    started_at=started_at,
                    reason="cancelled while running",
                )
                self._completer.settled(worker, cancelled)
                return
        assert error is not None
        text, trace = describe_error(error, self._max_error)
        if isinstance(error, asyncio.CancelledError):
            error = RuntimeError(text)  # not a request to stop: nobody asked
        end = outcome(
            error,
            attempt=run.attempt,
            max_attempts=entry.job.max_attempts,
            policy=entry.retry,
            dead_letter=entry.job.dead_letter,
            rnd=self._random,
        )
        self._completer.settled(
            worker,
            Settled(
                run_id=run.run_id,
                fence=run.fence,
                state=end.state,
                attempt=run.attempt if end.attempt_used else run.attempt - 1,
                delay=end.delay,
                record=end.record,
                started_at=started_at,
                error=text,
                traceback=trace if end.record == "failed" else None,
                dead=end.dead,
                reason=text if end.state == "discarded" else None,
            ),
        )

    # stopping
    def stop(self, run_id: int, why: str) -> bool:
        """Stop one running handler; False when it is not running here."""
        held = self.running.get(run_id)
        if held is None or held.stop is not None or held.task is None:
            return False
        held.stop = why
        self._invoker.stopping(held)
        held.task.cancel()
        return True

    def stop_all(self, why: str, *, lease: Lease | None = None) -> int:
        """Stop every running handler (of one session)."""
        return sum(
            self.stop(run_id, why)
            for run_id, held in list(self.running.items())
            if lease is None or held.lease is lease
        )

    def unstarted(self, lease: Lease | None = None) -> list[Held]:
        """Take out everything that has not started (of one session)."""
        mine = [h for h in (*self._ready, *(t[2] for t in self._timers)) if lease is None or h.lease is lease]
        others = [h for h in self._ready if lease is not None and h.lease is not lease]
        self._timers = [t for t in self._timers if lease is not None and t[2].lease is not lease]
        heapq.heapify(self._timers)
        self._ready = deque(others)
        self._arm()
        return mine

    def unstarted_but(self, keep: Callable[[Claimed], bool]) -> list[Held]:
        """Take out everything that has not started and is not to be kept."""
        found = [h for h in (*self._ready, *(t[2] for t in self._timers)) if not keep(h.claimed)]
        if found:
            self._ready = deque(h for h in self._ready if keep(h.claimed))
            self._timers = [t for t in self._timers if keep(t[2].claimed)]
            heapq.heapify(self._timers)
            self._arm()
        return found

    def unstarted_of(self, run_id: int | None = None, *, schedule: str | None = None) -> list[Held]:
        """Take out what is due and has not started: one run, or all of a schedule that can be misfires. (One run also before it is due.)"""
        found = [
            h
            for h in self._ready
            if h.claimed.run_id == run_id
            or (schedule is not None and h.claimed.schedule == schedule and h.claimed.late_at is not None)
        ]
        found += [t[2] for t in self._timers if t[2].claimed.run_id == run_id]
        if found:
            gone = {h.claimed.run_id for h in found}
            self._ready = deque(h for h in self._ready if h.claimed.run_id not in gone)
            self._timers = [t for t in self._timers if t[2].claimed.run_id not in gone]
            heapq.heapify(self._timers)
        return found

    async def idle(self, timeout: timedelta | None = None) -> bool:
        """Wait until nothing runs; False when the time is up before."""
        deadline = None if timeout is None else self._clock.now() + timeout.total_seconds()
        while self.running:
            left = None if deadline is None else deadline - self._clock.now()
            if left is not None and left <= 0:
                return False
            self.room.clear()
            try:
                await asyncio.wait_for(self.room.wait(), 0.5 if left is None else min(left, 0.5))
            except TimeoutError:
                continue
        return True

    async def close(self) -> None:
        """End the slots. Nothing may be running."""
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
