"""The same random history on both stores, on one clock: after every step their answers and all their tables say the same."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fleetcron.clock import to_us
from fleetcron.decide.misfire import judge as decide
from fleetcron.decide.ticks import first_tick
from fleetcron.model import Job, Schedule
from fleetcron.store.postgres import PostgresStore
from fleetcron.store.protocol import Claimed, Done, Fire, Lane, NewRun, RunFilter, Settled, Tick, WorkerInfo
from fleetcron.store.sqlite import SqliteStore
from fleetcron.triggers import Every, Once

SEEDS = int(os.environ.get("FLEETCRON_SEEDS", "3"))
START = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)
LEASE = timedelta(seconds=15)
JOBS = [
    Job(name="work", target={"type": "python"}, max_attempts=3),
    Job(name="frail", target={"type": "python"}, max_attempts=1),
    Job(name="quiet", target={"type": "python"}, max_attempts=2, dead_letter=False),
]

# Every table, by what names a row on both stores: ids are each store's own.
NAME = "coalesce(r.schedule || '@' || CAST({nominal} AS text) || '/' || r.generation, CAST(r.payload AS text), '?')"
TABLES = {
    "run": "SELECT {name}, r.job, CAST(r.state AS text), r.queue, r.tenant, r.priority, r.due_at, r.attempt, r.handbacks, r.deaths, r.key,"
    " r.gate, r.overlap, CAST(r.missed AS text), r.error, r.reason, r.late_at, r.expires_at, r.started_at, r.finished_at, r.prev_at,"
    " CAST(r.result AS text), r.created_at FROM run r",
    "ready": "SELECT {name}, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM ready q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "timetable": "SELECT {name}, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM timetable q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "parked": "SELECT {name}, q.gate, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM parked q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "lease": "SELECT {name}, w.node, l.attempt, l.started_at, l.gate, CAST(l.cancel AS int), CAST(l.ahead AS int) FROM lease l"
    " LEFT JOIN run r ON r.id = l.run_id LEFT JOIN worker w ON w.id = l.worker",
    "worker": "SELECT w.node, w.host, w.pid, w.slots, w.started_at, w.heartbeat_at, w.expires_at FROM worker w",
    "session": "SELECT s.node, s.started_at, s.ended_at, s.ended FROM session s",
    "attempt": "SELECT {name}, a.number, a.state, a.started_at, a.finished_at, s.node, a.error, a.traceback FROM attempt a"
    " LEFT JOIN run r ON r.id = a.run_id LEFT JOIN session s ON s.id = a.worker",
    "dead_letter": "SELECT {name}, d.job, d.schedule, d.tenant, d.attempts, d.error, d.died_at FROM dead_letter d"
    " LEFT JOIN run r ON r.id = d.run_id",
    "dedup": "SELECT d.job, d.tenant, d.key, {name}, d.scope, d.until FROM dedup d LEFT JOIN run r ON r.id = d.run_id",
    "step": "SELECT {name}, s.name, CAST(s.result AS text) FROM step s LEFT JOIN run r ON r.id = s.run_id",
    "progress": "SELECT {name}, p.done, p.total, p.note, p.at FROM progress p LEFT JOIN run r ON r.id = p.run_id",
    "miss": "SELECT schedule, first, last, count, reason, policy, decided_at FROM miss",
    "schedule": "SELECT name, job, revision, next_at, prev_at, judged_until, CAST(owed AS text), CAST(paused AS int), misfire, overlap,"
    " tenant, queue, priority, CAST(payload AS text), CAST(spec AS text), tzdata, error FROM schedule",
    "shard": "SELECT id, node, host, pid, term, since, ticks_until FROM shard",
    "node": "SELECT node, host, pid, slots, started_at, heartbeat_at, expires_at FROM node",
    "audit": "SELECT at, who, what FROM audit",
}


class Clock:
    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment


class Side:
    """One store, with what names its rows: runs by payload or tick, workers by node."""

    def __init__(self, store: Any, look: Any) -> None:
        self.store, self.look = store, look
        self.workers: dict[str, int] = {}
        self.held: dict[str, dict[str, Claimed]] = {}
        self.term = 0

    async def rows(self, query: str) -> list[tuple[Any, ...]]:
        if isinstance(self.look, sqlite3.Connection):
            return self.look.execute(query.format(name=NAME.format(nominal="r.nominal_at"))).fetchall()
        nominal = "(extract(epoch FROM r.nominal_at) * 1000000)::bigint"
        found = await self.look.fetch(query.format(name=NAME.format(nominal=nominal)))
        return [tuple(to_us(v) if isinstance(v, datetime) else v for v in row) for row in found]

    async def tables(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: sorted(await self.rows(query), key=repr) for table, query in TABLES.items()}

    async def names(self) -> dict[str, int]:
        """Run ids by name."""
        return {row[0]: row[1] for row in await self.rows("SELECT {name}, r.id FROM run r")}


class Pair:
    """Both stores. Each step is done on both, with the same choices."""

    def __init__(self, sides: list[Side], clock: Clock, seed: int) -> None:
        self.sides = sides
        self.clock, self.random, self.tag = clock, random.Random(seed), 0

    async def both(self, step: Callable[[Side], Any]) -> Any:
        """The answer of a step, which both must give."""
        ours, theirs = [await step(side) for side in self.sides]
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
            timedelta(milliseconds=1), timedelta(seconds=1, microseconds=7), timedelta(seconds=9), timedelta(seconds=61), timedelta(minutes=5),
        ])  # fmt: skip

    async def submit(self) -> None:
        runs = []
        for _ in range(self.random.randint(1, 4)):
            self.tag += 1
            later = self.chance(0.3)
            runs.append(
                NewRun(
                    job=self.random.choice(["work", "frail", "quiet"]),
                    payload=json.dumps({"tag": self.tag}),
                    queue=self.random.choice(["default", "slow"]),
                    priority=self.random.choice([3, 5]),
                    tenant=self.random.choice(["", "acme"]),
                    due_at=self.clock.moment + timedelta(seconds=self.random.randint(-90, 400), microseconds=self.tag) if later else None,
                    delay=None if later else timedelta(seconds=self.random.choice([0, 0, 5, 90, 300]), microseconds=self.tag),
                    key=self.random.choice(["a", "b", None, None]),
                    key_scope=self.random.choice(["finished", "started", timedelta(seconds=30)]),
                    on_duplicate=self.random.choice(["keep", "replace"]),
                    gate=self.random.choice(["door", None, None]),
                )
            )  # fmt: skip
        await self.both(lambda side: _inserted(side, runs))

    async def submit_unknown(self) -> None:
        run = NewRun(job="nobody", payload="{}", queue="default", priority=5)
        await self.both(lambda side: _error(side.store.insert([run])))

    async def schedule(self) -> None:
        name = self.random.choice(["every", "frequent", "once"])
        trigger = Once(self.clock.moment + timedelta(seconds=70)) if name == "once" else Every(self.random.choice([20, 60]))
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
        term = await self.both(lambda side: side.store.campaign(0, _info(node), timedelta(seconds=20)))
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
            fires = []
            for schedule in await side.store.due_schedules(0, horizon, 100):
                ticks, at = [], schedule.next_at
                while at is not None and at < horizon and len(ticks) < 12:
                    due = at + timedelta(microseconds=len(schedule.name))
                    ticks.append(Tick(at, due, due + schedule.misfire_grace, schedule.trigger.latest(at - timedelta(microseconds=1))))
                    at = schedule.trigger.next(at)
                revision = schedule.revision - (1 if stale else 0)
                fires.append(
                    Fire(schedule_id=schedule.id, revision=revision, old_next=schedule.next_at, new_next=at, ticks=ticks, prev_at=ticks[-1].nominal_at)
                )  # fmt: skip
            fired = await side.store.fire(0, side.term, fires, tzdata="2031a", until=horizon)
            return fired.led, fired.runs, len(fired.advanced)

        await self.both(step)

    async def start(self) -> None:
        node = f"w{self.random.randint(1, 3)}"
        if node in self.sides[0].workers:
            return
        for side in self.sides:
            side.workers[node] = await side.store.start_worker(_info(node), LEASE)
            side.held[node] = {}

    async def beat(self) -> None:
        for node in list(self.sides[0].workers):
            alive, _, _ = await self.both(lambda side, node=node: _beat(side, node))
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
            now, lanes = await side.store.lanes(queues)
            ids = {job.name: job.id for job in await side.store.jobs()}
            claim = await side.store.claim(
                side.workers[node], lanes, limit=limit, quantum=quantum, ahead=ahead, jobs=None if jobs is None else [ids[j] for j in jobs]
            )  # fmt: skip
            for run in claim.runs:
                side.held[node][_name(run)] = run
            return now, lanes, claim.now if claim.runs else None, [_seen(run) for run in claim.runs]

        await self.both(step)
        if self.chance(0.5):  # something below the floor is not looked at
            floor = self.clock.moment + timedelta(hours=1)
            lane = Lane("default", 5, "", floor)
            await self.both(lambda side: _claim_nothing(side, node, lane))

    async def complete(self) -> None:
        node, names = self.pick_held()
        if node is None:
            return
        stale = self.chance(0.1)

        async def step(side: Side) -> Any:
            runs = [side.held[node].pop(name) for name in names]
            done = [Done(r.run_id, r.fence - (1 if stale else 0), self.clock.moment, '{"ok": 1}', r.key is not None) for r in runs]
            won = await side.store.complete(side.workers[node], done)
            return sorted(_name(r) for r in runs if r.run_id in won)

        await self.both(step)

    async def settle(self) -> None:
        node, names = self.pick_held()
        if node is None:
            return
        plans = [self.random.randint(0, 6) for _ in names]

        async def step(side: Side) -> Any:
            runs = [side.held[node].pop(name) for name in names]
            won = await side.store.settle(side.workers[node], [_settled(r, plan, self.clock.moment) for r, plan in zip(runs, plans, strict=True)])
            return sorted(_name(r) for r in runs if r.run_id in won)

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
        leading = self.chance(0.5)
        for name in sorted(set(await self.both(lambda side: _late(side)))):
            await self.both(lambda side, name=name: _judge(side, name, None, (0, side.term) if leading else None))
        for node in list(self.sides[0].workers):
            late = sorted({run.schedule for run in self.sides[0].held[node].values() if run.late and run.schedule})
            for name in late:
                await self.both(lambda side, name=name, node=node: _judge(side, name, node, None))

    async def around(self) -> None:
        await self.both(lambda side: side.store.promote(3))
        await self.both(lambda side: side.store.timetable_due())
        await self.both(lambda side: _sorted(side.store.unpark()))


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
            await self.both(lambda side, name=name: _of(side, name, lambda run_id: side.store.cancel(run_id, "bob")))

    async def dead(self) -> None:
        names = await self.some_runs(9)
        if self.chance(0.8):
            await self.both(lambda side: _replay(side, names))
        else:
            await self.both(lambda side: _purge(side, names))

    async def prune(self) -> None:
        await self.both(lambda side: _prune(side, timedelta(minutes=20)))

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
        where = RunFilter(state=state, queue=self.random.choice([None, "default"]), key=self.random.choice([None, "a"]), limit=20)
        await self.both(lambda side: _listed(side, where))
        await self.both(lambda side: side.store.counts())
        await self.both(lambda side: side.store.unknown_jobs())
        await self.both(lambda side: side.store.leaders())
        await self.both(lambda side: _nodes(side))
        schedule, job = self.random.choice([None, "every"]), self.random.choice([None, "frail"])
        await self.both(lambda side: side.store.misses(schedule))
        await self.both(lambda side: _dead_letters(side, job))
        await self.both(lambda side: _schedules(side.store.schedules(job=job)))
        await self.both(lambda side: _schedules(side.store.broken_schedules(0)))
        await self.both(lambda side: _schedules(side.store.stale_zones(0, "2031a")))
        await self.both(lambda side: side.store.watch())
        for name in await self.some_runs(2):
            await self.both(lambda side, name=name: _of(side, name, lambda run_id: _attempts(side, run_id)))
            await self.both(lambda side, name=name: _of(side, name, lambda run_id: _details(side, run_id)))
        names = await self.some_runs(9)
        await self.both(lambda side: _final(side, names))

    async def register(self) -> None:
        node, broken = self.random.choice(["n1", "n2"]), self.random.choice([None, "no such zone"])
        await self.both(lambda side: side.store.node_beat(_info(node), LEASE))
        if self.chance(0.2):
            await self.both(lambda side: side.store.node_end(node))
        for worker in list(self.sides[0].workers)[:1]:
            await self.both(lambda side: _worker_jobs(side, worker, self.tag % 2 == 0))
        await self.both(lambda side: _schedule_error(side, "frequent", broken))
        await self.both(lambda side: _error(side.store.remove_job("quiet", "ann")))
        await self.both(lambda side: _put_jobs(side))

    def pick_worker(self) -> str | None:
        return self.random.choice(sorted(self.sides[0].workers)) if self.sides[0].workers else None

    def pick_held(self, gated: bool = False) -> tuple[str | None, list[str]]:
        node = self.pick_worker()
        held = sorted(n for n, r in self.sides[0].held.get(node or "", {}).items() if not gated or r.gate is not None)
        if node is None or not held:
            return None, []
        return node, self.random.sample(held, self.random.randint(1, len(held)))


STEPS = (
    ["advance"] * 8 + ["submit"] * 5 + ["claim"] * 7 + ["complete"] * 3 + ["settle"] * 4 + ["admit"] * 4 + ["fire"] * 4 + ["lead"] * 3
    + ["beat"] * 4 + ["start"] * 3 + ["around"] * 4 + ["judge"] * 3 + ["schedule"] * 3 + ["edit"] * 2 + ["rescue"] * 2 + ["cancel"] * 2
    + ["dead", "prune", "stop", "notes", "notes", "look", "look", "register", "submit_unknown"]
)  # fmt: skip


@pytest.fixture
async def pair(pg_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Both stores, open, on one clock, with the same jobs."""
    clock = Clock()
    sqlite, postgres = SqliteStore(f"sqlite:///{tmp_path}/fleet.db", clock=clock), PostgresStore(pg_url, clock=clock)
    for store in (sqlite, postgres):
        await store.open()
        await store.put_jobs(JOBS)
    w = postgres.db.statements["withdraw"]  # TEMP
    if "coalesce($2" in w:
        postgres.db.statements["withdraw"] = w.replace("$2", "$9").replace("$1", "$2::text").replace("$9", "$1")
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
        step = pair.random.choice(STEPS)
        try:
            await getattr(pair, step)()
            await pair.same()
        except AssertionError as difference:
            raise AssertionError(f"step {number}, {step}: {difference}") from difference


