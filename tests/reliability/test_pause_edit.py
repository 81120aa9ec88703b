"""The cases of the class pause-edit (reliability.md), by id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from fleetcron import Cron, Every, Once
from fleetcron.decide.ticks import plan
from fleetcron.scheduler.ticker import horizon
from fleetcron.store.protocol import Fire, Tick
from tests.reliability.support import NOON, POLICIES, Notebook, at, check_account, ticks


@pytest.mark.parametrize("workers", [1, 0], ids=["up", "workers-down"])
async def test_C12_resuming_fires_nothing_of_the_pause(store_url: str, workers: int) -> None:
    async with Notebook(store_url, workers=workers) as book:
        await book.each_policy(Every("5s"))
        await book.vf.advance("20s")
        before = len(book.starts)
        for policy in POLICIES:
            await book.fleet.pause(policy)
        await book.vf.advance("22s")
        for policy in POLICIES:
            await book.fleet.resume(policy)
        await book.vf.advance(0)
        assert len(book.starts) == before
        if not workers:
            book.vf.start_worker()
        await book.vf.advance("8s")
        for policy in POLICIES:
            assert [s.started_at for s in book.of(policy)][-2:] == [at(12, 0, 45), at(12, 0, 50)]
        assert len(book.starts) == before + 2 * len(POLICIES)


@pytest.mark.parametrize(
    ("old", "new", "edited", "expected"),
    [
        # 2026-03-10 is a Tuesday; the last run was Tuesday 21:00, the edit is on Friday 02:10.
        ("0 21 * * tue,fri", "0 23 * * wed,sun", at(2, 10, day=13), at(23, day=15)),
        ("0 23 * * *", "0 5 * * *", at(12, day=13), at(5, day=14)),
    ],
)
async def test_C13_an_edit_starts_nothing(
    store_url: str, old: str, new: str, edited: datetime, expected: datetime
) -> None:
    async with Notebook(store_url) as book:
        await book.each_policy(Cron(old))
        await book.vf.advance(edited)
        before = len(book.starts)
        assert before >= len(POLICIES)
        await book.each_policy(Cron(new))
        await book.vf.advance("1m")
        assert len(book.starts) == before
        for policy in POLICIES:
            assert (await book.fleet.upcoming(policy, 1)) == [expected]
        await book.vf.advance(expected + timedelta(hours=3))
        assert [s.started_at for s in book.starts[before:]] == [expected] * len(POLICIES)
        assert book.vf.misses == []


async def test_C15_a_schedule_that_was_paused_for_days_runs_again(store_url: str) -> None:
    async with Notebook(store_url) as book:
        await book.each_policy(Cron("*/5 * * * *"))
        await book.vf.advance("12m")
        for policy in POLICIES:
            await book.fleet.pause(policy)
        await book.vf.advance("3d")
        for policy in POLICIES:
            await book.fleet.resume(policy)
        await book.vf.advance("4m")
        for policy in POLICIES:
            assert book.nominals(policy) == [at(12, 5), at(12, 10), at(12, 15, day=13)]
        assert book.vf.misses == []


async def test_C16_an_edit_keeps_instants_apart_from_wall_clocks(store_url: str) -> None:
    """Server in Shanghai: the next run after an edit at 10:02 local is at 10:05 local."""
    local = datetime(2026, 3, 10, 2, 2, tzinfo=UTC)  # 10:02 in Shanghai
    async with Notebook(store_url, now=local - timedelta(minutes=10)) as book:
        await book.fleet.schedule("work", book.work, Cron("*/5 * * * *", tz="Asia/Shanghai"), misfire="skip")
        await book.vf.advance(local)
        await book.fleet.schedule(
            "work", book.work, Cron("*/5 * * * *", tz="Asia/Shanghai"), misfire="skip", priority=3
        )
        before = len(book.starts)
        await book.vf.advance("4m")
        assert [s.started_at for s in book.starts[before:]] == [datetime(2026, 3, 10, 2, 5, tzinfo=UTC)]
        (schedule,) = await book.fleet.schedules()
        for moment in (
            schedule.next_at,
            schedule.prev_at,
            *(r.due_at for r in book.vf.runs),
            *(r.nominal_at for r in book.vf.runs),
        ):
            assert moment is not None and moment.utcoffset() == timedelta(0)
        with pytest.raises(TypeError, match="naive"):
            await book.fleet.schedule("work", book.work, Every("5m"), misfire="skip", start=datetime(2026, 3, 10))  # noqa: DTZ001
        with pytest.raises(TypeError, match="aware"):
            await book.fleet.resume("work", at=datetime(2026, 3, 10))  # noqa: DTZ001


async def edit(book: Notebook, name: str = "work") -> None:
    await book.fleet.schedule(name, book.work, Cron("0 12 * * *"), misfire="fire_all")


async def pause(book: Notebook, name: str = "work") -> None:
    await book.fleet.pause(name)


async def remove(book: Notebook, name: str = "work") -> None:
    await book.fleet.unschedule(name)


async def pause_and_resume(book: Notebook, name: str = "work") -> None:
    await book.fleet.pause(name)
    await book.fleet.resume(name)


CHANGES: dict[str, Callable[..., Awaitable[None]]] = {
    "edit": edit,
    "pause": pause,
    "remove": remove,
    "pause-and-resume": pause_and_resume,
}


@pytest.mark.parametrize("change", CHANGES)
async def test_C18_a_change_between_the_leaders_read_and_its_write(store_url: str, change: str) -> None:
    """The leader's write names the revision that it read: of the old definition nothing is written any more."""
    async with Notebook(store_url) as book:
        await book.minutely(misfire="fire_all")
        await book.vf.advance("10s")
        store = book.fleet.store
        (leader,) = await book.fleet.leaders()
        now = await store.now()
        until = horizon(now) + timedelta(minutes=5)
        (read,) = await store.due_schedules(0, until, 10)
        planned = plan(read, now, until, timedelta(seconds=15))
        assert planned.ticks
        await CHANGES[change](book)
        assert read.next_at is not None
        fire = Fire(
            schedule_id=read.id,
            revision=read.revision,
            old_next=read.next_at,
            new_next=planned.new_next,
            ticks=[Tick(*tick) for tick in planned.ticks],
        )
        fired = await store.fire(0, leader.term, [fire], tzdata="x", until=None)
        assert (fired.led, fired.runs, fired.advanced) == (True, 0, [])
        await book.vf.advance(until)
        ran = book.nominals()
        assert len(ran) == len(set(ran))
        assert ran == ([] if change != "pause-and-resume" else ticks(Cron("* * * * *"), NOON, until))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("late", [False, True], ids=["on-time", "workers-down"])
