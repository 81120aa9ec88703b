"""What the migrations make."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from fleetcron.errors import SchemaMismatch, StoreError
from fleetcron.store.factory import make_store
from fleetcron.store.postgres import PostgresStore
from fleetcron.store.protocol import Store
from fleetcron.store.sqlite import SqliteStore
from tests.conformance.kit import insert_one, job, the_run
from tests.migrations.snapshot import migrations, release, schema_of, stored

REWRITE = "A released migration must not change: add a new one. (Not released yet: python -m tests.migrations.snapshot)"
NEXT = "0999_next_release"
OPENERS = 4

# What one store has and the other does not, and why.
ONLY_POSTGRES = {
    "gate": "SQLite's one writer is the mutex",
    "lane": "SQLite leaves no dead rows: it finds the lanes in `ready` itself",
    "watch.server": "a file has no server that could have been started anew",
    "worker.presence": "a lock that the server drops with its connection",
}
ONLY_SQLITE = {
    "worker.pid_started": "the kernel is asked for the process itself",
}


def next_release(url: str, statements: str, **options: Any) -> Store:
    """The store of a later release, with one more migration."""
    base = SqliteStore if url.startswith("sqlite") else PostgresStore

    class Next(base):  # type: ignore[valid-type, misc]
        def _migrations(self) -> dict[str, str]:
            return {**super()._migrations(), NEXT: statements}

    return Next(url, **options)


def add_column(url: str) -> str:
    prefix = "" if url.startswith("sqlite") else "fleetcron."
    return f"ALTER TABLE {prefix}run ADD COLUMN colour text;\nCREATE TABLE {prefix}extra (id int);\n"


@pytest.fixture
async def opened(store_url: str) -> Any:
    """A database of this release."""
    store = make_store(store_url)
    await store.open()
    yield store
    await store.close()


@pytest.mark.both_pg
async def test_migrations_are_as_they_were_released(store_url: str, tmp_path: Path) -> None:
    """Each one, applied to what the ones before it made."""
    kind = make_store(store_url).kind
    for version, name in enumerate(migrations(kind), start=1):
        store = release(await emptied(store_url, tmp_path / f"{version}.db"), version)
        await store.open()
        await store.close()
        assert stored(kind, version).exists(), f"no schema is stored for {name}: python -m tests.migrations.snapshot"
        assert await schema_of(store) == stored(kind, version).read_text(), f"{name}: {REWRITE}"


async def test_a_schema_that_grew_is_the_schema_that_is_made_today(
    store_url: str, opened: Store, tmp_path: Path
) -> None:
    """Whatever release a database began with."""
    today = await schema_of(opened)
    await opened.close()
    known = len(migrations(opened.kind))
    for begun in range(1, known + 1):
        url = await emptied(store_url, tmp_path / f"{begun}.db")
        for version in (begun, known):
            store = release(url, version, auto_migrate=True)
            await store.open()
            await store.close()
        assert await schema_of(store) == today, f"begun with version {begun}"


async def emptied(url: str, path: Path) -> str:
    """An empty database of the same kind."""
    if url.startswith("sqlite"):
        return f"sqlite:///{path}"
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA IF EXISTS fleetcron CASCADE")
    await connection.close()
    return url


async def test_an_older_schema_is_refused_with_the_command_to_run(store_url: str, opened: Store) -> None:
    before = await schema_of(opened)
    later = next_release(store_url, add_column(store_url))
    with pytest.raises(SchemaMismatch, match=r"older than this program.*`fleetcron migrate`.*auto_migrate=True"):
        await later.open()
    assert await schema_of(opened) == before
    await later.close()


async def test_pending_migrations_are_told_and_applied_once(store_url: str, opened: Store) -> None:
    await opened.put_jobs([job()])
    run_id = await insert_one(opened)
    later = next_release(store_url, add_column(store_url))
    try:
        assert await later.pending_migrations() == [NEXT]
        assert await later.migrate() == [NEXT]
        assert await later.migrate() == []
        assert await later.pending_migrations() == []
        await later.open()
        assert (await the_run(later, run_id)).state == "ready"
    finally:
        await later.close()


async def test_auto_migrate(store_url: str, opened: Store) -> None:
    before = await schema_of(opened)
    later = next_release(store_url, add_column(store_url), auto_migrate=True)
    await later.open()
    try:
        assert await later.pending_migrations() == []
        after = await schema_of(later)
        assert "colour" in after and "colour" not in before
    finally:
        await later.close()


async def test_a_newer_schema_is_refused(store_url: str, opened: Store) -> None:
    later = next_release(store_url, add_column(store_url), auto_migrate=True)
    await later.open()
    await later.close()
    today = make_store(store_url, auto_migrate=True)
    calls: list[Callable[[], Awaitable[object]]] = [today.open, today.pending_migrations, today.migrate]
    for call in calls:
        with pytest.raises(SchemaMismatch, match=rf"newer than this program.*{NEXT}.*upgrade fleetcron"):
            await call()
    await today.close()


async def test_a_migration_that_fails_leaves_nothing_behind(store_url: str, opened: Store) -> None:
    before = await schema_of(opened)
    later = next_release(store_url, add_column(store_url) + "SELECT no_such_function();\n", auto_migrate=True)
    with pytest.raises(StoreError):
        await later.open()
    await later.close()
    assert await schema_of(opened) == before
    assert await opened.pending_migrations() == []


OPEN = """
import asyncio, sys
from fleetcron.store.factory import make_store

