"""Pausing and resuming; one-shots; ticks computed anew."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetcron.decide.ticks import first_tick
from fleetcron.store.protocol import Store
from fleetcron.triggers import Cron, Every, Once
from tests.conformance.kit import (
    Clock,
    at,
    fired,
    hand,
    lead,
    put,
    runs_of,
    schedule,
    state,
    the_run,
    the_schedule,
)

HOURS = timedelta(hours=2)


async def resume(store: Store, name: str = "tick", when: object = None) -> bool:
    return await store.resume_schedule(name, "ann", when, first_tick)  # type: ignore[arg-type]


async def test_a_paused_schedule_is_not_due(store: Store) -> None:
    await put(store, schedule())
    for _ in range(2):
        assert await store.pause_schedule("tick", "ann") is True
    found = await the_schedule(store)
    assert (found.paused, found.revision) == (True, 2)
    assert await store.due_schedules(0, at(10**6), 10) == []
    assert await store.pause_schedule("nobody", "ann") is False
    assert await resume(store, "nobody") is False


async def test_resuming_never_back_fires(store: Store, clock: Clock) -> None:
    """Cases C12, C15: the slots of the pause are gone, and the next one comes however long it was."""
    await put(store, schedule(trigger=Every(5), misfire="fire_all"))
    await store.pause_schedule("tick", "ann")
    clock.advance(3 * 86_400 + 2)
    for _ in range(2):
        assert await resume(store) is True
    found = await the_schedule(store)
    assert (found.paused, found.next_at, found.revision) == (False, at(3 * 86_400 + 5), 3)
    assert [s.name for s in await store.due_schedules(0, clock() + HOURS, 10)] == ["tick"]
    assert await store.misses("tick") == []


async def test_resuming_at_a_time(store: Store, clock: Clock) -> None:
    """Case C19: that very instant included."""
    await put(store, schedule())
    await store.pause_schedule("tick", "ann")
    await resume(store, when=at(600))
    assert (await the_schedule(store)).next_at == at(600)
    await store.pause_schedule("tick", "ann")
    clock.advance(1000)
    await resume(store, when=at(600))  # a time that has passed means now
    assert (await the_schedule(store)).next_at == at(1020)


@pytest.mark.parametrize("promoted", [True, False])
async def test_pausing_withdraws_what_has_not_started(store: Store, clock: Clock, promoted: bool) -> None:
    """Also when nobody promotes: a due tick is a due tick wherever it lies."""
    await put(store, schedule())
    term = await lead(store, ttl=HOURS)
    ids = await fired(store, term, "tick", at(60), at(120), at(180), at(240))
    worker = await hand(store, ttl=HOURS)
    clock.advance(60)
    running = await worker.claim_one()
    clock.advance(90)
    if promoted:
        await store.promote()
    await store.pause_schedule("tick", "ann")
    assert await runs_of(store, "tick") == ids[:2]
    assert (await the_run(store, ids[1])).reason == "paused"
    (miss,) = await store.misses("tick")
    assert (miss.first, miss.count, miss.reason, miss.policy) == (at(120), 1, "paused", "fire_once")
    assert await worker.complete(running) == {ids[0]}


async def test_written_ahead_ticks_come_back_after_a_short_pause(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store)
    await fired(store, term, "tick", at(60), at(120))
    await store.pause_schedule("tick", "ann")
    clock.advance(5)
    await resume(store)
    assert (await the_schedule(store)).next_at == at(60)
    await fired(store, term, "tick", at(60), at(120))


async def test_a_schedule_put_paused_waits_for_its_resume(store: Store, clock: Clock) -> None:
    await put(store, schedule(paused=True))
    assert await store.due_schedules(0, at(10**6), 10) == []
    await resume(store)
    assert (await the_schedule(store)).next_at == at(60)


@pytest.mark.parametrize("change", ["edit", "pause", "remove"])
async def test_what_waits_for_its_turn_is_withdrawn_too(store: Store, clock: Clock, change: str) -> None:
    """A tick that is parked behind a long run has not started either, however old it is."""
    await put(store, schedule(overlap="queue_all"))
    term = await lead(store, ttl=HOURS)
    ids = await fired(store, term, "tick", at(60), at(120))
    worker = await hand(store, ttl=HOURS)
    clock.advance(120)
    await store.promote()
    assert [a.verdict for a in await store.admit(worker.id, await worker.claim())] == ["start", "parked"]
    clock.advance(1800)
    match change:
        case "edit":
            await put(store, schedule(overlap="queue_all", trigger=Every(3600)))
        case "pause":
            await store.pause_schedule("tick", "ann")
        case "remove":
            await store.remove_schedule("tick", "ann")
    assert [await state(store, i) for i in ids] == ["running", "missed"]
    # ... and so are those that no leader has written yet.
    assert [(m.first, m.last, m.count) for m in await store.misses("tick")] == [
        (at(180), at(1920), 30),
        (at(120), at(120), 1),
    ]


@pytest.mark.parametrize("change", ["edit", "pause", "remove"])
async def test_ticks_that_nobody_had_written_are_recorded(store: Store, clock: Clock, change: str) -> None:
    """They were due under the old definition, and do not run under the new one: no silent miss."""
    await put(store, schedule(trigger=Every(60)))
    clock.advance(600)
    match change:
        case "edit":
            await put(store, schedule(trigger=Every(3600)))
        case "pause":
            await store.pause_schedule("tick", "ann")
            await store.pause_schedule("tick", "ann")
            await resume(store)
        case "remove":
            await store.remove_schedule("tick", "ann")
    (miss,) = await store.misses("tick")
    assert (miss.first, miss.last, miss.count) == (at(60), at(600), 10)


# One-shots
async def test_a_one_shot_of_the_past_runs_at_once(store: Store, clock: Clock) -> None:
    await put(store, schedule(trigger=Once(at(-3600)), misfire=None))
    found = await the_schedule(store)
    assert found.next_at == at(-3600)
    assert [s.name for s in await store.due_schedules(0, at(60), 10)] == ["tick"]


async def test_a_one_shot_that_has_run_does_not_run_again(store: Store, clock: Clock) -> None:
    """Not when it is registered anew by every start of its application, nor edited, nor paused and resumed."""
    once = schedule(trigger=Once(at(30)), misfire=None)
    await put(store, once)
    term = await lead(store, ttl=HOURS)
    found = await the_schedule(store)
    assert found.next_at == at(30)
    (run_id,) = await fired(store, term, "tick", at(30))
    assert (await the_schedule(store)).next_at is None
    clock.advance(31)
    worker = await hand(store)
    await worker.complete(await worker.claim_one())
    assert await put(store, once) == ["unchanged"]
    assert await put(store, schedule(trigger=Once(at(30)), misfire=None, payload='{"a":1}')) == ["edited"]
    assert (await the_schedule(store)).next_at is None
    await store.pause_schedule("tick", "ann")
    await resume(store)
    assert (await the_schedule(store)).next_at is None
    assert await runs_of(store, "tick") == [run_id]


async def test_a_one_shot_with_a_new_instant_runs_again(store: Store, clock: Clock) -> None:
    await put(store, schedule(trigger=Once(at(30)), misfire=None))
    term = await lead(store, ttl=HOURS)
    await fired(store, term, "tick", at(30))
    clock.advance(31)
    worker = await hand(store)
    await worker.complete(await worker.claim_one())
    await put(store, schedule(trigger=Once(at(90)), misfire=None))
    assert (await the_schedule(store)).next_at == at(90)


@pytest.mark.parametrize("change", ["edit", "pause and resume"])
async def test_a_one_shot_that_was_written_ahead_is_not_lost_by_a_change(
    store: Store, clock: Clock, change: str
) -> None:
    await put(store, schedule(trigger=Once(at(90)), misfire=None))
    term = await lead(store)
    (old,) = await fired(store, term, "tick", at(90))
    clock.advance(5)
    if change == "edit":
        await put(store, schedule(trigger=Once(at(90)), misfire=None, payload='{"a":1}'))
    else:
        await store.pause_schedule("tick", "ann")
        clock.advance(5)
        await resume(store)
    assert await store.run(old) is None
    assert (await the_schedule(store)).next_at == at(90)
    assert len(await fired(store, term, "tick", at(90))) == 1


# Zone data
async def test_ticks_are_computed_anew_with_other_zone_data(store: Store, clock: Clock) -> None:
    """Case C109."""
    await put(
        store,
        schedule("cron", Cron("*/1 * * * *", tz="America/Vancouver"), tzdata="old"),
        schedule("every", tzdata="old"),
    )
    await put(store, schedule("new", tzdata="new"))
    term = await lead(store)
    stale = await store.stale_zones(0, "new")
    assert sorted(s.name for s in stale) == ["cron", "every"]
    ids = await fired(store, term, "cron", at(60), at(120))
    assert await store.retick("cron", (0, term), "new", first_tick) is True
    assert await store.retick("every", (0, term), "new", None) is True
    assert await store.stale_zones(0, "new") == []
    cron = await the_schedule(store, "cron")
    assert (cron.next_at, cron.tzdata) == (at(60), "new")
    assert [await store.run(i) for i in ids] == [None, None]  # written ahead with the old data
    assert (await the_schedule(store, "every")).next_at == at(60)


async def test_a_schedule_with_ticks_to_be_judged_is_left_until_they_are(store: Store, clock: Clock) -> None:
    await put(store, schedule(tzdata="old"))
    clock.advance(61)
    term = await lead(store)
    assert await store.retick("tick", (0, term), "new", first_tick) is False
    assert (await the_schedule(store)).next_at == at(60)
    assert await store.retick("nobody", (0, term), "new", first_tick) is False


async def test_a_stale_leader_does_not_compute_ticks(store: Store, clock: Clock) -> None:
    await put(store, schedule(tzdata="old"))
    term = await lead(store)
    assert await store.retick("tick", (0, term + 1), "new", first_tick) is False
    clock.advance(20)
    assert await store.retick("tick", (0, term), "new", first_tick) is False
    assert (await the_schedule(store)).tzdata == "old"
