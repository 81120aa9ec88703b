"""The caller's own connection (`submit(conn=…)`) in the shape of asyncpg's, so that the same statements run on it, whatever its library.

Statements are written for PostgreSQL's own `$1`. Libraries that want `%(name)s` get them translated in one place (`_named`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, KeysView, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.store.callers import DRIVERS, TO_POSTGRES, Borrowed, Run, here, kind, refused

_PARAMETER = re.compile(r"\$(\d+)")
_IDLE = 0  # libpq's PQTRANS_IDLE: no transaction is open
Found = tuple[Sequence[str], Sequence[Sequence[Any]]]


class Row(tuple[Any, ...]):
    """A row by number or by name, as asyncpg's; times are in UTC."""

    names: Sequence[str]

    def __new__(cls, names: Sequence[str], values: Sequence[Any]) -> Row:
        row = super().__new__(cls, (v.astimezone(UTC) if isinstance(v, datetime) else v for v in values))
        row.names = names
        return row

    def __getitem__(self, which: Any) -> Any:
        return super().__getitem__(self.names.index(which) if isinstance(which, str) else which)

    def keys(self) -> KeysView[str]:
        return dict.fromkeys(self.names).keys()


class Caller:
    """What `Session` needs of a connection. `run` calls a function on the thread that the connection belongs to."""

    def __init__(self, conn: Any, run: Run) -> None:
        self._conn, self._run = conn, run

    async def fetch(self, statement: str, *args: Any) -> list[Row]:
        names, rows = await self._execute(statement, args)
        return [Row(names, row) for row in rows]

    async def fetchrow(self, statement: str, *args: Any) -> Row | None:
        rows = await self.fetch(statement, *args)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *args: Any) -> Any:
        row = await self.fetchrow(statement, *args)
        return None if row is None else row[0]

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A savepoint within the caller's transaction; a transaction where the connection commits by itself and none is open."""
        begin, end, undo = (
            ("BEGIN", ("COMMIT",), ("ROLLBACK",))
            if self._commits_itself()
            else (
                "SAVEPOINT fleetcron_insert",
                ("RELEASE SAVEPOINT fleetcron_insert",),
                ("ROLLBACK TO SAVEPOINT fleetcron_insert", "RELEASE SAVEPOINT fleetcron_insert"),
            )
        )
        await self._execute(begin, ())
        try:
            yield
        except BaseException:
            for statement in undo:
                await self._execute(statement, ())
            raise
        for statement in end:
            await self._execute(statement, ())

    def _commits_itself(self) -> bool:
        return False

    async def _execute(self, statement: str, args: Sequence[Any]) -> Found:
        raise NotImplementedError


class _Psycopg(Caller):
    def _commits_itself(self) -> bool:
        return bool(self._conn.autocommit and self._conn.info.transaction_status == _IDLE)

    def _cursor(self) -> Any:
        return self._conn.cursor(row_factory=sys.modules["psycopg"].rows.tuple_row)  # theirs may make anything of a row

    async def _execute(self, statement: str, args: Sequence[Any]) -> Found:
        def work() -> Found:
            with self._cursor() as cursor:
                cursor.execute(*_named(statement, args))
                return _names(cursor), cursor.fetchall() if cursor.description else []

        found: Found = await self._run(work)
        return found


class _AsyncPsycopg(_Psycopg):
    async def _execute(self, statement: str, args: Sequence[Any]) -> Found:
        async with self._cursor() as cursor:
            await cursor.execute(*_named(statement, args))
            return _names(cursor), await cursor.fetchall() if cursor.description else []


class _Psycopg2(_Psycopg):
    def _cursor(self) -> Any:
        return self._conn.cursor(cursor_factory=sys.modules["psycopg2"].extensions.cursor)


class _Alchemy(Caller):
    def _connection(self) -> Any:
        return self._conn

    async def _execute(self, statement: str, args: Sequence[Any]) -> Found:
        def work() -> Found:
            connection = self._connection()
            return _result(connection.exec_driver_sql(*_for_dialect(connection, statement, args)))

        found: Found = await self._run(work)
        return found


class _AlchemySession(_Alchemy):
    def _connection(self) -> Any:
        return self._conn.connection()


class _AsyncAlchemy(Caller):
    async def _connection(self) -> Any:
        return self._conn

    async def _execute(self, statement: str, args: Sequence[Any]) -> Found:
        connection = await self._connection()
        return _result(await connection.exec_driver_sql(*_for_dialect(connection, statement, args)))


class _AsyncAlchemySession(_AsyncAlchemy):
    async def _connection(self) -> Any:
        return await self._conn.connection()


_CALLERS: dict[str, Callable[[Any, Run], Caller]] = {
    "psycopg": _Psycopg,
    "async psycopg": _AsyncPsycopg,
    "psycopg2": _Psycopg2,
    "sqlalchemy": _Alchemy,
    "sqlalchemy session": _AlchemySession,
    "sqlalchemy scoped session": _AlchemySession,
    "async sqlalchemy": _AsyncAlchemy,
    "async sqlalchemy session": _AsyncAlchemySession,
    "async sqlalchemy scoped session": _AsyncAlchemySession,
}


def callers_own(conn: Any) -> Any:
    """A connection as `Session` takes it. Raises TypeError for anything that is not one of those named in `callers`."""
    run = here
    if isinstance(conn, Borrowed):
        conn, run = conn.conn, conn.run
    what = kind(conn)
    if what == "asyncpg":
        return conn
    if what not in _CALLERS:
        raise refused(conn, TO_POSTGRES)
    return _CALLERS[what](conn, run)


@contextmanager
def told(where: str) -> Iterator[None]:
    """Turn what the caller's library raises into StoreUnavailable or StoreError."""
    try:
        yield
    except Exception as error:
        types = type(error).__mro__
        if not any(cls.__module__.partition(".")[0] in DRIVERS for cls in types):
            raise
        away = any(cls.__name__ in ("OperationalError", "InterfaceError") for cls in types)
        says = str(getattr(error, "orig", None) or error).strip()
        raise (StoreUnavailable if away else StoreError)(f"{where}: on the connection given as conn: {says}") from error


def _named(statement: str, args: Sequence[Any]) -> tuple[str, dict[str, Any] | None]:
    """`$1` as `%(p1)s`. Without parameters the libraries leave a statement as it is."""
    if not args:
        return statement, None
    text = _PARAMETER.sub(r"%(p\1)s", statement.replace("%", "%%"))
    return text, {f"p{n}": arg for n, arg in enumerate(args, 1)}


def _for_dialect(connection: Any, statement: str, args: Sequence[Any]) -> tuple[Any, ...]:
    dialect = connection.dialect
    if dialect.name != "postgresql" or dialect.paramstyle not in ("pyformat", "numeric_dollar"):
        raise TypeError(
            f"conn: expected {TO_POSTGRES}, to fleetcron's own database; got one of SQLAlchemy over {dialect.name}+{dialect.driver}"
        )
    if dialect.paramstyle == "numeric_dollar":
        return (statement, tuple(args)) if args else (statement,)
    text, named = _named(statement, args)
    return (text,) if named is None else (text, named)


def _names(cursor: Any) -> Sequence[str]:
    return [column[0] for column in cursor.description or ()]


def _result(result: Any) -> Found:
    return (list(result.keys()), [tuple(row) for row in result.fetchall()]) if result.returns_rows else ([], [])
