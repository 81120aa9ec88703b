"""The demo's fleet of real processes, and the service manager that a server would have: what dies is started again.

Every node is `fleetcron run` in a session of its own: a signal to its group reaches what it started, and Ctrl-C reaches
only the demo, which takes its nodes along.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import fleetcron
from fleetcron.clock import sleep
from fleetcron.demo.errors import DemoFailed

LEASE, HEARTBEAT, ELECTION_TTL = "3s", "1s", "2s"
_LOOK = 0.05
_REAP = 5.0


class NodeProcess:
    """One node by name; a process of it at a time. Its output goes to `log`."""

    def __init__(self, name: str, role: str, url: str, folder: Path, alive: int) -> None:
        self.name, self.role, self._alive = name, role, alive
        # Not --url: `ps` shows passwords.
        self._env = {**os.environ, "FLEETCRON_URL": url, "FLEETCRON_DEMO_FOLDER": str(folder)}
        self.log = folder / "logs" / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> int:
        """Start a process of this node; its pid."""
        # With -P nothing in the user's folder stands in for a module of ours, unless fleetcron itself was found there.
        safe = [] if Path(fleetcron.__file__).parents[1] == Path.cwd() else ["-P"]
        command = [sys.executable, *safe, "-m", "fleetcron.demo.tether", str(self._alive), str(os.getpid())]
        command += ["--app", "fleetcron.demo.app:fleet", "run"]
        command += [
            "--role",
            self.role,
            "--concurrency=10",
            "--lease",
            LEASE,
            "--election-ttl",
            ELECTION_TTL,
            "--drain=2s",
        ]
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self._alive,),
            )
        return self.process.pid

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def alive(self) -> bool:
        """Also reaps it."""
        return self.process is not None and self.process.poll() is None

    def ready(self) -> bool:
        """Has this process said so?"""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return b"is ready" in log.read()

    def signal(self, number: signal.Signals) -> None:
        """To the process and what it started; nothing happens if it has ended."""
        if self.alive():
            assert self.process is not None
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def reap(self) -> None:
        """Wait for the end of a process that was killed; not for ever, if a disk holds it."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_REAP)

    def last_words(self, lines: int = 8) -> str:
        """The end of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


class Nodes:
    """All of them. `say` is told of deaths and restarts."""

    def __init__(self, url: str, folder: Path, say: Callable[[str], None]) -> None:
        self._alive, self._held = os.pipe()  # the held end closes when the demo ends, and the nodes with it (tether.py)
        names = (
            ("scheduler-1", "scheduler"),
            ("scheduler-2", "scheduler"),
            ("worker-1", "worker"),
            ("worker-2", "worker"),
        )
        self.all = [NodeProcess(name, role, url, folder, self._alive) for name, role in names]
        self._say = say
        self._wanted = False
        self.deaths = 0  # of processes that were to live
        self._names: dict[int, str] = {}  # of every pid there ever was: the history names them

    def start(self) -> None:
        """Start those that do not live."""
        self._wanted = True
        for node in self.all:
            if not node.alive():
                self._names[node.start()] = node.name

    async def await_ready(self, within: float) -> None:
        """Until every node has said that it is ready. Raises DemoFailed."""
        for _ in range(int(within / _LOOK)):
            if all(node.alive() and node.ready() for node in self.all):
                return
            await sleep(_LOOK)
        late = [node for node in self.all if not (node.alive() and node.ready())]
        said = "\n".join(f"{node.name}: {node.last_words()}" for node in late)
        raise DemoFailed(f"{', '.join(node.name for node in late)}: not ready within {within:g} s\n{said}")

    async def keep(self) -> None:
        """Start again what dies, until cancelled."""
        while True:
            for node in self.all:
                if self._wanted and node.process is not None and not node.alive():
                    self.deaths += 1
                    died, code = node.pid, node.process.returncode
                    self._names[node.start()] = node.name
                    self._say(f"{node.name} (pid {died}) {_end(code)}; started again as pid {node.pid}")
            await sleep(_LOOK)

    def kill_all(self) -> None:
        """kill -9, everything at once, and nothing is started again until `start`."""
        self._wanted = False
        for node in self.all:
            node.signal(signal.SIGKILL)
        for node in self.all:
            node.reap()

    def close(self) -> None:
        """Nothing is left."""
        self.kill_all()
        os.close(self._held)
        os.close(self._alive)

    async def stop(self, within: float) -> Sequence[str]:
        """SIGTERM: let them drain. The names of those that did not end in time."""
        self._wanted = False
        for node in self.all:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGTERM)
        for _ in range(int(within / _LOOK)):
            if not any(node.alive() for node in self.all):
                break
            await sleep(_LOOK)
        return [node.name for node in self.all if node.alive()]

    def by_pid(self, pid: int | None) -> NodeProcess | None:
        """The live node with this process."""
        return next((node for node in self.all if pid is not None and node.pid == pid and node.alive()), None)

    def by_worker(self, worker: str | None) -> NodeProcess | None:
        """The live node that history calls `host:pid`."""
        return self.by_pid(pid_of(worker))

    def name(self, worker: str | None) -> str:
        """What to call `host:pid`: worker-1 (1234)."""
        pid = pid_of(worker)
        return "-" if pid is None else f"{self._names.get(pid, 'somebody')} ({pid})"


def pid_of(worker: str | None) -> int | None:
    """The pid in `host:pid`."""
    return None if worker is None else int(worker.rpartition(":")[2])


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
