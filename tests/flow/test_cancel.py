"""The cases of the class cancel (reliability.md) with real workers: C101, C102, C104. The store's part of them is in tests/conformance."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetcron import Fleet, Retry
from fleetcron.node import Node, NodeOptions
from fleetcron.testing import VirtualFleet

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
FINAL = {"succeeded", "failed", "cancelled"}


@asynccontextmanager
async def node(fleet: Fleet, slots: int) -> AsyncIterator[Node]:
    """A worker node on this loop."""
    it = Node(fleet, NodeOptions(slots=slots, roles=("worker",), drain=timedelta(seconds=20)))
    started = asyncio.Event()
    task = asyncio.create_task(it.run(started.set))
    await started.wait()
    try:
        yield it
    finally:
        it.stop()
        await asyncio.wait_for(task, 30)


async def test_C101_a_final_state_never_changes(store_url: str) -> None:
    """cancel() against claims, ends, failures and retries: a legal end, and it stays; after an accepted cancel no attempt begins."""
    fleet = Fleet(store_url, lease="6s", heartbeat="0.2s")
    chance = random.Random(101)

    @fleet.job("mixed", retry=Retry(max_attempts=3, backoff="0.02s", jitter="none"))
    async def mixed(n: int) -> None:
        await asyncio.sleep(chance.random() * 0.02)
        if n % 3 == 0:
            raise RuntimeError("again")

    async with fleet, node(fleet, 20):
        ids = (await fleet.submit_many(mixed, [{"n": n} for n in range(150)])).ids
        answers: dict[int, str] = {}

        async def one(run_id: int) -> None:
            await asyncio.sleep(chance.random() * 0.6)
            answers[run_id] = await fleet.cancel(run_id)

        await asyncio.gather(*map(one, ids))
        for run_id in ids:
            await (await fleet.run(run_id)).wait("20s")
        before = {i: (await fleet.run(i)).state for i in ids}
        await asyncio.sleep(0.5)
        after = {i: (await fleet.run(i)).state for i in ids}
        assert before == after
        assert set(after.values()) <= FINAL
        assert set(answers.values()) == {"cancelled", "asked", "too late"}
        assert all(after[i] == "cancelled" for i, answer in answers.items() if answer == "cancelled")
        assert all(after[i] != "failed" for i, answer in answers.items() if answer == "asked"), (
            "no retry after an accepted cancel"
        )


@pytest.mark.parametrize("draining", [False, True], ids=["busy", "draining"])
@pytest.mark.parametrize("silent", [False, True], ids=["notify", "polling"])
async def test_C102_a_cancel_is_seen_within_a_heartbeat(
    store_url: str, monkeypatch: pytest.MonkeyPatch, draining: bool, silent: bool
) -> None:
    """All slots busy, without wake-ups, and while the worker drains."""
    fleet = Fleet(store_url, lease="3s", heartbeat="1s")
    ended: list[float] = []

    @fleet.job("long")
    async def long(n: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(time.monotonic())

    async with fleet:
        if silent:

            async def nothing(*_: Any, **__: Any) -> None: ...

            monkeypatch.setattr(fleet.store, "listen", nothing)
            monkeypatch.setattr(fleet.store, "notify", nothing)
        async with node(fleet, 3) as it:
            ids = (await fleet.submit_many(long, [{"n": n} for n in range(3)])).ids
            async with asyncio.timeout(10):
                while (await fleet.counts())["default"].running < 3:
                    await asyncio.sleep(0.02)
            if draining:
                it.stop()
                await asyncio.sleep(0.2)
            asked = time.monotonic()
            assert [await fleet.cancel(i) for i in ids] == ["asked"] * 3
            async with asyncio.timeout(10):
                while len(ended) < 3:
                    await asyncio.sleep(0.01)
            assert max(ended) - asked <= 1.0 + 0.7
            for i in ids:
                assert (await (await fleet.run(i)).wait("10s")).state == "cancelled"


async def test_C104_deploys_cost_a_long_job_no_attempt(store_url: str) -> None:
    """Four deploys in the middle of a long job of three attempts: handed back at once each time, and done by the fifth worker."""
    fleet = Fleet(store_url)

    @fleet.job("long", retry=Retry(max_attempts=3))
    async def long() -> None:
        await vf.sleep("60s")

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit("long")
        for _ in range(4):
            await vf.advance("5s")
            vf.stop_worker()
            vf.start_worker()
        await vf.advance("2m")
        await run.refresh()
        assert run.state == "succeeded"
        assert [a.state for a in run.attempts] == ["released"] * 4 + ["succeeded"]
        assert run.attempt == 1


async def test_what_has_not_started_by_its_deadline_expires_and_is_recorded(store_url: str) -> None:
    fleet = Fleet(store_url)
    starts: list[datetime] = []

    @fleet.job("work", every="1m", misfire="fire_all", start_deadline="90s")
    async def work() -> None:
        starts.append(vf.now)

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.set_queue("default", paused=True)
        run = await fleet.submit("work", start_deadline="10s")
        await vf.advance("3m30s")
        await fleet.set_queue("default", paused=False)
        await vf.advance("1s")
        assert (await run.refresh()).state == "expired"
        assert len(starts) == 1 + (len(vf.misses) == 2 and 0)
        assert {miss.reason for miss in vf.misses} == {"expired"}
        assert sum(miss.count for miss in vf.misses) == 2
