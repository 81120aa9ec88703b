"""Everything down, or a part of it, across ticks that were written ahead: what starts late, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from fleetcron import Context, Cron, Every, Fleet, Missed, Retry, Snooze
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON, POLICIES, Notebook, at, check_account, ticks

# The outage: 12:00:30 to 12:10:20, so 12:01 to 12:10 do not start in time, and 12:01 is written before it.
DOWN, UP, END = at(12, 0, 30), at(12, 10, 20), at(12, 13)
FIRST, LAST = at(12, 1), at(12, 10)

# Schedule → its policy, and how many of the latest missed ticks start late. 12:10 is 20 s old when everything is up again.
OUTCOMES: dict[str, tuple[dict[str, Any], int]] = {
    "fire_all": ({"misfire": "fire_all"}, 10),
    "fire_all, grace 5m": ({"misfire": "fire_all", "misfire_grace": "5m"}, 10),
    "fire_all, limit 3": ({"misfire": "fire_all", "catchup_limit": 3}, 3),
    "fire_all, limit 0": ({"misfire": "fire_all", "catchup_limit": 0}, 0),
    "fire_once": ({"misfire": "fire_once"}, 1),
    "fire_once, grace 0": ({"misfire": "fire_once", "misfire_grace": 0}, 1),
    "fire_once, grace 1h": ({"misfire": "fire_once", "misfire_grace": "1h"}, 1),
    "skip": ({"misfire": "skip"}, 1),
    "skip, grace 10s": ({"misfire": "skip", "misfire_grace": "10s"}, 0),
    "skip, grace 0": ({"misfire": "skip", "misfire_grace": 0}, 0),
    "skip, grace 1h": ({"misfire": "skip", "misfire_grace": "1h"}, 1),
}
TRIGGER = Cron("* * * * *")


async def define(book: Notebook) -> None:
    """A minutely schedule for each policy, all of them in one fleet and through one outage."""
    await book.fleet.schedule_many([(name, book.work, TRIGGER, {}, options) for name, (options, _) in OUTCOMES.items()])


def crash(vf: VirtualFleet) -> None:
    vf.crash_scheduler()
    vf.crash_worker()


def stop(vf: VirtualFleet) -> None:
    vf.stop_worker()
    vf.stop_scheduler()


def start(vf: VirtualFleet) -> None:
    vf.start_scheduler()
    vf.start_worker()


def start_worker_first(vf: VirtualFleet) -> None:
    vf.start_worker()
    vf.start_scheduler()


def freeze(vf: VirtualFleet) -> None:
    vf.freeze_scheduler()
    vf.freeze_worker()


def thaw(vf: VirtualFleet) -> None:
    vf.thaw_worker()
    vf.thaw_scheduler()


def check_outage(book: Notebook, first: datetime) -> None:
    """Of the ticks from `first` to 12:10, the latest ones that the policy allows start once all is up again, oldest first; the others
    are missed. Everything before and after is on time."""
    named = ticks(TRIGGER, NOON, END)
    down = [tick for tick in named if first <= tick <= LAST]
    for name, (options, late) in OUTCOMES.items():
        late = min(late, len(down))
        starts = [start for start in book.starts if start.schedule == name]
        runs = [run for run in book.vf.runs if run.schedule == name]
        check_account(named, runs, [miss for miss in book.vf.misses if miss.schedule == name])
        assert [s.nominal_at for s in book.late(name)] == down[len(down) - late :], name
        assert all(UP <= s.started_at <= at(12, 10, 30) for s in book.late(name)), "as soon as everything is up again"
        on_time = [(tick, tick) for tick in named if tick not in down]
        assert [(s.nominal_at, s.started_at) for s in starts if not s.late] == on_time, name
        told = [s.missed for s in book.late(name)]
        if options["misfire"] == "fire_all":
            assert told == [None] * late, name
        elif late:
            assert told == [Missed(first=first, last=at(12, 9), count=len(down) - 1)], name
        # Nobody else is told, but the first one in time where no late one was there to be told.
        rest = [s for s in starts if not s.late and s.missed is not None]
        assert [s.nominal_at for s in rest] in (
            [],
            [at(12, 11)] if late == 0 and options["misfire"] != "fire_all" else [],
        ), name


@pytest.mark.parametrize(
    ("down", "up"),
    [
        pytest.param(stop, start, id="stopped"),
        pytest.param(crash, start, id="crashed"),
        pytest.param(crash, start_worker_first, id="crashed-worker-first"),
        pytest.param(freeze, thaw, id="frozen"),
    ],
)
async def test_everything_down(
    store_url: str, down: Callable[[VirtualFleet], None], up: Callable[[VirtualFleet], None]
) -> None:
    async with Notebook(store_url) as book:
        await define(book)
        await book.vf.advance(DOWN)
        down(book.vf)
        await book.vf.advance(UP)
        assert book.starts == []
        up(book.vf)
        await book.vf.advance(END)
        check_outage(book, FIRST)


@pytest.mark.parametrize("how", ["stopped", "crashed", "frozen"])
async def test_only_the_workers_down(store_url: str, how: str) -> None:
    """The leader judges meanwhile what nobody starts; the account is the same."""
    async with Notebook(store_url) as book:
        await define(book)
        await book.vf.advance(DOWN)
        {"stopped": book.vf.stop_worker, "crashed": book.vf.crash_worker, "frozen": book.vf.freeze_worker}[how]()
        await book.vf.advance(UP)
        assert book.starts == []
        book.vf.thaw_worker() if how == "frozen" else book.vf.start_worker()
        await book.vf.advance(END)
        check_outage(book, FIRST)


async def test_only_the_scheduler_down(store_url: str) -> None:
    """Ticks written ahead start on time without a leader; the others are judged when one is back."""
    async with Notebook(store_url) as book:
        await define(book)
        await book.vf.advance(DOWN)
        book.vf.crash_scheduler()
        await book.vf.advance(UP)
        assert {(s.nominal_at, s.started_at) for s in book.starts} == {(FIRST, FIRST)}
        book.vf.start_scheduler()
        await book.vf.advance(END)
        check_outage(book, at(12, 2))


@pytest.mark.parametrize("away", [0, 30], ids=["same-instant", "30s"])
async def test_a_worker_frozen_with_ticks_in_its_hands(store_url: str, away: float) -> None:
    """A worker that has claimed a tick ahead of its time is suspended before it starts it, and wakes up long after: it starts nothing
    under the session that it believes in; the tick is judged like any other late one."""
    async with Notebook(store_url, ahead=2.0) as book:
        await book.each_policy(TRIGGER)
        await book.vf.advance(at(12, 0, 59))  # 12:01 is claimed and waits on a timer
        assert {run.state for run in await book.fleet.runs(until=at(12, 1, 30))} == {"scheduled"}
        book.vf.freeze_worker()
        await book.vf.advance(at(12, 4, 30))
        assert book.starts == []
        book.vf.thaw_worker()
        await book.vf.advance(away)
        await book.vf.advance(at(12, 6))
        named = ticks(TRIGGER, NOON, at(12, 6))
        for policy in POLICIES:
            book.check_account(policy, named)
            late = named[:4] if policy == "fire_all" else [at(12, 4)]
            assert [s.nominal_at for s in book.late(policy)] == late
        assert all(s.attempt == 1 for s in book.starts), "what had not started has cost no attempt"


async def test_a_worker_frozen_while_another_one_works(store_url: str) -> None:
    """What a frozen worker had claimed ahead is taken over within a lease; nothing is lost and nothing starts twice when it wakes."""
    async with Notebook(store_url, ahead=2.0, lease="15s") as book:
        await book.each_policy(TRIGGER)
        await book.vf.advance(at(12, 0, 59))
        frozen = book.vf.freeze_worker()
        book.vf.start_worker()
        await book.vf.advance(at(12, 2, 30))
        for policy in POLICIES:
            assert book.nominals(policy) == [at(12, 1), at(12, 2)]
            assert book.of(policy)[0].started_at <= at(12, 1, 14.1), "a lease after the freeze at 12:00:59"
        book.vf.thaw_worker(frozen.role)
        await book.vf.advance(at(12, 5))
        for policy in POLICIES:
            book.check_account(policy, ticks(TRIGGER, NOON, at(12, 5)))
        assert book.vf.misses == []


@pytest.mark.parametrize("seed", range(3))
async def test_an_outage_that_flaps(store_url: str, seed: int) -> None:
    """Workers that come for an instant, many times in one outage of the leader's or not, whoever takes the first turn: at most one late
    start each time anything is up, and the account is right."""
    async with Notebook(store_url, seed=seed, workers=2) as book:
        trigger = Every("20s")
        await book.each_policy(trigger, misfire_grace="30s")
        for turn in range(4):
            await book.vf.advance("70s")
            book.vf.crash_worker()
            book.vf.crash_worker()
            if turn % 2:
                book.vf.crash_scheduler()
            await book.vf.advance("95s")
            before = {policy: len(book.late(policy)) for policy in POLICIES}
            book.vf.start_worker()
            book.vf.start_worker()
            await book.vf.advance(0)
            if turn % 2:
                book.vf.start_scheduler()
            await book.vf.advance("1s")
            for policy in ("fire_once", "skip"):
                assert len(book.late(policy)) - before[policy] <= 1
        await book.vf.advance("1m")
        for policy in POLICIES:
            book.check_account(policy, ticks(trigger, NOON, book.vf.now))


@pytest.mark.parametrize("how", ["snoozed", "failed"])
async def test_a_run_that_has_started_is_not_judged_with_late_ticks(store_url: str, how: str) -> None:
    """12:01 begins and is due again at 12:11. A worker that comes at 12:11:30 claims it together with the ticks of an outage."""
    fleet = Fleet(store_url)
    starts: list[datetime] = []

    @fleet.job("work", every="1m", misfire="fire_once", retry=Retry(backoff="10m", jitter="none"))
    async def work(ctx: Context) -> None:
        assert ctx.nominal_at is not None
        starts.append(ctx.nominal_at)
        if starts == [FIRST]:
            raise Snooze("10m") if how == "snoozed" else ConnectionError("the first attempt fails")

    async with VirtualFleet(fleet, now=NOON) as vf:
        await vf.advance(at(12, 8, 30))
        vf.stop_worker()
        vf.stop_scheduler()
        await vf.advance(at(12, 11, 30))
        vf.start_worker()
        await vf.advance(0)
        assert starts[8:] == [FIRST], "12:09 was written, but a later one is due: it waits for the leader's judgement"
        vf.start_scheduler()
        await vf.advance(0)
        assert starts[8:] == [FIRST, at(12, 11)]
        assert {run.state for run in vf.runs} == {"succeeded"}
        check_account(ticks(Cron("* * * * *"), NOON, vf.now), vf.runs, vf.misses)


async def test_a_database_that_was_away_for_longer_than_a_lease_reruns_nothing(store_url: str) -> None:
    """Everybody waits for the database for a minute, then goes on. The workers report before anybody is declared dead, and the run that
    was under way meanwhile ends as what it is: the first attempt."""
    fleet = Fleet(store_url, lease="15s")
    starts: list[datetime] = []

    @fleet.job("work")
    async def work() -> str:
        starts.append(vf.now)
        await vf.sleep("5m")
        return "done"

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(work)
        await vf.advance("30s")
        freeze(vf)
        await vf.advance("1m")
        thaw(vf)
        await vf.advance("10m")
        await run.refresh()
        assert (run.state, run.result, [a.number for a in run.attempts], starts) == ("succeeded", "done", [1], [NOON])
