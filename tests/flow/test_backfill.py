"""Backfills, end to end on virtual time: what runs, when, beside what, and what is left to live work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from fleetcron import ConfigError, Context, Cron, Discard, Every, Fleet, NotFound, Retry
from fleetcron.testing import VirtualFleet

NOON = datetime(2026, 3, 20, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


class Yard:
    """A fleet with a job; `starts` has (seconds after NOON, tick or None) of each start, in order. `broken`: ticks that fail."""

    def __init__(self, url: str, *, seconds: float = 0, ageing: Any = "1m", **options: Any) -> None:
        self.fleet = Fleet(url, priority_ageing=ageing)
        self.starts: list[tuple[float, datetime | None]] = []
        self.intervals: list[tuple[datetime, datetime] | None] = []
        self.broken: set[datetime] = set()
        self.running: set[datetime] = set()
        self.worst = 0

        @self.fleet.job("work", retry=Retry(max_attempts=2, backoff="5s", jitter="none"))
        async def work(ctx: Context, n: int = 0) -> None:
            self.starts.append(((self.vf.now - NOON).total_seconds(), ctx.nominal_at))
            self.intervals.append(ctx.interval)
            past = ctx.nominal_at if ctx.nominal_at is not None and ctx.nominal_at < NOON else None
            if past is not None:
                self.running.add(past)
                self.worst = max(self.worst, len(self.running))
            try:
                if seconds:
                    await self.vf.sleep(seconds)
                if ctx.nominal_at in self.broken:
                    raise RuntimeError("broken")
            finally:
                self.running.discard(past or NOON)

        self.work = work
        self.vf = VirtualFleet(self.fleet, now=NOON, **options)

    async def __aenter__(self) -> Yard:
        await self.vf.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.vf.__aexit__(*error)

    async def hourly(self, **options: Any) -> None:
        await self.fleet.schedule("hourly", self.work, Every("1h"), **{"misfire": "skip", **options})

    def past(self) -> list[datetime]:
        """The ticks before NOON that have started, in order."""
        return [tick for _, tick in self.starts if tick is not None and tick < NOON]

    async def told(self, backfill_id: int) -> tuple[str, int, int, int, int, int]:
        b = await self.fleet.get_backfill(backfill_id)
        return b.state, b.total, b.created, b.existing, b.done, b.failed


def hours(*ago: int) -> list[datetime]:
    return [NOON - n * HOUR for n in ago]


async def test_one_after_the_other_in_order_whatever_the_retries(store_url: str) -> None:
    async with Yard(store_url, seconds=10) as yard:
        await yard.hourly()
        yard.broken = {NOON - 2 * HOUR}
        begun = await yard.fleet.backfill("hourly", NOON - 3 * HOUR, NOON)
        assert (begun.state, begun.total, begun.max_running) == ("running", 3, 1)
        await yard.vf.advance("10m")
        assert yard.starts == [(0, NOON - 3 * HOUR), (10, NOON - 2 * HOUR), (25, NOON - 2 * HOUR), (35, NOON - HOUR)]
        assert await yard.told(begun.id) == ("done", 3, 3, 0, 2, 1)
        assert yard.worst == 1


async def test_the_same_range_twice_creates_nothing_new(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.hourly()
        for created, existing in ((4, 0), (0, 4)):
            tried = await yard.fleet.backfill("hourly", NOON - 4 * HOUR, NOON, max_running=3, dry_run=True)
            assert (tried.id, tried.state, tried.total, tried.created, tried.existing) == (
                0,
                "dry run",
                4,
                created,
                existing,
            )
            begun = await yard.fleet.backfill("hourly", NOON - 4 * HOUR, NOON, max_running=3)
            await yard.vf.advance("1m")
            assert await yard.told(begun.id) == ("done", 4, created, existing, created, 0)
        assert yard.past() == hours(4, 3, 2, 1)
        assert len(await yard.fleet.backfills()) == 2, "a dry run leaves nothing behind"


async def test_failed_then_all(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.hourly(misfire="skip")
        yard.broken = {NOON - 3 * HOUR, NOON - HOUR}
        await yard.fleet.backfill("hourly", NOON - 4 * HOUR, NOON)
        await yard.vf.advance("5m")
        yard.starts.clear()
        yard.broken.clear()
        tried = await yard.fleet.backfill("hourly", NOON - 5 * HOUR, NOON, mode="failed", dry_run=True)
        assert (tried.created, tried.existing) == (2, 3)
        await yard.fleet.backfill("hourly", NOON - 5 * HOUR, NOON, mode="failed")
        await yard.vf.advance("5m")
        assert yard.past() == hours(3, 1)
        its_own = await yard.fleet.runs(key=f"backfill:{(await yard.fleet.backfills())[0].id}")
        assert [(run.nominal_at, run.generation) for run in its_own] == [(NOON - HOUR, 1), (NOON - 3 * HOUR, 1)]
        yard.starts.clear()
        assert (await yard.fleet.backfill("hourly", NOON - 3 * HOUR, NOON, mode="all", dry_run=True)).created == 3
        await yard.fleet.backfill("hourly", NOON - 3 * HOUR, NOON, mode="all", order="desc")
        await yard.vf.advance("5m")
        assert yard.past() == hours(1, 2, 3)
        of_one = [run.generation for run in yard.vf.runs if run.nominal_at == NOON - HOUR]
        assert sorted(of_one) == [0, 1, 2]


async def test_it_is_never_late_and_never_overlaps_with_the_rules_of_live_runs(store_url: str) -> None:
    """Policies for live ticks say nothing of a backfill: it runs beside a live run of a schedule that skips, however late it is."""
    async with Yard(store_url, seconds=600) as yard:
        await yard.hourly(misfire="skip", overlap="skip", start_deadline="1m")
        await yard.vf.advance(NOON + HOUR)
        await yard.fleet.backfill("hourly", NOON - 2 * HOUR, NOON, max_running=5)
        await yard.vf.advance(NOON + 90 * timedelta(minutes=1))
        assert [tick for _, tick in yard.starts] == [NOON + HOUR, *hours(2, 1)]
        assert yard.vf.misses == []


@pytest.mark.parametrize("ageing", ["1m", 0])
async def test_C92_a_backfill_gets_its_share_of_a_fleet_that_never_has_time(store_url: str, ageing: Any) -> None:
    """200 ordinary runs wait and more come than can ever run; 5 ticks of a backfill start all the same, and cost one start in twenty."""
    async with Yard(store_url, seconds=10, ageing=ageing, slots=10) as yard:
        await yard.hourly()
        await yard.fleet.submit_many(yard.work, [{"n": n} for n in range(200)])
        await yard.fleet.schedule("flood", yard.work, Every("0.5s"), misfire="fire_all")
        await yard.vf.advance("30s")
        begun = await yard.fleet.backfill("hourly", NOON - 5 * HOUR, NOON, max_running=5)
        before = len(yard.starts)
        await yard.vf.advance("4m")
        since = [tick is not None and tick < NOON for _, tick in yard.starts[before:]]
        assert sum(since) == 5
        for n in range(1, 5):
            assert since[: n * 20 + 10].count(True) >= n, f"share {n}"
            assert since[: n * 19].count(True) <= n, "but no more than that: the rest is live work's"
        await yard.vf.advance("10s")
        assert (await yard.told(begun.id))[0] == "done"


async def test_C92_however_many_lanes_of_live_work_there_are(store_url: str) -> None:
    """A claim looks at the first 128 lanes; with 200 tenants ahead of it, a backfill would never be among these."""
    async with Yard(store_url, seconds=10, ageing=0, slots=5) as yard:
        await yard.hourly()
        for tenant in range(200):
            await yard.fleet.submit_many(yard.work, [{"n": 0}] * 2, tenant=f"t{tenant}")
        await yard.fleet.backfill("hourly", NOON - 2 * HOUR, NOON, max_running=2)
        await yard.vf.advance("2m")
        assert [tick is not None for _, tick in yard.starts[:50]].count(True) == 2


async def test_with_time_to_spare_it_takes_what_is_there(store_url: str) -> None:
    async with Yard(store_url, seconds=10, slots=10) as yard:
        await yard.hourly()
        await yard.fleet.backfill("hourly", NOON - 100 * HOUR, NOON, max_running=8)
        await yard.vf.advance("1m")
        assert len([at for at, _ in yard.starts if at == 0]) == 8
        assert yard.worst == 8


async def test_C93_never_more_at_once_than_allowed_however_many_schedulers(store_url: str) -> None:
    """50 days with one place, and schedulers that come, go, freeze and die: each tick once, one at a time, in order."""
    async with Yard(store_url, seconds=2, schedulers=3, workers=2) as yard:
        await yard.fleet.schedule("daily", yard.work, Cron("0 0 * * *"), misfire="fire_once")
        begun = await yard.fleet.backfill("daily", NOON - 50 * DAY, NOON)
        for turn in range(100):
            match turn % 10:
                case 1:
                    yard.vf.crash_scheduler()
                case 3:
                    yard.vf.start_scheduler()
                case 5:
                    frozen = yard.vf.freeze_scheduler().role
                case 8:
                    yard.vf.thaw_scheduler(frozen)
            await yard.vf.advance("2s")
        await yard.vf.advance("1m")
        assert await yard.told(begun.id) == ("done", 50, 50, 0, 50, 0)
        assert yard.past() == [(NOON - n * DAY).replace(hour=0) for n in range(49, -1, -1)]
        assert yard.worst == 1


async def test_C96_borders_are_local_midnights_over_a_change_of_the_clocks(store_url: str) -> None:
    zone = ZoneInfo("America/New_York")
    async with Yard(store_url) as yard:
        await yard.fleet.schedule("daily", yard.work, Cron("0 0 * * *", tz="America/New_York"), misfire="fire_once")
        start, end = datetime(2026, 3, 7, tzinfo=zone), datetime(2026, 3, 11, tzinfo=zone)
        await yard.fleet.backfill("daily", start, end)
        await yard.vf.advance("1m")
        borders = [datetime(2026, 3, day, hour, tzinfo=UTC) for day, hour in ((6, 5), (7, 5), (8, 5), (9, 4), (10, 4))]
        assert yard.intervals == list(pairwise(borders))
        assert [tick.astimezone(zone).day for tick in yard.past()] == [7, 8, 9, 10], "labels are local dates"


async def test_C10_decades_of_ticks_wait_until_they_are_asked_for_and_today_is_not_delayed(store_url: str) -> None:
    """Creation never back-fires; a backfill of 56 years goes newest first, two at a time, behind today's run, and can be cancelled."""
    async with Yard(store_url, seconds=60, slots=2) as yard:
        ages_ago = datetime(1970, 1, 1, tzinfo=UTC)
        daily = Cron("30 12 * * *")
        await yard.fleet.schedule("daily", yard.work, daily, misfire="fire_all", start=ages_ago)
        await yard.vf.advance("10m")
        assert yard.starts == [] and yard.vf.misses == []
        begun = await yard.fleet.backfill("daily", ages_ago, NOON, max_running=2, order="desc")
        assert begun.total == 20_532
        await yard.fleet.submit_many(yard.work, [{"n": n} for n in range(30)], delay="15m")
        await yard.vf.advance(NOON + timedelta(minutes=40))
        newest = [NOON.replace(minute=30) - n * DAY for n in range(1, 20)]
        assert yard.past()[:6] == newest[:6]
        assert yard.worst <= 2
        (today,) = [at for at, tick in yard.starts if tick == NOON.replace(minute=30)]
        ordinary = sorted(at for at, tick in yard.starts if tick is None)
        assert ordinary[0] <= 25 * 60 + 60, "behind what ran, not behind what waited"
        assert today <= 30 * 60 + 20 * 60, "with the live work that was there before it"
        cancelled = await yard.fleet.cancel_backfill(begun.id)
        assert cancelled.state == "cancelled"
        await yard.vf.advance("1h")
        ran = len(yard.past())
        await yard.vf.advance("1d")
        assert len(yard.past()) == ran
        ended = await yard.fleet.get_backfill(begun.id)
        assert ended.open == 0 and ended.created < 60


