"""VirtualFleet itself: what it promises to the tests of an app."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetcron import Context, Every, Fleet, FleetcronError, Retry, Snooze, StoreError
from fleetcron.testing import VirtualFleet

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MEMORY = "sqlite:///:memory:"


async def test_the_example_of_its_documentation() -> None:
    fleet = Fleet(MEMORY)

    @fleet.job(cron="0 2 * * *", tz="Asia/Kolkata", misfire="fire_once")
    async def report(ctx: Context) -> None: ...

    async with VirtualFleet(fleet, now=datetime(2026, 3, 1, tzinfo=UTC)) as vf:
        vf.stop_scheduler()
        await vf.advance("3d")
        vf.start_scheduler()
        await vf.advance("1m")
        assert [run.state for run in vf.runs] == ["succeeded"]
        assert sum(miss.count for miss in vf.misses) == 2


async def test_two_days_of_a_minutely_job_pass_in_seconds() -> None:
    fleet = Fleet(MEMORY)
    starts: list[tuple[Any, datetime]] = []

    @fleet.job("minutely", every="1m", misfire="fire_all")
    async def minutely(ctx: Context) -> None:
        starts.append((ctx.nominal_at, vf.now))

    async with VirtualFleet(fleet, now=NOON) as vf:
        began = time.process_time()  # of this process alone: others may share its cores
        await vf.advance("2d")
        assert time.process_time() - began < 30
        expected = [NOON + timedelta(minutes=n) for n in range(1, 2881)]
        assert starts == [(tick, tick) for tick in expected]
        assert [run.nominal_at for run in vf.runs] == expected
        assert vf.misses == []
        assert vf.now == NOON + timedelta(days=2)


async def test_idle_time_costs_nothing() -> None:
    fleet = Fleet(MEMORY)

    @fleet.job("yearly", cron="0 0 1 1 *", misfire="fire_all")
    async def yearly() -> None: ...

    async with VirtualFleet(fleet, now=NOON) as vf:
        began = time.process_time()
        await vf.advance(datetime(2126, 6, 1, tzinfo=UTC))
        assert len(vf.runs) == 100
        assert time.process_time() - began < 5


async def test_runs_are_those_whose_time_has_come(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("snoozes")
    async def snoozes() -> None:
        raise Snooze("1h")

    @fleet.job("minutely", every="1m", misfire="fire_all")
    async def minutely() -> None: ...

    async with VirtualFleet(fleet, now=NOON) as vf:
        assert vf.runs == []
        later = await fleet.submit("minutely", delay="10m")
        snoozed = await fleet.submit(snoozes)
        await vf.advance("150s")
        assert [(run.job, run.state) for run in vf.runs] == [
            ("snoozes", "scheduled"), ("minutely", "succeeded"), ("minutely", "succeeded"),
        ]  # fmt: skip
        assert (await later.refresh()).state == "scheduled"
        assert snoozed.id == vf.runs[0].id
        assert [a.state for a in (await vf.runs[0].refresh()).attempts] == ["snoozed"]


async def test_time_stands_still_while_handlers_run_and_passes_when_they_sleep(store_url: str) -> None:
    fleet = Fleet(store_url)
    seen = []

    @fleet.job("works")
    async def works() -> None:
        seen.append(vf.now)
        await asyncio.sleep(0.02)  # real work
        seen.append(vf.now)
        await vf.sleep("90s")
        seen.append(vf.now)

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(works)
        await vf.advance("1m")
        assert (await run.refresh()).state == "running"
        await vf.advance("1m")
        assert seen == [NOON, NOON, NOON + timedelta(seconds=90)]
        assert (await run.refresh()).state == "succeeded"
        assert run.started_at is not None and run.finished_at is not None
        assert run.finished_at - run.started_at == timedelta(seconds=90)


async def test_handlers_in_threads_and_those_that_wait_for_other_runs(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("child")
    def child(n: int) -> list[Any]:
        return [n * 2, threading.current_thread().name != "MainThread"]

    @fleet.job("parent")
    async def parent() -> Any:
        run = await fleet.submit(child, {"n": 21})
        return (await run.wait("5s")).result

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(parent)
        await vf.advance(0)
        assert (await run.refresh()).result == [42, True]
        assert vf.now == NOON


async def test_a_handler_that_does_not_end_is_named() -> None:
    fleet = Fleet(MEMORY)
    go_on = asyncio.Event()

    @fleet.job("hangs")
    async def hangs() -> None:
        await go_on.wait()

    async with VirtualFleet(fleet, now=NOON, patience=0.2) as vf:
        await fleet.submit(hangs)
        with pytest.raises(FleetcronError, match=r"handlers of hangs .*await vf\.sleep"):
            await vf.advance("1h")
        assert vf.now == NOON
        go_on.set()
        await vf.advance("1h")
        assert [run.state for run in vf.runs] == ["succeeded"]


async def test_what_never_comes_to_rest_is_an_error() -> None:
    fleet = Fleet(MEMORY)

    @fleet.job("again")
    async def again() -> None:
        await fleet.submit(again)

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.submit(again)
        with pytest.raises(FleetcronError, match="still busy after"):
            await vf.advance("1m")


async def test_a_crashed_workers_leases_stay_until_they_run_out(store_url: str) -> None:
    fleet = Fleet(store_url, lease="15s")

    @fleet.job("works", retry=Retry(backoff="1s"))
    async def works() -> None:
        await vf.sleep("1m")

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(works)
        await vf.advance("20s")
        vf.crash_worker()
        vf.start_worker()
        await vf.advance("15s")
        assert (await run.refresh()).state == "running"
        assert len(run.attempts) == 1
        await vf.advance("1s")
        await run.refresh()
        assert [(a.number, a.state) for a in run.attempts] == [(1, "lost"), (2, "running")]
        assert run.attempts[0].finished_at is not None
        assert timedelta(seconds=35) < run.attempts[0].finished_at - NOON < timedelta(seconds=35.1)
        await vf.advance("1m")
        assert (await run.refresh()).state == "succeeded"


async def test_a_frozen_workers_outcome_is_refused_when_somebody_else_has_taken_over(store_url: str) -> None:
    fleet = Fleet(store_url, lease="15s")
    ended: list[int] = []

    @fleet.job("works")
    async def works(ctx: Context) -> int:
        await vf.sleep("30s")
        ended.append(ctx.attempt)
        return ctx.attempt

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(works)
        await vf.advance("10s")
        frozen = vf.freeze_worker().role
        vf.start_worker()
        await vf.advance("2m")
        assert ended == [2]
        vf.thaw_worker(frozen)
        await vf.advance("1s")
        assert ended == [2, 1], "the thawed handler went on to its end"
        await run.refresh()
        assert (run.result, [(a.number, a.state) for a in run.attempts]) == (2, [(1, "lost"), (2, "succeeded")])
        assert frozen.worker.lost_outcomes == 1
        later = await fleet.submit(works)
        await vf.advance("31s")
        assert (await later.refresh()).state == "succeeded", "under a new session the worker goes on"


async def test_a_standby_takes_over_when_the_leader_dies(store_url: str) -> None:
    fleet = Fleet(store_url, election_ttl="5s")
    starts = []

    @fleet.job("often", every="10s", misfire="fire_all")
    async def often() -> None:
        starts.append(vf.now)

    async with VirtualFleet(fleet, now=NOON, schedulers=2) as vf:
        await vf.advance("1m")
        (before,) = await fleet.leaders()
        vf.crash_scheduler()
        vf.crash_scheduler()
        vf.start_scheduler()
        await vf.advance("10m")
        (after,) = await fleet.leaders()
        assert after.term == before.term + 1
        assert after.since is not None and timedelta(0) < after.since - NOON - timedelta(seconds=65) < timedelta(
            seconds=1
        )
        assert starts == [NOON + timedelta(seconds=10 * n) for n in range(1, 67)], "written ahead: nothing was late"


async def test_a_cancel_reaches_a_handler_that_sleeps(store_url: str) -> None:
    fleet = Fleet(store_url)
    seen = []

    @fleet.job("works")
    async def works(ctx: Context) -> None:
        try:
            await vf.sleep("1h")
        finally:
            seen.append((ctx.cancelled.is_set(), vf.now))

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(works)
        await vf.advance("1m")
        assert await run.cancel() == "asked"
        await vf.advance("1s")
        assert (await run.refresh()).state == "cancelled"
        assert seen == [(True, NOON + timedelta(minutes=1))]


async def test_a_stopped_worker_hands_back_without_using_an_attempt(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("works", retry=Retry(max_attempts=1))
    async def works() -> None:
        await vf.sleep("1m")

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(works)
        await vf.advance("10s")
        await vf.stop_worker()
        assert (await run.refresh()).state == "ready"
        await vf.start_worker()
        await vf.advance("1m")
        await run.refresh()
        assert (run.state, [a.state for a in run.attempts]) == ("succeeded", ["released", "succeeded"])


async def test_it_refuses_what_it_cannot_do() -> None:
    fleet = Fleet(MEMORY)
    with pytest.raises(TypeError, match="naive"):
        VirtualFleet(fleet, now=datetime(2026, 1, 1))  # noqa: DTZ001
    async with fleet:
        with pytest.raises(StoreError, match="open"):
            await VirtualFleet(fleet, now=NOON).__aenter__()
    async with VirtualFleet(fleet, now=NOON, workers=0) as vf:
        with pytest.raises(ValueError, match="before"):
            await vf.advance(NOON - timedelta(seconds=1))
        with pytest.raises(ValueError, match="negative"):
            await vf.advance(-1)
        with pytest.raises(FleetcronError, match="none is running"):
            vf.crash_worker()
        gone = vf.start_worker().role
        vf.stop_worker(gone)
        with pytest.raises(FleetcronError, match="has left"):
            vf.stop_worker(gone)
    assert fleet.options.url == MEMORY
    async with fleet:
        assert abs((await fleet.store.now() - datetime.now(UTC)).total_seconds()) < 5, "the real clock again"


async def test_a_second_fleet_can_share_the_clock(store_url: str) -> None:
    fleet, other = Fleet(store_url), Fleet(store_url)

    @fleet.job("work", every=Every("1m").interval, misfire="fire_all")
    async def work() -> None: ...

    if store_url == MEMORY:
        pytest.skip("a database in memory has one fleet")
    async with VirtualFleet(fleet, now=NOON) as vf:
        other.use_clock(vf.clock)
        async with other:
            await vf.advance("1h")
            assert await other.store.now() == vf.now == NOON + timedelta(hours=1)
            assert len(await other.runs(state="succeeded")) == 60


async def test_limits_let_runs_start_at_their_instants(store_url: str) -> None:
    """A tenant's rate, a job's number of runs at one time, and a queue that is paused and resumed between advances."""
    fleet = Fleet(store_url)
    starts: dict[str, list[float]] = {"metered": [], "narrow": [], "quick": []}

    def note(name: str) -> None:
        starts[name].append((vf.now - NOON).total_seconds())

    @fleet.job("metered")
    async def metered() -> None:
        note("metered")

    @fleet.job("narrow", max_running=2)
    async def narrow() -> None:
        note("narrow")
        await vf.sleep("10s")

    @fleet.job("quick", queue="other")
    async def quick() -> None:
        note("quick")

    async with VirtualFleet(fleet, now=NOON) as vf:
        await fleet.set_tenant("acme", rate="30/m", burst=1)
        await fleet.set_queue("other", paused=True)
        await fleet.submit_many(metered, [{}] * 5, tenant="acme")
        await fleet.submit_many(narrow, [{}] * 5)
        await fleet.submit(quick)
        await vf.advance("1m")
        assert starts["metered"] == [0, 2, 4, 6, 8]
        assert starts["narrow"] == [0, 0, 10, 10, 20]
        assert starts["quick"] == []
        await fleet.set_queue("other", paused=False)
        await vf.advance(0)
        assert starts["quick"] == [60]