async def main():
    store = make_store(sys.argv[1])
    input()
    await store.open()
    await store.put_jobs([])
    await store.close()

asyncio.run(main())
"""


async def test_processes_that_open_an_empty_database_at_once(store_url: str) -> None:
    """All come up; one has made the schema."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", OPEN, store_url, stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(OPENERS)
    ]
    said = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * OPENERS, said
    store = make_store(store_url)
    await store.open()
    try:
        assert await store.pending_migrations() == []
    finally:
        await store.close()


async def test_many_stores_of_one_process_open_an_empty_database_at_once(store_url: str) -> None:
    for _ in range(3):
        stores = [make_store(store_url) for _ in range(5)]
        await asyncio.gather(*(store.open() for store in stores))
        for store in stores:
            await store.close()


async def test_both_stores_hold_the_same(pg_url: str, tmp_path: Path) -> None:
    """Table by table and column by column: whoever knows one store knows the other."""
    found: dict[str, set[str]] = {}
    for url in (pg_url, f"sqlite:///{tmp_path / 'fleet.db'}"):
        store = make_store(url)
        await store.open()
        await store.close()
        found[store.kind] = await columns(store)
    missing = found["postgres"] - found["sqlite"]
    more = found["sqlite"] - found["postgres"]
    assert {name for name in missing if not _allowed(name, ONLY_POSTGRES)} == set()
    assert {name for name in more if not _allowed(name, ONLY_SQLITE)} == set()
    assert [entry for entry in ONLY_POSTGRES if not any(_allowed(name, {entry: ""}) for name in missing)] == []
    assert [entry for entry in ONLY_SQLITE if not any(_allowed(name, {entry: ""}) for name in more)] == []


def _allowed(column: str, entries: dict[str, str]) -> bool:
    return column in entries or column.partition(".")[0] in entries


async def columns(store: Store) -> set[str]:
    """table.column of all tables."""
    text = await schema_of(store)
    if store.kind == "postgres":
        return set(re.findall(r"^(\w+\.\w+) ", text.partition("-- options")[0], re.MULTILINE))
    tables = re.findall(r"CREATE TABLE (\w+) \((.*?)\) STRICT", text, re.DOTALL)
    bare = [(name, re.sub(r"--[^\n]*|\([^()]*\)", "", body)) for name, body in tables]
    named = [(name, line.split()[0]) for name, body in bare for line in body.split(",") if line.strip()]
    return {f"{table}.{column}" for table, column in named if column not in ("PRIMARY", "UNIQUE", "CHECK")}
