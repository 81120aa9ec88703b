"""What the suite's tests share: a clock to set, records with defaults, a worker to claim with, a look into the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from fleetcron.decide.misfire import judge as decide
from fleetcron.decide.ticks import first_tick
from fleetcron.model import Job, RunRecord, Schedule
from fleetcron.store.protocol import (
    Claimed,
    Done,
    Fire,
    Fired,
    Inserted,
    Lane,
    NewRun,
    Settled,
    Store,
    Tick,
    WorkerInfo,
)
from fleetcron.triggers import Every, Trigger

START = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)
"""A whole minute, so that the horizon of `ready` (the end of the next minute) is exactly two minutes away."""
HORIZON = timedelta(minutes=2)
LEASE = timedelta(seconds=15)
MINUTE = timedelta(minutes=1)
AGES_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class Clock:
    """The database's time, as the test sets it."""

    def __init__(self) -> None:
        self.moment = START

    def __call__(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> datetime:
        """Move on; negative seconds step back."""
        self.moment += timedelta(seconds=seconds)
        return self.moment


def second(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def at(seconds: float) -> datetime:
    """So many seconds after the clock's first moment."""
    return START + timedelta(seconds=seconds)


def job(name: str = "work", **given: Any) -> Job:
    return Job(**{"name": name, "target": {"type": "python"}, "max_attempts": 3, **given})


def schedule(name: str = "tick", trigger: Trigger | None = None, **given: Any) -> Schedule:
    """Every minute on the minute, unless told otherwise."""
    return Schedule(**{"name": name, "job": "work", "trigger": trigger or Every(60), "misfire": "fire_once", **given})


def new(name: str = "work", **given: Any) -> NewRun:
    return NewRun(**{"job": name, "payload": "{}", "queue": "default", "priority": 5, **given})


def info(node: str = "node-1", **given: Any) -> WorkerInfo:
    return WorkerInfo(
        **{
            "node": node, "host": "here", "pid": 4711, "roles": ("worker",), "queues": None, "slots": 10, "version": "1", "tzdata": "2031a",
            **given,
        }
    )  # fmt: skip


async def put(store: Store, *schedules: Schedule, who: str = "ann") -> list[str]:
    return await store.put_schedules(schedules, who, first_tick)


async def the_schedule(store: Store, name: str = "tick") -> Schedule:
    (found,) = await store.schedules(name=name)
    return found


async def insert(store: Store, *runs: NewRun) -> list[int]:
    return [inserted.id for inserted in await store.insert(runs)]


async def insert_one(store: Store, name: str = "work", **given: Any) -> int:
    (run_id,) = await insert(store, new(name, **given))
    return run_id


async def insert_keyed(store: Store, key: str | None = "k", **given: Any) -> Inserted:
    (answer,) = await store.insert([new(key=key, **given)])
    return answer


async def the_run(store: Store, run_id: int) -> RunRecord:
    found = await store.run(run_id)
    assert found is not None, f"run {run_id} is gone"
    return found


async def state(store: Store, run_id: int) -> str:
    return str((await the_run(store, run_id)).state)


async def lead(store: Store, shard: int = 0, node: str = "leader", ttl: timedelta = LEASE) -> int:
    """Win the shard; its term."""
    term = await store.campaign(shard, info(node, roles=("scheduler",)), ttl)
    assert term is not None
    return term


async def fire(
    store: Store,
    term: int,
    of: Schedule,
    *nominal: datetime,
    new_next: datetime | None = None,
    late_at: datetime | None = None,
    due_at: datetime | None = None,
    shard: int = 0,
) -> Fired:
    """Write these ticks of a schedule as runs; its next tick is the one after the last, unless told."""
    assert of.next_at is not None
    ticks = [Tick(moment, due_at or moment, late_at or moment + of.misfire_grace, of.prev_at) for moment in nominal]
    planned = Fire(
        schedule_id=of.id,
        revision=of.revision,
        old_next=of.next_at,
        new_next=new_next or of.trigger.next(nominal[-1]),
        ticks=ticks,
        prev_at=nominal[-1],
    )
    return await store.fire(shard, term, [planned], tzdata="2031a", until=None)


async def fired(store: Store, term: int, name: str, *nominal: datetime, **given: Any) -> list[int]:
    """Write ticks of a schedule; the ids of all its runs, oldest tick first."""
    answer = await fire(store, term, await the_schedule(store, name), *nominal, **given)
    assert answer.led and answer.runs == len(nominal)
    return await runs_of(store, name)


async def runs_of(store: Store, name: str) -> list[int]:
    """The ids of a schedule's runs, oldest tick first."""
    found = await look(store, f"SELECT id FROM run WHERE schedule = '{name}' ORDER BY nominal_at")
    return [row[0] for row in found]


async def judge(
    store: Store,
    name: str,
    leased: Sequence[Claimed] = (),
    *,
    worker: int | None = None,
    leader: tuple[int, int] | None = None,
) -> Any:
    """Judge by the real policies."""
    return await store.judge(name, leased, worker=worker, leader=leader, lease=LEASE, decide=decide)


async def late(store: Store) -> list[str]:
    """Schedules with ticks that should have started and wait."""
    names, more = await store.late_ticks()
    assert more is None
    return names


@dataclass
class Hand:
    """A worker session."""

    store: Store
    id: int

    async def claim(
        self,
        limit: int = 100,
        *,
        quantum: int = 1000,
        ahead: float = 0,
        jobs: Sequence[int] | None = None,
        queues: Sequence[str] | None = None,
        lanes: Sequence[Lane] | None = None,
    ) -> list[Claimed]:
        """Claim from these lanes, else from all that have something waiting."""
        if lanes is None:
            lanes = (await self.store.lanes(queues)).lanes
        claim = await self.store.claim(self.id, lanes, limit=limit, quantum=quantum, ahead=second(ahead), jobs=jobs)
        return claim.runs

    async def claim_one(self, **given: Any) -> Claimed:
        (run,) = await self.claim(1, **given)
        return run

    async def complete(self, *runs: Claimed, result: str | None = None) -> set[int]:
        now = await self.store.now()
        done = [
            Done(r.run_id, r.fence, now.timestamp(), result, keyed=r.key is not None, attempt=r.attempt) for r in runs
        ]
        return await self.store.complete(self.id, done)

    async def settle(self, run: Claimed, to: str = "open", **given: Any) -> bool:
        """End an attempt that has started, as failed unless told otherwise; is it ours to end?"""
        ended = Settled(
            **{
                "run_id": run.run_id, "fence": run.fence, "state": to, "attempt": run.attempt, "record": "failed", "error": "it broke",
                "started_at": await self.store.now(), **given,
            }
        )  # fmt: skip
        return await self.store.settle(self.id, [ended]) == {run.run_id}

    async def hand_back(self, run: Claimed, *, started: bool) -> bool:
        """Give a run back, as a worker does that was told to stop."""
        return await self.settle(
            run,
            attempt=run.attempt - 1,
            record="released" if started else None,
            error=None,
            started_at=await self.store.now() if started else None,
            handback=True,
        )

    async def beat(self, ttl: timedelta = LEASE) -> Any:
        return await self.store.beat(self.id, ttl)


async def hand(store: Store, node: str = "node-1", ttl: timedelta = LEASE, **given: Any) -> Hand:
    """Start a worker session."""
    return Hand(store, await store.start_worker(info(node, **given), ttl))


def lane(tenant: str = "", *, queue: str = "default", priority: int = 5, since: datetime = AGES_AGO) -> Lane:
    return Lane(queue, priority, tenant, since)


async def look(store: Store, query: str) -> list[tuple[Any, ...]]:
    """Read tables directly, for what the protocol does not show. The query must suit both databases."""
    return (await look_all(store, [query]))[0]


async def look_all(store: Store, queries: Sequence[str]) -> list[list[tuple[Any, ...]]]:
    """Several looks, on one connection."""
    if store.kind == "sqlite":
        with closing(sqlite3.connect(store.db.path)) as connection:  # type: ignore[attr-defined]
            return [connection.execute(query).fetchall() for query in queries]
    reader = await asyncpg.connect(store.db.url, server_settings=look_settings(store.db.schema))  # type: ignore[attr-defined]
    try:
        return [[tuple(row) for row in await reader.fetch(query)] for query in queries]
    finally:
        await reader.close()


def look_settings(schema: str) -> dict[str, str]:
    """Without statistics PostgreSQL would compare 10,000 rows with 10,000 rows one by one."""
    return {"search_path": schema, "enable_nestloop": "off"}


PLACES = """
SELECT run_id, 'ready' AS place, due_at, queue FROM ready
UNION ALL SELECT run_id, 'timetable', due_at, queue FROM timetable
UNION ALL SELECT run_id, 'parked', due_at, queue FROM parked
UNION ALL SELECT l.run_id, 'lease', r.due_at, r.queue FROM lease l JOIN run r ON r.id = l.run_id"""

BROKEN = {
    "an open run that is not in exactly one place": f"""
        SELECT r.id, count(p.run_id) FROM run r LEFT JOIN ({PLACES}) p ON p.run_id = r.id
        WHERE r.state = 'open' GROUP BY r.id HAVING count(p.run_id) <> 1""",
    "a final run that is in a place": f"SELECT r.id, p.place FROM run r JOIN ({PLACES}) p ON p.run_id = r.id WHERE r.state <> 'open'",
    "a place without a run": f"SELECT p.run_id, p.place FROM ({PLACES}) p LEFT JOIN run r ON r.id = p.run_id WHERE r.id IS NULL",
    "a place that differs from its run": f"""
        SELECT r.id, p.place FROM run r JOIN ({PLACES}) p ON p.run_id = r.id WHERE p.due_at <> r.due_at OR p.queue <> r.queue""",
    "a tick that waits and is not marked as one to judge, or the other way round": """
        SELECT q.run_id, q.flags FROM run r
        JOIN (SELECT run_id, attempt, flags FROM ready UNION ALL SELECT run_id, attempt, flags FROM timetable) q ON q.run_id = r.id
        WHERE (q.flags & 8 <> 0) <> (r.late_at IS NOT NULL AND q.attempt = 0)""",
    "a lease without a worker": "SELECT l.run_id FROM lease l LEFT JOIN worker w ON w.id = l.worker WHERE w.id IS NULL",
    "a fence given twice": "SELECT fence FROM lease GROUP BY fence HAVING count(*) > 1",
    "two holders of a gate": "SELECT gate FROM lease WHERE gate IS NOT NULL GROUP BY gate HAVING count(*) > 1",
    "a dead letter of a run that has not failed": """
        SELECT d.run_id FROM dead_letter d LEFT JOIN run r ON r.id = d.run_id WHERE r.state IS NULL OR r.state <> 'failed'""",
    "a key held for ever by a run that has ended": """
        SELECT d.key FROM dedup d LEFT JOIN run r ON r.id = d.run_id WHERE d.until IS NULL AND (r.state IS NULL OR r.state <> 'open')""",
}


async def broken(store: Store) -> list[str]:
    """Which invariants of the tables do not hold: empty after every transaction, whatever it did."""
    return told(await look_all(store, list(BROKEN.values())))


def told(found: Sequence[Sequence[Any]]) -> list[str]:
    """The answers to the questions of `BROKEN` in words."""
    return [f"{what}: {[tuple(row) for row in rows[:5]]}" for what, rows in zip(BROKEN, found, strict=True) if rows]
