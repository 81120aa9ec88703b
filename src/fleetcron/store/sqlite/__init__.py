"""The store on SQLite: embedded, one file, one machine, several processes."""

from __future__ import annotations

from fleetcron.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
