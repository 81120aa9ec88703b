"""Shards are shared evenly, within a ttl of a join, a leave or a crash, whoever nominates; and more of them cost no more statements."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.scheduler.scheduler import CONNECTIONS
from tests.conformance.kit import job, put, schedule
from tests.election.support import Member, counts, members, until
from tests.support.processes import NodeProcess, started, wait_until

SHARDS = 64
SLOW = 2.0
"""A ttl for four schedulers of 64 shards on one event loop."""


@pytest.mark.parametrize(
    "elector",
    ["database", "etcd", pytest.param("zk", marks=pytest.mark.soak), pytest.param("redis", marks=pytest.mark.soak)],
)
async def test_a_join_a_leave_and_a_cut_link(pg_url: str, elector: str, shared_url: Callable[[str], str]) -> None:
    url = shared_url(elector)
    crew = [Member(pg_url, url, shards=SHARDS, ttl=SLOW) for _ in range(4)]
    first, joins = crew[:3], crew[3]
    async with members(*first, later=[joins]):
        await until(lambda: counts(first) == [21, 21, 22], what="21 or 22 each")
        await joins.start()
        took = await until(lambda: counts(crew) == [16, 16, 16, 16], what="16 each after a join")
        print(f"{elector}: a join took {took:.2f} s")
        before = [member.scheduler.leading() for member in crew]
        await asyncio.sleep(0.5 * SLOW)
        assert [member.scheduler.leading() for member in crew] == before, "nothing moves once it is even"
        await joins.stop()
        took = await until(lambda: counts(first) == [21, 21, 22], what="21 or 22 each after a leave")
        print(f"{elector}: a leave took {took:.2f} s")
        assert took < SLOW
        first[0].proxy.refuse()
        took = await until(lambda: counts(first[1:]) == [32, 32], within=2 * SLOW + 2, what="32 each after a cut")
        print(f"{elector}: a cut link took {took:.2f} s")
        assert first[0].scheduler.leading() == []
        await first[0].proxy.heal()
        await until(lambda: counts(first) == [21, 21, 22], what="21 or 22 each after the link is back")


@pytest.mark.crash
def test_C29_sixty_four_shards_on_three_real_nodes(store_url: str, tmp_path: Path) -> None:
    """At default settings: even within 10 s of the start, and again within 10 s of a kill -9."""
    nodes = [
        NodeProcess(store_url, "tests.crash.app:fleet", tmp_path, "--role", "scheduler", "--shards", "64", name=f"n{n}")
        for n in range(3)
    ]
    with Fleet(store_url).blocking as fleet:

        def led() -> list[int]:
            return sorted(Counter(leader.node for leader in fleet.leaders() if leader.node).values())

        with started(*nodes):
            wait_until(lambda: all(node.ready() for node in nodes), what="three nodes")
            began = time.monotonic()
            wait_until(lambda: led() == [21, 21, 22], within=10, what="21 or 22 each")
            print(f"even {time.monotonic() - began:.1f} s after three processes were ready")
            nodes[0].kill()
            began = time.monotonic()
            wait_until(lambda: led() == [32, 32], within=10, what="32 each")
            print(f"even {time.monotonic() - began:.1f} s after kill -9")


async def test_sixty_four_shards_cost_no_more_statements_and_connections(pg_url: str) -> None:
    member = Member(pg_url, shards=SHARDS, ttl=1.5)
    async with members(member):
        await until(lambda: counts([member]) == [SHARDS])
        watcher = await asyncpg.connect(pg_url)
        try:
            await watcher.execute("CREATE EXTENSION pg_stat_statements")
            await watcher.execute("SELECT pg_stat_statements_reset()")
            await asyncio.sleep(3)
            rows = await watcher.fetch(
                """SELECT sum(calls)::int AS calls FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
                   WHERE d.datname = current_database() AND (query LIKE '%UPDATE fleetcron.shard%' OR query LIKE '%fleetcron.scheduler%')
                         AND query NOT LIKE '%fleetcron.run%'"""
            )
            connections = await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", member.node[:30]
            )
        finally:
            await watcher.close()
        assert counts([member]) == [SHARDS]
        assert 4 <= rows[0]["calls"] <= 2 * (3 / 0.5 + 2), "two statements a third of a ttl"
        assert connections <= CONNECTIONS


async def test_the_larger_number_of_shards_counts(store_url: str) -> None:
    """Nodes that disagree: the largest number among the living counts, at once when it grows, after a while when it shrinks."""
    small, large = Member(store_url, shards=2, shrink_after=1.0), Member(store_url, shards=6, shrink_after=1.0)
    async with members(small, later=[large]):
        await until(lambda: small.scheduler.leading() == [0, 1])
        await small.store.put_jobs([job()])
        await put(small.store, *(schedule(f"s{n}") for n in range(12)))
        assert Counter([s.shard for s in await small.store.schedules()]) == {0: 6, 1: 6}
        await large.start()
        await until(lambda: counts([small, large]) == [3, 3], what="six shards")
        await spread(small, dict.fromkeys(range(6), 2))
        await large.stop()
        await until(lambda: small.scheduler.leading() == list(range(6)), what="nothing is left without a leader")
        await until(lambda: small.scheduler.leading() == [0, 1], what="two shards again")
        await spread(small, {0: 6, 1: 6})


async def spread(member: Member, wanted: dict[int, int]) -> None:
    give_up_at = time.monotonic() + 10
    while (found := Counter(s.shard for s in await member.store.schedules())) != wanted:
        assert time.monotonic() < give_up_at, f"the schedules are on {dict(found)}"
        await asyncio.sleep(0.05)
