"""What the parts of the SQLite store share: the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fleetcron.store.sqlite.database import Database


class SqliteBase:
    """The clock is the host's (or the tests'), read once a transaction: database and processes share one machine."""

    def __init__(self, database: Database, clock: Callable[[], datetime] | None) -> None:
        self.db, self.clock = database, clock