async def test_today_starts_on_the_second_while_a_backfill_takes_all_that_is_free(store_url: str) -> None:
    """All slots but those of a backfill's max_running are live work's; a backfill never holds more."""
    async with Yard(store_url, seconds=3600, slots=4) as yard:
        await yard.fleet.schedule("daily", yard.work, Cron("30 12 * * *"), misfire="fire_all")
        await yard.fleet.backfill("daily", NOON - 1000 * DAY, NOON, max_running=3)
        await yard.vf.advance("31m")
        assert [at for at, tick in yard.starts if tick == NOON.replace(minute=30)] == [1800]


async def test_pause_resume_cancel(store_url: str) -> None:
    async with Yard(store_url, seconds=10, slots=1) as yard:
        await yard.hourly()
        begun = await yard.fleet.backfill("hourly", NOON - 9 * HOUR, NOON, max_running=2)
        await yard.vf.advance("5s")
        assert (await yard.fleet.pause_backfill(begun.id)).state == "paused"
        await yard.vf.advance("10m")
        assert yard.past() == hours(9, 8), "what was created goes on"
        assert (await yard.fleet.resume_backfill(begun.id)).state == "running"
        await yard.vf.advance("5s")
        assert yard.past() == hours(9, 8, 7)
        cancelled = await yard.fleet.cancel_backfill(begun.id)
        assert (cancelled.created, cancelled.failed, cancelled.open) == (4, 1, 1), "one waited; one is asked to stop"
        await yard.vf.advance("10m")
        assert yard.past() == hours(9, 8, 7)
        assert await yard.told(begun.id) == ("cancelled", 9, 4, 0, 2, 2)
        with pytest.raises(ConfigError, match="is cancelled; it cannot be paused any more"):
            await yard.fleet.pause_backfill(begun.id)
        again = await yard.fleet.backfill("hourly", NOON - 9 * HOUR, NOON, dry_run=True)
        assert (again.created, again.existing) == (6, 3), (
            "the one that waited is missing; the one that had started is not"
        )


