"""The registry of schedules: creating, reading, editing, removing."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fleetcron.errors import StoreError
from fleetcron.model import Schedule
from fleetcron.store.protocol import Store
from fleetcron.triggers import Cron, Every, Once, Trigger
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    MINUTE,
    START,
    Clock,
    at,
    fired,
    hand,
    job,
    judge,
    lead,
    look,
    put,
    runs_of,
    schedule,
    second,
    state,
    the_run,
    the_schedule,
)

HOURS = timedelta(hours=2)


async def misses(store: Store, name: str = "tick") -> list[tuple[datetime, datetime, int, str]]:
    return [(m.first, m.last, m.count, m.reason) for m in await store.misses(name)]


@pytest.mark.parametrize(
    "trigger",
    [
        Every(60),
        Every("1h30m", anchor=datetime(2031, 5, 6, 13, 15, tzinfo=UTC)),
        Cron("0 9 * * MON-FRI", tz="Europe/Berlin"),
        Cron("*/10 * * * * *"),
        Once(at(3600)),
    ],
    ids=repr,
)
async def test_a_schedule_comes_back_as_it_was_put(store: Store, trigger: Trigger) -> None:
    full = schedule(
        "kunden/übersicht '; --",
        trigger,
        misfire="skip",
        payload='{"ü": [1, 2.50, null]}',
        misfire_grace=second(7.5),
        catchup_limit=17,
        overlap="queue_one",
        jitter=second(3),
        start=at(-100),
        end=at(10**8),
        start_deadline=second(90),
        tenant="acme",
        queue="reports",
        priority=9,
        tzdata="2031a",
    )
    assert await put(store, full) == ["created"]
    found = await the_schedule(store, full.name)
    kept = {"id", "shard", "revision", "next_at", "prev_at"}
    assert {f: getattr(found, f) for f in found.__struct_fields__ if f not in kept} == {
        f: getattr(full, f) for f in full.__struct_fields__ if f not in kept
    }
    assert (found.revision, found.next_at) == (1, trigger.next(START))
    assert found.prev_at == trigger.latest(START)


async def test_putting_the_same_again_changes_nothing(store: Store, clock: Clock) -> None:
    """An application that starts again registers what it declares: nothing may move."""
    assert await put(store, schedule("a"), schedule("b")) == ["created", "created"]
    before = await store.schedules()
    clock.advance(1000)
    assert await put(store, schedule("b"), schedule("c"), schedule("a")) == ["unchanged", "created", "unchanged"]
    assert [s for s in await store.schedules() if s.name != "c"] == before


@pytest.mark.parametrize(
    "change",
    [
        {"trigger": Every(90)},
        {"misfire": "skip"},
        {"payload": '{"a":1}'},
        {"misfire_grace": second(1)},
        {"catchup_limit": 3},
        {"overlap": "skip"},
        {"jitter": second(1)},
        {"start": at(7200)},
        {"end": at(7200)},
        {"start_deadline": second(30)},
        {"tenant": "acme"},
        {"queue": "q"},
        {"priority": 0},
        {"job": "other"},
        {"paused": True},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_any_change_is_an_edit_with_a_new_revision(store: Store, change: dict[str, object]) -> None:
    await put(store, schedule())
    before = await the_schedule(store)
    assert await put(store, schedule(**change)) == ["edited"]
    after = await the_schedule(store)
    assert (after.id, after.shard, after.revision) == (before.id, before.shard, before.revision + 1)
    assert all(getattr(after, field) == value for field, value in change.items())
    assert await put(store, schedule(**change)) == ["unchanged"]


async def test_creating_never_back_fires(store: Store, clock: Clock) -> None:
    """Case C10: a start in 1970 is no list of decades to catch up with."""
    await put(store, schedule(trigger=Every(86_400), misfire="fire_all", start=datetime(1970, 1, 1, tzinfo=UTC)))
    found = await the_schedule(store)
    assert found.next_at == datetime(2031, 5, 7, tzinfo=UTC)


async def test_editing_never_back_fires(store: Store, clock: Clock) -> None:
    """Case C13: the new expression is not asked what it would have done since the last run."""
    clock.moment = datetime(2031, 5, 6, 12, 0, tzinfo=UTC)
    await put(store, schedule(trigger=Cron("0 23 * * *")))
    clock.moment = datetime(2031, 5, 7, 12, 0, tzinfo=UTC)
    await put(store, schedule(trigger=Cron("0 5 * * *")))
    assert (await the_schedule(store)).next_at == datetime(2031, 5, 8, 5, 0, tzinfo=UTC)
    assert await runs_of(store, "tick") == []


async def test_a_schedule_of_an_unknown_job_is_refused(store: Store) -> None:
    """It could never run, and its ticks would stop those of the whole shard."""
    with pytest.raises(StoreError, match=r"'tick'.*'nobody'"):
        await put(store, schedule(job="nobody"))
    assert await store.schedules() == []
    await put(store, schedule())
    with pytest.raises(StoreError, match=r"'tick'.*'nobody'"):
        await put(store, schedule(job="nobody"))
    assert (await the_schedule(store)).job == "work"


async def test_a_job_and_its_first_schedule_are_not_torn_apart(store: Store, open_store: OpenStore) -> None:
    """Removing the one while the other is made: one of the two is refused."""
    other = await open_store()
    refused = 0
    for n in range(20):
        await store.put_jobs([job(f"job-{n}")])
        answers = await asyncio.gather(
            put(store, schedule(f"s{n}", job=f"job-{n}")), other.remove_job(f"job-{n}", "ann"), return_exceptions=True
        )
        (error,) = [a for a in answers if isinstance(a, BaseException)]
        assert isinstance(error, StoreError)
        refused += 1
    jobs = {j.name for j in await store.jobs()}
    assert {s.job for s in await store.schedules()} <= jobs
    assert refused == 20


async def test_several_processes_that_put_the_same_schedules(store: Store, open_store: OpenStore) -> None:
    """A fleet that starts: one creates, the others find it done."""
    stores = [store, *[await open_store() for _ in range(2)]]
    for n in range(10):
        answers = await asyncio.gather(*(put(s, *(schedule(f"s{n}-{i}") for i in range(3))) for s in stores))
        for i in range(3):
            assert sorted(answer[i] for answer in answers) == ["created", "unchanged", "unchanged"]
    assert {s.revision for s in await store.schedules()} == {1}
    assert await look(store, "SELECT count(*) FROM audit") == [(30,)]


async def test_an_edit_withdraws_what_has_not_started(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=HOURS)
    ids = await fired(store, term, "tick", *(at(60 * n) for n in range(1, 6)))
    worker = await hand(store, ttl=HOURS)
    clock.advance(60)
    running = await worker.claim_one()
    clock.advance(90)  # the second tick is due, and waits
    await store.promote()
    await put(store, schedule(trigger=Every(3600)))
    assert await runs_of(store, "tick") == ids[:2]  # ticks of the future were never due: gone without a trace
    assert (await the_run(store, ids[0])).state == "running"
    second_tick = await the_run(store, ids[1])
    assert (second_tick.state, second_tick.reason, second_tick.finished_at) == ("missed", "edited", at(150))
    assert await misses(store) == [(at(120), at(120), 1, "edited")]
    assert await worker.claim(ahead=3600) == []
    assert await worker.complete(running) == {ids[0]}
    assert (await the_schedule(store)).next_at == at(3600)


async def test_the_new_definition_may_name_an_instant_of_the_old_one(store: Store) -> None:
    await put(store, schedule())
    term = await lead(store)
    await fired(store, term, "tick", at(60), at(120))
    await put(store, schedule(payload='{"new":1}'))
    assert (await the_schedule(store)).next_at == at(60)
    ids = await fired(store, term, "tick", at(60), at(120))
    assert [(await the_run(store, i)).payload for i in ids] == ['{"new":1}'] * 2


@pytest.mark.parametrize("how", ["retried", "snoozed", "handed back", "rescued", "replayed"])
@pytest.mark.parametrize("change", ["edit", "pause", "remove", "judge"])
async def test_what_has_started_once_is_not_withdrawn_nor_judged(
    store: Store, clock: Clock, how: str, change: str
) -> None:
    """It waits again, but not for its start: an edit or a misfire policy has no say in it."""
    await put(store, schedule(), schedule("old"))
    term = await lead(store, ttl=HOURS)
    await fired(store, term, "old", at(60))
    (run_id,) = await fired(store, term, "tick", at(61), late_at=at(75))
    clock.advance(62)
    worker = await hand(store, ttl=HOURS)
    old, run = await worker.claim()
    assert run.run_id == run_id
    await worker.hand_back(old, started=False)  # something older in the lane, so that the look back goes far enough
    match how:
        case "retried":
            await worker.settle(run, delay=second(5))
        case "snoozed":
            await worker.settle(run, attempt=0, record="snoozed", delay=second(5))
        case "handed back":
            await worker.hand_back(run, started=True)
        case "rescued":
            await store.rescue([worker.id], expired=False)
        case "replayed":
            await worker.settle(run, "failed", dead=True)
            await store.replay([run_id], "ann")
    clock.advance(30)
    match change:
        case "edit":
            await put(store, schedule(trigger=Every(3600)))
        case "pause":
            await store.pause_schedule("tick", "ann")
        case "remove":
            await store.remove_schedule("tick", "ann")
        case "judge":
            clock.advance(3600)
            await judge(store, "tick", leader=(0, term))
    assert await state(store, run_id) in ("ready", "retrying")
    clock.advance(60)
    assert run_id in [r.run_id for r in await (await hand(store)).claim()]


async def test_removing(store: Store, clock: Clock) -> None:
    assert await store.remove_schedule("nobody", "ann") is False
    await put(store, schedule(), schedule("other"))
    term = await lead(store, ttl=HOURS)
    ids = await fired(store, term, "tick", at(60), at(120), at(600))
    clock.advance(90)
    assert await store.remove_schedule("tick", "ann") is True
    assert await store.remove_schedule("tick", "ann") is False
    assert [s.name for s in await store.schedules()] == ["other"]
    assert await state(store, ids[0]) == "missed"
    assert [await store.run(i) for i in ids[1:]] == [None, None]
    assert await misses(store) == [(at(60), at(60), 1, "schedule removed")]


async def test_a_name_can_be_used_again(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=HOURS)
    await fired(store, term, "tick", at(60))
    clock.advance(61)
    await store.remove_schedule("tick", "ann")
    assert await put(store, schedule()) == ["created"]
    found = await the_schedule(store)
    assert (found.revision, found.next_at) == (1, at(120))


async def test_reading_by_name_by_job_and_by_page(store: Store) -> None:
    await put(store, *(schedule(f"s{i}", job=("work", "other")[i % 2]) for i in range(7)))
    assert [s.name for s in await store.schedules()] == [f"s{i}" for i in range(7)]
    assert [s.name for s in await store.schedules(name="s3")] == ["s3"]
    assert await store.schedules(name="s") == []
    assert [s.name for s in await store.schedules(job="other")] == ["s1", "s3", "s5"]
    assert [s.name for s in await store.schedules(limit=3)] == ["s0", "s1", "s2"]
    assert [s.name for s in await store.schedules(limit=3, after="s2")] == ["s3", "s4", "s5"]
    assert [s.name for s in await store.schedules(job="work", after="s2")] == ["s4", "s6"]


async def test_who_did_what_is_written_down(store: Store, clock: Clock) -> None:
    """Case C19."""
    await put(store, schedule(), who="ann")
    clock.advance(1)
    await put(store, schedule(trigger=Every(90)), who="bob")
    await put(store, schedule(trigger=Every(90)), who="cid")  # nothing happens
    for _ in range(2):  # the second of each is idle
        await store.pause_schedule("tick", "dan")
    for _ in range(2):
        await store.resume_schedule("tick", "eve", None, lambda s, now: now + MINUTE)
    await store.remove_schedule("tick", "fay")
    lines = await look(store, "SELECT who, what, subject FROM audit ORDER BY id")
    assert lines == [
        ("ann", "create schedule", "tick"),
        ("bob", "edit schedule", "tick"),
        ("dan", "pause schedule", "tick"),
        ("eve", "resume schedule", "tick"),
        ("fay", "remove schedule", "tick"),
    ]


async def test_a_schedule_that_cannot_be_evaluated_here_is_put_aside(store: Store, clock: Clock) -> None:
    """Case C110: an unknown zone stops its schedule and says so; the others go on."""
    await put(store, schedule("bad"), schedule("good"))
    bad = await the_schedule(store, "bad")
    await store.schedule_error(bad.id, "no zone is called 'Mars/Base'")
    assert [s.name for s in await store.due_schedules(0, at(600), 10)] == ["good"]
    (broken,) = await store.broken_schedules(0)
    assert isinstance(broken, Schedule)
    assert broken.name == "bad"
    assert await store.broken_schedules(1) == []
    await store.schedule_error(bad.id, None)
    assert await store.broken_schedules(0) == []
    assert [s.name for s in await store.due_schedules(0, at(600), 10)] == ["bad", "good"]
    again = await the_schedule(store, "bad")
    assert again.revision == bad.revision + 2


async def test_putting_a_broken_schedule_again_mends_it(store: Store) -> None:
    await put(store, schedule())
    await store.schedule_error((await the_schedule(store)).id, "no zone is called 'Mars/Base'")
    await put(store, schedule(payload='{"a":1}'))
    assert await store.broken_schedules(0) == []
