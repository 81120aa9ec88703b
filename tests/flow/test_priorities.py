"""The cases of the class fairness (reliability.md), by id, and shares between tenants and priorities: who starts, and in which order."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.flow.test_tenants import Yard

SLOTS = 4


@pytest.mark.parametrize("limited", [False, True], ids=["no-limits", "limited"])
async def test_C89_a_burst_does_not_stop_the_others(store_url: str, limited: bool) -> None:
    """A has 1,000 runs, then B one: it starts within as many claims as there are tenants. While only A has work, all slots are A's."""
    async with Yard(store_url, slots=SLOTS) as yard:
        if limited:
            await yard.fleet.set_tenant("A", max_running=100, rate="1000/s", burst=1000)
        await yard.submit(1000, "A", seconds=1)
        await yard.vf.advance("5.5s")
        assert len(yard.starts) == 6 * SLOTS, "every slot, every second"
        await yard.submit(1, "B", seconds=1)
        await yard.vf.advance("2s")
        assert yard.times("B")[0] <= 7, "the next but one at most"
        assert len(yard.times("A")) == 8 * SLOTS - 1


async def test_C90_fairness_is_by_tenant_not_by_key(store_url: str) -> None:
    """A spreads 400 runs over 100 keys of one at a time each; B has one run. Nobody's slots stay idle."""
    async with Yard(store_url, slots=10) as yard:
        for key in range(100):
            await yard.submit(4, "A", seconds=1, concurrency_key=f"k{key}")
        await yard.vf.advance("1.5s")
        before = len(yard.starts)
        await yard.submit(1, "B", seconds=1)
        await yard.vf.advance("2s")
        assert yard.times("B")[0] <= 3
        assert len(yard.starts) - before >= 2 * 10 - 1, "work-conserving"


@pytest.mark.parametrize("big", [2_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
async def test_one_big_tenant_and_fifty_small_ones(store_url: str, big: int) -> None:
    """Each of the fifty starts within two rounds: before the big one has started twice as often as there are tenants."""
    async with Yard(store_url, slots=8) as yard:
        for begin in range(0, big, 10_000):
            await yard.submit(min(10_000, big - begin), "big", seconds=1)
        await yard.vf.advance("1.5s")
        for n in range(50):
            await yard.submit(1, f"small{n:02}", seconds=1)
        await yard.vf.advance("15s")
        after = [tag for at, tag in yard.starts if at > 1.5]
        last = max(i for i, tag in enumerate(after) if tag != "big")
        assert sum(tag != "big" for tag in after) == 50
        assert last < 2 * 51
        gaps = [b - a for a, b in pairwise(sorted({at for at, _ in yard.starts}))]
        assert max(gaps) <= 1, "no slot idles"


@pytest.mark.parametrize(("ageing", "waits"), [("10s", 3 * 10), (0, None)], ids=str)
async def test_lower_priorities_get_their_turn_by_age(store_url: str, ageing: str | int, waits: int | None) -> None:
    """An endless flow of urgent work; ordinary runs wait no longer than their priority times the ageing, and for ever without it."""
    async with Yard(store_url, slots=2, ageing=ageing) as yard:
        await yard.submit(5, "", tag="late", seconds=1, priority=3)
        await yard.submit(4, "", tag="urgent", seconds=1, priority=0)
        for _ in range(50):
            await yard.submit(2, "", tag="urgent", seconds=1, priority=0)
            await yard.vf.advance("1s")
        late = yard.times("late")
        if waits is None:
            assert late == []
            return
        assert len(late) == 5
        assert min(late) > waits - 5, "urgent work comes first"
        assert max(late) <= waits + 5


async def test_priorities_are_strict_over_many_tenants(store_url: str) -> None:
    """Room that some urgent lanes leave is the other urgent lanes', not that of a lower priority."""
    async with Yard(store_url, slots=10) as yard:
        await yard.submit(1, "a", tag="urgent", seconds=1, priority=1)
        await yard.submit(19, "b", tag="urgent", seconds=1, priority=1)
        await yard.submit(30, "a", tag="idle", seconds=1, priority=8)
        await yard.vf.advance("4.5s")
        assert [tag for _, tag in yard.starts] == ["urgent"] * 20 + ["idle"] * 30


async def test_priorities_are_strict_with_limits_among_them(store_url: str) -> None:
    async with Yard(store_url, slots=10) as yard:
        await yard.fleet.set_tenant("b", max_running=4)
        await yard.submit(3, "a", tag="urgent", seconds=1, priority=1)
        await yard.submit(8, "b", tag="urgent", seconds=1, priority=1)
        await yard.submit(30, "c", tag="idle", seconds=1, priority=8)
        await yard.vf.advance("0.5s")
        assert sorted(tag for _, tag in yard.starts) == ["idle"] * 3 + ["urgent"] * 7, (
            "b's limit leaves room, and it is used"
        )
        await yard.vf.advance("1s")
        assert sum(tag == "urgent" for _, tag in yard.starts) == 11


@pytest.mark.parametrize("slots", [1, 3, 12])
async def test_weights_share_the_slots_of_a_priority(store_url: str, slots: int) -> None:
    async with Yard(store_url, slots=slots) as yard:
        await yard.fleet.set_tenant("gold", weight=3)
        await yard.fleet.set_tenant("iron", weight=1, max_running=1000)
        for tenant in ("gold", "iron", "wood"):
            await yard.submit(300, tenant, seconds=1)
        rounds = 60 // slots
        await yard.vf.advance(timedelta(seconds=rounds - 0.5))
        total = len(yard.starts)
        assert total == rounds * slots
        counts = {tenant: len(yard.times(tenant)) for tenant in ("gold", "iron", "wood")}
        assert abs(counts["gold"] - total * 3 / 5) <= slots
        assert abs(counts["iron"] - total / 5) <= slots
        assert abs(counts["wood"] - total / 5) <= slots


async def test_a_heavy_tenant_without_work_saves_nothing_up(store_url: str) -> None:
    """Turns that were not used are gone: who comes back does not lock the others out."""
    async with Yard(store_url, slots=2) as yard:
        await yard.fleet.set_tenant("gold", weight=5)
        await yard.submit(200, "iron", seconds=1)
        await yard.vf.advance("60.5s")
        await yard.submit(200, "gold", seconds=1)
        before = len(yard.times("iron"))
        await yard.vf.advance("30s")
        assert len(yard.times("iron")) - before >= 60 / 6 - 2
