"""A worker claims runs up to two seconds ahead of their time, but not more than it can start."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetcron import Fleet
from fleetcron.testing import VirtualFleet
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
