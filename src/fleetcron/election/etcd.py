"""Nomination by etcd: a lease, and a key per shard that is created if it is not there and goes with the lease.

Spoken to over etcd's JSON gateway with the standard library (see `gateway`): no gRPC, no compiled dependency. A lease has whole seconds and
2 at least (the server's minimum), so a dead node's keys may outlast a shorter ttl; what this node trusts goes by its own ttl.
Source: etcd's concurrency API (lease + transaction on the create revision), https://etcd.io/docs/v3.4/dev-guide/api_concurrency_reference_v3/
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence

from fleetcron.clock import block
from fleetcron.election.errors import ElectorUnreachable
from fleetcron.election.gateway import Gateway, Watch, decode, encode
from fleetcron.election.keys import KeyElector
from fleetcron.election.tls import Tls, make_context

_TXN = 100
"""Operations of a transaction; etcd refuses more than 128."""


class EtcdElector(KeyElector):
    """`hosts`: any members of the cluster; those that do not answer are passed over. `tls`: None speaks plain HTTP. Raises ConfigError for
    certificates that cannot be read."""

    def __init__(
        self,
        hosts: Sequence[tuple[str, int]],
        prefix: str,
        node: str,
        ttl: float,
        *,
        user: str | None = None,
        password: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        super().__init__("etcd", ",".join(f"{host}:{port}" for host, port in hosts), node, ttl)
        account = (user, password or "") if user else None
        context = None if tls is None else make_context(tls)
        self._gateway = Gateway(hosts, account, timeout=ttl / 3, context=context)
        self._watch = Watch(hosts, self._gateway, limit=ttl, context=context)
        self._prefix = f"{prefix}/shard/"
        self._lease: int | None = None
        self._watching: threading.Thread | None = None

    async def _open(self) -> None:
        if self._watching is None:
            loop = asyncio.get_running_loop()
            self._watching = threading.Thread(
                target=self._watch_keys, args=(loop,), name="fleetcron-etcd-watch", daemon=True
            )
            self._watching.start()

    async def _hold(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        return await asyncio.to_thread(self._hold_keys, keep, free, most)

    async def _close(self, *, leave: bool) -> None:
        if leave:
            self._watch.stop()
            await asyncio.to_thread(self._leave)
            if self._watching is not None:
                await asyncio.to_thread(self._watching.join, self._ttl)
        self._gateway.close()

    def _leave(self) -> None:
        """Revoke the lease: its keys go with it."""
        if self._lease is not None:
            try:
                self._gateway.call("lease/revoke", {"ID": str(self._lease)})
            except ElectorUnreachable:
                pass  # it runs out by itself
            self._lease = None

    def _hold_keys(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        if self._lease is None or not self._keep_alive(self._lease):
            self._lease = None  # first: were the grant's answer lost, its lease would run out unused
            granted = self._gateway.call("lease/grant", {"TTL": str(max(1, math.ceil(self._ttl)))})
            self._lease = int(granted["ID"])
        lease = self._lease
        owners = self._owners()
        mine = {shard for shard, owner in owners.items() if owner == lease}
        spare = sorted(mine & set(free))[most:]
        drop = sorted((mine - keep - set(free)) | set(spare))
        take = [shard for shard in free if shard not in owners][: max(0, most - len(mine & set(free)))]
        if not drop and not take:
            return mine
        for part in range(0, len(drop), _TXN):
            self._each([self._drop(shard, lease) for shard in drop[part : part + _TXN]])
        for part in range(0, len(take), _TXN):
            self._each([self._take(shard, lease) for shard in take[part : part + _TXN]])
        return {shard for shard, owner in self._owners().items() if owner == lease}

    def _keep_alive(self, lease: int) -> bool:
        """An expired lease is answered too, without a TTL."""
        answer = self._gateway.call("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    def _owners(self) -> dict[int, int]:
        """The lease of each shard's key. A linearizable read: a member that is cut off from the others cannot answer it."""
        everything = {"key": encode(self._prefix), "range_end": encode(_end(self._prefix)), "keys_only": True}
        owners = {}
        for entry in self._gateway.call("kv/range", everything).get("kvs", ()):
            name = decode(entry["key"]).removeprefix(self._prefix)
            if name.isdigit():
                owners[int(name)] = int(entry.get("lease", 0))
        return owners

    def _each(self, requests: list[dict[str, object]]) -> None:
        self._gateway.call("kv/txn", {"success": [{"request_txn": request} for request in requests]})

    def _take(self, shard: int, lease: int) -> dict[str, object]:
        key = encode(f"{self._prefix}{shard}")
        return {
            "compare": [{"target": "CREATE", "key": key, "create_revision": "0"}],
            "success": [{"request_put": {"key": key, "value": encode(self._node), "lease": str(lease)}}],
        }

    def _drop(self, shard: int, lease: int) -> dict[str, object]:
        key = encode(f"{self._prefix}{shard}")
        return {
            "compare": [{"target": "LEASE", "key": key, "lease": str(lease)}],
            "success": [{"request_delete_range": {"key": key}}],
        }

    def _watch_keys(self, loop: asyncio.AbstractEventLoop) -> None:
        """A key that goes is looked at once. Only that: what counts is asked for every third of a ttl anyway."""
        while not self._watch.stopped:
            try:
                for _ in self._watch.deletions(self._prefix, _end(self._prefix)):
                    if not loop.is_closed():
                        loop.call_soon_threadsafe(self._hurry.set)
            except ElectorUnreachable:
                block(self._ttl / 5)


def _end(prefix: str) -> str:
    """The first key after all that begin with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
