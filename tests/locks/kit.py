"""What the tests of locks share: a look into the tables, and waiting with a bound."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing

import asyncpg

from fleetcron import Fleet

SOON = 5.0


async def rows(fleet: Fleet, table: str = "lock") -> int:
    """How many rows a table has, whatever their time."""
    url = fleet.options.url
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return int(file.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(f"SELECT count(*) FROM fleetcron.{table}"))
    finally:
        await connection.close()


async def delete(fleet: Fleet, table: str) -> None:
    """Delete all rows of a table, behind the fleet's back."""
    url = fleet.options.url
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            file.execute(f"DELETE FROM {table}")
            file.commit()
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DELETE FROM fleetcron.{table}")
    finally:
        await connection.close()


async def until(condition: Callable[[], Awaitable[object]], seconds: float = SOON) -> None:
    """Look every 10 ms until it holds."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, f"did not come within {seconds:g} s"
        await asyncio.sleep(0.01)


async def waiters(fleet: Fleet, count: int) -> None:
    """Until so many wait for the one lock that is held."""

    async def there() -> bool:
        return [held.waiters for held in await fleet.locks()] == [count]

    await until(there)
