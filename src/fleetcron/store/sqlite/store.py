"""The SQLite store: life cycle and wake-ups, on top of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from fleetcron.clock import wall_now
from fleetcron.errors import ConfigError, SchemaMismatch, StoreUnavailable
from fleetcron.store.sql import load
from fleetcron.store.sqlite.backfills import Backfills
from fleetcron.store.sqlite.base import SqliteBase
from fleetcron.store.sqlite.connection import SYNCHRONOUS, Options, parse_url, translated
from fleetcron.store.sqlite.database import Database
from fleetcron.store.sqlite.lead import Lead
from fleetcron.store.sqlite.limits import Limiting
from fleetcron.store.sqlite.locks import Locks
from fleetcron.store.sqlite.registry import Registry
from fleetcron.store.sqlite.runs import Runs
from fleetcron.store.sqlite.session import Session
from fleetcron.store.sqlite.watcher import Bell, Watcher
from fleetcron.store.sqlite.work import Work
from fleetcron.store.versions import check_versions
from fleetcron.threads import off_loop


class SqliteStore(Registry, Runs, Work, Lead, Locks, Limiting, Backfills):
    """One SQLite file, or `sqlite:///:memory:`. See `fleetcron.store.protocol.Store` for the contract.

    Safe to call from several event loops at once; several processes may have a store on one file. `clock` is for
    tests. `synchronous="NORMAL"` spares the fsync of each commit; after a power cut the last commits may then be
    missing, but the file is whole. `lock_timeout`: seconds that a write waits for other processes before it is a
    StoreUnavailable.
    """

    kind = "sqlite"
    absence_is_proof = True  # `absent` asks the kernel for the process

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], datetime] | None = None,
        shards: int = 1,
        auto_migrate: bool = False,
        synchronous: str = "FULL",
        read_only: bool = False,
        lock_timeout: float = 10.0,
    ) -> None:
        if synchronous not in SYNCHRONOUS:
            raise ConfigError(f"synchronous: {synchronous!r}: expected one of {', '.join(SYNCHRONOUS)}")
        options = Options(parse_url(url), clock or wall_now, synchronous, read_only, lock_timeout)
        if read_only and options.location.path is None:
            raise ConfigError("read_only: a database in memory is empty until it is written")
        SqliteBase.__init__(self, Database(options, shards, Bell()), clock)
        self._auto_migrate = auto_migrate
        self._watcher: Watcher | None = None

    @property
    def listening(self) -> bool:
        return self._watcher is not None

    async def open(self) -> None:
        """Open the file. An empty database gets its schema; an older or newer one is a SchemaMismatch. Raises
        StoreUnavailable."""
        await self.db.open()
        try:
            done = await self._done()
            if done is None:
                if self.db.options.read_only:
                    raise StoreUnavailable(
                        f"open: {self.db.options.location} was opened read-only and has no fleetcron schema yet"
                    )
                await self.migrate()
            elif check_versions(done, self._migrations()):
                if not self._auto_migrate:
                    raise SchemaMismatch(
                        "the database's fleetcron schema is older than this program: "
                        "run `fleetcron migrate` (or open with auto_migrate=True)"
                    )
                await self.migrate()
        except BaseException:
            await self.db.close()
            raise

    async def close(self) -> None:
        """Finish what was asked for, then let the file go."""
        self.db.bell.clear()
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            await off_loop(watcher.close)
        await self.db.close()

    async def pending_migrations(self) -> list[str]:
        """Names of the migrations that this database lacks, in order. Raises SchemaMismatch when it is newer than
        this program."""
        await self.db.open()
        return check_versions(await self._done() or [], self._migrations())

    async def migrate(self) -> list[str]:
        """Apply what is missing, all in one transaction; returns the names. Two callers at once: one waits for the
        other."""
        await self.db.open()
        migrations = self._migrations()
        return await self.db.write("migrate", lambda session: _migrate(session, migrations))

    async def _done(self) -> list[str] | None:
        return await self.db.read("open", _migrations_done)

    def _migrations(self) -> dict[str, str]:
        return load(__package__, "migrations")

    async def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake("")` whenever something was added to `ready`, and `wake(channel)` whenever there is news on one (see
        `notify`): what this process does at once, what others do within 20 ms."""
        if self._watcher is None and self.db.path is not None:
            with translated("listen", self.db.options.location):
                self._watcher = await asyncio.to_thread(Watcher, self.db.options, self.db.statements, self.db.bell)
        self.db.bell.add(wake)

    async def listen_locks(self, wake: Callable[[str], None]) -> None:
        """Call `wake("")` whenever a lock that somebody waits for may be free, like `listen` (and whenever that calls)."""
        await self.listen(wake)


def _migrations_done(session: Session) -> list[str] | None:
    """Names of the migrations applied, or None where there is no schema."""
    if not session.fetchval("schema_state"):
        return None
    return [row[0].partition(":")[2] for row in session.fetch("migrations_done")]


def _migrate(session: Session, migrations: dict[str, str]) -> list[str]:
    missing = check_versions(_migrations_done(session) or [], migrations)
    for name in missing:
        session.script(migrations[name])
        session.execute("migration_done", f"migration:{name}", session.moment.isoformat())
    return missing
