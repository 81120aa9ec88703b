"""Runs that must not overlap: claimed ahead of their time, tried again, and overtaken."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from fleetcron import Context, Every, Fleet, Retry, Snooze
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON


async def test_overlap_is_decided_at_the_tick(store_url: str) -> None:
    """A run that ends a second before the next tick is no overlap, though the worker has that one in hand already."""
    fleet = Fleet(store_url)
    starts: dict[str, list[Any]] = {"skip": [], "queue_one": [], "queue_all": [], "replace": []}

    @fleet.job("work")
    async def work(ctx: Context) -> None:
        assert ctx.schedule is not None
        starts[ctx.schedule].append(vf.now)
        await vf.sleep("9s")

    async with VirtualFleet(fleet, now=NOON, ahead=2.0) as vf:
        for overlap in starts:
            await fleet.schedule(overlap, work, Every("10s"), misfire="fire_all", overlap=overlap)
        await vf.advance("65s")
        expected = [NOON + timedelta(seconds=10 * n) for n in range(1, 7)]
        assert all(began == expected for began in starts.values()), starts
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


class Stumbles:
    """Minutely, under several overlap policies. The run of 12:01 fails (or snoozes) at once and is due again at 12:02:30, in the middle of
    the run of 12:02. `starts` has (minute of the tick, second of the start) by policy."""

    def __init__(self, url: str, how: str, *overlaps: Any) -> None:
        self.fleet, self.overlaps = Fleet(url), overlaps
        self.starts: dict[str, list[tuple[int, float]]] = {overlap: [] for overlap in overlaps}

        @self.fleet.job("work", retry=Retry(backoff="90s", jitter="none"))
        async def work(ctx: Context) -> None:
            assert ctx.nominal_at is not None and ctx.schedule is not None
            starts = self.starts[ctx.schedule]
            starts.append((ctx.nominal_at.minute, (self.vf.now - NOON).total_seconds()))
            if len(starts) == 1:
                raise Snooze("90s") if how == "snoozes" else ConnectionError("the first attempt fails")
            if ctx.nominal_at.minute == 2:
                await self.vf.sleep("45s")

        self.vf, self.work = VirtualFleet(self.fleet, now=NOON), work

    async def define(self) -> None:
        for overlap in self.overlaps:
            await self.fleet.schedule(overlap, self.work, Every("1m"), misfire="fire_all", overlap=overlap)


@pytest.mark.parametrize("how", ["fails", "snoozes"])
async def test_a_run_that_has_started_waits_for_its_turn(store_url: str, how: str) -> None:
    """It is no tick that can still be skipped: it has begun, and its next attempt comes when the gate is free."""
    it = Stumbles(store_url, how, "skip", "queue_one", "queue_all")
    async with it.vf as vf:
        await it.define()
        await vf.advance("170s")
        assert all(began == [(1, 60), (2, 120), (1, 165)] for began in it.starts.values()), it.starts
        assert vf.misses == []
        assert {run.state for run in vf.runs} == {"succeeded"}


@pytest.mark.parametrize("how", ["fails", "snoozes"])
async def test_a_run_that_has_started_and_is_overtaken_was_not_missed(store_url: str, how: str) -> None:
    """Under replace the newest tick is the one to run. Its predecessor ends as if it had been replaced while it ran."""
    it = Stumbles(store_url, how, "replace")
    async with it.vf as vf:
        await it.define()
        await vf.advance("200s")
        assert it.starts["replace"] == [(1, 60), (2, 120), (3, 180)]
        assert vf.misses == []
        assert [run.state for run in vf.runs] == ["cancelled", "succeeded", "succeeded"]
