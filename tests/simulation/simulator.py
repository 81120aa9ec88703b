"""Random fleets: schedules of every kind, workers and schedulers that come and go in every way, users who edit, pause and cancel."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from fleetcron import Context, Cron, Every, Fleet, NotFound, Retry, Run, Schedule, Snooze
from fleetcron.decide.bounds import bounded_next
from fleetcron.testing import VirtualFleet
from fleetcron.testing.scheduler import VirtualScheduler
from fleetcron.testing.worker import CURRENT, VirtualWorker
from tests.simulation.model import STEP, Ledger, Start

BEGIN = datetime(2026, 3, 10, 12, tzinfo=UTC)
LEASE = timedelta(seconds=15)
MAX_ATTEMPTS = 3
JOBS = ("quick", "slow", "flaky", "snoozing", "deadly")


class Simulation:
    """One fleet's life. `seed` decides everything that is decided here."""

    def __init__(self, url: str, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.url, self.seed = url, seed
        ahead = self.rnd.choice([0.0, 0.0, 2.0])
        self.fleet = Fleet(url, lease=LEASE)
        self.vf = VirtualFleet(
            self.fleet, now=BEGIN, seed=seed, ahead=ahead, slots=self.rnd.choice([1, 3, 100]), workers=0, schedulers=0
        )
        self.ledger = Ledger(lease=LEASE, ahead=timedelta(seconds=ahead), max_attempts=MAX_ATTEMPTS)
        self.roles: list[VirtualWorker | VirtualScheduler] = []
        self.story: list[str] = []
        self.active: dict[tuple[str, int], VirtualWorker] = {}  # (gate, run) → where it runs
        self.submitted: list[Run] = []
        for name in JOBS:
            self.fleet.job(
                name,
                retry=Retry(max_attempts=MAX_ATTEMPTS, backoff=self.rnd.choice(["1s", "20s", "3m"]), jitter="none"),
            )(self._handler(name))

    def _handler(self, kind: str) -> Callable[[Context], Coroutine[Any, Any, None]]:
        async def handle(ctx: Context) -> None:
            worker = CURRENT.get()
            self.ledger.starts.append(Start(ctx.run_id, ctx.schedule, ctx.nominal_at, self.vf.now, ctx.attempt, worker))
            gate = await self._enter(ctx, worker)
            # Decided by the run and the number of its starts, not by the order in which handlers happen to come: a seed is one story.
            nth = sum(start.run_id == ctx.run_id for start in self.ledger.starts)
            rnd = random.Random(f"{self.seed} {ctx.idempotency_key} {nth}")
            try:
                await self._act(kind, ctx, rnd)
            finally:
                self.active.pop((gate, ctx.run_id), None)

        return handle

    async def _enter(self, ctx: Context, worker: VirtualWorker) -> str:
        """One at a time behind a gate, not counting those who have lost their lease and do not know it yet."""
        gate = ctx.schedule or ""
        if ctx.schedule is not None and ctx.nominal_at is not None:
            era = self.ledger.eras[ctx.schedule][-1]
            if era.schedule.overlap != "allow" and era.since < ctx.nominal_at:
                others = [run for (g, run), w in self.active.items() if g == gate and run != ctx.run_id and _holds(w)]
                assert not others, f"{gate}: run {ctx.run_id} has begun beside {others}"
        if _holds(worker):
            self.active[gate, ctx.run_id] = worker
        return gate

    async def _act(self, kind: str, ctx: Context, rnd: random.Random) -> None:
        match kind:
            case "slow":
                await self.vf.sleep(rnd.choice([0.5, 7, 40, 200]))
            case "flaky" if rnd.random() < 0.5:
                raise ConnectionError("flaky")
            case "snoozing" if rnd.random() < 0.3:
                raise Snooze(rnd.choice(["1s", "2m", "10m"]))
            case "deadly" if rnd.random() < 0.4:
                self.ledger.died(CURRENT.get(), self.vf.now)
                self.vf.crash_worker(CURRENT.get())
                await asyncio.sleep(0)

    # a life
    async def live(self, steps: int) -> None:
        """Random steps, everything checked after each; then all is up again, and everything comes to its end."""
        async with self.vf:
            await self._worker_comes()
            await self._scheduler_comes()
            for _ in range(self.rnd.randint(1, 4)):
                await self._define()
            for _ in range(steps):
                await self._step()
                await self._check()
            await self._end()

    async def _step(self) -> None:
        for _ in range(self.rnd.choice([1, 1, 2, 3])):
            does = self.rnd.choices([w for _, w in ACTIONS], [n for n, _ in ACTIONS])[0]
            await does(self)
        await self._advance()

    async def _advance(self) -> None:
        now = self.vf.now
        how = self.rnd.random()
        if how < 0.3:
            span = timedelta(seconds=self.rnd.uniform(0, 3))
        elif how < 0.6:
            span = timedelta(seconds=self.rnd.uniform(3, 40))
        elif how < 0.8:
            span = timedelta(seconds=self.rnd.choice([10, 15, 30, 60]))  # instants that coincide with ticks and leases
        elif how < 0.97:
            span = timedelta(seconds=self.rnd.uniform(40, 300))
        else:
            span = timedelta(minutes=self.rnd.uniform(10, 90))
        self._tell(f"advance {span} from {now.time()}")
        await self.vf.advance(span)

    def _tell(self, what: str) -> None:
        self.story.append(what)

    # users
    async def _define(self) -> None:
        rnd = self.rnd
        name = f"s{rnd.randint(1, 4)}"
        trigger: Cron | Every = rnd.choice([
            Every(rnd.choice([5, 10, 17, 30, 60, 90, 600]), anchor=BEGIN + timedelta(seconds=rnd.choice([0, 0, 3, 1000]))),
            Cron(rnd.choice(["* * * * *", "*/10 * * * * *", "*/3 * * * *", "30 * * * * *", "0,1,2 */2 * * *"])),
        ])  # fmt: skip
        options: dict[str, Any] = {
            "misfire": rnd.choice(["fire_all", "fire_once", "skip"]),
            "misfire_grace": rnd.choice([0, 5, 20, 60, 600]),
            "catchup_limit": rnd.choice([0, 1, 5, 1000]),
            "overlap": rnd.choice(["allow", "allow", "skip", "queue_one", "queue_all", "replace"]),
            "jitter": rnd.choice([None, None, 4, 100]),
            "start_deadline": rnd.choice([None, None, None, 30]),
            "priority": rnd.choice([0, 5, 9]),
        }
        job = rnd.choice(JOBS)
        self._tell(f"define {name}: {job} {trigger} {options}")
        # "unchanged" is an answer too: then nothing begins anew.
        (answer,) = await self.fleet.schedule_many([(name, job, trigger, {}, options)])
        if answer != "unchanged":
            self.ledger.defined(await self.fleet.get_schedule(name), self.vf.now)

    async def _pause(self) -> None:
        if schedule := await self._any_schedule():
            self._tell(f"pause {schedule.name}")
            await self.fleet.pause(schedule.name)
            self.ledger.ended(schedule.name, self.vf.now)

    async def _resume(self) -> None:
        schedule = await self._any_schedule()
        if schedule is not None and schedule.paused:
            self._tell(f"resume {schedule.name}")
            await self.fleet.resume(schedule.name)
            self.ledger.defined(await self.fleet.get_schedule(schedule.name), self.vf.now)

    async def _remove(self) -> None:
        if schedule := await self._any_schedule():
            self._tell(f"remove {schedule.name}")
            await self.fleet.unschedule(schedule.name)
            self.ledger.ended(schedule.name, self.vf.now)

    async def _any_schedule(self) -> Schedule | None:
        found = await self.fleet.schedules()
        return self.rnd.choice(found) if found else None

    async def _submit(self) -> None:
        rnd = self.rnd
        options = {
            "delay": rnd.choice([0, 3, 50, 200, 4000]),
            "key": rnd.choice([None, None, "k1", "k2"]),
            "concurrency_key": rnd.choice([None, None, "c1"]),
            "start_deadline": rnd.choice([None, None, 20]),
            "priority": rnd.choice([0, 5, 9]),
        }
        self._tell(f"submit {options}")
        self.submitted.append(await self.fleet.submit(rnd.choice(JOBS), {}, **options))

    async def _trigger(self) -> None:
        if schedule := await self._any_schedule():
            await self.fleet.trigger(schedule.name)

    async def _cancel(self) -> None:
        runs = await self.fleet.runs(limit=30)
        if runs:
            run = self.rnd.choice(runs)
            self._tell(f"cancel {run}: {await run.cancel()}")

    # operators
    def _up(self, kind: type[Any], *, frozen: bool = False) -> list[Any]:
        return [role for role in self.roles if isinstance(role, kind) and role.alive and role.frozen is frozen]

    async def _leaves(self) -> None:
        if roles := [role for role in self.roles if role.alive]:
            role, vf = self.rnd.choice(roles), self.vf
            if isinstance(role, VirtualWorker):
                leave = vf.crash_worker if role.frozen else self.rnd.choice([vf.stop_worker, vf.crash_worker])
                leave(role)
            else:
                go = vf.crash_scheduler if role.frozen else self.rnd.choice([vf.stop_scheduler, vf.crash_scheduler])
                go(role)
            self._tell(f"{role} leaves")

    async def _worker_comes(self) -> None:
        if len(self._up(VirtualWorker)) < 3:
            self._tell("start_worker")
            self.roles.append(self.vf.start_worker().role)

    async def _scheduler_comes(self) -> None:
        if len(self._up(VirtualScheduler)) < 2:
            self._tell("start_scheduler")
            self.roles.append(self.vf.start_scheduler().role)

    async def _freeze(self) -> None:
        if roles := self._up(object):
            role = self.rnd.choice(roles)
            self._tell(f"freeze {role}")
            self.vf.freeze_worker(role) if isinstance(role, VirtualWorker) else self.vf.freeze_scheduler(role)

    async def _thaw(self) -> None:
        if roles := self._up(object, frozen=True):
            role = self.rnd.choice(roles)
            self._tell(f"thaw {role}")
            self.vf.thaw_worker(role) if isinstance(role, VirtualWorker) else self.vf.thaw_scheduler(role)

    # what must hold
    async def _check(self) -> None:
        runs = [run async for run in self.fleet.iter_runs(limit=1000)]
        misses = await self.fleet.misses(limit=100_000)
        unwritten: dict[str, list[datetime]] = {}
        now = self.vf.now
        for schedule in await self.fleet.schedules():
            found: list[datetime] = []
            tick = None
            if schedule.next_at is not None and not schedule.paused:
                tick = bounded_next(schedule, schedule.next_at - STEP)
            while tick is not None and tick <= now:
                found.append(tick)
                tick = bounded_next(schedule, tick)
            unwritten[schedule.name] = found
        self.ledger.check(now, runs, misses, unwritten)

    async def _end(self) -> None:
        """With everything up for long enough, whatever is due has come to its end."""
        self._tell("the end")
        while self._up(object, frozen=True):
            await self._thaw()
        for schedule in await self.fleet.schedules():
            await self.fleet.unschedule(schedule.name)
            self.ledger.ended(schedule.name, self.vf.now)
        for _ in range(60):
            if not self._up(VirtualWorker):  # deadly runs take some along
                await self._worker_comes()
            if not self._up(VirtualScheduler):
                await self._scheduler_comes()
            await self.vf.advance("5m")
            await self._check()
            open_runs = [run async for run in self.fleet.iter_runs() if not run.state.final]
            if not open_runs:
                break
        else:
            raise AssertionError(f"still open after five quiet hours: {open_runs[:5]}")
        counts = await self.fleet.counts()
        assert all(sum((c.scheduled, c.ready, c.running, c.retrying)) == 0 for c in counts.values())
        for run in self.submitted:
            try:
                await run.refresh()
            except NotFound:
                raise AssertionError(f"{run} was submitted and is gone") from None


def _holds(worker: VirtualWorker) -> bool:
    """Does it live, and may it trust its session?"""
    lease = worker.worker.lease
    return worker.alive and not worker.frozen and lease is not None and lease.valid()


ACTIONS: list[tuple[int, Callable[[Simulation], Coroutine[Any, Any, None]]]] = [
    (4, Simulation._define),
    (2, Simulation._pause),
    (3, Simulation._resume),
    (1, Simulation._remove),
    (5, Simulation._submit),
    (1, Simulation._trigger),
    (3, Simulation._cancel),
    (5, Simulation._leaves),
    (5, Simulation._worker_comes),
    (5, Simulation._scheduler_comes),
    (2, Simulation._freeze),
    (4, Simulation._thaw),
]
