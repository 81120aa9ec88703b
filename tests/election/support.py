"""What these tests share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from tests.support.etcd import Etcd
from tests.support.redis import Redis
from tests.support.zookeeper import ZooKeeper

ElectorServer = Etcd | ZooKeeper | Redis
SERVERS: dict[str, type[Etcd | ZooKeeper | Redis]] = {"etcd": Etcd, "zk": ZooKeeper, "redis": Redis}
TTL = 1.0
LONGEST = {"etcd": 2.0, "zk": 1.5, "redis": 1.0}
"""For how long the keys of a node that died outlast it, at a ttl of 1 s: an etcd lease has 2 s at least."""


async def until(condition: Callable[[], object], within: float = 10.0, what: str = "the condition") -> float:
    """Look every few milliseconds until it holds; returns how long that took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within, f"{what} did not hold within {within:g} s"
        await asyncio.sleep(0.005)
    return time.monotonic() - began
