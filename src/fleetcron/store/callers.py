"""Connections of the caller's own: `submit(conn=…)` writes its run in their transaction, which the caller commits or rolls back.

They are told apart by the names of their types and those of their bases, so that no driver has to be installed, or imported to look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")
Run = Callable[[Callable[[], Any]], Awaitable[Any]]

_KINDS = {
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "async psycopg",
    ("psycopg2", "connection"): "psycopg2",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "async sqlalchemy",
    ("sqlalchemy", "Session"): "sqlalchemy session",
    ("sqlalchemy", "scoped_session"): "sqlalchemy scoped session",
    ("sqlalchemy", "AsyncSession"): "async sqlalchemy session",
    ("sqlalchemy", "async_scoped_session"): "async sqlalchemy scoped session",
    ("sqlite3", "Connection"): "sqlite3",
}
DRIVERS = {"asyncpg", "psycopg", "psycopg2", "sqlalchemy", "sqlite3"}

TO_POSTGRES = "a connection of asyncpg, psycopg or psycopg2, or a Connection, AsyncConnection, Session or AsyncSession of SQLAlchemy over them"
TO_SQLITE = "a sqlite3.Connection, or a Connection or Session of SQLAlchemy over one"


class Borrowed:
    """A connection that belongs to another thread than the event loop's: `run` has a function called over there (see `fleet.blocking`)."""

    def __init__(self, conn: Any, run: Run) -> None:
        self.conn, self.run = conn, run


async def here(work: Callable[[], T]) -> T:
    """What `Borrowed.run` is for a connection that may be used on this thread."""
    return work()


def kind(conn: Any) -> str | None:
    """What this is, of the names above; None for anything else."""
    for cls in type(conn).__mro__:
        if (found := _KINDS.get((cls.__module__.partition(".")[0], cls.__name__))) is not None:
            return found
    return None


def is_async(conn: Any) -> bool:
    """Does it belong to an event loop?"""
    return (kind(conn) or "").startswith("async")


def refused(conn: Any, wanted: str) -> TypeError:
    """What to raise for something else."""
    return TypeError(
        f"conn: expected {wanted}, to fleetcron's own database; got {type(conn).__module__}.{type(conn).__name__}"
    )
