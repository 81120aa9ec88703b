"""The one writer: everything that waits is written in one transaction (group commit).

A commit costs an fsync, 0.1 to 10 ms; the statements of a request cost microseconds. So while one commit is under way requests gather,
and the next transaction carries them all: 200 submits that arrive together cost one fsync, not 200.

Source of the shape: group commit as databases have done since the 1980s; a transaction starts with BEGIN IMMEDIATE because one that
starts by reading and then writes is refused at once when another has written meanwhile, whatever the busy timeout (case C72).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fleetcron.clock import to_us, wall_now
from fleetcron.errors import StoreUnavailable
from fleetcron.store.sqlite.channel import Channel, Request
from fleetcron.store.sqlite.connection import Location, connect, patiently, translate
from fleetcron.store.sqlite.session import Session


class Writer(Channel):
    """Requests are closures over a Session. Each sees those before it, succeeds or fails alone, and is answered after the commit.

    `on_wake` is called on this thread after a commit that added to `ready`, with the number that other processes see change.
    """

    def __init__(
        self,
        location: Location,
        statements: Mapping[str, str],
        *,
        clock: Callable[[], datetime] | None,
        synchronous: str,
        lock_timeout: float,
        on_wake: Callable[[int], None],
    ) -> None:
        self._location, self._statements = location, statements
        self._clock, self._lock_timeout, self._on_wake = clock or wall_now, lock_timeout, on_wake
        self._file: tuple[int, int] | None = None
        super().__init__(
            "fleetcron-writer", lambda: connect(location, read_only=False, synchronous=synchronous, lock_timeout=lock_timeout)
        )

    def _serve(self, batch: list[Request[Any]]) -> None:
        try:
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"), self._lock_timeout)
        except sqlite3.Error as error:
            for request in batch:
                request.error = translate(error, request.where, self._location)
            return
        try:
            woke = self._transaction(batch)
        except (sqlite3.Error, StoreUnavailable) as error:
            self._rollback()
            self._apart(batch, error)
        else:
            if woke is not None:
                self._on_wake(woke)

    def _transaction(self, batch: list[Request[Any]]) -> int | None:
        """Everything up to the commit. What raises here has undone, or must undo, the whole batch."""
        self._check_file()
        session = Session(self._connection, self._statements, to_us(self._clock()))
        for request in batch:
            self._run(request, session)
        woke: int | None = session.fetchval("wake_up") if session.woke else None
        self._connection.execute("COMMIT")
        return woke

    def _run(self, request: Request[Any], session: Session) -> None:
        self._connection.execute("SAVEPOINT request")
        try:
            request.result = request.work(session)
        except Exception as error:  # noqa: BLE001 - it goes to whoever asked
            if not self._connection.in_transaction:
                raise  # SQLite itself has rolled everything back (disk full …)
            self._connection.execute("ROLLBACK TO request")
            request.error = translate(error, request.where, self._location) if isinstance(error, sqlite3.Error) else error
        self._connection.execute("RELEASE request")

    def _apart(self, batch: list[Request[Any]], error: sqlite3.Error | StoreUnavailable) -> None:
        """The transaction failed as a whole: a request that filled the disk must not take the small ones with it."""
        if len(batch) > 1:
            for request in batch:
                request.result = request.error = None
                self._serve([request])
            return
        request = batch[0]
        request.error = translate(error, request.where, self._location) if isinstance(error, sqlite3.Error) else error

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _check_file(self) -> None:
        """A file that was moved or deleted takes writes without a word; nobody would ever read them. Raises StoreUnavailable."""
        if self._location.path is None:
            return
        try:
            found = os.stat(self._location.path)  # noqa: PTH116 - 1 µs; a Path would take three
        except FileNotFoundError:
            identity = None
        else:
            identity = (found.st_dev, found.st_ino)
        self._file = self._file or identity
        if identity is None or identity != self._file:
            raise StoreUnavailable(f"{self._location}: the file was moved or deleted while it was open: put it back, or restart")
