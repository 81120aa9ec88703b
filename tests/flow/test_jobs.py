"""Limits of jobs, end to end on virtual time: they hold over the whole fleet, whoever submits, and the rest goes on beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from fleetcron import ConfigError, Cron, Fleet
from fleetcron.testing import VirtualFleet

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


class Shop:
    """A fleet with the limited job "narrow" and the free job "wide"; `starts` has (seconds after NOON, job, n)."""

    def __init__(self, url: str, *, workers: int = 1, slots: int = 100, **limits: Any) -> None:
        self.fleet = Fleet(url)
        self.starts: list[tuple[float, str, int]] = []

        @self.fleet.job("narrow", **limits)
        async def narrow(n: int = 0, seconds: float = 0) -> None:
            await self._work("narrow", n, seconds)

        @self.fleet.job("wide")
        async def wide(n: int = 0, seconds: float = 0) -> None:
            await self._work("wide", n, seconds)

        self.vf = VirtualFleet(self.fleet, now=NOON, workers=workers, slots=slots)

    async def _work(self, job: str, n: int, seconds: float) -> None:
        self.starts.append(((self.vf.now - NOON).total_seconds(), job, n))
        if seconds:
            await self.vf.sleep(seconds)

    async def __aenter__(self) -> Shop:
        await self.vf.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.vf.__aexit__(*error)

    async def submit(self, job: str, n: int, seconds: float = 0, **options: Any) -> list[int]:
        return (await self.fleet.submit_many(job, [{"n": i, "seconds": seconds} for i in range(n)], **options)).ids

    def times(self, job: str) -> list[float]:
        return [at for at, name, _ in self.starts if name == job]


async def test_max_running_of_a_job(store_url: str) -> None:
    async with Shop(store_url, workers=2, max_running=2) as shop:
        await shop.submit("narrow", 3, seconds=10, tenant="a")
        await shop.submit("narrow", 3, seconds=10, tenant="b")
        await shop.submit("wide", 20, seconds=10)
        await shop.vf.advance("35s")
        assert shop.times("wide") == [0] * 20
        assert shop.times("narrow") == [0, 0, 10, 10, 20, 20]
        assert {run.attempt for run in shop.vf.runs} == {1}


async def test_a_rate_of_a_job(store_url: str) -> None:
    async with Shop(store_url, workers=2, rate="6/m", burst=2) as shop:
        await shop.submit("narrow", 6)
        await shop.vf.advance("1m")
        assert shop.times("narrow") == [0, 0, 10, 20, 30, 40]


async def test_a_long_line_is_in_nobody_s_way(store_url: str) -> None:
    async with Shop(store_url, slots=4, max_running=1) as shop:
        await shop.submit("narrow", 300, seconds=5)
        await shop.submit("wide", 30, seconds=1)
        await shop.vf.advance("20s")
        assert len(shop.times("wide")) == 30
        assert max(shop.times("wide")) <= 12
        assert shop.times("narrow") == [0, 5, 10, 15, 20]


async def test_a_crash_and_a_cancel_free_the_slot(store_url: str) -> None:
    async with Shop(store_url, workers=2, max_running=1) as shop:
        ids = await shop.submit("narrow", 4, seconds=10)
        await shop.vf.advance("1s")
        await shop.fleet.cancel(ids[0])
        await shop.vf.advance("1s")
        assert len(shop.starts) == 2
        shop.vf.crash_worker()
        await shop.vf.advance("2m")
        assert sorted(run.state for run in shop.vf.runs) == ["cancelled", "succeeded", "succeeded", "succeeded"]


async def test_a_job_and_its_tenant_are_limited(store_url: str) -> None:
    async with Shop(store_url, max_running=3) as shop:
        await shop.fleet.set_tenant("a", max_running=1)
        await shop.submit("narrow", 3, seconds=10, tenant="a")
        await shop.submit("narrow", 4, seconds=10, tenant="b")
        await shop.vf.advance("45s")
        assert len(shop.starts) == 7
        assert all(shop.times("narrow").count(at) <= 3 for at in shop.times("narrow"))


async def test_ticks_with_an_overlap_policy_are_limited_too(store_url: str) -> None:
    async with Shop(store_url, max_running=1) as shop:
        for name in ("x", "y"):
            payload = {"seconds": 20}
            await shop.fleet.schedule(name, "narrow", Cron("* * * * *"), payload, misfire="fire_all", overlap="skip")
        await shop.vf.advance("2m50s")
        times = shop.times("narrow")
        assert len(times) == 4
        assert all(b - a >= 20 for a, b in pairwise(times))


async def test_a_declaration_without_limits_lifts_them(store_url: str) -> None:
    async with Shop(store_url, max_running=1) as shop:
        ids = await shop.submit("narrow", 5, seconds=60)
        await shop.vf.advance("1s")
        assert len(shop.starts) == 1
    async with Shop(store_url) as shop:
        await shop.vf.advance("2m")
        assert sorted(n for _, _, n in shop.starts) == [0, 1, 2, 3, 4]
        assert {(await shop.fleet.run(i)).state for i in ids} == {"succeeded"}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_running": 0}, "job 'x': max_running=0"),
        ({"rate": "often"}, "job 'x': rate='often'"),
        ({"burst": 1.5}, "job 'x': burst=1.5"),
    ],
)
def test_wrong_limits_of_a_job_are_refused(limits: dict[str, Any], message: str) -> None:
    fleet = Fleet("sqlite:///:memory:")
    with pytest.raises(ConfigError, match=message):
        fleet.job("x", **limits)(lambda: None)