async def test_limits_hold_for_backfills_too(store_url: str) -> None:
    async with Yard(store_url, seconds=10) as yard:
        await yard.hourly(tenant="acme")
        await yard.fleet.set_tenant("acme", max_running=2)
        await yard.fleet.backfill("hourly", NOON - 6 * HOUR, NOON, max_running=6)
        await yard.vf.advance("1m")
        assert [at for at, _ in yard.starts] == [0, 0, 10, 10, 20, 20]


async def test_a_full_queue_holds_a_backfill_up_and_loses_nothing(store_url: str) -> None:
    async with Yard(store_url, seconds=10, slots=1) as yard:
        await yard.hourly()
        await yard.fleet.set_queue("default", max_depth=3)
        begun = await yard.fleet.backfill("hourly", NOON - 8 * HOUR, NOON, max_running=2)
        await yard.fleet.submit_many(yard.work, [{"n": n} for n in range(3)])
        await yard.vf.advance("10m")
        assert await yard.told(begun.id) == ("done", 8, 8, 0, 8, 0)


async def test_an_edit_holds_for_what_is_still_to_come(store_url: str) -> None:
    async with Yard(store_url, seconds=10) as yard:
        await yard.hourly()
        begun = await yard.fleet.backfill("hourly", NOON - 6 * HOUR, NOON)
        await yard.vf.advance("15s")
        await yard.fleet.schedule("hourly", yard.work, Every("2h"), misfire="skip")
        await yard.vf.advance("10m")
        assert yard.past() == hours(6, 5, 4, 2)
        assert (await yard.told(begun.id))[0] == "done"


