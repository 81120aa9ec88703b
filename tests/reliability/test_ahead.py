"""A worker claims runs up to two seconds ahead of their time, but not more than it can start."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fleetcron import Fleet, Once
from fleetcron.node import Node, NodeOptions
from fleetcron.testing import VirtualFleet
from tests.conformance.kit import look
from tests.reliability.support import NOON


@pytest.mark.parametrize("seed", range(2))
async def test_a_busy_worker_takes_nothing_from_an_idle_one(store_url: str, seed: int) -> None:
    fleet = Fleet(store_url)
    starts = []

    @fleet.job("long")
    async def long() -> None:
        await vf.sleep("5m")

    @fleet.job("quick", every="10s", misfire="fire_all")
    async def quick() -> None:
        starts.append(vf.now)

    async with VirtualFleet(fleet, now=NOON, ahead=2.0, workers=2, slots=1, seed=seed) as vf:
        await fleet.submit(long)
        await vf.advance("2m")
        assert starts == [NOON + timedelta(seconds=10 * n) for n in range(1, 13)]


async def test_a_busy_worker_leaves_what_it_cannot_start_to_be_withdrawn(store_url: str) -> None:
    fleet = Fleet(store_url)
    starts = []

    @fleet.job("long")
    async def long() -> None:
        await vf.sleep("5m")

    @fleet.job("quick", every="10s", misfire="fire_all")
    async def quick() -> None:
        starts.append(vf.now)

    async with VirtualFleet(fleet, now=NOON, ahead=2.0, slots=1) as vf:
        await fleet.submit(long)
        await vf.advance("2m")
        await fleet.pause("quick")
        await vf.advance("1h")
        assert starts == []
        assert sum(miss.count for miss in vf.misses) == 12


async def test_a_pause_takes_back_what_is_claimed_ahead_at_once(store_url: str) -> None:
    """Not at the next heartbeat, which is as far away as can be here: the worker is told."""
    fleet = Fleet(store_url, lease="60s", heartbeat="20s")
    starts: list[datetime] = []

    @fleet.job("work")
    async def work() -> None:
        starts.append(datetime.now(UTC))

    async with fleet:
        node = Node(fleet.twin(), NodeOptions(slots=4))
        running = asyncio.create_task(node.run())
        try:
            due = await fleet.store.now() + timedelta(seconds=3)
            await fleet.schedule("later", work, Once(due))
            async with asyncio.timeout(20):
                while not await look(fleet.store, "SELECT 1 FROM lease"):
                    await asyncio.sleep(0.02)
            await fleet.pause("later")
            async with asyncio.timeout(20):
                while await look(fleet.store, "SELECT 1 FROM lease") or await fleet.store.now() < due:
                    await asyncio.sleep(0.02)
            assert starts == []
            assert [run.state for run in await fleet.runs()] == ["cancelled"]
        finally:
            node.stop()
            await asyncio.wait_for(running, 30)
