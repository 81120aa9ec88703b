"""Stores for the suite: open, on a clock that the test sets, and checked afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fleetcron.store.factory import make_store
from fleetcron.store.protocol import Store
from tests.conformance.kit import Clock, broken, job
from tests.conformance.reset import Reused
from tests.support import postgres

OpenStore = Callable[..., Awaitable[Store]]


@pytest.fixture(scope="session")
def reused() -> Reused:
    """The PostgreSQL databases that these tests use one after the other."""
    return Reused()


@pytest.fixture
def clean_pg_url(servers: postgres.Servers, pg_version: int, reused: Reused) -> Iterator[str]:
    """A PostgreSQL database with an empty schema, as new. Tests that change the database itself ask for `pg_url`."""
    yield reused.url(servers, pg_version)
    assert reused.reset(pg_version) == []


@pytest.fixture
def store_url(
    request: pytest.FixtureRequest, servers: postgres.Servers, tmp_path: Path, reused: Reused
) -> Iterator[str]:
    """The suite's parameter, as everywhere: an empty database of either kind."""
    kind: str = request.param
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'fleet.db'}"
        return
    version = int(kind.removeprefix("postgres") or postgres.default_version())
    if not postgres.available(version):
        pytest.skip(f"PostgreSQL {version} is not on this machine (scripts/install-services.sh, make setup)")
    yield reused.url(servers, version)
    assert reused.reset(version) == []


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
    if store.kind == "sqlite":  # PostgreSQL's database is looked at when it is emptied
        assert await broken(store) == []


@pytest.fixture
async def open_pg(clean_pg_url: str, clock: Clock) -> AsyncIterator[OpenStore]:
    """`open_store` for tests of what only PostgreSQL has."""
    async for opener in _opener(clean_pg_url, clock):
        yield opener


@pytest.fixture
async def pg_store(open_pg: OpenStore) -> Store:
    """`store` for tests of what only PostgreSQL has."""
    store = await open_pg()
    await store.put_jobs([job("work"), job("other")])
    return store
