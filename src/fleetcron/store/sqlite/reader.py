"""Reads, beside the writer: in WAL mode neither waits for the other."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fleetcron.clock import to_us, wall_now
from fleetcron.store.sqlite.channel import Channel, Request
from fleetcron.store.sqlite.connection import Location, connect, translate
from fleetcron.store.sqlite.session import Session


class Reader(Channel):
    """Requests are closures over a Session that must not write. Each statement sees what was committed before it began."""

    def __init__(
        self, name: str, location: Location, statements: Mapping[str, str], *, clock: Callable[[], datetime] | None, lock_timeout: float
    ) -> None:
        self._location, self._statements, self._clock = location, statements, clock or wall_now
        super().__init__(name, lambda: connect(location, read_only=True, synchronous="FULL", lock_timeout=lock_timeout))

    def _serve(self, batch: list[Request[Any]]) -> None:
        for request in batch:
            try:
                request.result = request.work(Session(self._connection, self._statements, to_us(self._clock())))
            except sqlite3.Error as error:
                request.error = translate(error, request.where, self._location)
            except Exception as error:  # noqa: BLE001 - it goes to whoever asked
                request.error = error
