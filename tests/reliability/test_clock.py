"""The cases of the class clock (reliability.md), by id."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

import pytest

from fleetcron import Cron, Every, Fleet, clock
from fleetcron.node import Node, NodeOptions, node_info
from fleetcron.store.protocol import Done
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON, POLICIES, Notebook, at, check_account, ticks


class WrongClock:
    """A node's own wall clock, which somebody sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = timedelta(0)
        true = clock.wall_now
        for module in ("fleetcron.clock", "fleetcron.fleet"):
            monkeypatch.setattr(f"{module}.wall_now", lambda: true() + self.off)


async def test_C41_a_node_whose_clock_is_stepped_goes_on(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are monotonic and the database's clock decides: a node whose own clock is stepped back and forth in the middle of a wait and
    of a run beats, claims and finishes as ever. (On SQLite there is one host, and its clock is the database's.)"""
    wrong = WrongClock(monkeypatch)
    fleet = Fleet(pg_url, lease="2.4s", heartbeat="0.5s")
    began, go_on = asyncio.Event(), asyncio.Event()

    @fleet.job("waits")
    async def waits() -> str:
        began.set()
        await go_on.wait()
        return "done"

    async with fleet:
        node = Node(fleet.twin(), NodeOptions(slots=4))
        running = asyncio.create_task(node.run())
        try:
            runs = [await fleet.submit(waits)]
            await asyncio.wait_for(began.wait(), 20)
            for hours, wait in ((-1, 0.3), (1, 2.5), (0, 0.3)):  # 2.5 s are more than a lease
                wrong.off = timedelta(hours=hours)
                runs.append(await fleet.submit(waits, delay="0.1s"))
                await time_passes(fleet, timedelta(seconds=wait))
            go_on.set()
            for run in runs:
                await run.wait("20s")
                assert (run.state, run.result, [a.number for a in run.attempts]) == ("succeeded", "done", [1])
        finally:
            node.stop()
            await asyncio.wait_for(running, 30)


async def time_passes(fleet: Fleet, span: timedelta) -> None:
    """Wait until the database's clock has moved on by so much."""
    began = await fleet.store.now()
    async with asyncio.timeout(20):
        while await fleet.store.now() - began < span:
            await asyncio.sleep(0.02)


async def test_C45_a_node_whose_clock_runs_ahead_declares_nobody_dead(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = WrongClock(monkeypatch)
    fleet = Fleet(pg_url, lease="60s")

    @fleet.job("work")
    async def work() -> None: ...

    async with fleet, fleet.twin() as other:
        mine = await fleet.store.start_worker(node_info(NodeOptions()), timedelta(seconds=60))
        run = await fleet.submit(work)
        lanes = (await fleet.store.lanes(None)).lanes
        claim = await fleet.store.claim(mine, lanes, limit=1, quantum=1, ahead=timedelta(0), jobs=None)
        wrong.off = timedelta(seconds=90)
        assert (await other.store.rescue()).workers == []
        assert (await fleet.store.beat(mine, timedelta(seconds=60))).alive
        (mine_still,) = claim.runs
        assert await fleet.store.complete(mine, [Done(run.id, mine_still.fence, mine_still.due)]) == {run.id}


async def test_C42_a_clock_that_steps_back_into_a_minute_fires_it_once(store_url: str) -> None:
    async with Notebook(store_url, now=at(11, 58)) as book:
        await book.each_policy(Cron("* * * * *"))
        await book.vf.advance(at(12, 0, 0.2))
        book.vf.set_clock(at(11, 59, 58))
        await book.vf.advance(at(12, 0, 30))
        book.vf.set_clock(at(11, 30))  # and much further
        await book.vf.advance(at(12, 3))
        for policy in POLICIES:  # 12:01 was written ahead, and next_at never moves back
            assert book.nominals(policy) == [at(11, 59), NOON, at(12, 1), at(12, 2), at(12, 3)]
        assert book.vf.misses == []


async def test_C44_waking_from_a_suspend_neither_spins_nor_floods_the_log(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Notebook(store_url, ahead=2.0) as book:
        trigger = Cron("*/10 * * * * *")
        await book.fleet.schedule("work", book.work, trigger, misfire="fire_once")
        await book.vf.advance(at(12, 0, 9))  # the next one is claimed and on a timer
        book.vf.freeze_scheduler()
        book.vf.freeze_worker()
        await book.vf.advance("84m")
        caplog.clear()
        book.vf.thaw_scheduler()
        book.vf.thaw_worker()
        with caplog.at_level(logging.INFO):
            await book.vf.advance("1m")
        assert len([r for r in caplog.records if r.name.startswith("fleetcron")]) < 10, [
            r.message for r in caplog.records
        ]
        assert len(book.late()) == 1
        check_account(ticks(trigger, NOON, book.vf.now), book.vf.runs, book.vf.misses)


async def test_C47_intervals_count_from_their_anchor(store_url: str) -> None:
    async with Notebook(store_url, now=at(0, day=9)) as book:
        every = Every("24h", anchor=at(1, day=9))
        await book.fleet.schedule("work", book.work, every, misfire="skip")
        await book.vf.advance(at(2, day=9))
        book.vf.stop_scheduler()
        await book.vf.advance(at(11, 30, day=11))  # the 10th and the 11th are missed
        book.vf.start_scheduler()
        await book.fleet.trigger("work")
        await book.vf.advance(at(2, day=13))
        assert [s.started_at for s in book.starts] == [at(1, day=9), at(11, 30, day=11), at(1, day=12), at(1, day=13)]


async def test_C47_delays_do_not_add_up(store_url: str) -> None:
    on_disk = not store_url.startswith("sqlite")
    # A thousand commits to a file are ten seconds of fsync.
    fleet = Fleet(store_url if on_disk else "sqlite:///:memory:")
    starts: list[datetime] = []

    @fleet.job("slow", every="1s", misfire="fire_all")
    async def slow() -> None:
        starts.append(vf.now)
        await vf.sleep("30ms")

    count = 50 if on_disk else 1000
    async with VirtualFleet(fleet, now=NOON) as vf:
        await vf.advance(count)
        assert starts == [NOON + timedelta(seconds=n) for n in range(1, count + 1)]


@pytest.mark.parametrize("ahead", [0.0, 2.0])
async def test_C48_a_timer_that_rings_early_fires_nothing(store_url: str, ahead: float) -> None:
    async with Notebook(store_url, now=at(11, 59), ahead=ahead) as book:
        await book.minutely(misfire="fire_all")
        for instant in (at(11, 59, 59.98), at(11, 59, 59.99), at(11, 59, 59.999999)):
            await book.vf.advance(instant)
            assert book.starts == []
        for instant in (at(12, 0, 0.001), at(12, 0, 0.002), at(12, 0, 59.99)):
            await book.vf.advance(instant)
            assert [(s.nominal_at, s.started_at) for s in book.starts] == [(NOON, NOON)]
