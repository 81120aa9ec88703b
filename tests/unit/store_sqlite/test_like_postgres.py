"""The same random history on both stores, on one clock: after every step their answers and tables say the same."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fleetcron.decide.ticks import first_tick
from fleetcron.model import Schedule
from fleetcron.store.postgres import PostgresStore
from fleetcron.store.protocol import Done, Lane, NewRun, RunFilter
from fleetcron.store.sqlite import SqliteStore
from fleetcron.triggers import Every, Once
from tests.unit.store_sqlite import twins
from tests.unit.store_sqlite.twins import JOBS, LEASE, TABLES, Clock, Side

SEEDS = int(os.environ.get("FLEETCRON_SEEDS", "3"))


class Pair:
    """Both stores. Each step is done on both, with the same choices."""

    def __init__(self, sides: list[Side], clock: Clock, seed: int) -> None:
        self.sides = sides
        self.clock, self.random, self.tag = clock, random.Random(seed), 0

    async def both(self, step: Callable[..., Any], *args: Any) -> Any:
        """The answer of `step(side, …)`, which both must give."""
        ours, theirs = [await step(side, *args) for side in self.sides]
        assert ours == theirs
        return ours

    async def same(self) -> None:
        ours, theirs = [await side.tables() for side in self.sides]
        for table in TABLES:
            assert ours[table] == theirs[table], table

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    async def some_runs(self, most: int = 3) -> list[str]:
        names = sorted(await self.sides[0].names())
        return self.random.sample(names, min(len(names), self.random.randint(1, most)))

    # the steps

    async def advance(self) -> None:
        self.clock.moment += self.random.choice([
            timedelta(milliseconds=1), timedelta(seconds=1, microseconds=7), timedelta(seconds=9),
            timedelta(seconds=61), timedelta(minutes=5),
        ])  # fmt: skip

    async def submit(self) -> None:
        runs = []
        for _ in range(self.random.randint(1, 4)):
            self.tag += 1
            at, delay = self.random.randint(-90, 400), self.random.choice([0, 0, 5, 90, 300])
            later = self.chance(0.3)  # at a time, not after a delay; by its number no two are due at one instant
            runs.append(
                NewRun(
                    job=self.random.choice(["work", "frail", "quiet"]),
                    payload=json.dumps({"tag": self.tag}),
                    queue=self.random.choice(["default", "slow"]),
                    priority=self.random.choice([3, 5]),
                    tenant=self.random.choice(["", "acme"]),
                    due_at=self.clock.moment + timedelta(seconds=at, microseconds=self.tag) if later else None,
                    delay=None if later else timedelta(seconds=delay, microseconds=self.tag),
                    key=self.random.choice(["a", "b", None, None]),
                    key_scope=self.random.choice(["finished", "started", timedelta(seconds=30)]),
                    on_duplicate=self.random.choice(["keep", "replace"]),
                    gate=self.random.choice(["door", None, None]),
                )
            )  # fmt: skip
        await self.both(twins.insert, runs)

    async def submit_unknown(self) -> None:
        run = NewRun(job="nobody", payload="{}", queue="default", priority=5)
        await self.both(lambda side: twins.error_of(side.store.insert([run])))

    async def schedule(self) -> None:
        name = self.random.choice(["every", "frequent", "once"])
        trigger = (
            Once(self.clock.moment + timedelta(seconds=70)) if name == "once" else Every(self.random.choice([20, 60]))
        )
        schedule = Schedule(
            name=name,
            job="work",
            trigger=trigger,
            misfire=None if name == "once" else self.random.choice(["fire_all", "fire_once", "skip"]),
            overlap=self.random.choice(["allow", "skip", "queue_one", "queue_all", "replace"]),
            misfire_grace=timedelta(seconds=30),
            catchup_limit=3,
            tenant=self.random.choice(["", "acme"]),
            start_deadline=timedelta(minutes=3) if self.chance(0.3) else None,
            tzdata="2031a",
        )
        await self.both(lambda side: side.store.put_schedules([schedule], "ann", first_tick))

    async def edit(self) -> None:
        name = self.random.choice(["every", "frequent", "once", "gone"])
        match self.random.randint(0, 3):
            case 0:
                await self.both(lambda side: side.store.pause_schedule(name, "ann"))
            case 1:
                await self.both(lambda side: side.store.remove_schedule(name, "ann"))
            case 2:
                at = self.clock.moment + timedelta(seconds=45) if self.chance(0.5) else None
                await self.both(lambda side: side.store.resume_schedule(name, "ann", at, first_tick))
            case 3:
                first = first_tick if self.chance(0.5) else None
                await self.both(lambda side: side.store.retick(name, (0, side.term), "2031b", first))

    async def lead(self) -> None:
        node = self.random.choice(["n1", "n2"])
        term = await self.both(lambda side: side.store.campaign(0, twins.info(node), timedelta(seconds=20)))
        if term is not None:
            for side in self.sides:
                side.term = term
        await self.both(lambda side: side.store.renew(0, node, side.term, timedelta(seconds=20)))
        if self.chance(0.1):
            await self.both(lambda side: side.store.resign(0, node, side.term))

    async def fire(self) -> None:
        horizon = self.clock.moment + timedelta(minutes=self.random.choice([1, 2, 4]))
        stale = self.chance(0.1)

        async def step(side: Side) -> Any:
            fires = [twins.plan_fire(s, horizon, stale) for s in await side.store.due_schedules(0, horizon, 100)]
            fired = await side.store.fire(0, side.term, fires, tzdata="2031a", until=horizon)
            return fired.led, fired.runs, len(fired.advanced)

        await self.both(step)

    async def start(self) -> None:
        node = f"w{self.random.randint(1, 3)}"
        if node in self.sides[0].workers:
            return
        for side in self.sides:
            side.workers[node] = await side.store.start_worker(twins.info(node), LEASE)
            side.held[node] = {}

    async def beat(self) -> None:
        for node in list(self.sides[0].workers):
            alive, _, _ = await self.both(twins.beat, node)
            if not alive:
                for side in self.sides:
                    del side.workers[node]

    async def claim(self) -> None:
        node = self.pick_worker()
        if node is None:
            return
        queues = self.random.choice([None, ["default"], ["slow", "default"]])
        limit, quantum = self.random.choice([1, 3, 50]), self.random.choice([1, 2, 50])
        ahead = timedelta(seconds=self.random.choice([0, 10]))
        jobs = self.random.choice([None, ["work"], ["work", "frail", "quiet"]])

        async def step(side: Side) -> Any:
            look = await side.store.lanes(queues)
            now, found = look.now, look.lanes
            lanes = sorted(found, key=lambda lane: (lane.queue, lane.priority, lane.tenant))  # each has its own order
            ids = {job.name: job.id for job in await side.store.jobs()}
            mine = None if jobs is None else [ids[job] for job in jobs]
            worker = side.workers[node]
            claim = await side.store.claim(worker, lanes, limit=limit, quantum=quantum, ahead=ahead, jobs=mine)
            for run in claim.runs:
                side.held[node][twins.name_of(run)] = run
            return now, lanes, claim.now if claim.runs else None, [twins.seen(run) for run in claim.runs]

        await self.both(step)
        if self.chance(0.5):  # something below the floor is not looked at
            floor = self.clock.moment + timedelta(hours=1)
            lane = Lane("default", 5, "", floor)
            await self.both(twins.claim_nothing, node, lane)

    async def complete(self) -> None:
        node, names = self.pick_held()
        if node is None:
            return
        stale = 1_000_000 if self.chance(0.1) else 0  # the fence of nobody

        async def step(side: Side) -> Any:
            runs = [side.held[node].pop(name) for name in names]
            done = [
                Done(
                    r.run_id, r.fence + stale, self.clock.moment.timestamp(), '{"ok": 1}', r.key is not None, r.attempt
                )
                for r in runs
            ]
            won = await side.store.complete(side.workers[node], done)
            return sorted(twins.name_of(r) for r in runs if r.run_id in won)

        await self.both(step)

    async def settle(self) -> None:
        node, names = self.pick_held()
        if node is None:
            return
        plans = [self.random.randint(0, 6) for _ in names]

        async def step(side: Side) -> Any:
            runs = [side.held[node].pop(name) for name in names]
            won = await side.store.settle(
                side.workers[node], [twins.end(r, plan, self.clock.moment) for r, plan in zip(runs, plans, strict=True)]
            )
            return sorted(twins.name_of(r) for r in runs if r.run_id in won)

        await self.both(step)

    async def admit(self) -> None:
        node, names = self.pick_held(gated=True)
        if node is None:
            return

        async def step(side: Side) -> Any:
            runs = {side.held[node][name].run_id: name for name in names}
            answers = await side.store.admit(side.workers[node], [side.held[node][name] for name in names])
            for answer in answers:
                if answer.verdict != "start":
                    del side.held[node][runs[answer.run_id]]
            return sorted((runs[a.run_id], a.verdict) for a in answers)

        await self.both(step)

    async def judge(self) -> None:
        leader = (0, self.sides[0].term) if self.chance(0.5) else None
        for name in await self.both(twins.late):
            await self.both(twins.judge, name, None, leader)
        for node in list(self.sides[0].workers):
            late = sorted({run.schedule for run in self.sides[0].held[node].values() if run.late and run.schedule})
            for name in late:
                await self.both(twins.judge, name, node, None)

    async def around(self) -> None:
        await self.both(lambda side: side.store.promote(3))
        await self.both(lambda side: side.store.timetable_due())
        await self.both(lambda side: twins.in_order(side.store.unpark()))

    async def rescue(self) -> None:
        suspects = [node for node in self.sides[0].workers if self.chance(0.2)]
        expired = self.chance(0.7)

        async def step(side: Side) -> Any:
            rescued = await side.store.rescue([side.workers[node] for node in suspects], expired=expired)
            nodes = sorted(node for node, worker in side.workers.items() if worker in rescued.workers)
            for node in nodes:
                del side.workers[node]
            return nodes, len(rescued.workers), rescued.requeued, rescued.dead

        await self.both(step)

    async def stop(self) -> None:
        node = self.pick_worker()
        if node is not None:
            await self.both(lambda side: side.store.stop_worker(side.workers.pop(node)))

    async def cancel(self) -> None:
        for name in await self.some_runs(1):
            await self.both(twins.cancel, name)

    async def dead(self) -> None:
        names = await self.some_runs(9)
        if self.chance(0.8):
            await self.both(twins.replay, names)
        else:
            await self.both(twins.purge, names)

    async def prune(self) -> None:
        await self.both(twins.prune, timedelta(minutes=20))

    async def notes(self) -> None:
        node, names = self.pick_held()
        if node is None:
            return
        await self.both(lambda side: side.store.started(side.workers[node], [side.held[node][n].run_id for n in names]))

        async def step(side: Side) -> Any:
            run = side.held[node][names[0]]
            args = (side.workers[node], run.run_id, run.fence)
            stored = await side.store.step_put(*args, "s", '{"a": 1}')
            return stored, await side.store.progress(*args, 1, 2, "half"), await side.store.step_get(run.run_id, "s")

        await self.both(step)

    async def look(self) -> None:
        state = self.random.choice([None, "scheduled", "ready", "running", "retrying", "succeeded", "failed", "missed"])
        where = RunFilter(
            state=state, queue=self.random.choice([None, "default"]), key=self.random.choice([None, "a"]), limit=20
        )
        await self.both(twins.runs, where)
        await self.both(lambda side: side.store.counts())
        await self.both(lambda side: side.store.unknown_jobs())
        await self.both(lambda side: side.store.leaders())
        await self.both(twins.nodes)
        schedule, job = self.random.choice([None, "every"]), self.random.choice([None, "frail"])
        await self.both(lambda side: side.store.misses(schedule))
        await self.both(twins.dead_letters, job)
        await self.both(lambda side: twins.schedules(side.store.schedules(job=job)))
        await self.both(lambda side: twins.schedules(side.store.broken_schedules(0)))
        await self.both(lambda side: twins.schedules(side.store.stale_zones(0, "2031a")))
        await self.both(lambda side: side.store.watch())
        for name in await self.some_runs(2):
            await self.both(twins.attempts, name)
            await self.both(twins.details, name)
        names = await self.some_runs(9)
        await self.both(twins.final, names)

    async def register(self) -> None:
        node, broken = self.random.choice(["n1", "n2"]), self.random.choice([None, "no such zone"])
        await self.both(lambda side: side.store.node_beat(twins.info(node), LEASE))
        if self.chance(0.2):
            await self.both(lambda side: side.store.node_end(node))
        for worker in list(self.sides[0].workers)[:1]:
            await self.both(twins.worker_jobs, worker, self.tag % 2 == 0)
        await self.both(twins.schedule_error, "frequent", broken)
        await self.both(lambda side: twins.error_of(side.store.remove_job("quiet", "ann")))
        await self.both(twins.put_jobs)

    def pick_worker(self) -> str | None:
        return self.random.choice(sorted(self.sides[0].workers)) if self.sides[0].workers else None

    def pick_held(self, gated: bool = False) -> tuple[str | None, list[str]]:
        node = self.pick_worker()
        held = sorted(n for n, r in self.sides[0].held.get(node or "", {}).items() if not gated or r.gate is not None)
        if node is None or not held:
            return None, []
        return node, self.random.sample(held, self.random.randint(1, len(held)))


STEPS = {
    "advance": 8, "submit": 5, "claim": 7, "complete": 3, "settle": 4, "admit": 4, "fire": 4, "lead": 3, "beat": 4,
    "start": 3, "around": 4, "judge": 3, "schedule": 3, "edit": 2, "rescue": 2, "cancel": 2, "dead": 1, "prune": 1,
    "stop": 1, "notes": 2, "look": 2, "register": 1, "submit_unknown": 1,
}  # fmt: skip


@pytest.fixture
async def pair(pg_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Both stores, open, on one clock, with the same jobs."""
    clock = Clock()
    sqlite, postgres = SqliteStore(f"sqlite:///{tmp_path}/fleet.db", clock=clock), PostgresStore(pg_url, clock=clock)
    for store in (sqlite, postgres):
        await store.open()
        await store.put_jobs(JOBS)
    file = sqlite3.connect(tmp_path / "fleet.db")
    server = await asyncpg.connect(pg_url, server_settings={"search_path": "fleetcron"})
    yield Pair([Side(sqlite, file), Side(postgres, server)], clock, request.param)
    file.close()
    await server.close()
    await sqlite.close()
    await postgres.close()


@pytest.mark.parametrize("pair", range(SEEDS), indirect=True)
async def test_a_random_history_is_the_same_on_both(pair: Pair) -> None:
    for number in range(150):
        (step,) = pair.random.choices(list(STEPS), list(STEPS.values()))
        try:
            await getattr(pair, step)()
            await pair.same()
        except AssertionError as difference:
            raise AssertionError(f"step {number}, {step}: {difference}") from difference
