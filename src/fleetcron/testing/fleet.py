"""A fleet on virtual time, for the tests of an app and for our own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Generic, TypeVar

from fleetcron.durations import parse_duration
from fleetcron.errors import FleetcronError
from fleetcron.fleet import Fleet
from fleetcron.model import Miss, State
from fleetcron.node import NodeOptions, node_info
from fleetcron.run import Run
from fleetcron.scheduler.ticker import horizon
from fleetcron.store.protocol import BUCKET, RunFilter
from fleetcron.testing.clock import STEP, VirtualClock
from fleetcron.testing.scheduler import VirtualScheduler
from fleetcron.testing.worker import CURRENT, MOST_ROUNDS, VirtualWorker
from fleetcron.testing.world import World

Role = VirtualScheduler | VirtualWorker
T = TypeVar("T", bound=Role)

_PAGE = 1000
_ALL_MISSES = 100_000
_UNPROMOTED = timedelta(seconds=20)
"""Without a leader a worker itself fetches what is due within half a minute, looking every 5 s."""
_POLL, _LONGEST_POLL = timedelta(seconds=1), timedelta(minutes=1)


class Change(Generic[T]):
    """A change to the fleet. It holds from now on; `await` it if the next line of the test needs it done in the database too."""

    __slots__ = ("_apply", "role")

    def __init__(self, role: T, apply: Callable[[], Awaitable[None]]) -> None:
        self.role, self._apply = role, apply

    def __await__(self) -> Generator[None, None, T]:
        yield from self._apply().__await__()
        return self.role


class VirtualFleet:
    """The real engine (store, ticker, rescuer, promoter, claimer, runner, completer) on a clock that moves only when told to.

        fleet = Fleet("sqlite:///:memory:")

        @fleet.job(cron="0 2 * * *", tz="Asia/Kolkata", misfire="fire_once")
        async def report(ctx: Context) -> None: ...

        async def test_an_outage_costs_one_late_report():
            async with VirtualFleet(fleet, now=datetime(2026, 3, 1, tzinfo=UTC)) as vf:
                vf.stop_scheduler()
                await vf.advance("3d")
                vf.start_scheduler()
                await vf.advance("1m")
                assert [run.state for run in vf.runs] == ["succeeded"]
                assert sum(miss.count for miss in vf.misses) == 2

    `advance` goes from one instant at which something happens to the next: hours in which nothing does cost nothing. Handlers really
    run, and virtual time stands still meanwhile; one that is to take time awaits `vf.sleep("10m")`. The fleet's own database is used.

    `runs`: every run whose time has come, oldest first, but for ticks judged away; those are in `misses`, oldest first. Both are read at
    the end of each `advance`; a run's `attempts` come with `await run.refresh()`.

    It starts with one worker and one scheduler. Changes (`crash_worker()` …) hold from the present instant on, also when a handler makes
    them; what they return may be awaited. Without an argument they mean the worker whose handler says so, else the role started last.

    Not virtual: handler timeouts and wait(timeout=…), which are real time, and the pruning of old runs, which does not take place.
    """

    def __init__(
        self,
        fleet: Fleet,
        now: datetime,
        *,
        slots: int = 100,
        ahead: float = 0.0,
        workers: int = 1,
        schedulers: int = 1,
        seed: int | None = None,
        patience: float = 10.0,
    ) -> None:
        """`now`: where time begins, an aware datetime. `slots`: of each worker. `ahead`: seconds before its time that a worker may claim
        a run (the real one: 2). `seed`: let the roles take turns in a random order at each instant. `patience`: seconds of real time
        that handlers may take at one instant. Raises TypeError for a naive `now`."""
        if now.utcoffset() is None:
            raise TypeError(f"now: {now!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
        self._clock = VirtualClock(now.astimezone(UTC))
        self._fleet, self._world = fleet, World(fleet, self._clock)
        self._slots, self._ahead, self._patience = slots, ahead, patience
        self._first = (schedulers, workers)
        self._random = None if seed is None else random.Random(seed)
        self._schedulers: list[VirtualScheduler] = []
        self._workers: list[VirtualWorker] = []
        self._changes: list[Callable[[], Awaitable[None]]] = []
        self._sleepers: list[tuple[timedelta, asyncio.Future[None], VirtualWorker | None]] = []
        self._advancing = False
        self._poll = _POLL
        self.runs: list[Run] = []
        self.misses: list[Miss] = []

    @property
    def now(self) -> datetime:
        """The virtual time, UTC."""
        return self._clock.now

    @property
    def clock(self) -> Callable[[], datetime]:
        """The same as a function: `other.use_clock(vf.clock)` puts another fleet on the same database on this clock."""
        return self._clock

    async def __aenter__(self) -> VirtualFleet:
        self._fleet.use_clock(self._clock)
        await self._fleet.open()
        for _ in range(self._first[0]):
            self.start_scheduler()
        for _ in range(self._first[1]):
            self.start_worker()
        await self._apply()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for worker in list(self._workers):
                worker.thaw()
                self.stop_worker(worker)
            for scheduler in list(self._schedulers):
                self.stop_scheduler(scheduler)
            await self._apply()
        finally:
            await self._fleet.close()
            self._fleet.use_clock(None)

    # time
    async def advance(self, to: timedelta | float | str | datetime) -> None:
        """Let time pass: a duration, or until an instant (aware). `advance(0)` does what is due now.

        Raises ValueError for what lies in the past, FleetcronError when a handler does not end or something re-schedules itself at one
        instant without end, and what the database raises.
        """
        if self._advancing:
            raise FleetcronError("advance: time is passing already (handlers wait for it with vf.sleep)")
        self._advancing, self._world.until = True, self._target(to)
        try:
            await self._apply()
            for role in self._roles():
                await role.begin()
            self._wake_sleepers()  # those of a worker that has been thawed
            await self._settle()
            while (instant := await self._next()) is not None:
                self._clock.move_to(instant)
                self._wake_sleepers()
                await self._settle()
        finally:
            self._advancing, self._world.until = False, self._clock.now
        await self._read()

    async def sleep(self, duration: timedelta | float | str) -> None:
        """For handlers: wait until this much virtual time has passed."""
        until = self._clock.elapsed + parse_duration(duration, allow_zero=True)
        worker = CURRENT.get(None)
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sleeper = (until, awake, worker)
        self._sleepers.append(sleeper)
        if worker is not None:
            worker.sleeping += 1
            worker.worker.runner.room.set()
        try:
            await awake
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                if worker is not None:
                    worker.sleeping -= 1

    def set_clock(self, now: datetime) -> None:
        """Step the database's clock to an instant, back or forth, as an administrator would: no time passes."""
        if now.utcoffset() is None:
            raise TypeError(f"now: {now!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
        self._clock.set_to(now.astimezone(UTC))

    # roles
    def start_scheduler(self) -> Change[VirtualScheduler]:
        """Start one more scheduler."""
        scheduler = VirtualScheduler(self._world, node_info(NodeOptions(roles=("scheduler",))))
        self._schedulers.append(scheduler)
        return self._change(scheduler, _nothing)

    def stop_scheduler(self, scheduler: VirtualScheduler | None = None) -> Change[VirtualScheduler]:
        """Stop one in order: a successor can lead at once."""
        scheduler = self._leave(self._schedulers, scheduler)
        return self._change(scheduler, scheduler.resign)

    def crash_scheduler(self, scheduler: VirtualScheduler | None = None) -> Change[VirtualScheduler]:
        """Kill one: its term runs out `election_ttl` from now."""
        scheduler = self._leave(self._schedulers, scheduler)
        return self._change(scheduler, scheduler.leave)

    def freeze_scheduler(self, scheduler: VirtualScheduler | None = None) -> Change[VirtualScheduler]:
        """Suspend one, as SIGSTOP or a closed laptop does."""
        scheduler = _pick(self._schedulers, scheduler, frozen=False)
        scheduler.freeze()
        return self._change(scheduler, scheduler.leave)

    def thaw_scheduler(self, scheduler: VirtualScheduler | None = None) -> Change[VirtualScheduler]:
        """Let a frozen one go on."""
        scheduler = _pick(self._schedulers, scheduler, frozen=True)
        scheduler.thaw()
        return self._change(scheduler, _nothing)

    def start_worker(
        self, *, slots: int | None = None, queues: tuple[str, ...] | None = None, app: Fleet | None = None
    ) -> Change[VirtualWorker]:
        """Start one more worker, for all queues or some. `app`: another version of the app, whose jobs it has instead."""
        info = node_info(NodeOptions(roles=("worker",), slots=slots or self._slots, queues=queues))
        entries = (app or self._fleet).entries()
        worker = VirtualWorker(
            self._world, info, entries, slots=info.slots, queues=queues, ahead=self._ahead, patience=self._patience
        )
        self._workers.append(worker)
        return self._change(worker, worker.start)

    def stop_worker(self, worker: VirtualWorker | None = None) -> Change[VirtualWorker]:
        """Stop one in order, without a time to drain: what it holds is handed back, no attempt used."""
        worker = self._leave(self._workers, worker)
        return self._change(worker, worker.stop)

    def crash_worker(self, worker: VirtualWorker | None = None) -> Change[VirtualWorker]:
        """Kill one: its leases stay until they run out, a `lease` from now."""
        worker = self._leave(self._workers, worker)
        worker.crash()
        return self._change(worker, worker.bury)

    def freeze_worker(self, worker: VirtualWorker | None = None) -> Change[VirtualWorker]:
        """Suspend one, as SIGSTOP does: it knows nothing of what happens to its session."""
        worker = _pick(self._workers, worker, frozen=False)
        worker.freeze()
        return self._change(worker, worker.heartbeat.leave)

    def thaw_worker(self, worker: VirtualWorker | None = None) -> Change[VirtualWorker]:
        """Let a frozen one go on, handlers included."""
        worker = _pick(self._workers, worker, frozen=True)
        worker.thaw()
        return self._change(worker, _nothing)

    def _leave(self, roles: list[T], role: T | None) -> T:
        role = _pick(roles, role, frozen=None)  # also a frozen one can be killed
        roles.remove(role)
        role.alive = False
        return role

    def _change(self, role: T, work: Callable[[], Awaitable[None]]) -> Change[T]:
        self._world.roles_are(self._schedulers, self._workers)
        self._changes.append(work)
        return Change(role, self._apply)

    async def _apply(self) -> None:
        """Write down the changes made since the last time, in order."""
        while self._changes:
            await self._changes.pop(0)()

    def _roles(self) -> list[Role]:
        roles: list[Role] = [*self._schedulers, *self._workers]
        roles = [role for role in roles if not role.frozen]
        if self._random is not None:
            self._random.shuffle(roles)
        return roles

    # the engine's turns
    async def _settle(self) -> None:
        """Let everybody act at this instant until nothing more happens."""
        moved = 0
        while moved < MOST_ROUNDS:
            await self._apply()
            before = moved
            for role in self._roles():
                if role.alive and not role.frozen:  # a handler may have changed that meanwhile
                    moved += await role.step()
            if moved == before and not self._changes:
                if moved:
                    self._poll = _POLL
                return
        raise FleetcronError(
            f"{self.now.isoformat()}: still busy after {MOST_ROUNDS} rounds: does something retry, snooze or submit itself at once?"
        )

    def _wake_sleepers(self) -> None:
        for sleeper in list(self._sleepers):
            until, awake, worker = sleeper
            if until <= self._clock.elapsed and (worker is None or not worker.frozen) and not awake.done():
                self._sleepers.remove(sleeper)
                if worker is not None:
                    worker.sleeping -= 1
                awake.set_result(None)
                self._world.stirred += 1

    async def _next(self) -> datetime | None:
        """The next instant at which something may happen, at most the end of this advance; None at the end."""
        now, until = self._clock.now, self._world.until
        if now >= until:
            return None
        workers = [worker for worker in self._workers if not worker.frozen]
        schedulers = [scheduler for scheduler in self._schedulers if not scheduler.frozen]
        found = [
            until,
            self._world.timeline.next(now),
            *(s.next_instant() for s in schedulers),
            *(w.next_instant() for w in workers),
        ]
        found += [
            now + max(at - self._clock.elapsed, STEP)
            for at, _, worker in self._sleepers
            if worker is None or not worker.frozen
        ]
        if schedulers and self._world.waiting(now):
            found.append(self._world.late.next(now))
        stuck = any(worker.free() and worker.sees_due(now) for worker in workers)
        if stuck:  # something due that no worker can start: look again, as workers do, but ever more seldom
            found.append(now + self._poll)
            self._poll = min(self._poll * 2, _LONGEST_POLL)
        instant = min(moment for moment in found if moment is not None and moment > now)
        led = self._world.someone_leads(0)
        if (workers and (stuck or not led)) or (led and instant > horizon(now)):
            instant = min(instant, await self._first_hidden(instant, led=led, stuck=stuck))
        return instant

    async def _first_hidden(self, before: datetime, *, led: bool, stuck: bool) -> datetime:
        """When to act for the first run that no lane shows yet: it waits in the timetable, or behind one that cannot be started."""
        now = self._clock.now
        since = horizon(now) if led and not stuck else now + STEP
        if since >= before:
            return before
        due = before
        for state in (State.SCHEDULED, State.RETRYING):
            after = None
            while page := await self._fleet.store.runs(
                RunFilter(state=state, since=since, until=due, limit=_PAGE, after=after)
            ):
                due, after = min(due, *(run.due_at for run in page)), page[-1].id
        if due == before:
            return before
        if led and due >= horizon(now):
            return due.replace(second=0, microsecond=0) - BUCKET  # the promoter takes it then
        return due if stuck or due - _UNPROMOTED <= now else due - _UNPROMOTED

    async def _read(self) -> None:
        runs = [run async for run in self._fleet.iter_runs(limit=_PAGE)]
        self.runs = [run for run in reversed(runs) if run.state is not State.MISSED and not self._to_come(run)]
        self.misses = sorted(await self._fleet.misses(limit=_ALL_MISSES), key=lambda miss: (miss.first, miss.last))

    def _to_come(self, run: Run) -> bool:
        """Does it only wait for its time, perhaps in a worker's hands? (A snoozed one has had a start.)"""
        return run.state is State.SCHEDULED and (run.started_at is None or run.started_at > self.now)

    def _target(self, to: timedelta | float | str | datetime) -> datetime:
        if isinstance(to, datetime):
            if to.utcoffset() is None:
                raise TypeError(f"advance: {to!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
            if to < self.now:
                raise ValueError(
                    f"advance: {to.isoformat()} is before {self.now.isoformat()}, and time does not go back (set_clock steps it)"
                )
            return to.astimezone(UTC)
        return self.now + parse_duration(to, name="advance", allow_zero=True)


def _pick(roles: list[T], role: T | None, *, frozen: bool | None) -> T:
    candidates = [r for r in roles if frozen is None or r.frozen is frozen]
    if role is None and candidates:
        mine = CURRENT.get(None)
        return next((r for r in candidates if r is mine), candidates[-1])
    if role is None or role not in candidates:
        raise FleetcronError(
            "there is nobody to do that to: "
            + (
                "this one has left or is not in that condition"
                if role is not None
                else f"none is {'frozen' if frozen else 'running'}"
            )
        )
    return role


async def _nothing() -> None:
    return None
