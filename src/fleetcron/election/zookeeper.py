"""Nomination by ZooKeeper: an ephemeral node per shard, which goes with the session of the node that made it.

kazoo runs threads of its own, and tells one of ours at once when the connection is SUSPENDED: from then on nobody knows whether the session
lives, so this node is nominated for nothing (waiting for LOST would give two leaders: case C35). When the connection comes back within the
session, the ephemeral nodes are still ours and nothing was lost but a moment.
Source: https://zookeeper.apache.org/doc/current/recipes.html (locks, leader election), without the herd: each shard has few candidates.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fleetcron.clock import monotonic, sleep
from fleetcron.election.errors import ElectorUnreachable
from fleetcron.election.keys import KeyElector
from fleetcron.errors import ConfigError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_kazoo = logging.getLogger("fleetcron.election.kazoo")
_kazoo.setLevel(
    logging.ERROR
)  # it warns of every try to connect; we say once that the elector is away, and once that it is back


class ZooKeeperElector(KeyElector):
    """`hosts`: members of the ensemble. The session timeout is the ttl, within the bounds that the servers set (by default 2 ticks of 2 s at
    least: then a dead node's shards stay its own for 4 s, whatever the ttl). With a `user` what this node makes is that account's alone (digest
    authentication; all nodes of a fleet use one account). Raises ConfigError without kazoo."""

    def __init__(
        self, hosts: Sequence[tuple[str, int]], prefix: str, node: str, ttl: float, *, user: str | None = None,
        password: str | None = None,
    ) -> None:  # fmt: skip
        _need_client()
        where = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in hosts)
        super().__init__("zookeeper", where, node, ttl)
        self._hosts, self._prefix = where, f"/{prefix}/shard"
        self._account = (user, password or "") if user else None
        self._client: KazooClient | None = None
        self._connected = False
        self._breaks = 0  # how often the connection was suspended or the session lost
        self._looked = 0  # `_breaks` when the nodes were last looked at: after a break the session may be another one
        self._session: int | None = None
        self._ours: set[int] = set()

    def _certain(self) -> bool:
        return self._connected and self._looked == self._breaks and super()._certain()

    async def _open(self) -> None:
        """kazoo connects, and connects again, by itself."""
        if self._client is None:
            from kazoo.client import KazooClient  # lazy: an extra

            retry = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": self._ttl / 2}
            self._client = KazooClient(
                self._hosts, timeout=self._ttl, connection_retry=retry, logger=_kazoo, **self._identity()
            )
            loop = asyncio.get_running_loop()
            self._client.add_listener(lambda state: self._listen(state, loop))
            self._client.start_async()
        give_up_at = monotonic() + self._ttl / 3
        while not self._connected and not self._stopping:
            if monotonic() > give_up_at:
                raise ElectorUnreachable("no connection")
            await sleep(0.01)

    def _identity(self) -> dict[str, Any]:
        """Who we say we are, and who may touch what we make: only the same account."""
        if self._account is None:
            return {}
        from kazoo.security import make_digest_acl  # lazy: an extra

        return {
            "auth_data": [("digest", ":".join(self._account))],
            "default_acl": [make_digest_acl(*self._account, all=True)],
        }

    def _listen(self, state: str, loop: asyncio.AbstractEventLoop) -> None:
        """On kazoo's thread, the moment that the connection changes."""
        self._connected = state == "CONNECTED"
        if not self._connected:
            self._breaks += 1
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._changed)
            loop.call_soon_threadsafe(self._hurry.set)

    async def _hold(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        return await asyncio.to_thread(self._hold_nodes, keep, free, most)

    def _hold_nodes(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError  # lazy: an extra
        from kazoo.handlers.threading import KazooTimeoutError  # lazy: an extra

        breaks = self._breaks
        try:
            there = self._children()
            self._ours &= there
            # One that was made, but whose answer was lost, is ours too.
            self._ours |= {
                shard for shard in there & (keep | set(free)) - self._ours if self._owner(shard) == self._session
            }
            ours_free = sorted(self._ours & set(free))
            for shard in sorted(self._ours - keep - set(free)) + ours_free[most:]:
                self._ask(self._client.delete_async(self._path(shard)), NoNodeError)  # type: ignore[union-attr]
                self._ours.discard(shard)
            for shard in [shard for shard in free if shard not in there][: max(0, most - len(ours_free))]:
                made = self._ask(
                    self._client.create_async(self._path(shard), self._node.encode(), ephemeral=True, makepath=True),  # type: ignore[union-attr]
                    NodeExistsError,
                )
                if made is not None:
                    self._ours.add(shard)
        except NoAuthError as error:
            who = "no account was given" if self._account is None else f"user {self._account[0]!r} with this password"
            raise ElectorUnreachable(f"{self._prefix} belongs to another account ({who})") from error
        except (KazooException, KazooTimeoutError) as error:
            raise ElectorUnreachable(str(error) or type(error).__name__) from error
        if breaks != self._breaks or not self._connected:
            raise ElectorUnreachable("the connection was suspended")
        self._looked = breaks
        return set(self._ours)

    def _children(self) -> set[int]:
        """The shards that have a node, as the whole ensemble knows it: after a sync, which a server that is cut off cannot do."""
        from kazoo.exceptions import NoNodeError  # lazy: an extra

        assert self._client is not None
        self._ask(self._client.sync_async("/"))
        session = self._client.client_id[0] if self._client.client_id else None
        if session != self._session:
            self._session, self._ours = session, set()
        found = self._ask(self._client.get_children_async(self._prefix), NoNodeError) or []
        return {int(name) for name in found if name.isdigit()}

    def _owner(self, shard: int) -> int | None:
        assert self._client is not None
        stat = self._ask(self._client.exists_async(self._path(shard)))
        return None if stat is None else stat.ephemeralOwner

    def _ask(self, request: Any, fine: type[Exception] | tuple[()] = ()) -> Any:
        """The answer, None for the error that is `fine`. Raises KazooException and KazooTimeoutError."""
        try:
            return request.get(timeout=self._ttl / 3)
        except fine:
            return None

    def _path(self, shard: int) -> str:
        return f"{self._prefix}/{shard}"

    async def _close(self, *, leave: bool) -> None:
        """A session outlives a short break, and kazoo takes it up again: it is only ended in order."""
        if leave and self._client is not None:
            client, self._client = self._client, None
            await asyncio.to_thread(_end, client)


def _end(client: KazooClient) -> None:
    client.stop()
    client.close()


def _need_client() -> None:
    try:
        import kazoo.client  # noqa: F401  # lazy: an extra that may be missing
    except ImportError:
        raise ConfigError(
            'elector zk://…: kazoo is missing; install it with pip install "fleetcron[zookeeper]"'
        ) from None
