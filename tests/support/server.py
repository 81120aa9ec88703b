"""A server of a test's own, as a child process on a free loopback port: started, killed, frozen, stopped, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fleetcron.embedded_postgres import free_port

START_WITHIN = 30.0


class Server(ABC):
    """Its data is in `folder` and survives a restart; its words are in `folder/server.log`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Is it ready? May raise OSError while it is not."""

    def start(self) -> Self:
        """Start it if it does not run, and wait until it answers."""
        if self._process is None:
            with (self.folder / "server.log").open("ab") as log:
                self._process = subprocess.Popen(
                    self.command(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        give_up_at = time.monotonic() + START_WITHIN
        while True:
            with contextlib.suppress(OSError):
                if self.answers():
                    return self
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                self.stop()
                raise RuntimeError(
                    f"{self.command()[0]} did not start: {(self.folder / 'server.log').read_text()[-2000:]}"
                )
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Kill it, and reap."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, number)
            process.wait(20)

    def restart(self) -> None:
        self.stop()
        self.start()

    def freeze(self) -> None:
        """It holds every connection open and says nothing."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def ask(self, words: bytes) -> bytes:
        """What it says to these bytes on a new connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
            connection.sendall(words)
            return connection.recv(200)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
