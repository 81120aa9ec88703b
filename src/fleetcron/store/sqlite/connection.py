"""Opening the file, and the translation of SQLite's errors into ours."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import random
from typing import TypeVar

import msgspec

from fleetcron.clock import block, monotonic
from fleetcron.errors import ConfigError, StoreError, StoreUnavailable

T = TypeVar("T")

SYNCHRONOUS = ("FULL", "NORMAL", "EXTRA")
_CHECKPOINT_PAGES = 4000
"""The WAL is copied into the file at about 16 MB: a quarter as often as by default, and still a short copy."""

_CACHE_KIB = 16_000
"""Page cache of the writer: with SQLite's 2 MB, inserts into a file of some size are 10 % slower."""

_WAL_LIMIT = 64 * 1024 * 1024
"""What a WAL that a long reader made grow is cut back to, in bytes."""

_PAUSE, LONGEST_PAUSE = 0.000_5, 0.005
"""Seconds between tries for a lock. SQLite's own busy handler waits up to 100 ms between two, and so can miss the
gap between the commits of busy peers for seconds; with these, eight processes that do nothing but write wait 0.2 s
at worst."""

_REASONS = {
    sqlite3.SQLITE_READONLY: "the database is read-only: make the file and its folder writable for this user",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_NOTADB: "this file is not a SQLite database: name another one",
    sqlite3.SQLITE_CORRUPT: "the database is damaged: restore a backup",
    sqlite3.SQLITE_BUSY: "another process has kept the database locked all the time",
    sqlite3.SQLITE_LOCKED: "another connection has kept the database locked all the time",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_PERM: "this user may not use the file",
    sqlite3.SQLITE_IOERR: "reading or writing the file failed",
    sqlite3.SQLITE_PROTOCOL: "the file system's locks do not work (a network share?): use a local disk, or PostgreSQL",
    sqlite3.SQLITE_NOLFS: "the file system is too small for this file",
}
"""What makes the database unavailable, by SQLite's primary result code."""


class Location(msgspec.Struct, frozen=True):
    """Where the database is: a path, or None for one in memory, which lives as long as its only connection."""

    path: Path | None

    def __str__(self) -> str:
        return ":memory:" if self.path is None else str(self.path)


class Options(msgspec.Struct, frozen=True):
    """How a store uses its file; see SqliteStore."""

    location: Location
    clock: Callable[[], datetime]
    synchronous: str
    read_only: bool
    lock_timeout: float


def parse_url(url: str) -> Location:
    """`sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite:///:memory:`. Raises ConfigError for anything
    else."""
    name = url.removeprefix("sqlite:///")
    if name == url or not name or "?" in name or "\0" in name:
        raise ConfigError(
            f"url: {url!r}: expected sqlite:///relative.db, sqlite:////absolute/path.db or sqlite:///:memory:"
        )
    return Location(None if name == ":memory:" else Path(name))


def connect_writer(options: Options) -> sqlite3.Connection:
    """The connection that writes, in WAL mode; the file is made if there is none. SQLite's busy handler is off: this
    one waits for locks with `patiently`. Raises what sqlite3 raises, and StoreUnavailable."""
    connection = _connect(options.location, "rwc", 0)
    try:
        patiently(lambda: _use_wal(connection, options.location), options.lock_timeout)
        connection.execute(f"PRAGMA synchronous = {options.synchronous}")
        connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(options: Options) -> sqlite3.Connection:
    """A connection that only reads. Raises what sqlite3 raises, and StoreUnavailable."""
    connection = _connect(options.location, "ro" if options.read_only else "rw", options.lock_timeout)
    try:
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(location: Location, mode: str, busy_timeout: float) -> sqlite3.Connection:
    """Without Python's implicit transactions, and for use from any thread (one at a time)."""
    target = ":memory:"
    if location.path is not None:
        explain_missing(location.path, mode)
        target = f"{location.path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        target, timeout=busy_timeout, isolation_level=None, check_same_thread=False, cached_statements=256, uri=True
    )


def _use_wal(connection: sqlite3.Connection, location: Location) -> None:
    if location.path is None or connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise StoreUnavailable(
            f"{location}: its file system does not take write-ahead logs (a network file system?): use a local disk"
        )


def patiently(attempt: Callable[[], T], timeout: float) -> T:
    """Try until the lock is free, at most `timeout` seconds; then the last sqlite3.OperationalError."""
    deadline, pause = monotonic() + timeout, _PAUSE
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if primary(error) not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) or monotonic() >= deadline:
                raise
        block(pause * (0.5 + random()))
        pause = min(pause * 1.5, LONGEST_PAUSE)


def explain_missing(path: Path, mode: str) -> None:
    """Say in plain words, and at once, what SQLite would call "unable to open database file", or would only say at the
    first write. Raises StoreUnavailable."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"{path}: the folder {folder} does not exist: make it, or name another one")
    if path.is_dir():
        raise StoreUnavailable(f"{path}: this is a folder: name a file")
    if not path.exists():
        if mode != "rwc":
            raise StoreUnavailable(f"{path}: there is no such file")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreUnavailable(
                f"{path}: the folder {folder} is read-only for this user: no database can be made there"
            )
    elif mode == "rwc" and not os.access(path, os.W_OK):
        raise StoreUnavailable(f"{path}: {_REASONS[sqlite3.SQLITE_READONLY]}")


def primary(error: sqlite3.Error) -> int:
    """SQLite's primary result code of an error; 0 for the driver's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translate(error: sqlite3.Error, where: str, location: Location) -> StoreError:
    """StoreUnavailable or StoreError: what was being done, where, and what to do."""
    reason = _REASONS.get(primary(error))
    if reason is not None:
        return StoreUnavailable(f"{where}: {location}: {reason} ({error})")
    if "no such table" in str(error):
        return StoreError(
            f"{where}: {location} has no fleetcron schema ({error}): open the store first, or run `fleetcron migrate`"
        )
    return StoreError(f"{where}: {location}: {error}")


@contextmanager
def translated(where: str, location: Location) -> Iterator[None]:
    """Turn what sqlite3 raises into StoreUnavailable or StoreError."""
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, where, location) from error
