"""No hot statement scans a hot table, however little the planner knows: a peer's claim went from 1.4 to 26 ms when its table was analysed
empty and filled afterwards, another's fell from 1,100 to 11 a second behind 1,000,000 future rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from fleetcron.store.factory import make_store
from fleetcron.store.postgres.database import HOT, PLANNED, SETTINGS, Database
from tests.plans.calls import LONG_AGO, Call, calls
from tests.plans.explain import MOST_SECONDS, explain, indexes, pages, prepare, scanned
from tests.plans.filled import HOT_TABLES, NO_AUTOVACUUM, fill

SESSIONS = {
    "worker, generic plan": {**SETTINGS, **HOT, "plan_cache_mode": "force_generic_plan"},
    "worker, custom plan": {**SETTINGS, **HOT, "plan_cache_mode": "force_custom_plan"},
    "scheduler": {**SETTINGS, **PLANNED},
}


async def ready_made(url: str) -> dict[str, str]:
    """Make the schema; the statements by name."""
    store = make_store(url)
    await store.open()
    await store.close()
    database: Database = store.db  # type: ignore[attr-defined]
    return database.statements


async def connect(url: str, settings: dict[str, str], statements: dict[str, str], wanted: list[Call]) -> Any:
    connection = await asyncpg.connect(url, server_settings=settings)
    await prepare(connection, {call.statement: statements[call.statement] for call in wanted})
    return connection


async def faults(connection: Any, wanted: list[Call], when: str) -> list[str]:
    """What is wrong with the plans of these calls."""
    found = []
    for call in wanted:
        try:
            plan = await explain(connection, call.statement, call.args, analyze=True)
        except asyncpg.QueryCanceledError:
            found.append(f"{when}: {call.statement} takes more than {MOST_SECONDS} s")
            continue
        found += [f"{when}: {call.statement} scans {table}" for table in scanned(plan, HOT_TABLES)]
        if (touched := pages(plan)) > call.pages:
            found.append(f"{when}: {call.statement} touches {touched} pages, more than {call.pages}")
    return found


@pytest.mark.both_pg
@pytest.mark.timeout(240)  # a hundred thousand rows, a hundred plans each
async def test_no_hot_statement_scans_a_hot_table(pg_url: str) -> None:
    statements = await ready_made(pg_url)
    wanted = await calls()
    admin = await asyncpg.connect(pg_url)
    await admin.execute(NO_AUTOVACUUM)
    await admin.execute("ANALYZE")
    early = await connect(pg_url, SESSIONS["worker, generic plan"], statements, wanted)
    found: list[str] = []
    try:
        for call in wanted:
            await explain(early, call.statement, call.args, analyze=False)  # its plan is kept from now on
        await fill(admin)
        found += await faults(early, wanted, "planned while empty")
        for statistics in ("analysed while empty", "analysed"):
            if statistics == "analysed":
                await admin.execute("ANALYZE")
            for session, settings in SESSIONS.items():
                connection = await connect(pg_url, settings, statements, wanted)
                try:
                    found += await faults(connection, wanted, f"{statistics}, {session}")
                finally:
                    await connection.close()
    finally:
        await early.close()
        await admin.close()
    assert not found, "\n".join(found)


LANE = """
INSERT INTO fleetcron.job (name, queue, priority, max_attempts, dead_letter, spec) VALUES ('work', 'default', 5, 3, true, '{}');
INSERT INTO fleetcron.worker (node, host, pid, slots, started_at, heartbeat_at, expires_at)
    VALUES ('n', 'h', 1, 1000, now(), now(), now() + interval '1 hour');
