"""Fleets on one database, as several processes would have them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from fleetcron import Fleet

OpenFleet = Callable[..., Awaitable[Fleet]]


async def _opener(url: str) -> AsyncIterator[OpenFleet]:
    async with AsyncExitStack() as stack:

        async def open_fleet(**options: object) -> Fleet:
            return await stack.enter_async_context(Fleet(str(options.pop("url", url)), **options))

        yield open_fleet


@pytest.fixture
async def open_fleet(store_url: str) -> AsyncIterator[OpenFleet]:
    """Opens another fleet on the test's database, which is of either kind."""
    async for opener in _opener(store_url):
        yield opener


@pytest.fixture
async def open_pg_fleet(pg_url: str) -> AsyncIterator[OpenFleet]:
    """The same for tests of what only PostgreSQL has."""
    async for opener in _opener(pg_url):
        yield opener


@pytest.fixture
async def a(open_fleet: OpenFleet) -> Fleet:
    return await open_fleet()


@pytest.fixture
async def b(open_fleet: OpenFleet) -> Fleet:
    return await open_fleet()
