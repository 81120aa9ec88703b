"""Queues with a depth: who is refused, who waits, and that nothing accepted is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from fleetcron import Cron, Fleet, QueueFull
from fleetcron.testing import VirtualFleet

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def make(url: str) -> Fleet:
    fleet = Fleet(url)

    @fleet.job("work", queue="q")
    async def work(n: int = 0) -> int:
        return n

    return fleet


async def depth(fleet: Fleet, name: str = "q") -> int:
    return next((queue.depth for queue in await fleet.queues() if queue.name == name), 0)


async def test_a_refusal_names_the_queue_its_depth_and_its_limit(store_url: str) -> None:
    async with make(store_url) as fleet:
        await fleet.set_queue("q", max_depth=3)
        await fleet.submit_many("work", [{"n": n} for n in range(3)])
        with pytest.raises(QueueFull, match="queue 'q' is full: 3 runs wait in it, and its max_depth is 3") as full:
            await fleet.submit("work", {"n": 3})
        assert (full.value.queue, full.value.depth, full.value.limit) == ("q", 3, 3)
        with pytest.raises(QueueFull):
            await fleet.submit_many("work", [{}, {}])
        await fleet.submit("work", queue="another")
        await fleet.submit("work", delay="1h")
        await fleet.set_queue("q", max_depth=None)
        await fleet.submit_many("work", [{}] * 10)


async def test_what_never_fits_does_not_wait_for_ever(store_url: str) -> None:
    async with make(store_url) as fleet:
        await fleet.set_queue("q", max_depth=3, on_full="wait")
        with pytest.raises(QueueFull, match="max_depth is 3") as full:
            async with asyncio.timeout(10):
                await fleet.submit_many("work", [{}] * 4)
        assert (full.value.coming, full.value.depth) == (4, 0)
        assert await depth(fleet) == 0


async def test_refusals_are_counted(store_url: str) -> None:
    """Of every process and kind of submit; one that waits for room is none. They are written down at most a second later."""
    async with make(store_url) as fleet, fleet.twin() as other:
        await fleet.set_queue("q", max_depth=1)
        await fleet.submit("work")
        refused = 0
        for submitter, n in ((fleet, 1), (other, 1), (other, 5)):
            with pytest.raises(QueueFull):
                await (submitter.submit("work") if n == 1 else submitter.submit_many("work", [{}] * n))
            refused += n
        await other.close()  # which writes what is left
        async with asyncio.timeout(10):
            while [queue.refused for queue in await fleet.queues()] != [refused]:
                await asyncio.sleep(0.02)
        await fleet.set_queue("q", on_full="wait")
        waiting = asyncio.create_task(fleet.submit("work"))
        await asyncio.sleep(0.1)
        await fleet.set_queue("q", max_depth=2)
        await waiting
        assert [(queue.depth, queue.refused) for queue in await fleet.queues()] == [(2, refused)]


async def test_of_many_submits_at_once_as_many_as_fit_are_taken(store_url: str) -> None:
    async with make(store_url) as fleet:
        await fleet.set_queue("q", max_depth=10)
        answers = await asyncio.gather(
            *(fleet.submit("work", {"n": n}) for n in range(100)),
            *(fleet.submit("work", {"n": n}, queue="another") for n in range(20)),
            return_exceptions=True,
        )
        assert sum(not isinstance(answer, BaseException) for answer in answers[:100]) == 10
        assert all(isinstance(answer, QueueFull) for answer in answers[:100] if isinstance(answer, BaseException))
        assert not any(isinstance(answer, BaseException) for answer in answers[100:])
        assert await depth(fleet) == 10


@pytest.mark.parametrize("on_full", ["reject", "wait"])
async def test_sixteen_producers(store_url: str, on_full: Any) -> None:
    """The depth never exceeds the limit, nobody is left hanging, no accepted run is lost. (The whole size: soak.)"""
    await producers(store_url, on_full, max_depth=60, each=25)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("on_full", ["reject", "wait"])
async def test_sixteen_producers_at_full_size(store_url: str, on_full: Any) -> None:
    await producers(store_url, on_full, max_depth=10_000, each=2_000)


async def producers(url: str, on_full: Any, *, max_depth: int, each: int) -> None:
    base = make(url)
    async with base:
        await base.set_queue("q", max_depth=max_depth, on_full=on_full)
        taken: list[int] = []
        worst, refused = 0, 0
        ended = asyncio.Event()

        async def produce() -> None:
            nonlocal refused
            async with base.twin() as fleet:
                for _ in range(0, each, 5):
                    try:
                        taken.extend((await fleet.submit_many("work", [{}] * 4)).ids)
                        taken.append((await fleet.submit("work")).id)
                    except QueueFull:
                        refused += 1

        async def consume() -> None:
            slow = max_depth // 10
            while worst <= max_depth - 4 and not ended.is_set():  # a submit of four may not fit any more
                await asyncio.sleep(0.01)
            worker = await base.store.start_worker(worker_info(), base.options.lease * 100)
            while not (ended.is_set() and await depth(base) == 0):
                lanes = (await base.store.lanes(["q"])).lanes
                claim = await base.store.claim(
                    worker, lanes, limit=slow, quantum=slow, ahead=base.options.lease * 0, jobs=None
                )
                done.extend(run.run_id for run in claim.runs)
                await asyncio.sleep(0.03)

        async def watch() -> None:
            nonlocal worst
            while not ended.is_set():
                worst = max(worst, await depth(base))
                await asyncio.sleep(0.01)

        done: list[int] = []
        consuming, watching = asyncio.create_task(consume()), asyncio.create_task(watch())
        async with asyncio.timeout(500):
            await asyncio.gather(*(produce() for _ in range(16)))
            ended.set()
            await asyncio.gather(consuming, watching)
        print(f"{on_full}: {len(taken)} taken, {refused} submits refused, depth at most {worst} of {max_depth}")
        assert max_depth - 4 < worst <= max_depth
        assert sorted(done) == sorted(taken)
        assert len(taken) == 16 * each if on_full == "wait" else refused > 0


def worker_info() -> Any:
    from fleetcron.node import NodeOptions, node_info

    return node_info(NodeOptions(roles=("worker",)))


async def test_inside_a_transaction_nobody_waits(pg_url: str) -> None:
    """The transaction would stay open as long; and the job of SQL's own function is the same."""
    async with make(pg_url) as fleet:
        await fleet.set_queue("q", max_depth=1, on_full="wait")
        connection = await asyncpg.connect(pg_url)
        try:
            async with connection.transaction():
                await fleet.submit("work", conn=connection)
                with pytest.raises(QueueFull) as full:
                    async with asyncio.timeout(5):
                        await fleet.submit("work", conn=connection)
                assert full.value.wait
            with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="queue q is full: 1 runs wait in it"):
                await connection.fetchval("SELECT fleetcron.submit('work')")
            assert await connection.fetchval("SELECT fleetcron.submit('work', queue => 'another')") > 0
            later = "SELECT fleetcron.submit('work', due_at => now() + interval '1 hour')"
            assert await connection.fetchval(later) > 0
        finally:
            await connection.close()


