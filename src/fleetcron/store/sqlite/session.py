"""The statements of this folder on one connection, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fleetcron.clock import from_us, to_us
from fleetcron.store.protocol import BUCKET
from fleetcron.store.sqlite.statements import Statements

_MICROSECOND = timedelta(microseconds=1)
_BUCKET = BUCKET // _MICROSECOND

_encode = msgspec.json.Encoder().encode


class Session:
    """Runs statements by name. Synchronous: it lives on the thread that owns the connection.

    `now`: microseconds, read once for the transaction, after it got its lock. `woke`: something was added to `ready`.
    """

    __slots__ = ("_connection", "_statements", "now", "woke")

    def __init__(self, connection: sqlite3.Connection, statements: Statements, now: int) -> None:
        self._connection, self._statements, self.now = connection, statements, now
        self.woke = False

    @property
    def horizon(self) -> int:
        """What is due before this waits in `ready`: the end of the next time bucket."""
        return self.now - self.now % _BUCKET + 2 * _BUCKET

    @property
    def moment(self) -> datetime:
        return from_us(self.now)

    def fetch(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        """All rows. Never leave rows unread: a statement that is not finished keeps its locks."""
        return self._execute(name, args).fetchall()

    def fetchrow(self, name: str, *args: Any) -> tuple[Any, ...] | None:
        rows = self._execute(name, args).fetchall()
        return rows[0] if rows else None

    def fetchval(self, name: str, *args: Any) -> Any:
        rows = self._execute(name, args).fetchall()
        return rows[0][0] if rows else None

    def records(self, name: str, *args: Any) -> list[dict[str, Any]]:
        """All rows by column name."""
        cursor = self._execute(name, args)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def execute(self, name: str, *args: Any) -> int:
        """A statement without an answer; returns how many rows it changed."""
        return self._execute(name, args).rowcount

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """One statement for many rows of parameters."""
        statement = self._statements[name]
        self._cursor().executemany(statement.sql, rows if statement.pick is None else map(statement.pick, rows))

    def take(self, counter: str, n: int = 1) -> int:
        """The first of `n` numbers of a counter that go to the caller, for ever: pruning gives none back."""
        return int(self.fetchval("take", counter, n)) - n + 1

    def script(self, text: str) -> None:
        """The statements of a migration. (The driver's own `executescript` would commit first.)"""
        part = ""
        for line in text.splitlines(keepends=True):
            part += line
            if sqlite3.complete_statement(part):
                self._cursor().execute(part)
                part = ""
        self._cursor().execute(part)  # comments; or what lacks its semicolon

    def _execute(self, name: str, args: Sequence[Any]) -> sqlite3.Cursor:
        statement = self._statements[name]
        return self._cursor().execute(statement.sql, args if statement.pick is None else statement.pick(args))

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None  # the connection may be a caller's own, with its own habits
        return cursor


def us(span: timedelta) -> int:
    """A duration as whole microseconds."""
    return span // _MICROSECOND


def us_or_none(span: timedelta | None) -> int | None:
    return None if span is None else span // _MICROSECOND


def at_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_us(moment)


def json_list(values: Iterable[Any]) -> str:
    """A list as a parameter, for json_each."""
    return _encode(list(values)).decode()


def json_list_or_none(values: Iterable[Any] | None) -> str | None:
    return None if values is None else json_list(values)
