"""What a worker learns of lanes by wake-ups and by looks, and that nobody is forgotten where there are more lanes than a look gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetcron import Fleet
from fleetcron.store import wakeups
from fleetcron.store.protocol import NewRun
from fleetcron.testing import VirtualFleet
from fleetcron.worker import lanes
from tests.flow.nodes import node

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


def a_run(queue: str = "default", tenant: str = "", **given: Any) -> NewRun:
    return NewRun(job="work", payload="{}", queue=queue, priority=5, tenant=tenant, **given)


def test_a_wake_up_names_the_lanes_of_runs_that_are_due() -> None:
    words = [wakeups.of_run(a_run(tenant=tenant)) for tenant in ("", "acme", "a:b", "acme")]
    (word,) = wakeups.gathered([*words, wakeups.of_run(a_run("other"))][:4])
    assert wakeups.queue_of(word) == "default"
    assert sorted(wakeups.places_of(word)) == [("default", 5, ""), ("default", 5, "a:b"), ("default", 5, "acme")]
    both = wakeups.gathered([*words, wakeups.of_run(a_run("other"))])
    assert [wakeups.queue_of(w) for w in both] == ["default", "other"]


def test_a_wake_up_names_no_lanes_where_they_are_not_all() -> None:
    later = wakeups.of_run(a_run(delay=timedelta(seconds=1)))
    assert (later, wakeups.places_of(later)) == ("default", [])
    assert wakeups.gathered([wakeups.of_run(a_run(tenant="acme")), later]) == ["default"]
    many = [wakeups.of_run(a_run(tenant=f"t{i}")) for i in range(1000)]
    assert wakeups.gathered(many) == ["default"]
    long = [wakeups.of_run(a_run(tenant="é" * 190 + str(i))) for i in range(30)]
    assert wakeups.gathered(long) == ["default"], "longer than PostgreSQL takes"
    assert wakeups.gathered([""]) == [""]
    assert wakeups.places_of("") == []


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the first: what is not told stays unknown."""
    monkeypatch.setattr(lanes, "POLL", 1e6)


@pytest.mark.usefixtures("no_looks")
async def test_a_worker_that_is_told_of_lanes_needs_no_look(pg_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(pg_url)
    started: asyncio.Queue[str] = asyncio.Queue()

    @fleet.job("work")
    async def work(tag: str) -> None:
        started.put_nowait(tag)

    async with node(fleet, slots=4), Fleet(pg_url) as other:
        await other.submit("work", {"tag": "first"}, tenant="acme")
        assert await asyncio.wait_for(started.get(), 10) == "first"
        monkeypatch.setattr(lanes.Lanes, "look_in", lambda lanes, now: 1e6)  # from now on, no look at all
        for i in range(30):
            await other.submit("work", {"tag": f"{i}"}, tenant=f"t{i}")
        await other.submit_many("work", [{"tag": "many"}] * 3, tenant="new")
        heard = [await asyncio.wait_for(started.get(), 10) for _ in range(33)]
        assert Counter(heard) == Counter([*map(str, range(30)), *["many"] * 3])


class Town:
    """A fleet of which a look sees three lanes."""

    def __init__(self, url: str, **options: Any) -> None:
        self.fleet = Fleet(url)
        self.starts: list[str] = []

        @self.fleet.job("work")
        async def work(tag: str, seconds: float = 0) -> None:
            self.starts.append(tag)
            if seconds:
                await self.vf.sleep(seconds)

        self.vf = VirtualFleet(self.fleet, now=NOON, **options)


@pytest.fixture
def town(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Town]:
    monkeypatch.setattr(lanes, "_AT_A_LOOK", 3)
    return lambda **options: Town(store_url, **options)


async def test_every_tenant_is_served_in_turn_however_few_lanes_a_look_gives(town: Callable[..., Town]) -> None:
    """12 tenants with 3 runs each, one slot, a run a second: after 12 starts each has had one, after 24 two."""
    it = town(slots=1)
    async with it.vf:
        for tenant in range(12):
            await it.fleet.submit_many("work", [{"tag": f"t{tenant:02}", "seconds": 1}] * 3, tenant=f"t{tenant:02}")
        await it.vf.advance("40s")
        assert len(it.starts) == 36
        assert [set(Counter(it.starts[: 12 * n]).values()) for n in (1, 2, 3)] == [{1}, {2}, {3}]


async def test_tenants_that_may_not_start_hide_nobody(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine paused ones and nine that have used up their rate stand before the two that may; a look sees three."""
    monkeypatch.setattr(lanes, "_AT_A_LOOK", 3)
    fleet = Fleet(store_url)
    starts: list[str] = []

    @fleet.job("work")
    async def work(tag: str) -> None:
        starts.append(tag)

    async with fleet, Fleet(store_url) as other:
        await other.set_queue("default", paused=True)
        for i in range(9):
            await other.set_tenant(f"a{i}", paused=True)
            await other.set_tenant(f"b{i}", rate="1/h")
            for tenant in (f"a{i}", f"b{i}"):
                await other.submit_many("work", [{"tag": tenant}] * 2, tenant=tenant)
        ids = [
            i
            for tenant in ("y", "z")
            for i in (await other.submit_many("work", [{"tag": tenant}] * 5, tenant=tenant)).ids
        ]
        await other.set_queue("default", paused=False)
        async with node(fleet.twin(), slots=4):
            for i in ids:
                await (await other.run(i)).wait("20s")
    assert Counter(starts) == Counter({**{f"b{i}": 1 for i in range(9)}, "y": 5, "z": 5})


async def test_lanes_that_wait_for_their_time_hide_nobody(town: Callable[..., Town]) -> None:
    it = town(slots=4)
    async with it.vf:
        for i in range(10):
            await it.fleet.submit("work", {"tag": f"a{i}"}, tenant=f"a{i}", delay="30s")
        await it.fleet.submit("work", {"tag": "z"}, tenant="z")
        await it.vf.advance("2s")
        assert it.starts == ["z"]
        await it.vf.advance("30s")
        assert sorted(it.starts) == [*(f"a{i}" for i in range(10)), "z"]
