"""C95 (reliability.md, class fairness): schedules that share an instant are spread in a stable way, and history keeps the nominal time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetcron import Context, Cron, Fleet
from fleetcron.testing import VirtualFleet

EVENING = datetime(2026, 3, 6, 23, 50, tzinfo=UTC)
MIDNIGHT = datetime(2026, 3, 7, tzinfo=UTC)
DAY, SPREAD = timedelta(days=1), timedelta(minutes=10)


class Spread:
    """A fleet whose job notes when each schedule's tick started."""

    def __init__(self, url: str) -> None:
        self.fleet = Fleet(url)
        self.starts: dict[tuple[str, datetime], datetime] = {}

        @self.fleet.job("work")
        async def work(ctx: Context) -> None:
            assert ctx.schedule is not None and ctx.nominal_at is not None
            assert (ctx.schedule, ctx.nominal_at) not in self.starts, "once each"
            self.starts[ctx.schedule, ctx.nominal_at] = self.vf.now

        self.vf = VirtualFleet(self.fleet, now=EVENING, slots=1000)

    async def schedule(self, names: list[str], expr: str = "0 0 * * *", tz: str = "UTC", **options: Any) -> None:
        spread = {"misfire": "fire_once", "jitter": SPREAD, **options}
        await self.fleet.schedule_many([(name, "work", Cron(expr, tz=tz), {}, spread) for name in names])

    def offsets(self, nominal: datetime) -> dict[str, timedelta]:
        return {name: at - nominal for (name, tick), at in self.starts.items() if tick == nominal}


@pytest.mark.parametrize(
    ("n", "most"), [(300, 60), pytest.param(10_000, 1_200, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]
)
async def test_C95_schedules_of_one_instant_are_spread_in_a_stable_way(store_url: str, n: int, most: int) -> None:
    """`most` start in any one minute of the ten: an even spread has a tenth in each."""
    spread = Spread(store_url)
    names = [f"report/{i}" for i in range(n)]
    async with spread.vf as vf:
        await spread.schedule(names)
        await vf.advance(MIDNIGHT + SPREAD + timedelta(minutes=1))
        first = spread.offsets(MIDNIGHT)
        assert set(first) == set(names), "the nominal time stays midnight"
        assert all(timedelta(0) <= offset < SPREAD for offset in first.values())
        assert max(Counter(int(offset / timedelta(minutes=1)) for offset in first.values()).values()) <= most
        vf.stop_scheduler()  # another leader, and the same offsets
        vf.start_scheduler()
        await vf.advance(MIDNIGHT + DAY + SPREAD + timedelta(minutes=1))
        assert spread.offsets(MIDNIGHT + DAY) == first
        assert vf.misses == []


async def test_C95_clock_changes_and_misfires_count_from_the_nominal_time(store_url: str) -> None:
    """02:30 does not exist in New York on 8 March: the tick is at 03:00, plus the offset. After an outage the misses are midnights."""
    spread = Spread(store_url)
    gap, usual = datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 3, 9, 6, 30, tzinfo=UTC)
    async with spread.vf as vf:
        await spread.schedule(["gap"], "30 2 * * *", "America/New_York")
        await spread.schedule(["daily"])
        await vf.advance(MIDNIGHT + 2.5 * DAY)
        own = spread.offsets(usual)["gap"]
        assert timedelta(0) <= own < SPREAD
        assert spread.offsets(gap)["gap"] == own
        vf.stop_scheduler()
        vf.stop_worker()
        await vf.advance("3d")
        vf.start_scheduler()
        vf.start_worker()
        await vf.advance("1s")
        assert spread.offsets(MIDNIGHT + 5 * DAY)["daily"] == DAY / 2, "the latest is caught up"
        (miss,) = [miss for miss in vf.misses if miss.schedule == "daily"]
        assert (miss.first, miss.last, miss.count) == (MIDNIGHT + 3 * DAY, MIDNIGHT + 4 * DAY, 2)
        await vf.advance(MIDNIGHT + 6 * DAY + SPREAD)
        assert spread.offsets(MIDNIGHT + 6 * DAY)["daily"] == spread.offsets(MIDNIGHT)["daily"]