INSERT INTO fleetcron.run (id, due_at, priority, job, queue, tenant, payload)
    SELECT i, now() - interval '1 minute', 5, 'work', 'default', '', '{}' FROM generate_series(1, 150) i;
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
    SELECT queue, priority, tenant, due_at, id, 1 FROM fleetcron.run;
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id)
    SELECT 'default', 5, '', now() + interval '1 minute' + i * interval '1 microsecond', i, 1 FROM generate_series(1000, 201000) i"""
CLAIM_PAGES = 4500
"""For 100 runs: to find, delete, lease and read each. The 200,000 that are due later fill 3,000 pages, and their index as many again."""


@pytest.mark.both_pg
@pytest.mark.timeout(120)
async def test_a_claim_does_not_walk_the_rows_that_are_due_later(pg_url: str) -> None:
    """Prepared long before, as a worker's is: its plan was made when there was nothing, and is used ever after."""
    statements = await ready_made(pg_url)
    claim = next(call for call in await calls() if call.statement == "claim")
    admin = await asyncpg.connect(pg_url)
    await admin.execute(NO_AUTOVACUUM)
    await admin.execute("ANALYZE")
    worker = await connect(pg_url, {**SETTINGS, **HOT}, statements, [claim])
    try:
        lane = (["default"], [5], [""], [LONG_AGO])
        everything, few = (_claim(claim, lane, most) for most in (100, 1000))
        for _ in range(8):
            await explain(worker, "claim", everything, analyze=True)
        await admin.execute(LANE)
        found = []
        for statistics in ("analysed while empty", "analysed"):
            for args, runs, what in ((everything, 100, "a full claim"), (few, 150, "a claim that comes back short")):
                for _ in range(8):
                    plan = await explain(worker, "claim", args, analyze=True)
                    assert plan["Actual Rows"] == runs
                    if pages(plan) > CLAIM_PAGES:
                        found.append(f"{statistics}: {what} touches {pages(plan)} pages")
            await admin.execute("ANALYZE")
        generic = await worker.fetchval("SELECT generic_plans FROM pg_prepared_statements WHERE name = 'claim'")
    finally:
        await worker.close()
        await admin.close()
    assert not found, "\n".join(found)
    assert generic > 5


def _claim(call: Call, lane: tuple[list[object], ...], most: int) -> list[object]:
    """The parameters of a claim of at most so many, from one lane."""
    args = list(call.args)
    args[2:6] = lane
    args[6] = timedelta(0)
    args[7] = most
    args[9] = [most] if isinstance(args[9], list) else most
    return args


BACKLOG = """
INSERT INTO fleetcron.lane (queue, priority, tenant) SELECT 'default', 5, 't' || i FROM generate_series(0, 99) i;
INSERT INTO fleetcron.run (id, due_at, nominal_at, late_at, priority, job, queue, tenant, schedule, payload)
    SELECT i, now() - interval '1 hour', CASE WHEN tick THEN now() - i * interval '1 s' END,
           CASE WHEN tick THEN now() - interval '1 minute' END,
           5, 'work', 'default', 't' || i % 100, CASE WHEN tick THEN 's' || i END, '{}'
    FROM (SELECT i, i % 100 = 0 AS tick FROM generate_series(1, 20000) i) d;
INSERT INTO fleetcron.ready (queue, priority, tenant, due_at, run_id, job_id, flags)
    SELECT queue, priority, tenant, due_at, id, 1, CASE WHEN late_at IS NULL THEN 0 ELSE 8 END FROM fleetcron.run"""
LATE_PAGES = 1200
"""For 200 ticks: four pages to find and read each, and some. To read all that is due takes 80,000."""


@pytest.mark.both_pg
@pytest.mark.timeout(120)
async def test_the_look_for_late_ticks_pays_for_ticks_only(pg_url: str) -> None:
    """It once read the first 500 due rows of each lane: 180 ms for 50,000 runs of which none was a tick."""
    statements = await ready_made(pg_url)
    look = next(call for call in await calls() if call.statement == "late_ticks")
    admin = await asyncpg.connect(pg_url)
    await admin.execute(NO_AUTOVACUUM)
    await admin.execute("ANALYZE")
    connections = [await connect(pg_url, settings, statements, [look]) for settings in SESSIONS.values()]
    found = []
    try:
        for connection in connections:
            await explain(connection, "late_ticks", look.args, analyze=True)
        await admin.execute(BACKLOG)
        for statistics in ("analysed while empty", "analysed"):
            for session, connection in zip(SESSIONS, connections, strict=True):
                plan = await explain(connection, "late_ticks", look.args, analyze=True)
                if (touched := pages(plan)) > LATE_PAGES or indexes(plan) != {"ready_tick", "run_pkey"}:
                    found.append(f"{statistics}, {session}: {touched} pages, by {sorted(indexes(plan))}")
                assert len((await connection.fetchrow(statements["late_ticks"], *look.args))[0]) == 200
            await admin.execute("ANALYZE")
    finally:
        for connection in [*connections, admin]:
            await connection.close()
    assert not found, "\n".join(found)
