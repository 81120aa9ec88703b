"""The worker role on virtual time: the real worker, but its claimer is stepped and its session beats when told to.

A worker that lives would beat every few seconds; its session is granted for the whole way ahead instead, and cut to one lease at the
instant at which it crashes or freezes.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from fleetcron.clock import monotonic
from fleetcron.errors import FleetcronError
from fleetcron.store.protocol import Store, WorkerInfo
from fleetcron.testing.clock import VirtualClock
from fleetcron.testing.link import Link
from fleetcron.testing.world import World
from fleetcron.worker.entry import Entry
from fleetcron.worker.heartbeat import Heartbeat
from fleetcron.worker.lease import Lease
from fleetcron.worker.worker import Worker, WorkerOptions

CURRENT: contextvars.ContextVar[VirtualWorker] = contextvars.ContextVar("fleetcron_virtual_worker")
"""The worker that a handler runs in."""

_TURNS = 6
"""Turns of the event loop after which everything that needs no outside answer has had its say."""
MOST_ROUNDS = 1000
"""At one instant: more is something that re-schedules itself at once, without end."""
_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


class Session(Lease):
    """A lease whose trust passes on virtual time."""

    def __init__(self, worker: int, clock: VirtualClock, granted: timedelta, lease: timedelta) -> None:
        super().__init__(worker, 0.0, lease)
        self.deadline = float("inf")  # of the monotonic clock: plays no part
        self._clock, self._slack = clock, timedelta(seconds=self._margin)
        self.granted = granted
        self.renewed(0.0)

    def renewed(self, sent_at: float) -> None:
        self._until = self._clock.elapsed + self.granted - self._slack

    def valid(self) -> bool:
        return self._clock.elapsed < self._until and not self.lost.is_set()


class VirtualHeartbeat(Heartbeat):
    """Keeps a session when told to, on the worker's own loop and store. `start` and `stop` are called in a thread, as the real one's."""

    def __init__(self, make_store: Callable[[], Store], *, world: World, store: Store, **how: Any) -> None:
        super().__init__(make_store, **how)
        self._world, self._store, self._home = world, store, asyncio.get_running_loop()
        self._span = self._lease  # what one beat grants; `_lease` is what the next one is going to
        self.session: Session | None = None
        self.crashed = False

    def start(self, info: WorkerInfo) -> Lease:
        return asyncio.run_coroutine_threadsafe(self._start(info), self._home).result()

    async def _start(self, info: WorkerInfo) -> Session:
        granted = self._world.ahead() + self._span
        worker = await self._store.start_worker(info, granted)
        session = self.session = Session(worker, self._world.clock, granted, self._span)
        return session

    def stop(self) -> None:
        session = self.session
        if session is not None and not self.crashed and not session.lost.is_set():
            asyncio.run_coroutine_threadsafe(self._store.stop_worker(session.worker), self._home).result()

    def beat_now(self) -> None:
        """Every advance begins with a beat."""

    async def beat(self) -> None:
        """Renew until the end of the present advance and a lease more."""
        await self._grant(self._world.ahead() + self._span)

    async def leave(self) -> None:
        """Renew for one lease from now, as if the last beat had been sent at this instant."""
        await self._grant(self._span)
        self._world.session_ends(self._world.clock.now + self._span)

    async def _grant(self, granted: timedelta) -> None:
        session = self.session
        if session is not None and not session.lost.is_set():
            self._lease = session.granted = granted
            await self._beat(self._store, session)


class VirtualWorker:
    """One worker. `step` does everything that is to be done at the present instant."""

    def __init__(
        self,
        world: World,
        info: WorkerInfo,
        entries: Sequence[Entry],
        *,
        slots: int,
        queues: tuple[str, ...] | None,
        ahead: float,
        patience: float,
    ) -> None:
        self._world, self._look_ahead, self._patience = world, ahead, patience
        o = world.fleet.options
        self.link = Link(world.fleet.store, world.clock, world.timeline, world.late)
        store = cast("Store", self.link)
        options = WorkerOptions(
            slots=slots,
            queues=queues,
            lease=o.lease,
            heartbeat=o.heartbeat,
            drain=timedelta(0),
            max_result=o.max_result,
            max_error=o.max_error,
            ageing=o.priority_ageing,
        )
        context = contextvars.copy_context()
        context.run(CURRENT.set, self)  # the runner's slots inherit it
        heartbeat = partial(VirtualHeartbeat, world=world, store=world.fleet.store)
        self.worker: Worker = context.run(
            partial(Worker, store, lambda: world.fleet.store, info, entries, options, heartbeat=heartbeat)
        )
        assert isinstance(self.worker.heartbeat, VirtualHeartbeat)
        self.heartbeat = self.worker.heartbeat
        self.sleeping = 0  # handlers that wait for virtual time
        self._beaten: timedelta | None = None
        self.alive, self.frozen, self._thawed = True, False, False

    # life
    async def start(self) -> None:
        if self.alive:  # else it has crashed before it could do anything
            await self.worker.start()

    async def begin(self) -> None:
        """An advance begins: hold the session until its end, and see what was asked for and registered meanwhile."""
        if not self._thawed:  # else it does not know yet that time has passed
            await self._beat()
        if await self.worker.refresh() and self.worker.lease is not None:
            await self.link.worker_jobs(self.worker.lease.worker, self.worker.jobs)

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen, self._thawed = False, True

    def crash(self) -> None:
        """Gone from one moment to the next: nothing is written any more, what ran has ended."""
        self.link.cut = self.heartbeat.crashed = True
        self.alive = False
        self.worker.claimer.stop()
        if self.worker.lease is not None:
            self.worker.lease.lost.set()
        self.worker.runner.stop_all("lost")
        self.worker.invoker.kill_children()

    async def bury(self) -> None:
        """End what is left of a crashed worker; its session runs out by itself."""
        session = self.heartbeat.session
        if session is not None:
            lease = self._world.fleet.options.lease
            beat = await self._world.fleet.store.beat(session.worker, lease)
            if beat.alive:
                self._world.session_ends(self._world.clock.now + lease)
        await self._drain()

    async def stop(self) -> None:
        """Hand everything back and say goodbye, as at a SIGTERM without a time to drain."""
        self.alive = False
        self.worker.stop()
        await self._drain()

    async def _drain(self) -> None:
        async with asyncio.timeout(self._patience):
            await self.worker.drain()

    # work
    async def step(self) -> int:
        """Claim and run what is due until nothing is, or only what waits for virtual time; returns how much a scheduler may have to react
        to: the claims that took, and the runs of backfills that have ended."""
        runner, claimer, before = self.worker.runner, self.worker.claimer, self.link.made_room
        runner.ring()
        self._stop_strict()
        if self._thawed:
            # As after SIGCONT: the handlers go on before the next beat tells what has become of the session.
            await self._rest(_PAUSE)
            self._thawed = False
            await self._beat()
        elif runner.running and self._beaten != self._world.clock.elapsed:
            await self._beat()  # a cancel may have been asked for
        moved, pause, give_up = 0, _PAUSE, monotonic() + self._patience
        while moved < MOST_ROUNDS:
            try:
                async with asyncio.timeout(self._patience):
                    rested = await self._rest(pause)
            except TimeoutError:
                raise FleetcronError(
                    "a worker waits for the database, which refuses what it writes; see the log"
                ) from None
            claimer.limits_changed()  # a look at everything
            if await claimer.round(ahead=self._look_ahead):
                moved, pause, give_up = moved + 1, _PAUSE, monotonic() + self._patience
                self._world.stirred += 1
            elif rested:
                break
            elif monotonic() > give_up:
                raise FleetcronError(self._stuck())
            else:
                pause = min(pause * 2, _LONGEST_PAUSE)
        return moved + self.link.made_room - before

    async def _beat(self) -> None:
        self._beaten = self._world.clock.elapsed
        await self.heartbeat.beat()
        for _ in range(_TURNS):
            await _turn()  # what it told comes through call_soon_threadsafe
        await self.worker.catch_up()

    def _stop_strict(self) -> None:
        for run_id, held in list(self.worker.runner.running.items()):
            if held.entry.job.strict and not held.lease.valid():
                self.worker.runner.stop(run_id, "lost")

    async def _rest(self, pause: float) -> bool:
        """Wait for handlers that are about to end, and for what is being written; False when some take longer than `pause` seconds."""
        w = self.worker
        await w.intake.settle()
        for _ in range(_TURNS):
            if self._busy():
                await _turn()
        if self._busy():
            w.runner.room.clear()
            try:
                async with asyncio.timeout(pause):
                    await w.runner.room.wait()
            except TimeoutError:
                pass
        await w.intake.settle()
        await w.completer.drain()
        await w.catch_up()
        return not self._busy() and w.completer.idle.is_set() and w.intake.judging == 0

    def _busy(self) -> bool:
        """Is a handler under way that does not wait for virtual time, or a run about to start?"""
        runner = self.worker.runner
        return runner.busy() > self.sleeping or (runner.waiting() > 0 and runner.busy() < runner.slots)

    def _stuck(self) -> str:
        names = sorted({held.claimed.job for held in self.worker.runner.running.values()})
        return (
            f"handlers of {', '.join(names)} have not ended within {self._patience:g} s of real time: virtual time stands still while they "
            "run. To let it pass in a handler, await vf.sleep(…); to allow more real time, VirtualFleet(…, patience=…)"
        )

    # what others ask
    def free(self) -> bool:
        return self.worker.runner.busy() < self.worker.runner.slots

    def sees_due(self, before: datetime) -> bool:
        return any(lane.first_due <= before for lane in self.link.heads)

    def next_instant(self) -> datetime | None:
        """When the first run that waits in `ready` is to be claimed, as far as it is not hidden behind one that is due."""
        now, ahead = self._world.clock.now, timedelta(seconds=self._look_ahead)
        instants = [
            moment for lane in self.link.heads for moment in (lane.first_due - ahead, lane.first_due) if moment > now
        ]
        return min(instants, default=None)


async def _turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251  # not a wait: lets the loop turn
