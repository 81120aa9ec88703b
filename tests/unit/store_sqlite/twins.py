"""Two stores side by side: how to name their rows alike, and to ask both the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fleetcron.clock import to_us
from fleetcron.decide.misfire import judge as decide
from fleetcron.model import Job, Schedule
from fleetcron.store.protocol import Claimed, Fire, Lane, NewRun, RunFilter, Settled, Tick, WorkerInfo

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
    "run": "SELECT {name}, r.job, CAST(r.state AS text), r.queue, r.tenant, r.priority, r.due_at, r.attempt,"
    " r.handbacks, r.deaths, r.key, r.gate, r.overlap, CAST(r.missed AS text), r.error, r.reason, r.late_at,"
    " r.expires_at, r.started_at, r.finished_at, r.prev_at, CAST(r.result AS text), r.created_at FROM run r",
    "ready": "SELECT {name}, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM ready q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "timetable": "SELECT {name}, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM timetable q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "parked": "SELECT {name}, q.gate, q.queue, q.priority, q.tenant, q.due_at, q.attempt, q.flags, j.name FROM parked q"
    " LEFT JOIN run r ON r.id = q.run_id LEFT JOIN job j ON j.id = q.job_id",
    "lease": "SELECT {name}, w.node, l.attempt, l.started_at, l.gate, CAST(l.cancel AS int), CAST(l.ahead AS int)"
    " FROM lease l LEFT JOIN run r ON r.id = l.run_id LEFT JOIN worker w ON w.id = l.worker",
    "worker": "SELECT w.node, w.host, w.pid, w.slots, w.started_at, w.heartbeat_at, w.expires_at FROM worker w",
    "session": "SELECT s.node, s.started_at, s.ended_at, s.ended FROM session s",
    "attempt": "SELECT {name}, a.number, a.state, a.started_at, a.finished_at, s.node, a.error, a.traceback"
    " FROM attempt a LEFT JOIN run r ON r.id = a.run_id LEFT JOIN session s ON s.id = a.worker",
    "dead_letter": "SELECT {name}, d.job, d.schedule, d.tenant, d.attempts, d.error, d.died_at FROM dead_letter d"
    " LEFT JOIN run r ON r.id = d.run_id",
    "dedup": "SELECT d.job, d.tenant, d.key, {name}, d.scope, d.until FROM dedup d LEFT JOIN run r ON r.id = d.run_id",
    "step": "SELECT {name}, s.name, CAST(s.result AS text) FROM step s LEFT JOIN run r ON r.id = s.run_id",
    "progress": "SELECT {name}, p.done, p.total, p.note, p.at FROM progress p LEFT JOIN run r ON r.id = p.run_id",
    "miss": "SELECT schedule, first, last, count, reason, policy, decided_at FROM miss",
    "schedule": "SELECT name, job, revision, next_at, prev_at, judged_until, CAST(owed AS text), CAST(paused AS int),"
    " misfire, overlap, tenant, queue, priority, CAST(payload AS text), CAST(spec AS text), tzdata, error"
    " FROM schedule",
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


def info(node: str) -> WorkerInfo:
    return WorkerInfo(
        node=node, host="here", pid=4711, roles=("worker",), queues=None, slots=4, version="1", tzdata="2031a"
    )


def name_of(run: Claimed) -> str:
    if run.schedule is None or run.nominal_at is None:
        return run.payload
    return f"{run.schedule}@{to_us(run.nominal_at)}/{run.generation}"


def seen(run: Claimed) -> tuple[Any, ...]:
    return name_of(run), *(getattr(run, field) for field in run.__struct_fields__ if field not in ("run_id", "fence"))


def plan_fire(schedule: Schedule, horizon: datetime, stale: bool) -> Fire:
    """The ticks up to the horizon. By its name's length no two schedules have a tick due at one instant."""
    ticks: list[Tick] = []
    at = schedule.next_at
    assert at is not None
    old = at
    while at is not None and at < horizon and len(ticks) < 12:
        due = at + timedelta(microseconds=len(schedule.name))
        before = schedule.trigger.latest(at - timedelta(microseconds=1))
        ticks.append(Tick(at, due, due + schedule.misfire_grace, before))
        at = schedule.trigger.next(at)
    return Fire(
        schedule_id=schedule.id,
        revision=schedule.revision - (1 if stale else 0),
        old_next=old,
        new_next=at,
        ticks=ticks,
        prev_at=ticks[-1].nominal_at,
    )


