"""A Redis server of a test's own, from Debian's redis-server."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.server import Server


class Redis(Server):
    """Keeps what it has through a restart (append-only file, every write synced), unless `forgets`; `of`: a replica of this port."""

    def __init__(self, folder: Path, *, forgets: bool = False, of: int | None = None) -> None:
        super().__init__(folder)
        self._forgets, self._of = forgets, of
        self.url = f"redis://127.0.0.1:{self.port}/0"

    @staticmethod
    def here() -> bool:
        return shutil.which("redis-server") is not None

    def command(self) -> Sequence[str]:
        keep = ["--appendonly", "no"] if self._forgets else ["--appendonly", "yes", "--appendfsync", "always"]
        replica = [] if self._of is None else ["--replicaof", f"127.0.0.1 {self._of}"]
        address = ["--port", str(self.port), "--bind", "127.0.0.1"]
        return ["redis-server", *address, "--dir", str(self.folder), "--save", "", *keep, *replica]

    def answers(self) -> bool:
        return self.ask(b"PING\r\n") == b"+PONG\r\n"
