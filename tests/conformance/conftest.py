"""Stores for the suite: open, on a clock that the test sets, and checked afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fleetcron.store.factory import make_store
from fleetcron.store.protocol import Store
from tests.conformance.kit import Clock, broken, job

OpenStore = Callable[..., Awaitable[Store]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def _opener(url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    made: list[Store] = []

    async def open_store(**options: object) -> Store:
        store = make_store(str(options.pop("url", url)), **{"clock": clock, **options})  # type: ignore[arg-type]
        made.append(store)
        await store.open()
        return store

    yield open_store
    for store in made:
        await store.close()


@pytest.fixture
async def open_store(store_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """Opens another store on the test's database, as another process would."""
    async for opener in _opener(store_url, clock):
        yield opener


@pytest.fixture
async def store(open_store: OpenStore) -> AsyncIterator[Store]:
    """An open store that knows two jobs, "work" and "other". After the test, every run must be where it belongs."""
    store = await open_store()
    await store.put_jobs([job("work"), job("other")])
    yield store
    assert await broken(store) == []


@pytest.fixture
async def open_pg(pg_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """`open_store` for tests of what only PostgreSQL has."""
    async for opener in _opener(pg_url, clock):
        yield opener


@pytest.fixture
async def pg_store(open_pg: OpenStore) -> AsyncIterator[Store]:
    """`store` for tests of what only PostgreSQL has."""
    store = await open_pg()
    await store.put_jobs([job("work"), job("other")])
    yield store
    assert await broken(store) == []
