"""The connection pool, and the translation of PostgreSQL's errors into ours.

Plans must not hang on statistics: a hot table is analysed empty and then fills, and a plan cached in between would scan it (a peer's claim:
1.4 ms → 26 ms). Every statement has an index it is meant to use, so sessions run without sequential scans, merge joins and bitmap scans
(these walk dead index entries without marking them: closing a run went from 12 to 25 µs as `lease` filled with them). Hot sessions also go
without hash joins: what is joined there is a list of ids with an index. The scheduler's batches join lists, and are planned anew each time.
Behind PgBouncer no session state is relied on: statements are not prepared, and plans are made each time.

A client that is frozen between two statements of a transaction keeps its row locks for as long as its TCP connection lives: hours. So our
transactions, and only ours, are ended by the server when it has heard nothing for `idle_timeout`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.store import sql

SETTINGS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    "timezone": "UTC",
}
IDLE = "idle_in_transaction_session_timeout"
HOT = {"enable_hashjoin": "off"}
PLANNED = {"plan_cache_mode": "force_custom_plan"}

_UNREACHABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.QueryCanceledError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.DiskFullError,
    asyncpg.DeadlockDetectedError,  # rolled back: to be tried again, as after an outage
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)

_CLOSED = re.compile(r"\bclos(ed|ing)\b|released back")
"""What the driver says, in one exception, of a connection or pool that has gone; the rest of that are faults of whoever called it, which
trying again would repeat for ever."""


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn what the driver raises into StoreUnavailable or StoreError; the message says what was being done."""
    try:
        yield
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise StoreUnavailable(f"{where}: the database is read-only (a standby?): {error}") from error
    except _UNREACHABLE as error:
        raise StoreUnavailable(
            f"{where}: the database is not available: {str(error) or type(error).__name__}"
        ) from error
    except asyncpg.InterfaceError as error:
        if _CLOSED.search(str(error)):
            raise StoreUnavailable(f"{where}: the database is not available: {error}") from error
        raise StoreError(f"{where}: {error}") from error
    except asyncpg.NotNullViolationError as error:
        if error.column_name != "job_id":
            raise StoreError(f"{where}: {error}") from error
        raise StoreError(
            f"{where}: the registry does not know the job: a job is registered when a process that declares it starts, "
            "or by `fleetcron job add`"
        ) from error
    except asyncpg.PostgresError as error:
        raise StoreError(f"{where}: {error}") from error


async def _as_it_is(_: Any) -> None:
    """How a connection goes back to the pool: no statement of ours leaves anything in its session, and asyncpg has rolled back whatever was
    open. Its own reset is four statements and a round trip more for each of ours."""


class Database:
    """A small pool on one event loop, and the statements of this folder by name.

    `custom_plans`: plan each call for its own arrays (0.5 ms a call), for batches whose latency does not matter: the scheduler's.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str,
        pool_size: int,
        pgbouncer: bool,
        statement_timeout: float,
        application: str,
        custom_plans: bool,
        idle_timeout: float,
    ) -> None:
        self.url, self.schema, self.pgbouncer = url, schema, pgbouncer
        self._idle = {IDLE: f"{max(1, round(idle_timeout * 1000))}"}
        self._settings = {**SETTINGS, **(PLANNED if custom_plans else HOT), "application_name": application}
        self._size, self.timeout = pool_size, statement_timeout
        self.statements = sql.load(__package__, schema=schema)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    @property
    def place(self) -> str:
        """Which server and database, for messages: without who and how."""
        parts = urlsplit(self.url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"

    async def open(self) -> None:
        """Open the pool. Raises StoreUnavailable."""
        if self._pool is not None:
            return
        with translated("open"):
            self._pool = await asyncpg.create_pool(
                self.url, min_size=0, max_size=self._size, reset=_as_it_is, **self.connect_options()
            )

    def connect_options(self) -> dict[str, Any]:
        """What every connection of ours is opened with."""
        options: dict[str, Any] = {"command_timeout": self.timeout, "timeout": 10}
        if self.pgbouncer:
            options["statement_cache_size"] = 0
        else:
            options["server_settings"] = self._settings | self._idle
        return options

    def handler_options(self) -> dict[str, Any]:
        """What a connection for a handler's own statements is opened with: planned as PostgreSQL sees fit, without a time limit of ours."""
        options = {**self.connect_options(), "command_timeout": None}
        if not self.pgbouncer:
            options["server_settings"] = {"application_name": self._settings["application_name"]}
        return options

    async def set_locally(self, connection: Any) -> None:
        """From here to the end of its transaction a handler's connection plans like ours."""
        await connection.execute("; ".join(f"SET LOCAL {name} = {value}" for name, value in SETTINGS.items()))

    async def close(self) -> None:
        """Close the pool; connections that do not answer in 5 s are cut."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await asyncio.wait_for(pool.close(), 5)
        except (TimeoutError, asyncpg.InterfaceError, *_UNREACHABLE):
            pool.terminate()

    @property
    def pool(self) -> asyncpg.Pool[asyncpg.Record]:
        if self._pool is None:
            raise StoreError("the store is not open: use `async with fleet`, or await fleet.open()")
        return self._pool

    async def fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement in a transaction of its own."""
        with translated(name):
            rows: list[asyncpg.Record] = await self.pool.fetch(self.statements[name], *args)
        return rows

    async def fetchrow(self, name: str, *args: Any) -> asyncpg.Record | None:
        """Like `fetch`, the first row or None."""
        with translated(name):
            return await self.pool.fetchrow(self.statements[name], *args)

    async def fetchval(self, name: str, *args: Any) -> Any:
        """Like `fetch`, the first column of the first row or None."""
        with translated(name):
            return await self.pool.fetchval(self.statements[name], *args)

    @asynccontextmanager
    async def transaction(self, where: str, now: datetime | None) -> AsyncIterator[Session]:
        """A connection inside a transaction. READ COMMITTED: each statement sees what was committed before it began."""
        with translated(where):
            async with self.pool.acquire() as connection, connection.transaction():
                if self.pgbouncer:  # the session is not ours to set
                    await connection.execute(f"SET LOCAL {IDLE} = {self._idle[IDLE]}")
                yield Session(connection, self.statements, now)


class Session:
    """A connection, the statements by name, and the tests' clock (None: the database's)."""

    def __init__(self, connection: Any, statements: dict[str, str], now: datetime | None) -> None:
        self.connection, self.statements, self.clock = connection, statements, now

    async def fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self.connection.fetch(self.statements[name], *args)
        return rows

    async def fetchrow(self, name: str, *args: Any) -> asyncpg.Record | None:
        row: asyncpg.Record | None = await self.connection.fetchrow(self.statements[name], *args)
        return row

    async def fetchval(self, name: str, *args: Any) -> Any:
        return await self.connection.fetchval(self.statements[name], *args)