def end(run: Claimed, plan: int, now: datetime) -> Settled:
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


async def insert(side: Side, runs: Sequence[NewRun]) -> Any:
    answers = await side.store.insert(runs)
    names = {run_id: name for name, run_id in (await side.names()).items()}
    return [(names[a.id], a.created, a.due_at) for a in answers]


async def error_of(work: Any) -> str:
    try:
        await work
    except Exception as error:
        return type(error).__name__
    return "none"


async def beat(side: Side, node: str) -> Any:
    beat = await side.store.beat(side.workers[node], LEASE)
    names = {run_id: name for name, run_id in (await side.names()).items()}
    return beat.alive, beat.now, sorted(names[i] for i in beat.cancels)


async def claim_nothing(side: Side, node: str, lane: Lane) -> Any:
    claim = await side.store.claim(side.workers[node], [lane], limit=5, quantum=5, ahead=timedelta(0), jobs=None)
    return claim.runs


async def late(side: Side) -> list[str]:
    return (await side.store.late_ticks())[0]


async def judge(side: Side, name: str, node: str | None, leader: tuple[int, int] | None) -> Any:
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
    return (
        keep,
        sorted(names[i] for i in verdict.drop),
        verdict.fire,
        verdict.misses,
        verdict.next_at,
        verdict.judged_until,
    )


async def in_order(work: Any) -> list[Any]:
    return sorted(await work)


async def cancel(side: Side, name: str) -> Any:
    return await side.store.cancel((await side.names())[name], "bob")


async def replay(side: Side, names: Sequence[str]) -> list[str]:
    ids = await side.names()
    replayed = await side.store.replay([ids[name] for name in names], "bob")
    return sorted(name for name in names if ids[name] in replayed)


async def purge(side: Side, names: Sequence[str]) -> Any:
    ids = await side.names()
    return await side.store.purge_dead([ids[name] for name in names])


async def prune(side: Side, older_than: timedelta) -> Any:
    pruned, _ = await side.store.prune(older_than, 0)
    await side.store.prune_rest(older_than)
    return pruned


async def runs(side: Side, where: RunFilter) -> Any:
    return [{f: getattr(r, f) for f in r.__struct_fields__ if f != "id"} for r in await side.store.runs(where)]


async def attempts(side: Side, name: str) -> Any:
    run_id = (await side.names())[name]
    return [
        (a.number, a.state, a.started_at, a.finished_at, a.worker, a.error) for a in await side.store.attempts(run_id)
    ]


async def dead_letters(side: Side, job: str | None) -> Any:
    names = {run_id: name for name, run_id in (await side.names()).items()}
    letters = await side.store.dead_letters(job=job)
    return [(names[d.run_id], d.job, d.schedule, d.tenant, d.attempts, d.error, d.died_at) for d in letters]


async def schedules(work: Any) -> Any:
    return [
        {f: getattr(s, f) for f in s.__struct_fields__ if f != "id"}
        for s in sorted(await work, key=lambda s: str(s.name))
    ]


async def details(side: Side, name: str) -> Any:
    run_id = (await side.names())[name]
    run = await side.store.run(run_id)
    return run.state, run.worker, run.started_at, await side.store.read_progress(run_id)


async def final(side: Side, names: Sequence[str]) -> Any:
    ids = await side.names()
    final = await side.store.final([ids[name] for name in names])
    return sorted(name for name in names if ids[name] in final)


async def worker_jobs(side: Side, node: str, every: bool) -> None:
    ids = {job.name: job.id for job in await side.store.jobs()}
    await side.store.worker_jobs(side.workers[node], None if every else [ids["work"]])


async def schedule_error(side: Side, name: str, error: str | None) -> None:
    for schedule in await side.store.schedules(name=name):
        await side.store.schedule_error(schedule.id, error)


async def put_jobs(side: Side) -> Any:
    await side.store.put_jobs(JOBS)
    return [(job.name, job.known, job.max_attempts) for job in await side.store.jobs()]


async def nodes(side: Side) -> Any:
    return sorted(await side.store.nodes(), key=lambda node: node.node)
