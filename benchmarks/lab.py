"""Where measurements are taken: a PostgreSQL server of their own, a folder, and what the machine does meanwhile."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg

from fleetcron.embedded_postgres import EmbeddedPostgres, find_bin_dir
from fleetcron.errors import ConfigError

HERE = Path(__file__).parent
PEERS = Path(os.environ.get("PEERS_DIR", HERE.parent / ".bench"))
"""What `make bench-peers` has installed."""
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "1GB",
    "max_connections": "200",
    "max_wal_size": "4GB",
    "jit": "off",
    "shared_preload_libraries": "pg_stat_statements",
}
SHOWN = [
    *SETTINGS,
    "server_version",
    "wal_level",
    "checkpoint_timeout",
    "autovacuum_naptime",
    "random_page_cost",
    "work_mem",
]


class Lab:
    """One server for all subjects; a fresh database for each sample."""

    def __init__(self, folder: Path, version: int | None) -> None:
        try:
            bin_dir = find_bin_dir(version)
        except ConfigError:
            bin_dir = find_bin_dir()
        self.folder = folder
        self.server = EmbeddedPostgres(folder / "postgres", bin_dir=bin_dir, settings=SETTINGS)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, version: int | None = 15) -> Iterator[Lab]:
        """Start the server, stop it, remove the folder."""
        folder = Path(tempfile.mkdtemp(prefix="fleetcron-bench-"))
        folder.chmod(0o777)  # root's server runs as another user
        lab = cls(folder, version)
        try:
            with lab.server:
                yield lab
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return self.server.url(database)

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url(database), autocommit=True)

    def fresh(self, database: str) -> str:
        """An empty database of that name, at its address."""
        with self.connect() as c:
            c.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
            c.execute(f"CREATE DATABASE {database}")
        return self.url(database)

    def settle(self, database: str) -> None:
        """The same start for everybody: statistics up to date, nothing left to write."""
        with self.connect(database) as c:
            c.execute("VACUUM ANALYZE")
            c.execute("CHECKPOINT")

    def cpu(self) -> float:
        """CPU seconds that the server has used."""
        return cpu_of([self.server.pid or 0])

    def settings(self) -> dict[str, str]:
        with self.connect() as c:
            return {name: str(c.execute(f"SHOW {name}").fetchall()[0][0]) for name in SHOWN}

    def machine(self) -> dict[str, Any]:
        return {
            "cpus": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "python": platform.python_version(),
            "system": platform.system(),
            "load": [round(x, 2) for x in os.getloadavg()],
        }


def cpu_of(pids: Iterable[int]) -> float:
    """CPU seconds of these processes and of all under them, those that have ended included."""
    total = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(pid)
            for process in [parent, *parent.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    total += times.user + times.system
                    if process.pid == pid:
                        total += times.children_user + times.children_system
    return total


def busy() -> float:
    """CPU seconds that the whole machine has used."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)
