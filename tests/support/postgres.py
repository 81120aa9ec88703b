"""PostgreSQL servers for a test session: one per major version, started when first asked for, shared by xdist workers.

The server belongs to a keeper process, not to the worker that happened to ask first. The session holds a lock on a
file; the keeper waits for that lock, and the kernel gives it the moment the session ends or dies. So nothing is
counted, and nothing is left behind, however the session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from fleetcron.embedded_postgres import EmbeddedPostgres, find_bin_dir
from fleetcron.errors import ConfigError
from fleetcron.store.factory import make_store

VERSIONS = (15, 18)  # Debian 12's, which is what most servers run; and the newest, from a wheel
SETTINGS = {"shared_preload_libraries": "pg_stat_statements", "max_connections": "200"}
PREFIX = "fleetcron-tests-"
START_WITHIN = 60.0
STOP_WITHIN = 30.0
ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")


@functools.cache
def available(version: int) -> bool:
    """Whether this machine has a server of that major version."""
    try:
        find_bin_dir(version)
    except ConfigError:
        return False
    return True


def default_version() -> int:
    """The oldest version that is here: what works there works on the newer ones, which `both_pg` tests prove."""
    return next((version for version in VERSIONS if available(version)), VERSIONS[0])


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop and a thread of its own, so that a fixture need not care what loop its test uses."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, work).result()


async def execute(url: str, statement: str) -> None:
    """Run one statement on a connection of its own."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def migrate(url: str) -> None:
    """Make our tables, as the first node does."""
    store = make_store(url)
    await store.open()
    await store.close()


def _sweep() -> None:
    """Remove what sessions left that were killed before or without a server: nobody holds their lock."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (folder / "session.lock").open() as lock:  # locked, gone, or not ours
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not any((folder / str(version)).exists() for version in VERSIONS):  # else its keeper does it
                shutil.rmtree(folder, ignore_errors=True)


class Servers:
    """The servers of one test session, seen from one of its processes. `folder` is shared by all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._keepers: list[subprocess.Popen[bytes]] = []

    @classmethod
    @contextlib.contextmanager
    def session(cls) -> Iterator[Servers]:
        """For the process that outlives all the others: makes the folder, and stops every server at the end."""
        _sweep()
        made = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
        made.chmod(0o755)  # root's servers run as another user
        with (made / "session.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = made.rename(made.with_name(made.name.removeprefix("new-")))  # locked already when others see it
            servers = cls(folder)
            try:
                yield servers
            finally:
                # Unlocked by name, not only by closing: a child forked by a test may hold a copy of the file.
                fcntl.flock(lock, fcntl.LOCK_UN)
                servers._wait_for_keepers()
                shutil.rmtree(folder, ignore_errors=True)

    def url(self, version: int, database: str = "postgres") -> str:
        """The shared server's address; starts it if this is the first call of the session."""
        home = self.folder / str(version)
        address = home / "address"
        with (self.folder / f"{version}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not address.exists():
                self._start_keeper(version, home)
        return f"{address.read_text()}/{database}"

    def create_database(self, version: int, *, migrated: bool = False) -> str:
        """A fresh database, without a table or (`migrated`) with our tables, which are empty; its address."""
        name, template = f"test_{uuid.uuid4().hex}", self._template(version) if migrated else "template1"
        run_apart(execute(self.url(version), f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))
        return self.url(version, name)

    def _template(self, version: int) -> str:
        """The database as the migrations leave it: made once, copied in a fifth of the time that they take."""
        name, made = "migrated", self.folder / f"{version}.migrated"
        with (self.folder / f"{version}.migrated.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                run_apart(execute(self.url(version), f"DROP DATABASE IF EXISTS {name}"))  # half made, when that failed
                run_apart(execute(self.url(version), f"CREATE DATABASE {name} STRATEGY file_copy"))
                run_apart(migrate(self.url(version, name)))
                made.touch()
        return name

    def sqlite_template(self) -> Path:
        """The same for a database in a file."""
        template = self.folder / "migrated.db"
        with (self.folder / "migrated.db.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not template.exists():
                making = self.folder / "migrating.db"
                run_apart(migrate(f"sqlite:///{making}"))
                making.rename(template)
        return template

    def drop_database(self, version: int, url: str) -> None:
        """Drop it, ending what still uses it."""
        run_apart(execute(self.url(version), f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)"))

    @contextlib.contextmanager
    def own(self, version: int) -> Iterator[EmbeddedPostgres]:
        """A server for one test alone, to kill and restart."""
        data_dir = self.folder / f"own-{uuid.uuid4().hex}"
        try:
            with EmbeddedPostgres(data_dir, bin_dir=find_bin_dir(version), settings=SETTINGS, fsync=False) as server:
                yield server
        finally:
            shutil.rmtree(data_dir, ignore_errors=True)

    def _start_keeper(self, version: int, home: Path) -> None:
        home.mkdir(exist_ok=True)
        with (home / "keeper.log").open("wb") as log:
            command = [sys.executable, "-m", "tests.support.keeper", str(self.folder), str(version)]
            keeper = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._keepers.append(keeper)
        give_up_at = time.monotonic() + START_WITHIN
        while not (home / "address").exists():
            if keeper.poll() is not None or time.monotonic() > give_up_at:
                keeper.kill()
                said = (home / "keeper.log").read_text(errors="replace")
                shutil.rmtree(home, ignore_errors=True)
                raise RuntimeError(f"PostgreSQL {version} for the tests did not start: {said}")
            time.sleep(0.02)

    def _wait_for_keepers(self) -> None:
        """A keeper's last act is to remove its folder."""
        give_up_at = time.monotonic() + STOP_WITHIN
        while homes := [home for version in VERSIONS if (home := self.folder / str(version)).exists()]:
            if time.monotonic() > give_up_at:
                raise RuntimeError(f"the servers of this test session did not stop: {homes}")
            time.sleep(0.02)
        for keeper in self._keepers:
            keeper.wait(STOP_WITHIN)
