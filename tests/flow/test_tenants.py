"""Limits and pauses, end to end on virtual time: what starts, and when."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from fleetcron import ConfigError, Cron, Every, Fleet, NotFound, Retry
from fleetcron.testing import VirtualFleet
from fleetcron.worker import allowance
from fleetcron.worker.claimer import Claimer

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)


class Yard:
    """A fleet with jobs that take their time; `starts` has (seconds after NOON, tag) of each start, in order."""

    def __init__(self, url: str, *, ageing: str | int = "1m", **options: Any) -> None:
        self.fleet = Fleet(url, priority_ageing=ageing)
        self.starts: list[tuple[float, str]] = []
        self.running: dict[str, int] = {}
        self.worst: dict[str, int] = {}

        @self.fleet.job("work", retry=Retry(max_attempts=3, backoff="1s", jitter="none"))
        async def work(tag: str = "", seconds: float = 0, fail: int = 0) -> None:
            at = (self.vf.now - NOON).total_seconds()
            self.starts.append((at, tag))
            self.running[tag] = self.running.get(tag, 0) + 1
            self.worst[tag] = max(self.worst.get(tag, 0), self.running[tag])
            try:
                if seconds:
                    await self.vf.sleep(seconds)
                if fail > sum(t == tag for _, t in self.starts) - 1:
                    raise RuntimeError("again")
            finally:
                self.running[tag] -= 1

        self.work = work
        self.vf = VirtualFleet(self.fleet, now=NOON, **options)

    async def __aenter__(self) -> Yard:
        await self.vf.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.vf.__aexit__(*error)

    async def submit(self, n: int, tenant: str, *, tag: str | None = None, seconds: float = 0, **options: Any) -> None:
        payload = {"tag": tenant if tag is None else tag, "seconds": seconds}
        await self.fleet.submit_many(self.work, [payload] * n, tenant=tenant, **options)

    def times(self, tag: str) -> list[float]:
        return [at for at, t in self.starts if t == tag]


async def test_max_running_over_two_workers(store_url: str) -> None:
    async with Yard(store_url, workers=2) as yard:
        await yard.fleet.set_tenant("acme", max_running=3)
        await yard.submit(10, "acme", seconds=10)
        await yard.submit(10, "free", seconds=10)
        await yard.vf.advance("45s")
        assert yard.times("free") == [0] * 10, "who has no limit waits for nobody"
        assert yard.times("acme") == [0] * 3 + [10] * 3 + [20] * 3 + [30]
        assert [(t.name, t.max_running, t.running) for t in await yard.fleet.tenants()] == [("acme", 3, 0)]


async def test_a_rate_spreads_starts(store_url: str) -> None:
    async with Yard(store_url, workers=2) as yard:
        await yard.fleet.set_tenant("acme", rate="6/m", burst=2)
        await yard.submit(6, "acme")
        await yard.vf.advance("1m")
        assert yard.times("acme") == [0, 0, 10, 20, 30, 40]


async def test_retries_and_ticks_are_limited_like_submits(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.fleet.set_tenant("acme", rate="2/m")
        await yard.fleet.submit(yard.work, {"tag": "retry", "fail": 1}, tenant="acme")
        await yard.fleet.schedule("tick", yard.work, Every("20s"), {"tag": "tick"}, misfire="fire_all", tenant="acme")
        await yard.vf.advance("2m")
        assert [at for at, _ in yard.starts] == [0, 30, 60, 90, 120]
        assert len(yard.times("retry")) == 2


async def test_backfills_are_limited_like_submits(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.fleet.set_tenant("acme", rate="2/m", burst=1)
        payload = {"tag": "tick", "seconds": 40}
        await yard.fleet.schedule("tick", yard.work, Cron("0 * * * *"), payload, misfire="skip", tenant="acme")
        await yard.fleet.backfill("tick", NOON - timedelta(hours=5), NOON, max_running=5)
        await yard.vf.advance("2m")
        assert yard.times("tick") == [0, 30, 60, 90, 120]
        assert yard.worst["tick"] == 2
        await yard.fleet.set_tenant("acme", rate=None, max_running=1)
        await yard.fleet.backfill("tick", NOON - timedelta(hours=8), NOON - timedelta(hours=5), max_running=5)
        await yard.vf.advance("5m")
        assert yard.times("tick")[5:] == [160, 200, 240]


async def test_a_crash_gives_its_slots_back(store_url: str) -> None:
    async with Yard(store_url, workers=2) as yard:
        await yard.fleet.set_tenant("acme", max_running=2)
        await yard.submit(6, "acme", seconds=5)
        await yard.vf.advance("2s")
        yard.vf.crash_worker()
        await yard.vf.advance("3m")
        assert yard.worst["acme"] <= 2
        assert sum(run.state == "succeeded" for run in yard.vf.runs) == 6
        assert [t.running for t in await yard.fleet.tenants()] == [0]


async def test_a_limit_may_be_changed_and_lifted(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.fleet.set_tenant("acme", max_running=1)
        await yard.submit(20, "acme", seconds=10)
        await yard.vf.advance("5s")
        assert len(yard.starts) == 1
        await yard.fleet.set_tenant("acme", max_running=4)
        await yard.vf.advance("1s")
        assert len(yard.starts) == 4
        await yard.fleet.set_tenant("acme", max_running=None)
        await yard.vf.advance("1s")
        assert len(yard.starts) == 20


async def test_what_runs_when_a_limit_comes_counts(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.submit(4, "acme", seconds=10)
        await yard.vf.advance("1s")
        await yard.fleet.set_tenant("acme", max_running=5)
        await yard.submit(5, "acme", seconds=10)
        await yard.vf.advance("2s")
        assert len(yard.starts) == 5
        await yard.vf.advance("9s")
        assert len(yard.starts) == 9


Pause = Literal["tenant", "queue", "job"]


async def pause(fleet: Fleet, what: Pause, paused: bool) -> None:
    match what:
        case "tenant":
            await fleet.set_tenant("acme", paused=paused)
        case "queue":
            await fleet.set_queue("default", paused=paused)
        case "job":
            await (fleet.pause if paused else fleet.resume)("work")


@pytest.mark.parametrize("what", ["tenant", "queue", "job"])
async def test_a_pause_holds_everything_back_and_loses_nothing(store_url: str, what: Pause) -> None:
    async with Yard(store_url) as yard:
        await yard.submit(3, "acme", delay="1s")
        await yard.vf.advance(0)
        await pause(yard.fleet, what, True)
        await yard.submit(3, "acme")
        await yard.fleet.schedule("tick", yard.work, Every("30s"), {"tag": "tick"}, misfire="fire_all", tenant="acme")
        await yard.vf.advance("10m")
        assert yard.starts == []
        if what != "tenant":
            await yard.fleet.submit(yard.work, {"tag": "other"})
            await yard.vf.advance("1m")
            assert yard.starts == []
        await pause(yard.fleet, what, False)
        await yard.vf.advance("1s")
        assert len(yard.times("acme")) == 6
        assert len(yard.times("tick")) >= 20


@pytest.mark.parametrize("what", ["tenant", "queue", "job"])
async def test_what_was_claimed_ahead_does_not_start_in_a_pause(store_url: str, what: Pause) -> None:
    async with Yard(store_url, ahead=2.0) as yard:
        await yard.submit(3, "acme", delay="10s")
        await yard.vf.advance("9s")
        await pause(yard.fleet, what, True)
        await yard.vf.advance("1m")
        assert yard.starts == []
        await pause(yard.fleet, what, False)
        await yard.vf.advance("1s")
        assert len(yard.starts) == 3
        assert [run.attempt for run in yard.vf.runs] == [1, 1, 1]


async def test_other_jobs_go_on_beside_a_paused_one(store_url: str) -> None:
    fleet_yard = Yard(store_url)
    seen: list[int] = []

    @fleet_yard.fleet.job("other")
    async def other(n: int) -> None:
        seen.append(n)

    async with fleet_yard as yard:
        await yard.fleet.pause_job("work")
        await yard.submit(50, "")
        await yard.fleet.submit_many("other", [{"n": n} for n in range(5)])
        await yard.vf.advance("5s")
        assert sorted(seen) == [0, 1, 2, 3, 4]
        assert yard.starts == []
        await yard.fleet.resume_job("work")
        await yard.vf.advance("1s")
        assert len(yard.starts) == 50


async def test_ticks_of_a_paused_queue_follow_their_misfire_policy(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.fleet.schedule(
            "tick", yard.work, Cron("* * * * *"), {"tag": "tick"}, misfire="skip", misfire_grace="90s"
        )
        await yard.fleet.set_queue("default", paused=True)
        await yard.vf.advance("10m30s")
        await yard.fleet.set_queue("default", paused=False)
        await yard.vf.advance("1m")
        assert len(yard.times("tick")) == 2, "the one that was not too late, and the next"
        assert sum(miss.count for miss in yard.vf.misses) == 9


WRONG: list[tuple[Callable[[Fleet], Any], str]] = [
    (lambda fleet: fleet.set_tenant("a", rate="fast"), "rate='fast': expected a number of starts in a time, such as"),
    (lambda fleet: fleet.set_tenant("a", rate="0/s"), "rate='0/s'"),
    (lambda fleet: fleet.set_tenant("a", max_running=0), "max_running=0: expected a whole number from 1"),
    (lambda fleet: fleet.set_tenant("a", weight=True), "weight=True"),
    (lambda fleet: fleet.set_tenant("a", paused="yes"), "paused='yes'"),
    (lambda fleet: fleet.set_tenant("\n"), "tenant '\\\\n'"),
    (lambda fleet: fleet.set_queue("q", max_depth=-1), "max_depth=-1"),
    (lambda fleet: fleet.set_queue("q", on_full="drop"), "on_full='drop': expected 'reject' or 'wait'"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
async def test_wrong_limits_are_refused(store_url: str, call: Callable[[Fleet], Any], message: str) -> None:
    async with Fleet(store_url) as fleet:
        with pytest.raises(ConfigError, match=message):
            await call(fleet)
        assert await fleet.tenants() == []
        assert await fleet.queues() == []


async def test_pausing_what_is_not_there(store_url: str) -> None:
    async with Fleet(store_url) as fleet:
        for call in (fleet.pause, fleet.resume, fleet.pause_job, fleet.resume_job):
            with pytest.raises(NotFound, match="is named 'nobody'"):
                await call("nobody")


async def test_settings_are_kept_until_changed(store_url: str) -> None:
    async with Fleet(store_url) as fleet:
        first = await fleet.set_tenant("acme", rate="100/m", weight=2)
        assert (first.rate, first.burst, first.max_running, first.weight, first.paused) == (
            "100/m",
            None,
            None,
            2,
            False,
        )
        second = await fleet.set_tenant("acme", max_running=5, paused=True)
        assert (second.rate, second.max_running, second.weight, second.paused) == ("100/m", 5, 2, True)
        await fleet.set_tenant("acme", rate=None, paused=False)
        assert [(t.rate, t.max_running, t.paused) for t in await fleet.tenants()] == [(None, 5, False)]
        queue = await fleet.set_queue("q", max_depth=10, on_full="wait")
        assert (queue.max_depth, queue.on_full, queue.paused, queue.depth) == (10, "wait", False, 0)


async def test_the_tenant_without_a_name_can_be_limited(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.fleet.set_tenant("", max_running=1)
        await yard.submit(3, "", tag="x", seconds=10)
        await yard.vf.advance("25s")
        assert yard.times("x") == [0, 10, 20]


async def test_a_long_rest_does_not_hold_others_up(store_url: str) -> None:
    async with Yard(store_url, slots=2) as yard:
        await yard.fleet.set_tenant("slow", rate="1/h")
        await yard.submit(500, "slow")
        await yard.submit(20, "quick")
        await yard.vf.advance("10s")
        assert yard.times("slow") == [0]
        assert len(yard.times("quick")) == 20
        assert timedelta(seconds=max(yard.times("quick"))) <= timedelta(seconds=1)


@pytest.fixture
def nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers read limits and pauses when they start, and neither each second nor when these change: the message is late."""
    monkeypatch.setattr(allowance, "EVERY", float("inf"))
    monkeypatch.setattr(Claimer, "limits_changed", lambda claimer: claimer.wake(sweep=True))


