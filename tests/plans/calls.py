"""The hot statements with the parameters that the store itself would pass: its methods are called, and stopped where they would ask."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from fleetcron.clock import wall_now
from fleetcron.decide.backfill import Chosen
from fleetcron.store.postgres import PostgresStore
from fleetcron.store.postgres.tx import PostgresTx
from fleetcron.store.protocol import Done, Fire, Lane, NewRun, Settled, Tick
from tests.conformance.kit import schedule
from tests.plans.filled import DEAD, ENDED, FENCE, LANES, LEASED, READY, TIMETABLE

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class _Asked(Exception):
    """The statement that was wanted is known."""


class _Ear:
    """Stands where the database does, and remembers what it was asked."""

    pgbouncer, clock = False, None

    def __init__(self) -> None:
        self.wanted, self.args = "", ()

    async def fetch(self, name: str, *args: object) -> Any:
        if name == self.wanted:
            self.args = args
            raise _Asked
        return [[DEAD]]  # the sessions that a rescue has locked

    fetchrow = fetchval = fetch

    @asynccontextmanager
    async def transaction(self, where: str, now: object) -> AsyncIterator[_Ear]:
        yield self


class Call(NamedTuple):
    """A statement, its parameters, and how many pages it may touch: a few times what it does on 50,000 rows a table."""

    statement: str
    args: tuple[object, ...]
    pages: int


async def calls() -> list[Call]:
    """Every hot statement once."""
    ear = _Ear()
    store = PostgresStore("postgresql://nowhere/")
    store.db = ear  # type: ignore[assignment]
    tx = PostgresTx(ear, 1)  # type: ignore[arg-type]
    now = wall_now()
    lanes = [Lane(*lane, LONG_AGO) for lane in LANES]
    mine = LEASED[:200]  # worker 1's
    ended = [
        Settled(
            run_id=i,
            fence=i + FENCE,
            state=state,
            attempt=1,
            delay=timedelta(seconds=30),
            record="failed",
            error="e",
            dead=True,
        )
        for i, state in zip(mine, ("open", "failed", "discarded", "cancelled") * 50, strict=True)
    ]
    minute = now.replace(second=0, microsecond=0)
    fires = [
        Fire(
            schedule_id=i,
            revision=1,
            old_next=minute + i % 1440 * timedelta(minutes=1),
            new_next=now + timedelta(days=1),
            ticks=[
                Tick(now + timedelta(hours=2, seconds=i), now + timedelta(seconds=i), now + timedelta(seconds=i + 60))
            ],
        )
        for i in range(1, 201)
    ]
    tick = schedule("s1", tenant="t1", misfire="fire_all", catchup_limit=100, judged_until=now)
    since = now - timedelta(seconds=5)
    claimed = [_Lease(i, i + FENCE) for i in mine]

    found: list[Call] = []

    async def add(statement: str, pages: int, method: Coroutine[Any, Any, Any]) -> None:
        ear.wanted = statement
        try:
            await method
        except _Asked:
            found.append(Call(statement, ear.args, pages))
            return
        raise AssertionError(f"{statement} was not asked for")

    await add("claim", 6000, store.claim(1, lanes, limit=200, quantum=10, ahead=timedelta(seconds=2), jobs=[1]))
    await add(
        "complete", 7000, store.complete(1, [Done(i, i + FENCE, now.timestamp(), "{}", keyed=True) for i in mine])
    )
    await add("settle", 13_000, store.settle(1, ended))
    await add("started", 1000, store.started(1, mine))
    await add("beat", 100, store.beat(1, timedelta(seconds=15)))
    await add("lanes", 250, store.lanes(None, known=lanes[:10]))
    await add("insert_alike", 5000, store.insert([NewRun(job="work", payload="{}", queue="default", priority=5)] * 200))
    others = [NewRun(job="work", payload="{}", queue="default", priority=n % 9) for n in range(200)]
    await add("insert", 5000, store.insert(others))
    await add(
        "dedup_take",
        8000,
        tx.dedup_take(
            [(10**9 + i, NewRun(job="work", payload="{}", queue="default", priority=5, key=f"new{i}")) for i in mine]
        ),
    )
    await add(
        "dedup_find",
        2000,
        tx.dedup_find(
            [
                NewRun(job="work", payload="{}", queue="default", priority=5, key=f"k{i}", tenant=f"t{i % 20}")
                for i in mine
            ]
        ),
    )
    await add("step_put", 20, store.step_put(1, mine[0], mine[0] + FENCE, "a", "1"))
    await add("cancel", 600, store.cancel(READY[100], "ann"))
    await add("run", 40, store.run(LEASED[100]))
    await add("final", 2000, store.final([*LEASED[:100], *READY[:100]]))
    await add("replay", 16_000, store.replay(list(ENDED[:2000:10]), "ann"))
    await add("worker_lock", 12, store.rescue())
    await add("rescue", 25_000, store.rescue())  # 400 runs
    await add("worker_stop", 12_000, store.stop_worker(2))
    await add("fire", 20_000, store.fire(0, 7, fires, tzdata="", until=now))
    await add("due_schedules", 300, store.due_schedules(0, now + timedelta(minutes=2), 500))
    await add("late_ticks", 45_000, store.late_ticks((LONG_AGO, 0)))  # 5,000 ticks, up to 10,000
    await add("promote", 12_000, store.promote(500))
    await add("timetable_due", 8, store.timetable_due())
    await add("unpark", 8000, store.unpark())  # 800 gates
    await add("first_due", 20, tx.first_due(tick))
    await add("unstarted", 7000, tx.unstarted(tick, since))
    await add("withdraw", 80_000, tx.withdraw(tick, since, "edited"))
    await add("lease_held", 1500, tx.held(1, claimed))  # type: ignore[arg-type]
    await add("drop_ticks", 5000, tx.drop_ticks(READY[:200], "late"))
    await add("drop_leased", 4000, tx.drop_leased(1, claimed, "late"))  # type: ignore[arg-type]
    await add("keep_ticks", 3000, tx.keep_ticks([(i, None) for i in READY[:200]], timedelta(seconds=15)))
    await add(
        "replace_run", 150, tx.replace_run(TIMETABLE[5], NewRun(job="work", payload="{}", queue="default", priority=5))
    )
    await add("gate_state", 150, tx.gate_state("p1", _Waiting(now, 1)))  # type: ignore[arg-type]
    await add("gate_newer", 200, tx.gate_newer("p1", now))
    await add("gate_replace", 1000, tx.gate_replace("p1"))
    await add("backfills_active", 20_000, store.active_backfills())  # 2,000 open runs
    await add("backfill_fold", 1000, tx.fold_backfill(1))  # 100
    ago = [now - timedelta(days=90) + i * timedelta(minutes=1) for i in ENDED[:200]]
    await add("ticks_seen", 3000, tx.seen_ticks("s1", ago))
    chosen = [Chosen(at, at - timedelta(minutes=1), 1) for at in ago[:100]]
    await add("backfill_runs", 6000, tx.backfill_runs(1, msgspec.structs.replace(tick, id=1), chosen))
    await add("backfills", 1000, store.backfills(backfill_id=1))
    return found


class _Lease(NamedTuple):
    run_id: int
    fence: int


class _Waiting(NamedTuple):
    due_at: datetime
    run_id: int
