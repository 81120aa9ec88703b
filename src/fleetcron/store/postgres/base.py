"""What the parts of the PostgreSQL store share: the database, the tests' clock, transactions for flows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

from fleetcron.store.postgres.database import Database
from fleetcron.store.postgres.tx import PostgresTx


class PostgresBase:
    """`clock`: None in production (the database's clock decides); tests pass a settable one, which every statement then uses."""

    def __init__(self, database: Database, *, clock: Callable[[], datetime] | None, shards: int) -> None:
        self.db, self.clock, self.shards = database, clock, shards

    def clock_now(self) -> datetime | None:
        return None if self.clock is None else self.clock()

    @asynccontextmanager
    async def tx(self, where: str) -> AsyncIterator[PostgresTx]:
        async with self.db.transaction(where, self.clock_now()) as session:
            yield PostgresTx(session, self.shards)
