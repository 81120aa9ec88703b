"""`insert(conn=…)`: runs inside the caller's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetcron.errors import StoreError
from fleetcron.store.sqlite import SqliteStore
from tests.unit.store_sqlite.support import count, new, opened
from tests.unit.store_sqlite.test_wakeups import listening


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = await opened(file)
    yield store
    await store.close()


@pytest.fixture(params=["", None], ids=["implicit", "explicit"])
def mine(request: pytest.FixtureRequest, file: Path, store: SqliteStore) -> Iterator[sqlite3.Connection]:
    """A caller's connection with a table of its own, in either of sqlite3's ways with transactions."""
    with closing(sqlite3.connect(file, isolation_level=request.param)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        yield connection


async def test_a_commit_brings_both(store: SqliteStore, mine: sqlite3.Connection, file: Path) -> None:
    ear = await listening(store)
    if mine.isolation_level is None:
        mine.execute("BEGIN")
    mine.execute("INSERT INTO orders DEFAULT VALUES")
    (inserted,) = await store.insert([new()], conn=mine)
    assert await store.run(inserted.id) is None
    ear.forget()
    mine.execute("COMMIT")
    await ear.next()
    assert await store.run(inserted.id) is not None
    assert count(file, "orders") == 1


async def test_a_rollback_takes_both(store: SqliteStore, mine: sqlite3.Connection, file: Path) -> None:
    await store.insert([new(key="k")], conn=mine)
    mine.execute("INSERT INTO orders DEFAULT VALUES")
    mine.execute("ROLLBACK")
    assert (count(file), count(file, "orders"), count(file, "dedup")) == (0, 0, 0)


async def test_what_is_refused_leaves_the_transaction_as_it_was(
    store: SqliteStore, mine: sqlite3.Connection, file: Path
) -> None:
    mine.execute("BEGIN")
    mine.execute("INSERT INTO orders DEFAULT VALUES")
    with pytest.raises(StoreError, match="does not know 'nobody'"):
        await store.insert([new(key="k"), new("nobody", key="l")], conn=mine)
    mine.execute("COMMIT")
    assert (count(file), count(file, "orders"), count(file, "dedup")) == (0, 1, 0)


async def test_another_kind_of_connection_is_refused(store: SqliteStore) -> None:
    with pytest.raises(TypeError, match=r"^conn: expected a sqlite3\.Connection, or .*; got builtins\.object$"):
        await store.insert([new()], conn=object())