async def test_C18_a_change_takes_back_what_was_written_ahead(store_url: str, change: str, late: bool) -> None:
    async with Notebook(store_url, workers=int(not late)) as book:
        await book.minutely(misfire="fire_all")
        await book.vf.advance("2m30s")
        before = len(book.starts)
        await CHANGES[change](book)
        if late:
            book.vf.start_worker()
        await book.vf.advance("1m")
        again = change == "pause-and-resume"
        assert [s.started_at for s in book.starts[before:]] == ([at(12, 3)] if again else [])
        named = ticks(Cron("* * * * *"), NOON, at(12, 3) if again else at(12, 2))
        check_account(named, book.vf.runs, book.vf.misses)
        if late:
            reason = {"edit": "edited", "remove": "schedule removed"}.get(change, "paused")
            assert [(m.first, m.last, m.count, m.reason) for m in book.vf.misses] == [(at(12, 1), at(12, 2), 2, reason)]


async def test_C19_a_pause_may_say_when_it_ends(store_url: str) -> None:
    async with Notebook(store_url) as book:
        await book.each_policy(Cron("*/10 * * * *"))
        await book.vf.advance("1m")
        for policy in POLICIES * 2:
            await book.fleet.pause(policy)
        await book.vf.advance("1h")
        for policy in POLICIES * 2:
            await book.fleet.resume(policy, at=at(15))
        await book.vf.advance(at(15, 15))
        for policy in POLICIES:
            assert book.nominals(policy) == [at(15), at(15, 10)], "from that instant on, which itself counts"
        assert book.vf.misses == []


@pytest.mark.parametrize("ahead", [0.0, 2.0])
async def test_C19_a_pause_at_any_moment_of_a_tick(store_url: str, ahead: float) -> None:
    """Just before, at, and just after the instant, with the tick claimed ahead of its time or not: before it the tick does not run any more
    (unless the store lets a worker keep what it has in hand), at it and after it has run; the ones after it do not."""
    async with Notebook(store_url, ahead=ahead) as book:
        for hour, offset in enumerate((-3.0, -1.0, -0.001, 0.0, 0.001), start=13):
            name, tick = f"paused {offset:+} s", at(hour)
            await book.fleet.schedule(name, book.work, Cron("*/10 * * * *"), misfire="fire_all")
            await book.vf.advance(tick + timedelta(seconds=offset))
            await book.fleet.pause(name)
            await book.vf.advance("15m")
            before = tick - timedelta(minutes=10)
            allowed = [tick] if offset >= 0 else [before, tick] if -ahead < offset else [before]
            assert book.nominals(name)[-1] in allowed, name
            assert len(book.nominals(name)) == len(set(book.nominals(name)))