async def test_discarded_counts_as_done(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("useless")
    async def useless() -> None:
        raise Discard("nothing to do")

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.schedule("hourly", useless, Every("1h"), misfire="skip")
        begun = await fleet.backfill("hourly", NOON - 2 * HOUR, NOON)
        await vf.advance("1m")
        ended = await fleet.get_backfill(begun.id)
        assert (ended.state, ended.done, ended.failed) == ("done", 2, 0)


async def test_what_cannot_be_asked_for(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.hourly()
        backfill = yard.fleet.backfill
        with pytest.raises(NotFound, match="no schedule is named 'nope'"):
            await backfill("nope", NOON - HOUR, NOON)
        with pytest.raises(TypeError, match=r"start: .* is naive"):
            await backfill("hourly", datetime(2026, 3, 1), NOON)  # noqa: DTZ001
        with pytest.raises(TypeError, match=r"end: .* is naive"):
            await backfill("hourly", NOON - HOUR, datetime(2026, 3, 1))  # noqa: DTZ001
        with pytest.raises(TypeError, match="end: expected an aware datetime"):
            await backfill("hourly", NOON - HOUR, "now")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="is not before end"):
            await backfill("hourly", NOON, NOON - HOUR)
        with pytest.raises(ConfigError, match="lies in the future"):
            await backfill("hourly", NOON + HOUR, NOON + DAY)
        with pytest.raises(ConfigError, match="has no ticks in"):
            await backfill("hourly", NOON - 50 * timedelta(minutes=1), NOON - timedelta(minutes=1))
        for wrong in (
            {"max_running": 0},
            {"max_running": None},
            {"max_running": 1001},
            {"order": "up"},
            {"mode": "some"},
        ):
            with pytest.raises(ConfigError, match=next(iter(wrong))):
                await backfill("hourly", NOON - HOUR, NOON, **wrong)  # type: ignore[arg-type]
        assert (await backfill("hourly", NOON - HOUR, NOON + DAY)).end == NOON, "an end in the future is cut"
        for steer in (
            yard.fleet.cancel_backfill,
            yard.fleet.pause_backfill,
            yard.fleet.resume_backfill,
            yard.fleet.get_backfill,
        ):
            with pytest.raises(NotFound, match="there is no backfill 99"):
                await steer(99)
