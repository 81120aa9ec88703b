"""Query plans: no statement of the engine walks a table that can be large, whatever the statistics say."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from fleetcron.store.sqlite.session import Session
from fleetcron.store.sqlite.statements import Statement, load_statements
from tests.unit.store_sqlite.support import claim, info, new, opened

STATEMENTS = dict(load_statements())
LARGE = {
    "run",
    "ready",
    "timetable",
    "parked",
    "lease",
    "attempt",
    "dead_letter",
    "dedup",
    "step",
    "progress",
    "session",
    "schedule",
}

WALKS = {
    "broken_schedules": "once a minute, schedules are thousands",
    "stale_zones": "once a start",
    "counts": "for people; counts all that waits",
    "unknown_jobs": "for people; counts all that waits",
    "queues": "for people; counts all that waits",
    "tenants": "for people; counts all leases",
    "remove_job": "by hand, rare",
    "respread": "when shards change, and once in a while",
    "prune_sessions": "once an hour",
    "prune_dedup": "once an hour",
}
"""Statements that walk a table, and why they may."""


def scans(connection: sqlite3.Connection, statement: str) -> set[str]:
    """The tables that a statement walks from end to end, by their names (plans name aliases)."""
    sql = STATEMENTS[statement].sql
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [None] * sql.count("?"))]
    walked = [str(found[1]) for line in plan if (found := re.match(r"SCAN (\w+)\b(?! VIRTUAL TABLE)", line))]
    named = {alias: table for table, alias in re.findall(r"(?:FROM|JOIN)\s+(\w+)\s+(?:AS\s+)?(\w+)", sql)}
    return {named.get(name, name) for name in walked}


@pytest.fixture(scope="module", params=["no statistics", "statistics of an empty database"])
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A database with 50,000 runs, in all places."""
    file = tmp_path_factory.mktemp("plans") / "fleet.db"
    asyncio.run(fill(file, analysed=request.param != "no statistics"))
    with closing(sqlite3.connect(file)) as connection:
        yield connection


async def fill(file: Path, *, analysed: bool) -> None:
    store = await opened(file)
    await store.insert([new(), new(delay=timedelta(hours=1))])
    if analysed:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("ANALYZE")
    worker = await store.start_worker(info(), timedelta(hours=1))
    for _ in range(10):
        await store.insert([new(tenant=f"t{n % 7}", delay=timedelta(seconds=n)) for n in range(5000)])
    await claim(store, worker, 1000)
    await store.close()


def test_no_statement_walks_a_large_table(connection: sqlite3.Connection) -> None:
    assert {
        name: walked for name in STATEMENTS if (walked := scans(connection, name) & LARGE) and name not in WALKS
    } == {}


def test_what_may_walk_does(connection: sqlite3.Connection) -> None:
    """So that the list above does not outlive its reasons."""
    assert [name for name in WALKS if not scans(connection, name) & LARGE] == []


def test_a_walk_is_seen(connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATEMENTS, "bad", Statement("SELECT q.run_id FROM ready q WHERE q.job_id = ?", None))
    assert scans(connection, "bad") == {"ready"}


@pytest.fixture
def steps(connection: sqlite3.Connection) -> Iterator[list[int]]:
    """Counts what a statement makes the database do, in units of 100 instructions of its machine."""
    ticks = [0]

    def tick() -> None:
        ticks[0] += 1

    connection.set_progress_handler(tick, 100)
    yield ticks
    connection.set_progress_handler(None, 0)


def test_a_look_at_the_lanes_costs_probes_not_rows(connection: sqlite3.Connection, steps: list[int]) -> None:
    found = Session(connection, STATEMENTS, 0).fetch("lanes", None, 1000, "[]")
    assert len(found) == 7
    assert steps[0] < 50


def test_a_small_claim_does_not_walk_the_future(connection: sqlite3.Connection, steps: list[int]) -> None:
    session, rows = Session(connection, STATEMENTS, 0), 0
    lanes = session.fetch("lanes", None, 1000, "[]")
    now = min(first_due for _, _, _, first_due in lanes)
    steps[0] = 0
    for queue, priority, tenant, _ in lanes:
        rows += len(session.fetch("claim", now, queue, priority, tenant, 0, now, None, 5))
    assert 0 < rows <= 7 * 5
    assert steps[0] < 100
