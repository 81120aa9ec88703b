"""`fleetcron run --embedded-postgres`: a PostgreSQL server that lives as long as the node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fleetcron.embedded_postgres import EmbeddedPostgres, is_free

FOLDER = "fleetcron-postgres"
"""Where its data is kept unless told otherwise: in the current directory, which is the project's."""
_PORT = "fleetcron.port"


@contextlib.contextmanager
def embedded_postgres(folder: str) -> Iterator[str]:
    """The server's URL. It is the same the next time if its port is free then: other commands may have been told it.

    Raises ConfigError when there is no PostgreSQL on this machine or the folder holds something else, StoreUnavailable when the server does
    not start, which says why (another node may have it running).
    """
    note = Path(folder) / _PORT
    last = note.read_text().strip() if note.exists() else ""
    port = int(last) if last.isdigit() and is_free(int(last)) else None
    with EmbeddedPostgres(folder, port=port) as server:
        note.write_text(f"{server.port}\n")
        yield server.url()
