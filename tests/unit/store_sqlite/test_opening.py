"""What `open` does with an empty, an older, a newer, a read-only and an impossible database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fleetcron.errors import SchemaMismatch, StoreError, StoreUnavailable
from fleetcron.store.sqlite import SqliteStore
from tests.unit.store_sqlite.support import count, look, new, opened, url

NOBODY = 65534


class Newer(SqliteStore):
    """The store of a program with one more migration."""

    def _migrations(self) -> dict[str, str]:
        return {
            **super()._migrations(),
            "0002_more": "CREATE TABLE more (\n    id INTEGER\n) STRICT;\nINSERT INTO more VALUES (7);",
        }


async def test_an_empty_database_gets_its_schema(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    store = SqliteStore(url(file))
    assert await store.pending_migrations() == ["0001_initial", "0002_locks", "0003_limits", "0004_backfill"]
    await store.open()
    assert await store.pending_migrations() == []
    assert await store.migrate() == []
    await store.close()
    assert look(file, "PRAGMA journal_mode") == [("wal",)]


async def test_an_older_schema_is_refused_and_upgraded_on_request(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    await (await opened(file)).close()
    with pytest.raises(SchemaMismatch, match="fleetcron migrate"):
        await Newer(url(file)).open()
    store = Newer(url(file), auto_migrate=True)
    await store.open()
    await store.close()
    assert look(file, "SELECT id FROM more") == [(7,)]


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    newer = Newer(url(file))
    await newer.open()
    await newer.close()
    store = SqliteStore(url(file), auto_migrate=True)
    with pytest.raises(SchemaMismatch, match="newer than this program"):
        await store.open()
    with pytest.raises(SchemaMismatch, match="0002_more"):
        await store.pending_migrations()
    await store.close()


async def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Broken(SqliteStore):
        def _migrations(self) -> dict[str, str]:
            return {
                **super()._migrations(),
                "0002_bad": "CREATE TABLE fine (id INTEGER);\nCREATE TABLE run (id INTEGER);",
            }

    file = tmp_path / "fleet.db"
    with pytest.raises(StoreError, match="table run already exists"):
        await Broken(url(file)).open()
    assert look(file, "SELECT name FROM sqlite_master") == []


async def test_many_open_an_empty_file_at_once(tmp_path: Path) -> None:
    stores = [SqliteStore(url(tmp_path / "fleet.db")) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        await store.close()


async def test_opening_twice_is_opening_once(tmp_path: Path) -> None:
    store = await opened(tmp_path / "fleet.db")
    await asyncio.gather(store.open(), store.open())
    await store.insert([new()])
    await store.close()


async def test_a_store_opened_read_only_reads(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    writer = await opened(file)
    await writer.insert([new()])
    reader = await opened(file, read_only=True)
    assert (await reader.run(1)) == (await writer.run(1))
    with pytest.raises(StoreUnavailable, match="opened read-only"):
        await reader.insert([new()])
    await reader.close()
    await writer.close()


async def test_read_only_without_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    with pytest.raises(StoreUnavailable, match="no fleetcron schema"):
        await opened(file, read_only=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, r"the folder .*no-such-folder does not exist"),
        (lambda path: path.mkdir(parents=True), "this is a folder"),
        (lambda path: (path.parent.mkdir(), path.write_bytes(b"not a database at all" * 100)), "not a SQLite database"),
    ],
    ids=["no folder", "a folder", "another file"],
)
async def test_what_cannot_be_a_database_says_so(make: object, message: str, tmp_path: Path) -> None:
    file = tmp_path / "no-such-folder" / "fleet.db"
    make(file)  # type: ignore[operator]
    with pytest.raises(StoreUnavailable, match=message):
        await opened(file)


@contextmanager
def as_nobody() -> Iterator[None]:
    """File modes do not stop root: be somebody whom they do."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode"),
    [(0o777, 0o444), (0o555, 0o666), (0o555, None)],
    ids=["the file", "the folder", "the folder, without a file"],
)
async def test_what_may_not_be_written_says_so(folder_mode: int, file_mode: int | None) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders belong to one user
        file = Path(name) / "fleet.db"
        Path(name).chmod(0o777)
        if file_mode is not None:
            await (await opened(file)).close()
            file.chmod(file_mode)
        Path(name).chmod(folder_mode)
        with as_nobody(), pytest.raises(StoreUnavailable, match="read-only"):
            await opened(file)
        Path(name).chmod(0o777)
        if file_mode is not None:
            file.chmod(0o666)
        with as_nobody():
            await (await opened(file)).close()


async def test_the_schema_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE run (mine TEXT)")
    with pytest.raises(StoreError, match="already exists"):
        await opened(file)
    assert count(file, "sqlite_master") == 1
