"""Reads, beside the writer: in WAL mode neither waits for the other."""

from __future__ import annotations

import sqlite3
from typing import Any

from fleetcron.clock import to_us
from fleetcron.store.sqlite.channel import Channel, Request
from fleetcron.store.sqlite.connection import Options, connect_reader, translate
from fleetcron.store.sqlite.session import Session
from fleetcron.store.sqlite.statements import Statements


class Reader(Channel):
    """Requests are closures over a Session that must not write. Each statement sees what was committed before it
    began."""

    def __init__(self, name: str, options: Options, statements: Statements) -> None:
        self._options, self._statements = options, statements
        super().__init__(name, connect_reader(options))

    def _serve(self, batch: list[Request[Any]]) -> int:
        request = batch[0]
        try:
            session = Session(self._connection, self._statements, to_us(self._options.clock()))
            request.result = request.work(session)
        except sqlite3.Error as error:
            request.error = translate(error, request.where, self._options.location)
        except Exception as error:  # noqa: BLE001 - it goes to whoever asked
            request.error = error
        return 1