@pytest.mark.parametrize("at_pause", [True, False], ids=["before", "after"])
async def test_a_one_shot_survives_its_pause(store_url: str, at_pause: bool) -> None:
    """Paused across its instant it runs at the resume, once; it is not lost, as its instant does not come again."""
    async with Notebook(store_url) as book:
        await book.fleet.schedule("work", book.work, Once(at(12, 1)))
        await book.vf.advance("30s")  # it is written ahead
        await book.fleet.pause("work")
        await book.vf.advance("10s" if at_pause else "5m")
        assert book.starts == []
        await book.fleet.resume("work")
        await book.vf.advance("5m")
        assert [s.started_at for s in book.starts] == [at(12, 1) if at_pause else at(12, 5, 30)]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_while_no_leader_lives_records_what_was_due(store_url: str, change: str) -> None:
    """Ticks that came due before the change and that nobody had even written are not lost in silence either."""
    async with Notebook(store_url) as book:
        trigger = Cron("* * * * *")
        await book.each_policy(trigger)
        await book.vf.advance("30s")
        book.vf.stop_scheduler()
        await book.vf.advance(at(12, 10, 30))
        for policy in POLICIES:
            await CHANGES[change](book, policy)
        await book.vf.advance("3m")  # a pause is no outage: its time is not counted
        book.vf.start_scheduler()
        await book.vf.advance("30s")
        again = change == "pause-and-resume"
        reason = {"edit": "edited", "remove": "schedule removed"}.get(change, "paused")
        for policy in POLICIES:
            book.check_account(policy, ticks(trigger, NOON, book.vf.now if again else at(12, 10, 30)))
            recorded = [
                (m.first, m.last, m.count) for m in book.vf.misses if (m.schedule, m.reason) == (policy, reason)
            ]
            assert recorded == [(at(12, 2), at(12, 10), 9)]


@pytest.mark.parametrize("change", ["pause-and-resume", "same-again"])
async def test_a_one_shot_that_no_leader_has_written_yet_is_not_lost(store_url: str, change: str) -> None:
    async with Notebook(store_url, schedulers=0) as book:
        await book.fleet.schedule("work", book.work, Once(at(12, 1)))
        await book.vf.advance("5m")
        if change == "same-again":
            await book.fleet.schedule("work", book.work, Once(at(12, 1)), priority=3)
        else:
            await pause_and_resume(book)
        book.vf.start_scheduler()
        await book.vf.advance("5m")
        assert [(s.nominal_at, s.started_at) for s in book.starts] == [(at(12, 1), at(12, 5))]
        assert book.vf.misses == []


async def test_editing_a_paused_schedule_counts_nothing_of_the_pause(store_url: str) -> None:
    async with Notebook(store_url) as book:
        await book.minutely(misfire="fire_all")
        await book.vf.advance("90s")
        await book.fleet.pause("work")
        await book.vf.advance("1h")
        await book.fleet.schedule("work", book.work, Cron("*/2 * * * *"), misfire="fire_all", paused=True)
        await book.vf.advance("1h")
        await book.fleet.schedule("work", book.work, Cron("*/10 * * * *"), misfire="fire_all")
        await book.vf.advance("10m")
        assert book.nominals() == [at(12, 1), at(14, 10)]
        assert book.vf.misses == []


@pytest.mark.parametrize("ahead", [0.0, 2.0])
async def test_an_edit_just_before_a_tick_keeps_it(store_url: str, ahead: float) -> None:
    """Both definitions name the instant. Whether a worker has the tick in hand or not, it runs, once."""
    async with Notebook(store_url, ahead=ahead) as book:
        await book.minutely(misfire="fire_all")
        for n, seconds in enumerate((50, 58.5, 59.9, 59.999999)):
            await book.vf.advance(at(12, n, seconds))
            await book.minutely(misfire="fire_all", priority=n)
            await book.vf.advance(at(12, n + 1))
            assert [s.started_at for s in book.starts] == [at(12, k) for k in range(1, n + 2)]
        assert book.vf.misses == []
