"""PgBouncer in transaction mode before a database, for tests."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from fleetcron.embedded_postgres import free_port

START_WITHIN = 10.0


def program() -> str | None:
    """Where PgBouncer is; Debian keeps it out of an ordinary user's PATH."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@contextlib.contextmanager
def pgbouncer(url: str, folder: Path, *, server_connections: int = 4) -> Iterator[str]:
    """The address of `url`'s database through PgBouncer. Few server connections, so that clients really share them."""
    command = program()
    assert command is not None
    parts = urlsplit(url)
    port = free_port()
    config = folder / f"pgbouncer-{port}.ini"
    log = folder / f"pgbouncer-{port}.log"
    config.write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port} user={parts.username}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {server_connections}\nmax_client_conn = 200\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None  # it refuses to run as root
    with log.open("wb") as said:
        bouncer = subprocess.Popen([command, config], stdout=said, stderr=said, stdin=subprocess.DEVNULL, user=user)
    try:
        give_up_at = time.monotonic() + START_WITHIN
        while not _listens(port):
            if bouncer.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"PgBouncer did not start: {log.read_text(errors='replace')}")
            time.sleep(0.02)
        yield parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
    finally:
        bouncer.terminate()
        bouncer.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
