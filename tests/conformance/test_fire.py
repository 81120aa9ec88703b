"""Writing ticks as runs."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from fleetcron.decide.ticks import first_tick
from fleetcron.model import Schedule
from fleetcron.store.protocol import Fire, Store, Tick
from fleetcron.triggers import Every
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    HORIZON,
    START,
    Clock,
    at,
    fire,
    fired,
    hand,
    info,
    insert_one,
    job,
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


def planned(of: Schedule, *nominal: datetime, new_next: datetime | None) -> Fire:
    assert of.next_at is not None
    ticks = [Tick(moment, moment, None) for moment in nominal]
    return Fire(schedule_id=of.id, revision=of.revision, old_next=of.next_at, new_next=new_next, ticks=ticks)


async def test_due_schedules_are_those_before_the_horizon_earliest_first(store: Store) -> None:
    await put(
        store,
        schedule("later", Every(3600)),
        schedule("second", Every(70)),
        schedule("first", Every(20)),
        schedule("paused", Every(10), paused=True),
    )
    due = await store.due_schedules(0, START + HORIZON, 10)
    assert [s.name for s in due] == ["first", "second"]
    assert [s.name for s in await store.due_schedules(0, START + HORIZON, 1)] == ["first"]
    next_at = due[0].next_at
    assert next_at is not None
    assert await store.due_schedules(0, next_at, 10) == []  # the horizon itself is not before it
    assert await store.due_schedules(1, START + HORIZON, 10) == []


async def test_ticks_become_runs_and_the_schedule_moves_on(store: Store, clock: Clock) -> None:
    await put(store, schedule(tenant="acme", queue="q", priority=2, payload='{"a":1}'))
    before = await the_schedule(store)
    assert before.next_at == at(60)
    term = await lead(store)
    answer = await store.fire(
        0, term, [planned(before, at(60), at(120), at(180), new_next=at(240))], tzdata="2031b", until=at(240)
    )
    assert (answer.led, answer.runs, answer.advanced) == (True, 3, [before.id])
    after = await the_schedule(store)
    assert (after.next_at, after.revision, after.tzdata) == (at(240), before.revision, "2031b")
    runs = [await the_run(store, i) for i in await runs_of(store, "tick")]
    assert [(r.nominal_at, r.due_at, r.state, r.generation) for r in runs] == [
        (at(s), at(s), "scheduled", 0) for s in (60, 120, 180)
    ]
    assert {(r.job, r.schedule, r.tenant, r.queue, r.priority, r.payload, r.created_at) for r in runs} == {
        ("work", "tick", "acme", "q", 2, '{"a":1}', START)
    }
    assert await look(store, "SELECT count(*) FROM ready") == [(1,)]  # only the first is within the horizon
    (leader,) = await store.leaders()
    assert leader.ticks_until == at(240)


async def test_a_last_tick_leaves_no_next(store: Store) -> None:
    await put(store, schedule())
    term = await lead(store)
    answer = await store.fire(
        0, term, [planned(await the_schedule(store), at(60), new_next=None)], tzdata="", until=None
    )
    assert answer.runs == 1
    assert (await the_schedule(store)).next_at is None
    assert await store.due_schedules(0, at(10**9), 10) == []


async def test_moving_on_without_a_tick(store: Store) -> None:
    await put(store, schedule())
    term = await lead(store)
    answer = await store.fire(0, term, [planned(await the_schedule(store), new_next=at(600))], tzdata="", until=None)
    assert (answer.led, answer.runs, len(answer.advanced)) == (True, 0, 1)
    assert (await the_schedule(store)).next_at == at(600)


async def test_firing_nothing_tells_who_leads(store: Store) -> None:
    term = await lead(store)
    assert (await store.fire(0, term, [], tzdata="", until=None)).led is True
    assert (await store.fire(0, term + 1, [], tzdata="", until=at(60))).led is False
    assert (await store.leaders())[0].ticks_until is None


async def test_a_tick_that_is_due_is_ready(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store)
    clock.advance(61)
    term = await lead(store)
    (run_id,) = await fired(store, term, "tick", at(60))
    assert await state(store, run_id) == "ready"
    assert (await (await hand(store)).claim_one()).run_id == run_id


async def test_jitter_moves_the_due_time_only(store: Store) -> None:
    """Case C95: history keeps the nominal time."""
    await put(store, schedule())
    (run_id,) = await fired(store, await lead(store), "tick", at(60), due_at=at(67))
    run = await the_run(store, run_id)
    assert (run.nominal_at, run.due_at) == (at(60), at(67))


@pytest.mark.parametrize("stale", ["next_at", "revision"])
async def test_a_schedule_that_has_changed_since_it_was_read_does_not_fire(store: Store, stale: str) -> None:
    await put(store, schedule())
    term = await lead(store)
    read = await the_schedule(store)
    if stale == "next_at":
        await fire(store, term, read, at(60))
    else:
        await store.schedule_error(read.id, None)
    answer = await fire(store, term, read, at(60))
    assert (answer.led, answer.runs, answer.advanced) == (True, 0, [])
    assert len(await runs_of(store, "tick")) == int(stale == "next_at")


@pytest.mark.parametrize("change", ["edit", "pause", "remove", "remove and put again"])
async def test_an_edit_between_the_read_and_the_write_wins(store: Store, clock: Clock, change: str) -> None:
    """Case C18: no run of the old definition and the new one both."""
    await put(store, schedule(trigger=Every(60)))
    term = await lead(store)
    read = await the_schedule(store)
    match change:
        case "edit":
            await put(store, schedule(trigger=Every(3600)))
        case "pause":
            await store.pause_schedule("tick", "ann")
        case "remove":
            await store.remove_schedule("tick", "ann")
        case "remove and put again":
            await store.remove_schedule("tick", "ann")
            await put(store, schedule(trigger=Every(60)))
    answer = await fire(store, term, read, at(60))
    assert (answer.led, answer.runs, answer.advanced) == (True, 0, [])
    assert await runs_of(store, "tick") == []


async def test_one_schedule_that_has_changed_does_not_hold_up_the_others(store: Store) -> None:
    await put(store, *(schedule(f"s{i}") for i in range(5)))
    term = await lead(store)
    read = await store.due_schedules(0, at(600), 10)
    await store.pause_schedule("s2", "ann")
    answer = await store.fire(0, term, [planned(s, at(60), new_next=at(120)) for s in read], tzdata="", until=None)
    assert answer.runs == 4
    assert sorted(answer.advanced) == sorted(s.id for s in read if s.name != "s2")
    assert await runs_of(store, "s2") == []


async def test_the_same_tick_twice_is_one_run(store: Store) -> None:
    """Case C42: the unique key holds even if next_at were to move back over an instant that was handled."""
    await put(store, schedule())
    term = await lead(store)
    first = await fired(store, term, "tick", at(60), at(120))
    back = await the_schedule(store)
    answer = await fire(store, term, back, at(60), at(120), at(180))
    assert (answer.led, answer.runs, answer.advanced) == (True, 1, [back.id])
    assert (await runs_of(store, "tick"))[:2] == first


async def test_two_that_both_believe_they_lead_write_each_tick_once(store: Store, open_store: OpenStore) -> None:
    """Case C20: also with one term, so that only compare-and-set and the unique key stand between them."""
    other = await open_store()
    await put(store, schedule(trigger=Every(1)))
    term = await lead(store)
    for n in range(1, 41):
        read = await the_schedule(store)
        answers = await asyncio.gather(*(fire(s, term, read, at(n), new_next=at(n + 1)) for s in (store, other, store)))
        assert sum(a.runs for a in answers) == 1
        assert sum(len(a.advanced) for a in answers) == 1
    assert len(await runs_of(store, "tick")) == 40


@pytest.mark.parametrize("how", ["expired", "taken over", "resigned", "another shard", "never"])
async def test_a_stale_term_writes_nothing_and_says_so(store: Store, clock: Clock, how: str) -> None:
    await put(store, schedule())
    term, shard = await lead(store), 0
    match how:
        case "expired":
            clock.advance(15)
        case "taken over":
            clock.advance(15.1)
            assert await lead(store, node="successor") == term + 1
        case "resigned":
            await store.resign(0, "leader", term)
        case "another shard":
            shard = 1
        case "never":
            term = 4711
    answer = await fire(store, term, await the_schedule(store), at(60), shard=shard)
    assert (answer.led, answer.runs, answer.advanced) == (False, 0, [])
    assert await runs_of(store, "tick") == []
    assert (await the_schedule(store)).next_at == at(60)


async def test_a_takeover_that_races_a_fire_comes_before_or_after_it(
    store: Store, open_store: OpenStore, clock: Clock
) -> None:
    """Never in between: what the old leader wrote, the new one reads."""
    successor = await open_store()
    await put(store, schedule(trigger=Every(1)))
    term = await lead(store, ttl=second(15))
    wrote = 0
    for n in range(1, 31):
        read = await the_schedule(store)
        clock.moment = at(n * 20)
        renewed = await store.renew(0, f"node-{n - 1}", term, second(15)) if n > 1 else False
        assert renewed is False  # its time is past
        answer, new_term = await asyncio.gather(
            fire(store, term, read, at(n), new_next=at(n + 1)),
            successor.campaign(0, info(f"node-{n}"), second(15)),
        )
        assert (answer.led, new_term) == (False, term + 1)
        term = term + 1
        again = await fire(successor, term, await the_schedule(successor), at(n), new_next=at(n + 1))
        wrote += again.runs
        assert again.led
    assert wrote == 30


async def test_each_schedule_belongs_to_one_shard(open_store: OpenStore) -> None:
    store = await open_store(shards=3)
    await store.put_jobs([job()])
    await put(store, *(schedule(f"s{i}") for i in range(12)))
    found = await store.schedules()
    by_shard = [{s.name for s in await store.due_schedules(shard, at(600), 100)} for shard in range(3)]
    assert sorted(name for names in by_shard for name in names) == sorted(s.name for s in found)
    assert [len(names) for names in by_shard] == [4, 4, 4]
    assert all(s.name in by_shard[s.shard] for s in found)
    for shard in range(3):
        term = await lead(store, shard)
        (first, *_) = await store.due_schedules(shard, at(600), 100)
        assert (await fire(store, term, first, at(60), shard=shard)).runs == 1


async def test_a_thousand_ticks_in_one_statement(store: Store) -> None:
    await put(store, *(schedule(f"s{i:04}") for i in range(200)))
    term = await lead(store)
    read = await store.due_schedules(0, at(600), 500)
    fires = [planned(s, *(at(60 * n) for n in range(1, 6)), new_next=at(360)) for s in read]
    answer = await store.fire(0, term, fires, tzdata="", until=at(360))
    assert (answer.runs, len(answer.advanced)) == (1000, 200)


async def test_first_tick_never_back_fires(store: Store, clock: Clock) -> None:
    """What the ticker passes as `first`: strictly after now."""
    clock.advance(60)
    await put(store, schedule())
    found = await the_schedule(store)
    assert found.next_at == at(120)
    assert first_tick(found, clock()) == at(120)


async def test_a_submitted_run_and_a_tick_do_not_meet(store: Store) -> None:
    await put(store, schedule())
    await insert_one(store, due_at=at(60))
    await insert_one(store, due_at=at(60))
    assert len(await fired(store, await lead(store), "tick", at(60))) == 1
    assert await look(store, "SELECT count(*) FROM run") == [(3,)]