def _info(node: str) -> WorkerInfo:
    return WorkerInfo(node=node, host="here", pid=4711, roles=("worker",), queues=None, slots=4, version="1", tzdata="2031a")


def _name(run: Claimed) -> str:
    if run.schedule is None or run.nominal_at is None:
        return run.payload
    return f"{run.schedule}@{to_us(run.nominal_at)}/{run.generation}"


def _seen(run: Claimed) -> tuple[Any, ...]:
    return _name(run), *(getattr(run, field) for field in run.__struct_fields__ if field not in ("run_id", "fence"))


def _settled(run: Claimed, plan: int, now: datetime) -> Settled:
    common: dict[str, Any] = {"run_id": run.run_id, "fence": run.fence, "attempt": run.attempt, "started_at": now}
    return [
        Settled(**common, state="open", delay=timedelta(seconds=20), record="failed", error="broke", traceback="tb"),
        Settled(**common, state="open", delay=timedelta(minutes=10), record="failed", error="broke"),
        Settled(**common, state="failed", record="failed", error="broke", dead=run.job != "quiet"),
        Settled(**common, state="discarded", record="discarded", reason="no use"),
        Settled(**common, state="expired", reason="too late"),
        Settled(**{**common, "attempt": run.attempt - 1}, state="open", record="released", handback=True),
        Settled(**{**common, "attempt": run.attempt - 1, "started_at": None}, state="open", handback=True),
    ][plan]