@pytest.mark.usefixtures("nobody_is_told")
async def test_a_limit_holds_for_what_is_submitted_after_it_though_nobody_was_told(store_url: str) -> None:
    async with Yard(store_url) as yard:
        await yard.submit(1, "acme", tag="before")
        await yard.vf.advance("100ms")
        await yard.fleet.set_tenant("acme", max_running=1)
        await yard.submit(3, "acme", tag="after", seconds=10)
        await yard.vf.advance("35s")
        assert [round(at) for at in yard.times("after")] == [0, 10, 20]


@pytest.mark.usefixtures("nobody_is_told")
@pytest.mark.parametrize("what", ["job", "tenant", "queue"])
async def test_a_pause_holds_for_what_is_submitted_after_it_though_nobody_was_told(store_url: str, what: str) -> None:
    async with Yard(store_url) as yard:
        await yard.submit(1, "acme", tag="before")
        await yard.vf.advance("100ms")
        match what:
            case "job":
                await yard.fleet.pause_job("work")
            case "tenant":
                await yard.fleet.set_tenant("acme", paused=True)
            case _:
                await yard.fleet.set_queue("default", paused=True)
        await yard.submit(2, "acme", tag="after")
        await yard.vf.advance("5s")
        assert (yard.times("before"), yard.times("after")) == ([0], [])
