"""What the parts of the SQLite store share: the database."""

from __future__ import annotations

from fleetcron.store.sqlite.database import Database


class SqliteBase:
    """The clock is the host's (or the tests'), read once a transaction: database and processes share one machine."""

    def __init__(self, database: Database) -> None:
        self.db = database