async def _inserted(side: Side, runs: Sequence[NewRun]) -> Any:
    answers = await side.store.insert(runs)
    names = {run_id: name for name, run_id in (await side.names()).items()}
    return [(names[a.id], a.created, a.due_at) for a in answers]


async def _error(work: Any) -> str:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - its kind is what is compared
        return type(error).__name__
    return "none"


async def _beat(side: Side, node: str) -> Any:
    beat = await side.store.beat(side.workers[node], LEASE)
    names = {run_id: name for name, run_id in (await side.names()).items()}
    return beat.alive, beat.now, sorted(names[i] for i in beat.cancels)


async def _claim_nothing(side: Side, node: str, lane: Lane) -> Any:
    claim = await side.store.claim(side.workers[node], [lane], limit=5, quantum=5, ahead=timedelta(0), jobs=None)
    return claim.runs


async def _late(side: Side) -> list[str]:
    return sorted(await side.store.late_ticks())


async def _judge(side: Side, name: str, node: str | None, leader: tuple[int, int] | None) -> Any:
    leased = [] if node is None else [run for run in side.held[node].values() if run.schedule == name]
    worker = None if node is None else side.workers[node]
    names = {run_id: name for name, run_id in (await side.names()).items()}
    verdict = await side.store.judge(name, leased, worker=worker, leader=leader, lease=LEASE, decide=decide)
    if node is not None:
        gone = {r.run_id for r in leased} & set(verdict.drop) if verdict is not None else {r.run_id for r in leased}
        side.held[node] = {n: r for n, r in side.held[node].items() if r.run_id not in gone}
        for run in side.held[node].values():
            run.late = run.late and run.schedule != name
    if verdict is None:
        return None
    keep = sorted((names[i], missed) for i, missed in verdict.keep.items())
    return keep, sorted(names[i] for i in verdict.drop), verdict.fire, verdict.misses, verdict.next_at, verdict.judged_until


