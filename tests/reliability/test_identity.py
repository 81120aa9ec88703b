"""The cases of the class identity (reliability.md), by id: names and instants. (C108 is the dashboard's.)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from fleetcron import Fleet
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON, Notebook, at


async def test_C105_a_moved_function_answers_to_its_old_name(store_url: str) -> None:
    old, new = Fleet(store_url), Fleet(store_url)
    ran: list[str] = []

    @old.job("app.old.f")
    async def old_f() -> None:
        ran.append("old")

    @new.job("app.new.f", aliases=("app.old.f",))
    async def new_f() -> None:
        ran.append("new")

    async with VirtualFleet(new, now=NOON, workers=0) as vf:
        old.use_clock(vf.clock)
        async with old:
            waiting = await old.submit(old_f)
            vf.start_worker()
            await vf.advance("1s")
            assert (await waiting.refresh()).state == "succeeded"
            assert ran == ["new"]
            assert (await new.submit("app.old.f")).state == "ready"
            await vf.advance("1s")
            assert ran == ["new", "new"]


async def test_C105_a_rolling_deploy_gives_each_run_to_a_worker_that_knows_it(store_url: str) -> None:
    old, new = Fleet(store_url), Fleet(store_url)
    ran: list[str] = []

    @old.job("gone")
    async def gone() -> None:
        ran.append("gone")

    @new.job("added")
    async def added() -> None:
        ran.append("added")

    async with VirtualFleet(new, now=NOON, workers=0) as vf:
        old.use_clock(vf.clock)
        async with old:
            before = vf.start_worker(app=old)
            await vf.advance("1s")
            late = await new.submit(added)
            await vf.advance("1m")
            assert ran == [] and (await late.refresh()).state == "ready", "the old worker lets the new name alone"
            assert await new.unknown_jobs() == {"added": 1}
            vf.start_worker()
            await vf.advance("1s")
            assert ran == ["added"]
            vf.stop_worker(before.role)
            lost = await old.submit(gone)
            more = [await new.submit(added) for _ in range(3)]
            await vf.advance("2h")
            assert ran == ["added"] * 4, "what stands behind the unknown one is not held up"
            assert {(await run.refresh()).state for run in more} == {"succeeded"}
            await lost.refresh()
            assert (lost.state, lost.attempt, lost.attempts) == ("ready", 0, []), "kept, and no attempt used"
            assert await new.unknown_jobs() == {"gone": 1}
            vf.start_worker(app=old)
            await vf.advance("1s")
            assert (await lost.refresh()).state == "succeeded"
            assert await new.unknown_jobs() == {}


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the process's own zone."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


async def test_C106_naive_instants_are_refused_wherever_they_enter(
    store_url: str, local_zone: Callable[[str], None]
) -> None:
    naive = datetime(2026, 1, 2, 3, 4)  # noqa: DTZ001
    async with Notebook(store_url) as book:
        local_zone("Asia/Kolkata")
        fleet = book.fleet
        for submit in (
            fleet.submit(book.work, at=naive),
            fleet.submit_many(book.work, [{}], due_at=[naive]),
            fleet.runs(since=naive),
            fleet.resume("work", at=naive),
            book.vf.advance(naive),
        ):
            with pytest.raises(TypeError):
                await submit
        with pytest.raises(TypeError):
            fleet.job("at", at=naive)(lambda: None)


async def test_C106_aware_instants_keep_their_instant(store_url: str, local_zone: Callable[[str], None]) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    kolkata = timezone(timedelta(hours=5, minutes=30))
    given = [
        datetime(2026, 3, 10, 18, 34, tzinfo=kolkata),
        datetime(2026, 10, 25, 2, 30, tzinfo=berlin),  # the first 02:30 of that night, and the second one
        datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=berlin),
    ]
    instants = [at(13, 4), datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]
    zones = ("Asia/Kolkata", "America/New_York", "UTC")
    async with Notebook(store_url) as book:
        runs = []
        for zone in zones:
            local_zone(zone)
            runs += [await book.fleet.submit(book.work, at=moment) for moment in given]
        assert [run.due_at for run in runs] == instants * len(zones)
        await book.vf.advance(datetime(2026, 10, 26, tzinfo=berlin))
        assert [s.started_at for s in book.starts] == sorted(instants * len(zones))
        assert [(await run.refresh()).due_at for run in runs] == instants * len(zones)
        assert all(run.due_at.utcoffset() == timedelta(0) for run in runs)
