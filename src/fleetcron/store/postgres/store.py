"""The PostgreSQL store: life cycle and wake-ups, on top of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from fleetcron.clock import sleep
from fleetcron.errors import SchemaMismatch, StoreUnavailable
from fleetcron.store.postgres.backfills import Backfills
from fleetcron.store.postgres.base import PostgresBase
from fleetcron.store.postgres.database import Database, Session, translated
from fleetcron.store.postgres.lead import Lead
from fleetcron.store.postgres.limits import Limiting
from fleetcron.store.postgres.locks import Locks
from fleetcron.store.postgres.registry import Registry
from fleetcron.store.postgres.runs import Runs
from fleetcron.store.postgres.work import Work
from fleetcron.store.sql import load
from fleetcron.store.versions import check_versions

_RELISTEN = 1.0
"""Seconds between tries to listen again after the listening connection was lost (case C68: within 5 s)."""


class PostgresStore(Registry, Runs, Work, Lead, Locks, Limiting, Backfills):
    """One PostgreSQL database. `clock` is for tests. See `fleetcron.store.protocol.Store` for the contract."""

    kind = "postgres"
    absence_is_proof = False
    LOCK_TIMEOUT = timedelta(seconds=5)
    """How long a migration waits for a table that others use."""

    def __init__(
        self,
        url: str,
        *,
        schema: str = "fleetcron",
        clock: Callable[[], datetime] | None = None,
        shards: int = 1,
        auto_migrate: bool = False,
        pgbouncer: bool = False,
        direct_url: str | None = None,
        pool_size: int = 4,
        statement_timeout: float = 10,
        application: str = "fleetcron",
        custom_plans: bool = False,
        idle_timeout: float = 15,
    ) -> None:
        database = Database(
            url, schema=schema, pool_size=pool_size, pgbouncer=pgbouncer, statement_timeout=statement_timeout, application=application,
            custom_plans=custom_plans, idle_timeout=idle_timeout,
        )  # fmt: skip
        PostgresBase.__init__(self, database, clock=clock, shards=shards)
        self._auto_migrate, self._direct_url = auto_migrate, direct_url
        self._listeners: list[asyncio.Task[None]] = []
        self.listening = False

    async def open(self) -> None:
        """Connect. An empty database gets its schema; an older or newer one is a SchemaMismatch. Raises StoreUnavailable."""
        await self.db.open()
        try:
            done, read_only = await self._done()
            if done is None:
                if read_only:
                    raise StoreUnavailable("open: the database is read-only and has no fleetcron schema yet")
                await self.migrate()
            elif check_versions(done, self._migrations()):
                if not self._auto_migrate:
                    raise SchemaMismatch(
                        "the database's fleetcron schema is older than this program: run `fleetcron migrate` (or open with auto_migrate=True)"
                    )
                await self.migrate()
        except BaseException:
            await self.db.close()
            raise

    async def close(self) -> None:
        while self._listeners:
            listener = self._listeners.pop()
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener
        await self.drop_presence()
        await self.db.close()

    async def pending_migrations(self) -> list[str]:
        """Names of the migrations that this database lacks, in order. Raises SchemaMismatch when it is newer than this program."""
        await self.db.open()
        done, _ = await self._done()
        return check_versions(done or [], self._migrations())

    async def migrate(self) -> list[str]:
        """Apply what is missing, all in one transaction; returns the names. It may take as long as it takes, but not wait longer than
        LOCK_TIMEOUT for a table. Two callers at once: one waits for the other. Raises StoreUnavailable, and then nothing is changed."""
        with translated("migrate"):
            connection = await asyncpg.connect(self.db.url, **self.db.connect_options() | {"command_timeout": None})
            try:
                async with connection.transaction():
                    return await self._migrate(Session(connection, self.db.statements, None))
            finally:
                await connection.close(timeout=5)

    async def _migrate(self, session: Session) -> list[str]:
        await session.fetch("migrate_lock")  # first: two CREATE SCHEMA IF NOT EXISTS at once collide
        # From here on: a table's lock that is waited for keeps everybody else from the table.
        await session.connection.execute(f"SET LOCAL lock_timeout = {self.LOCK_TIMEOUT // timedelta(milliseconds=1)}")
        await session.fetch("migrate_schema")
        present = (await session.fetchrow("open"))["present"]  # type: ignore[index]
        done = [row[0].partition(":")[2] for row in await session.fetch("migrations_done")] if present else []
        missing = check_versions(done, self._migrations())
        for name in missing:
            await session.connection.execute(self._migrations()[name])
            await session.fetch("migration_done", f"migration:{name}", await session.fetchval("now", None))
        return missing

    async def _done(self) -> tuple[list[str] | None, bool]:
        try:
            state = await self.db.fetchrow("open")
        except (
            StoreUnavailable
        ) as error:  # the first word with the server: the driver does not always say which one it meant
            raise StoreUnavailable(f"{error} ({self.db.place})") from error
        assert state is not None
        if not state["present"]:
            return None, state["read_only"]
        return [row[0].partition(":")[2] for row in await self.db.fetch("migrations_done")], state["read_only"]

    def _migrations(self) -> dict[str, str]:
        return load(__package__, "migrations", self.db.schema)

    async def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake(queue)` on every wake-up, from now on; after a lost connection, again within a second, with one `wake("")` for what
        was missed. Behind PgBouncer (without a direct URL) there are none: polling is the truth."""
        self._hear("wake", wake)

    async def listen_locks(self, wake: Callable[[str], None]) -> None:
        """Call `wake(owner)` whenever it is that owner's turn at a lock, like `listen`. A channel of its own: workers have no use for it."""
        self._hear("lock", wake)

    def _hear(self, channel: str, wake: Callable[[str], None]) -> None:
        if self.db.pgbouncer and self._direct_url is None:
            return
        self._listeners.append(asyncio.create_task(self._listen(channel, wake), name=f"fleetcron-listen-{channel}"))

    async def _listen(self, channel: str, wake: Callable[[str], None]) -> None:
        options: dict[str, Any] = {**self.db.connect_options(), "command_timeout": None}
        while True:
            connection: asyncpg.Connection[asyncpg.Record] | None = None
            lost = asyncio.Event()
            try:
                with translated("listen"):
                    connection = await asyncpg.connect(self._direct_url or self.db.url, **options)
                    connection.add_termination_listener(lambda _c, lost=lost: lost.set())
                    await connection.add_listener(
                        f"{self.db.schema}.{channel}", lambda _c, _p, _ch, payload: wake(str(payload))
                    )
                self.listening = True
                wake("")
                await lost.wait()
            except StoreUnavailable:
                pass
            finally:
                self.listening = False
                if connection is not None:
                    connection.terminate()
            await sleep(_RELISTEN)