async def _sorted(work: Any) -> list[Any]:
    return sorted(await work)


async def _of(side: Side, name: str, work: Callable[[int], Any]) -> Any:
    return await work((await side.names())[name])


async def _replay(side: Side, names: Sequence[str]) -> list[str]:
    ids = await side.names()
    replayed = await side.store.replay([ids[name] for name in names], "bob")
    return sorted(name for name in names if ids[name] in replayed)


async def _purge(side: Side, names: Sequence[str]) -> Any:
    ids = await side.names()
    return await side.store.purge_dead([ids[name] for name in names])


async def _prune(side: Side, older_than: timedelta) -> Any:
    pruned, _ = await side.store.prune(older_than, 0)
    await side.store.prune_rest(older_than)
    return pruned


async def _listed(side: Side, where: RunFilter) -> Any:
    return [{f: getattr(r, f) for f in r.__struct_fields__ if f != "id"} for r in await side.store.runs(where)]


async def _attempts(side: Side, run_id: int) -> Any:
    return [(a.number, a.state, a.started_at, a.finished_at, a.worker, a.error) for a in await side.store.attempts(run_id)]


async def _dead_letters(side: Side, job: str | None) -> Any:
    names = {run_id: name for name, run_id in (await side.names()).items()}
    letters = await side.store.dead_letters(job=job)
    return [(names[d.run_id], d.job, d.schedule, d.tenant, d.attempts, d.error, d.died_at) for d in letters]


async def _schedules(work: Any) -> Any:
    return [{f: getattr(s, f) for f in s.__struct_fields__ if f != "id"} for s in sorted(await work, key=lambda s: str(s.name))]


async def _details(side: Side, run_id: int) -> Any:
    run = await side.store.run(run_id)
    return run.state, run.worker, run.started_at, await side.store.read_progress(run_id)


async def _final(side: Side, names: Sequence[str]) -> Any:
    ids = await side.names()
    final = await side.store.final([ids[name] for name in names])
    return sorted(name for name in names if ids[name] in final)


async def _worker_jobs(side: Side, node: str, every: bool) -> None:
    ids = {job.name: job.id for job in await side.store.jobs()}
    await side.store.worker_jobs(side.workers[node], None if every else [ids["work"]])


async def _schedule_error(side: Side, name: str, error: str | None) -> None:
    for schedule in await side.store.schedules(name=name):
        await side.store.schedule_error(schedule.id, error)


async def _put_jobs(side: Side) -> Any:
    await side.store.put_jobs(JOBS)
    return [(job.name, job.known, job.max_attempts) for job in await side.store.jobs()]


async def _nodes(side: Side) -> Any:
    return sorted(await side.store.nodes(), key=lambda node: node.node)
