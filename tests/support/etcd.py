"""An etcd member of a test's own, from Debian's etcd-server."""

from __future__ import annotations

import base64
import json
import shutil
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetcron.embedded_postgres import free_port
from tests.support.certificates import Authority
from tests.support.server import Server


class Etcd(Server):
    """A cluster of one. With an authority it speaks TLS to clients that have a certificate of that authority's; its own is for `names`."""

    def __init__(
        self, folder: Path, authority: Authority | None = None, names: str = "DNS:localhost,IP:127.0.0.1"
    ) -> None:
        super().__init__(folder)
        self._peer, self._authority = free_port(), authority
        self._context = None if authority is None else authority.context()
        self._certificate = None if authority is None else authority.certificate(f"server-{self.port}", names=names)
        self._address = f"http{'s' if authority else ''}://127.0.0.1:{self.port}"
        self.url = f"etcd{'s' if authority else ''}://127.0.0.1:{self.port}/fleet"

    @staticmethod
    def here() -> bool:
        return shutil.which("etcd") is not None

    def command(self) -> Sequence[str]:
        client, peer = self._address, f"http://127.0.0.1:{self._peer}"
        tls = []
        if self._authority is not None and self._certificate is not None:
            cert, key = map(str, self._certificate)
            tls = ["--cert-file", cert, "--key-file", key]
            tls += ["--client-cert-auth", "--trusted-ca-file", str(self._authority.cacert)]
        return [
            "etcd", "--name", "one", "--data-dir", str(self.folder / "data"), "--unsafe-no-fsync", "--logger", "zap",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}", *tls,
        ]  # fmt: skip

    def answers(self) -> bool:
        with urllib.request.urlopen(f"{self._address}/health", timeout=2, context=self._context) as answer:
            return json.load(answer)["health"] == "true"

    def call(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        """One request to the JSON gateway."""
        request = urllib.request.Request(
            f"{self._address}/v3/{path}",
            json.dumps(body).encode(),
            {"Authorization": token} if token else {},
        )
        with urllib.request.urlopen(request, timeout=5, context=self._context) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def require_account(self, user: str, password: str) -> str:
        """Turn authentication on, with an account that has what the page on electors says it needs, and nothing more; the elector's URL that
        has it."""
        keys = {
            name: base64.b64encode(key).decode()
            for name, key in (("key", b"fleet/shard/"), ("range_end", b"fleet/shard0"))
        }
        for name, role in (("root", "root"), (user, "schedulers")):
            self.call("auth/user/add", {"name": name, "password": password})
            self.call("auth/role/add", {"name": role})
            self.call("auth/user/grant", {"user": name, "role": role})
        self.call("auth/role/grant", {"name": "schedulers", "perm": {"permType": "READWRITE", **keys}})
        self.call("auth/enable", {})
        return self.url.replace("://", f"://{user}:{password}@")
