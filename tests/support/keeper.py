"""Keeps one PostgreSQL server until the test session is over: `python -m tests.support.keeper FOLDER VERSION`."""

from __future__ import annotations

import fcntl
import shutil
import sys
from pathlib import Path

from fleetcron.embedded_postgres import EmbeddedPostgres, find_bin_dir
from tests.support.postgres import SETTINGS, VERSIONS


def keep(folder: Path, version: int) -> None:
    """Start the server, write its address for others to read, wait for the session's lock, stop, tidy up."""
    home = folder / str(version)
    try:
        with (
            (folder / "session.lock").open() as session,
            EmbeddedPostgres(home / "data", bin_dir=find_bin_dir(version), settings=SETTINGS, fsync=False) as server,
        ):
            written = home / "address.new"
            written.write_text(server.url("").rstrip("/"))
            written.rename(home / "address")
            fcntl.flock(session, fcntl.LOCK_SH)
    finally:
        if (home / "address").exists():  # else the log in there says why it did not start
            shutil.rmtree(home)
        if not any((folder / str(other)).exists() for other in VERSIONS):  # a session that was killed cannot do it
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
