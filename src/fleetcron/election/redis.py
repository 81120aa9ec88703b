"""Nomination by Redis: a key per shard with this node's name in it and a time to live, compared and renewed by one script.

Redis forgets: a replica that is promoted may lack the last writes, and then two nodes hold one key. That cannot fire a tick twice, as the
database confers the term to one of them; it is why nothing here is more than a nomination (docs/explanation/leadership.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fleetcron.election.errors import ElectorUnreachable
from fleetcron.election.keys import KeyElector
from fleetcron.errors import ConfigError

if TYPE_CHECKING:
    from redis.asyncio import Redis

# ARGV: our name, the ttl in ms, how many of the KEYS to keep, how many are free, how many of those to take; the rest of the KEYS is dropped.
# Only keys that hold our own name are renewed or deleted. Returns the positions of those that are ours now.
SCRIPT = """
local held, free = {}, 0
local keep, most = tonumber(ARGV[3]), tonumber(ARGV[5])
local last = keep + tonumber(ARGV[4])
for i, key in ipairs(KEYS) do
    local owner = redis.call('GET', key)
    local ours = owner == ARGV[1]
    if i > last or (i > keep and ours and free >= most) then
        if ours then redis.call('DEL', key) end
    elseif ours then
        redis.call('PEXPIRE', key, ARGV[2])
        held[#held + 1] = i
        if i > keep then free = free + 1 end
    elseif not owner and i > keep and free < most then
        redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
        held[#held + 1] = i
        free = free + 1
    end
end
return held
"""


class RedisElector(KeyElector):
    """`address`: the server that clients write to. Raises ConfigError without the Redis client."""

    def __init__(
        self, address: tuple[str, int], prefix: str, node: str, ttl: float, *, database: int = 0, user: str | None = None,
        password: str | None = None, tls: bool = False,
    ) -> None:  # fmt: skip
        _need_client()
        super().__init__("redis", f"{address[0]}:{address[1]}", node, ttl)
        self._address, self._prefix, self._database, self._tls = address, prefix, database, tls
        self._user, self._password = user, password
        self._client: Redis | None = None

    async def _open(self) -> None:
        from redis.asyncio import Redis  # lazy: an extra
        from redis.asyncio.retry import Retry  # lazy: an extra
        from redis.backoff import NoBackoff  # lazy: an extra

        if self._client is None:
            self._client = Redis(
                host=self._address[0], port=self._address[1], db=self._database, username=self._user, password=self._password,
                ssl=self._tls, socket_timeout=self._ttl / 3, socket_connect_timeout=self._ttl / 3, retry=Retry(NoBackoff(), 0),
            )  # fmt: skip

    async def _hold(self, keep: frozenset[int], free: Sequence[int], most: int) -> set[int]:
        drop = self._held - keep - set(free)
        return await self._run_script([*sorted(keep), *free, *sorted(drop)], len(keep), len(free), most)

    async def _run_script(self, shards: list[int], keep: int, free: int, most: int) -> set[int]:
        from redis.exceptions import RedisError  # lazy: an extra

        assert self._client is not None
        keys = [f"{{{self._prefix}}}:shard:{shard}" for shard in shards]  # in braces: one slot of a Redis cluster
        try:
            held = await self._client.eval(
                SCRIPT, len(keys), *keys, self._node, str(int(self._ttl * 1000)), str(keep), str(free), str(most)
            )
        except (RedisError, OSError, TimeoutError) as error:
            raise ElectorUnreachable(str(error) or type(error).__name__) from error
        return {shards[int(place) - 1] for place in held}

    async def _close(self, *, leave: bool) -> None:
        if leave and self._client is not None and self._held:
            try:
                await self._run_script(sorted(self._held), 0, 0, 0)
            except ElectorUnreachable:
                pass  # the keys run out by themselves
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _need_client() -> None:
    try:
        import redis.asyncio  # noqa: F401  # lazy: an extra that may be missing
    except ImportError:
        raise ConfigError(
            'elector redis://…: the Redis client is missing; install it with pip install "fleetcron[redis]"'
        ) from None
