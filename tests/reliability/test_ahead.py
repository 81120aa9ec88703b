"""A worker claims runs up to two seconds ahead of their time. Nothing about them may be decided before it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fleetcron import Fleet
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "queue_all", "replace"])
async def test_overlap_is_decided_at_the_tick(store_url: str, overlap: Any) -> None:
    """A run that ends a second before the next tick is no overlap, though the worker has that one in hand already."""
    fleet = Fleet(store_url)
    starts = []

    @fleet.job("work", every="10s", misfire="fire_all", overlap=overlap)
    async def work() -> None:
        starts.append(vf.now)
        await vf.sleep("9s")

    async with VirtualFleet(fleet, now=NOON, ahead=2.0) as vf:
        await vf.advance("65s")
        assert starts == [NOON + timedelta(seconds=10 * n) for n in range(1, 7)]
        assert vf.misses == []


async def test_a_tick_claimed_ahead_does_not_hold_its_gate_yet(store_url: str) -> None:
    fleet = Fleet(store_url)
    starts = []

    @fleet.job("work")
    async def work(name: str) -> None:
        starts.append((name, vf.now))

    async with VirtualFleet(fleet, now=NOON, ahead=2.0) as vf:
        await fleet.submit(work, {"name": "later"}, delay="10s", concurrency_key="key")
        await vf.advance("9s")  # it is in a worker's hands
        await fleet.submit(work, {"name": "now"}, concurrency_key="key")
        await vf.advance("2s")
        assert starts == [("now", NOON + timedelta(seconds=9)), ("later", NOON + timedelta(seconds=10))]


async def test_a_gated_run_that_started_on_a_timer_costs_an_attempt_when_its_worker_dies(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work() -> None:
        await vf.sleep("1h")

    async with VirtualFleet(fleet, now=NOON, ahead=2.0) as vf:
        run = await fleet.submit(work, delay="10s", concurrency_key="key")
        await vf.advance("20s")
        vf.crash_worker()
        vf.start_worker()
        await vf.advance("1m")
        await run.refresh()
        assert [(a.number, a.state) for a in run.attempts] == [(1, "lost"), (2, "running")]
