"""What these tests share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from fleetcron.election import make_elector
from fleetcron.node import NodeOptions, node_info
from fleetcron.scheduler.scheduler import CONNECTIONS, Scheduler, SchedulerOptions
from fleetcron.store.factory import make_store
from tests.support.etcd import Etcd
from tests.support.proxy import Proxy
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


class Member:
    """A scheduler on this loop, with a store, a link to the database and an elector of its own."""

    def __init__(
        self, url: str, elector: str = "database", *, shards: int = 1, ttl: float = TTL, shrink_after: float = 60.0
    ) -> None:
        self._url, self._elector, self._proxy = url, elector, None if url.startswith("sqlite:") else Proxy.to(url)
        self._options = SchedulerOptions(
            lease=timedelta(seconds=15),
            election_ttl=timedelta(seconds=ttl),
            shards=shards,
            shrink_after=timedelta(seconds=shrink_after),
        )
        self.info = node_info(NodeOptions(roles=("scheduler",)))
        self._task: asyncio.Task[None] | None = None

    @property
    def node(self) -> str:
        return self.info.node

    @property
    def running(self) -> bool:
        return self._task is not None

    @property
    def in_one_file(self) -> bool:
        """There is no link to a database in a file."""
        return self._proxy is None

    @property
    def proxy(self) -> Proxy:
        """The link to the database."""
        assert self._proxy is not None
        return self._proxy

    async def start(self) -> Member:
        url = self._url
        if self._proxy is not None:
            await self._proxy.__aenter__()
            url = self._proxy.url
        self.store = make_store(
            url, pool_size=CONNECTIONS, custom_plans=True, statement_timeout=5, application=self.node[:30]
        )
        await self.store.open()
        elector = make_elector(self._elector, self.node, self._options.election_ttl)
        self.scheduler = Scheduler(self.store, elector, self.info, self._options)
        self._task = asyncio.create_task(self.scheduler.run())
        return self

    def leads(self, shard: int = 0) -> bool:
        return shard in self.scheduler.leading()

    async def stop(self) -> None:
        """Resign and end. What the scheduler died of is raised here."""
        if self._task is not None:
            self.scheduler.stop()
            task, self._task = self._task, None
            await asyncio.wait_for(task, 10)
            await self.store.close()
            if self._proxy is not None:
                await self._proxy.__aexit__(None, None, None)


@asynccontextmanager
async def members(*crew: Member, later: Iterable[Member] = ()) -> AsyncIterator[None]:
    """All started (but those that the test starts `later`); all stopped in the end."""
    try:
        for member in crew:
            await member.start()
        yield
    finally:
        running = [member for member in (*crew, *later) if member.running]
        for member in running:
            if not member.in_one_file:
                await member.proxy.heal()
        await asyncio.gather(*(member.stop() for member in running))


def counts(crew: Iterable[Member]) -> list[int]:
    """How many shards each one leads, fewest first."""
    return sorted(len(member.scheduler.leading()) for member in crew)
