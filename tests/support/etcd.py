"""An etcd member of a test's own, from Debian's etcd-server."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetcron.embedded_postgres import free_port
from tests.support.server import Server


class Etcd(Server):
    """A cluster of one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._peer = free_port()
        self.url = f"etcd://127.0.0.1:{self.port}/fleet"

    @staticmethod
    def here() -> bool:
        return shutil.which("etcd") is not None

    def command(self) -> Sequence[str]:
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self._peer}"
        return [
            "etcd", "--name", "one", "--data-dir", str(self.folder / "data"), "--unsafe-no-fsync", "--logger", "zap",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}",
        ]  # fmt: skip

    def answers(self) -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2) as answer:
            return json.load(answer)["health"] == "true"

    def call(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        """One request to the JSON gateway."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v3/{path}",
            json.dumps(body).encode(),
            {"Authorization": token} if token else {},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def require_account(self, user: str, password: str) -> str:
        """Turn authentication on with this root-like account; the elector's URL that has it."""
        self.call("auth/user/add", {"name": "root", "password": password})
        self.call("auth/role/add", {"name": "root"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        if user != "root":
            self.call("auth/user/add", {"name": user, "password": password})
            self.call("auth/user/grant", {"user": user, "role": "root"})
        self.call("auth/enable", {})
        return self.url.replace("://", f"://{user}:{password}@")
