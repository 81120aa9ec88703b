"""The store on PostgreSQL 14 to 18."""

from __future__ import annotations

from fleetcron.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
