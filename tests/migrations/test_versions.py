"""A database's schema against what this program needs: new, equal, older, newer, and two programs at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from fleetcron.errors import SchemaMismatch, StoreUnavailable
from fleetcron.store.factory import make_store
from fleetcron.store.postgres.store import PostgresStore
from fleetcron.store.versions import check_versions


def test_what_is_missing_comes_in_order() -> None:
    assert check_versions(["0001_a"], ["0003_c", "0002_b", "0001_a"]) == ["0002_b", "0003_c"]
    assert check_versions(["0001_a"], ["0001_a"]) == []


def test_a_newer_schema_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"newer than this program.*0009_z"):
        check_versions(["0001_a", "0009_z"], ["0001_a"])


async def test_an_empty_database_gets_its_schema_once(store_url: str) -> None:
    """Two programs that open it at the same time: one makes the schema, the other finds it."""
    stores = [make_store(store_url), make_store(store_url)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert await store.pending_migrations() == []
        assert await store.jobs() == []
        await store.close()


async def test_migrating_twice_changes_nothing(store_url: str) -> None:
    store = make_store(store_url)
    await store.open()
    assert await store.migrate() == []
    await store.close()


class Later(PostgresStore):
    """The store of a program with one more migration, which is waited for as long as it takes, but not for a lock."""

    more = ""
    LOCK_TIMEOUT = timedelta(seconds=0.3)

    def _migrations(self) -> dict[str, str]:
        return {**super()._migrations(), "9999_later": self.more}


async def test_a_migration_may_take_longer_than_any_statement(pg_url: str) -> None:
    """An index on a large table takes its minutes; a second program waits for the first one."""
    await ready(pg_url)
    stores = [Later(pg_url, statement_timeout=0.3) for _ in range(2)]
    for store in stores:
        store.more = "CREATE TABLE fleetcron.later (id int); SELECT pg_sleep(1);"
    done = await asyncio.gather(*(store.migrate() for store in stores))
    assert sorted(done) == [[], ["9999_later"]]
    for store in stores:
        assert await store.pending_migrations() == []
        await store.close()


async def test_a_migration_waits_for_no_lock_that_others_would_wait_behind(pg_url: str) -> None:
    """A table that somebody uses is not locked by waiting: everybody else would stand in line behind the wait. Nothing is changed."""
    await ready(pg_url)
    store = Later(pg_url)
    store.more = "CREATE TABLE fleetcron.early (id int); ALTER TABLE fleetcron.run ADD COLUMN later int;"
    user = await asyncpg.connect(pg_url)
    async with user.transaction():
        await user.fetch("SELECT 1 FROM fleetcron.run")
        with pytest.raises(StoreUnavailable, match=r"^migrate: .*lock timeout"):
            await store.migrate()
    assert await store.pending_migrations() == ["9999_later"]
    assert await user.fetchval("SELECT to_regclass('fleetcron.early')") is None
    assert await store.migrate() == ["9999_later"]
    await user.close()
    await store.close()


async def ready(url: str) -> None:
    """With this program's schema."""
    store = make_store(url)
    await store.open()
    await store.close()
