"""The cases of the class timer (reliability.md), by id: C49, C50."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from fleetcron import Fleet, Once, clock
from fleetcron.node import Node, NodeOptions
from tests.reliability.support import NOON, Notebook

FAR = [
    NOON + timedelta(days=25),  # 2^31 ms is 24.9 days
    NOON + timedelta(days=60),  # 2^32 ms is 49.7 days
    NOON + timedelta(days=400),
    datetime(2200, 1, 1, tzinfo=UTC),
    NOON + timedelta(seconds=threading.TIMEOUT_MAX + 1),
]


@pytest.mark.parametrize(("how", "schedulers"), [("schedule", 1), ("submit", 1), ("submit", 0)])
async def test_C49_a_far_instant_is_neither_early_nor_an_overflow(store_url: str, how: str, schedulers: int) -> None:
    async with Notebook(store_url, schedulers=schedulers) as book:
        if how == "schedule":
            await book.fleet.schedule_many([(f"at {due}", book.work, Once(due)) for due in FAR])
        else:
            await book.fleet.submit_many(book.work, [{}] * len(FAR), due_at=FAR)
        for n, due in enumerate(FAR):
            for before in (timedelta(days=24), timedelta(hours=1), timedelta(seconds=2), timedelta(microseconds=1)):
                await book.vf.advance(max(book.vf.now, due - before))
                assert len(book.starts) == n
                if how == "submit":
                    assert len(await book.fleet.runs(state="scheduled")) == len(FAR) - n
            await book.vf.advance(due + timedelta(days=1))
        assert [s.started_at for s in book.starts] == FAR


async def test_C49_waits_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait is longer than a minute, whatever is asked for; callers compute what is left."""
    asked: list[float] = []

    async def note(seconds: float) -> None:
        asked.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", note)
    for seconds in (threading.TIMEOUT_MAX + 1, 400 * 86400.0, float("inf"), -1.0):
        await clock.sleep(seconds)
    assert asked == [60.0, 60.0, 60.0, 0.0]


async def test_C50_a_delay_of_weeks_fires_nothing_at_once(store_url: str) -> None:
    """Real nodes with real timers, which have work before and after: what is due in weeks stays scheduled."""
    fleet = Fleet(store_url)
    ran: list[str] = []

    @fleet.job("note")
    async def note(what: str) -> None:
        ran.append(what)

    async with fleet:
        node = Node(fleet.twin(), NodeOptions(slots=4))
        running = asyncio.create_task(node.run())
        try:
            far = [
                await fleet.submit(note, {"what": "far"}, delay=timedelta(days=days)) for days in (25, 60, 400, 60_000)
            ]
            await fleet.schedule("far", note, Once(datetime.now(UTC) + timedelta(days=25)), {"what": "far"})
            for n in range(4):
                run = await fleet.submit(note, {"what": "near"}, delay=timedelta(seconds=0.2 * n))
                assert (await run.wait("20s")).state == "succeeded"
            assert ran == ["near"] * 4
            assert [(await run.refresh()).state for run in far] == ["scheduled"] * 4
            (schedule,) = await fleet.schedules()
            assert schedule.next_at is not None and schedule.next_at > datetime.now(UTC) + timedelta(days=24)
            assert sum(count.scheduled for count in (await fleet.counts()).values()) == 4
        finally:
            node.stop()
            await asyncio.wait_for(running, 30)
