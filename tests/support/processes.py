"""Real nodes as real processes: started, killed, frozen and thawed by their own process group, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

READY_WITHIN = 30.0


class NodeProcess:
    """`fleetcron run` of an app, in a process group of its own; stderr goes to `log`."""

    def __init__(
        self, url: str, app: str, folder: Path, *args: str, env: dict[str, str] | None = None, name: str = "node"
    ) -> None:
        self.url, self.app, self.folder, self.args, self.env, self.name = url, app, folder, args, env or {}, name
        self.log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0  # bytes in the log when it was last started

    def start(self) -> NodeProcess:
        """Start and return at once; see `ready`."""
        root = Path(__file__).parents[2]
        env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONUNBUFFERED": "1", **self.env}
        with self.log.open("ab") as log:
            self._said = log.tell()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fleetcron", "--url", self.url, "--app", self.app, "run", *self.args],
                cwd=root, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        return self

    def ready(self) -> bool:
        """Has it said so since it was last started?"""
        return b" is ready" in self.log.read_bytes()[self._said :]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """To the whole group: a node and its worker processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """kill -9, and reap."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            self._process.wait(10)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def stop(self, timeout: float = 30) -> int:
        """SIGTERM, and wait for the drain."""
        assert self._process is not None
        self.signal(signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        return self._process.wait(timeout)

    def __enter__(self) -> NodeProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


@contextlib.contextmanager
def started(*nodes: NodeProcess) -> Iterator[None]:
    """Start all; kill whatever still lives at the end, however that comes."""
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            node.kill()


def wait_until(condition: Callable[[], object], within: float = READY_WITHIN, what: str = "the condition") -> None:
    """Look every 20 ms until it holds; fails after `within` seconds."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not hold within {within:g} s")
        time.sleep(0.02)


def side_by_side(**work: Callable[[], object]) -> None:
    """Do all of it at once, each in a thread: what mostly waits need not wait in turn. Raises what each of them raised, by name."""
    failed: list[Exception] = []
    with ThreadPoolExecutor(max_workers=len(work)) as threads:
        for name, future in [(name, threads.submit(one)) for name, one in work.items()]:
            if (error := future.exception()) is not None:
                error.add_note(f"in {name}")
                failed.append(error if isinstance(error, Exception) else RuntimeError(repr(error)))
    if failed:
        raise failed[0] if len(failed) == 1 else ExceptionGroup("several failed", failed)


def on_both_stores(pg_url: str, folder: Path, work: Callable[[str, Path], object]) -> None:
    """`work(url, folder)` on an empty file and on this PostgreSQL database at once, with a folder for each: for what mostly waits."""
    for kind in ("sqlite", "postgres"):
        (folder / kind).mkdir()
    side_by_side(
        sqlite=lambda: work(f"sqlite:///{folder / 'sqlite' / 'fleet.db'}", folder / "sqlite"),
        postgres=lambda: work(pg_url, folder / "postgres"),
    )
