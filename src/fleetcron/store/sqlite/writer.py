"""The one writer: everything that waits is written in one transaction (group commit).

A commit costs an fsync, 0.1 to 10 ms; the statements of a request cost microseconds. So while one commit is under way
requests gather, and the next transaction carries them all: 200 submits that arrive together cost one fsync, not 200.

Source of the shape: group commit as databases have done since the 1980s; a transaction starts with BEGIN IMMEDIATE
because one that starts by reading and then writes is refused at once when another has written meanwhile, whatever
the busy timeout (case C72).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from typing import Any

from fleetcron.clock import block, monotonic, to_us
from fleetcron.errors import StoreUnavailable
from fleetcron.store.sqlite.channel import Channel, Request
from fleetcron.store.sqlite.connection import LONGEST_PAUSE, Options, connect_writer, patiently, translate
from fleetcron.store.sqlite.session import Session
from fleetcron.store.sqlite.statements import Statements

_LONGEST = 0.02
"""Seconds after which a transaction takes no further request: other processes wait for the lock meanwhile."""

_TOO_LONG, _GAP = 0.05, LONGEST_PAUSE * 1.5
"""A transaction that took that many seconds (one big request) is followed by a gap in which every waiting process tries
once. Without it, those that wait would have to hit the 0.2 ms between two transactions."""


class Writer(Channel):
    """Requests are closures over a Session. Each sees those before it, succeeds or fails alone, and is answered after
    the commit.

    `on_wake` is called on this thread after a commit that added to `ready`, with the number that other processes
    see change.
    """

    def __init__(self, options: Options, statements: Statements, on_wake: Callable[[int], None]) -> None:
        self._options, self._statements, self._on_wake = options, statements, on_wake
        connection = connect_writer(options)
        self._file = self._identity()
        self._not_before = 0.0
        super().__init__("fleetcron-writer", connection)

    def _serve(self, batch: list[Request[Any]]) -> int:
        if (gap := self._not_before - monotonic()) > 0:
            block(gap)
        try:
            patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"), self._options.lock_timeout)
        except sqlite3.Error as error:
            for request in batch:
                request.error = self._ours(error, request)
            return len(batch)
        began = monotonic()
        try:
            served, woke = self._transaction(batch, began + _LONGEST)
        except BaseException as error:  # noqa: BLE001 - it goes to whoever asked
            self._rollback()
            return self._apart(batch, error)
        finally:
            ended = monotonic()
            self._not_before = ended + _GAP if ended - began > _TOO_LONG else ended
        if woke is not None:
            self._on_wake(woke)
        return served

    def _transaction(self, batch: list[Request[Any]], until: float) -> tuple[int, int | None]:
        """The first requests of the batch, up to the commit; returns how many, and the number of the wake-up if any.
        What raises here has undone, or must undo, them all."""
        self._check_file()
        session = Session(self._connection, self._statements, to_us(self._options.clock()))
        served = 0
        while served < len(batch):
            self._run(batch[served], session)
            served += 1
            if monotonic() >= until:
                break
        woke: int | None = session.fetchval("wake_up") if session.woke else None
        self._connection.execute("COMMIT")
        return served, woke

    def _run(self, request: Request[Any], session: Session) -> None:
        self._connection.execute("SAVEPOINT request")
        try:
            request.result = request.work(session)
        except Exception as error:  # it goes to whoever asked
            if not self._connection.in_transaction:
                raise  # SQLite itself has rolled everything back (disk full …)
            self._connection.execute("ROLLBACK TO request")
            request.error = self._ours(error, request)
        self._connection.execute("RELEASE request")

    def _apart(self, batch: list[Request[Any]], error: BaseException) -> int:
        """The transaction failed as a whole: a request that filled the disk must not take the small ones with it."""
        if len(batch) == 1:
            batch[0].error = self._ours(error, batch[0])
            return 1
        for request in batch:
            request.result = request.error = None
            self._serve([request])
        return len(batch)

    def _ours(self, error: BaseException, request: Request[Any]) -> BaseException:
        return translate(error, request.where, self._options.location) if isinstance(error, sqlite3.Error) else error

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _check_file(self) -> None:
        """A file that was moved or deleted takes writes without a word, and nobody would ever read them. Raises
        StoreUnavailable."""
        if self._identity() != self._file:
            raise StoreUnavailable(
                f"{self._options.location}: the file was moved or deleted while it was open: put it back, or restart"
            )

    def _identity(self) -> tuple[int, int] | None:
        if self._options.location.path is None:
            return None
        try:
            found = os.stat(self._options.location.path)  # noqa: PTH116 - 1 µs for every commit; Path.stat takes two
        except OSError:
            return 0, 0
        return found.st_dev, found.st_ino
