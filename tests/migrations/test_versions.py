"""A database's schema against what this program needs: new, equal, older, newer, and two programs at once."""

from __future__ import annotations

import asyncio

import pytest

from fleetcron.errors import SchemaMismatch
from fleetcron.store.factory import make_store
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