POLICIES = {
    "fire_all": (10, 0),  # runs of the ten ticks that the queue was full for, and how many of them were missed
    "fire_once": (1, 9),
    "skip": (1, 9),  # the youngest is not older than its grace
}


@pytest.mark.parametrize("policy", list(POLICIES))
async def test_ticks_wait_for_a_full_queue_and_then_follow_their_misfire_policy(store_url: str, policy: Any) -> None:
    fleet = make(store_url)
    runs, missed = POLICIES[policy]
    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.set_queue("q", max_depth=2, paused=True)
        await fleet.submit_many("work", [{"n": 1}, {"n": 2}])
        await fleet.schedule("tick", "work", Cron("* * * * *"), misfire=policy, misfire_grace="60s")
        await vf.advance("10m30s")
        assert await depth(fleet) == 2, "no tick was written into it"
        assert [run for run in vf.runs if run.schedule] == []
        assert vf.misses == []
        await fleet.set_queue("q", paused=False)
        await vf.advance("10s")
        ticks = [run for run in vf.runs if run.schedule and run.state == "succeeded"]
        assert len(ticks) == runs
        assert sum(miss.count for miss in vf.misses) == missed
        await vf.advance("1m")
        assert len([run for run in vf.runs if run.schedule and run.state == "succeeded"]) == runs + 1, (
            "and then as ever"
        )


async def test_retries_find_their_way_back_into_a_full_queue(store_url: str) -> None:
    """The depth is for newcomers: what was accepted once is never refused."""
    fleet = Fleet(store_url)
    tries: list[int] = []

    @fleet.job("flaky", queue="q")
    async def flaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("once")

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit("flaky")
        await vf.advance(0)
        await fleet.set_queue("q", max_depth=1, paused=True)
        await fleet.submit("flaky")
        await vf.advance("1m")
        assert await depth(fleet) == 2
        with pytest.raises(QueueFull):
            await fleet.submit("flaky")
        await fleet.set_queue("q", paused=False)
        await vf.advance("1m")
        assert (await run.refresh()).state == "succeeded"
