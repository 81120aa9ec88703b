"""Feeding and steering backfills: what is written, how many at a time, and what becomes of it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleetcron.clock import monotonic
from fleetcron.decide.backfill import total
from fleetcron.election import DatabaseElector
from fleetcron.errors import ConfigError
from fleetcron.model import BACKFILL_PRIORITY, Backfill
from fleetcron.scheduler.contact import Contact
from fleetcron.scheduler.feeder import IDLE, PACE, Feeder
from fleetcron.scheduler.leadership import Leadership
from fleetcron.store.protocol import Fed, Store
from fleetcron.triggers import Every
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    LEASE,
    MINUTE,
    START,
    Clock,
    at,
    fired,
    hand,
    info,
    insert_one,
    judge,
    lane,
    late,
    lead,
    look,
    put,
    runs_of,
    schedule,
    state,
    the_run,
    the_schedule,
)  # fmt: skip

HOUR = timedelta(hours=1)
LOW = [lane(priority=BACKFILL_PRIORITY)]


async def begin(store: Store, n: int = 5, name: str = "tick", **given: Any) -> Backfill:
    """A backfill of the last `n` ticks of a schedule."""
    of = await the_schedule(store, name)
    end, count = total(of, START - n * HOUR, START, await store.now())
    new = {"schedule": name, "start": START - n * HOUR, "end": end, "order": "asc", "mode": "missing", "max_running": 1}
    return await store.add_backfill(Backfill(**{**new, "total": count, **given}), "ann")


async def hourly(store: Store, name: str = "tick", **given: Any) -> int:
    """A schedule with a tick at each full hour, and its leader's term."""
    await put(store, schedule(name, Every(3600), **given))
    return await lead(store)


async def feed(store: Store, term: int, backfill: Backfill, **given: Any) -> Fed:
    return await store.feed(backfill.id, backfill.schedule, (0, term), **given)


async def now_of(store: Store, backfill: Backfill) -> Backfill:
    (found,) = await store.backfills(backfill_id=backfill.id)
    return found


async def told(store: Store, backfill: Backfill) -> tuple[str, int, int, int, int, int]:
    """(state, created, existing, done, failed, open)."""
    b = await now_of(store, backfill)
    return b.state, b.created, b.existing, b.done, b.failed, b.open


async def ticks_of(store: Store, run_ids: list[int]) -> list[datetime | None]:
    return [(await the_run(store, run_id)).nominal_at for run_id in run_ids]


async def audit(store: Store) -> list[str]:
    found = await look(store, "SELECT what FROM audit WHERE who = 'ann' AND what LIKE 'backfill%' ORDER BY id")
    return [row[0] for row in found]


async def test_one_after_the_other_to_the_end(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 3)
    assert (begun.state, begun.total, begun.created) == ("running", 3, 0)
    assert [(one.id, one.due) for one in await store.active_backfills()] == [(begun.id, True)]
    for i in range(3):
        fed = await feed(store, term, begun)
        assert fed == Fed(led=True, created=1, queue="default")
        assert [one.due for one in await store.active_backfills()] == [False], "its one place is taken"
        assert await feed(store, term, begun) == Fed(led=True, queue="default"), "no second one beside it"
        run = await worker.claim_one()
        assert run.nominal_at == START - (3 - i) * HOUR and run.prev_at == run.nominal_at - HOUR
        assert await told(store, begun) == ("running", i + 1, 0, i, 0, 1)
        await worker.complete(run)
        assert await told(store, begun) == ("running", i + 1, 0, i + 1, 0, 0), "counted before the leader has looked"
        assert [one.due for one in await store.active_backfills()] == [True]
    assert await feed(store, term, begun) == Fed(led=True, ended=True)
    assert await told(store, begun) == ("done", 3, 0, 3, 0, 0)
    assert await store.active_backfills() == []
    assert (await now_of(store, begun)).finished_at == await store.now()


async def test_a_run_of_a_backfill_is_as_its_schedule_says_but_never_late(store: Store, clock: Clock) -> None:
    given = {
        "payload": '{"n": 1}',
        "tenant": "acme",
        "queue": "bulk",
        "overlap": "skip",
        "start_deadline": MINUTE,
        "priority": 2,
    }
    term, worker = await hourly(store, jitter=MINUTE, misfire="skip", **given), await hand(store)
    begun = await begin(store, 2, max_running=5)
    assert await feed(store, term, begun) == Fed(led=True, created=2, queue="bulk")
    clock.advance(3600)
    worker = await hand(store)
    runs = await worker.claim()
    assert [run.nominal_at for run in runs] == [START - 2 * HOUR, START - HOUR]
    for run in runs:
        assert (run.tenant, run.queue, run.priority) == ("acme", "bulk", BACKFILL_PRIORITY)
        assert (run.late, run.late_at, run.expires_at, run.gate, run.overlap) == (False, None, None, None, None)
        assert (await the_run(store, run.run_id)).payload in ('{"n": 1}', '{"n":1}')
        assert run.due_at == START, "due when it was written"


async def test_newest_first(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 4, order="desc", max_running=3)
    await feed(store, term, begun)
    runs = await worker.claim()
    assert [run.nominal_at for run in runs] == [START - i * HOUR for i in (1, 2, 3)]
    assert [run.prev_at for run in runs] == [START - i * HOUR for i in (2, 3, 4)]
    await worker.complete(*runs)
    await feed(store, term, begun)
    assert [run.nominal_at for run in await worker.claim()] == [START - 4 * HOUR]


async def test_a_stale_term_writes_nothing(store: Store) -> None:
    term = await hourly(store)
    begun = await begin(store)
    assert await feed(store, term - 1, begun) == Fed(led=False)
    assert await store.resign(0, "leader", term)
    assert await feed(store, term, begun) == Fed(led=False)
    assert await told(store, begun) == ("running", 0, 0, 0, 0, 0)


@pytest.mark.parametrize("places", [1, 3])
async def test_C93_two_leaders_never_create_more_than_max_running(
    store: Store, open_store: OpenStore, places: int
) -> None:
    """Two leaders that both believe to feed for all, of two shards with a valid term each, a hundred rounds."""
    other = await open_store()
    await store.scheduler_beat("leader", 2, LEASE, standing=True)
    terms = [await hourly(store), await lead(store, 1)]
    worker = await hand(store)
    begun = await begin(store, 50, max_running=places)
    held: list[Any] = []
    ticks: list[datetime | None] = []
    for turn in range(100):
        fed = await asyncio.gather(
            *(by.feed(begun.id, "tick", (shard, terms[shard])) for shard, by in ((0, store), (1, other)))
        )
        assert all(one.led for one in fed)
        assert (await look(store, "SELECT count(*) FROM ready WHERE priority = 10"))[0][0] + len(held) <= places
        held += await worker.claim()
        ticks += [run.nominal_at for run in held[len(held) - sum(one.created for one in fed) :]]
        assert len(held) <= places
        if turn % 2:
            await worker.complete(held.pop(0))
        if (await now_of(store, begun)).done == 50:
            break
    if places == 1:
        assert ticks == [START - (50 - i) * HOUR for i in range(50)]
        assert (await told(store, begun))[3] == 50
    assert len(set(ticks)) == len(ticks)


async def test_a_run_that_waits_for_its_next_attempt_keeps_its_place_and_its_priority(
    store: Store, clock: Clock
) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 2)
    await feed(store, term, begun)
    run = await worker.claim_one()
    assert await worker.settle(run, delay=timedelta(seconds=5))
    assert (await feed(store, term, begun)).created == 0
    clock.advance(6)
    again = await worker.claim_one(lanes=LOW)
    assert (again.run_id, again.attempt) == (run.run_id, 2)
    assert await worker.settle(again, "failed", dead=True)
    assert await told(store, begun) == ("running", 1, 0, 0, 1, 0)
    assert (await feed(store, term, begun)).created == 1, "a failed tick does not hold the rest up"


async def test_missing_passes_over_what_ran_and_creates_nothing_twice(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    first = await begin(store, 4, max_running=10)
    await feed(store, term, first)
    runs = await worker.claim()
    await worker.complete(*runs[:2])
    await worker.settle(runs[2], "failed")
    again = await begin(store, 5, max_running=10)
    await feed(store, term, again)
    assert await told(store, again) == ("running", 1, 4, 0, 0, 1), "an open run, too, is one"
    assert await ticks_of(store, (await runs_of(store, "tick"))[:1]) == [START - 5 * HOUR]
    await worker.complete(runs[3], *await worker.claim())
    once_more = await begin(store, 5, max_running=10)
    assert (await feed(store, term, once_more)).ended
    assert await told(store, once_more) == ("done", 0, 5, 0, 0, 0)
    assert len(await runs_of(store, "tick")) == 5


async def test_failed_runs_only_what_failed_as_a_new_generation(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    await feed(store, term, await begin(store, 4, max_running=10))
    runs = await worker.claim()
    await worker.complete(runs[0])
    await worker.settle(runs[1], "failed", dead=True)
    await worker.settle(runs[2], "discarded")
    await worker.settle(runs[3], "failed")
    again = await begin(store, 5, mode="failed", max_running=10)
    await feed(store, term, again)
    assert await told(store, again) == ("running", 2, 3, 0, 0, 2), "the fifth never ran, and so has not failed"
    assert [(run.nominal_at, run.generation) for run in await worker.claim()] == [
        (runs[1].nominal_at, 1),
        (runs[3].nominal_at, 1),
    ]
    assert await state(store, runs[1].run_id) == "failed", "the old run stays as it was"


async def test_all_runs_beside_what_there_is(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    await feed(store, term, await begin(store, 2, max_running=10))
    await worker.complete(*await worker.claim())
    for generation in (1, 2):
        again = await begin(store, 3, mode="all", max_running=10)
        await feed(store, term, again)
        assert await told(store, again) == ("running", 3, 0, 0, 0, 3)
        runs = await worker.claim()
        assert [run.generation for run in runs] == [generation - 1, generation, generation]
        await worker.complete(*runs)


async def test_what_was_missed_is_missing(store: Store, clock: Clock) -> None:
    """A tick that the misfire policy has dropped has a run, in the state missed; a backfill may run it after all."""
    await hourly(store, misfire="skip")
    clock.advance(3600 - 60)
    (run_id,) = await fired(store, await lead(store), "tick", START + HOUR)
    clock.advance(3600)
    term = await lead(store)
    await judge(store, "tick", leader=(0, term))
    assert await state(store, run_id) == "missed"
    begun = await begin(store, 1, end=START + 90 * MINUTE, max_running=5)
    await feed(store, term, begun)
    worker = await hand(store)
    runs = await worker.claim()
    assert [(run.nominal_at, run.generation) for run in runs] == [
        (START - HOUR, 0), (START, 0), (START + HOUR, 1)
    ]  # fmt: skip


async def test_cancel(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 8, max_running=4)
    await feed(store, term, begun)
    running, retried = await worker.claim(2)
    await worker.settle(retried, delay=MINUTE)
    cancelled = await store.steer_backfill(begun.id, "cancelled", "ann")
    assert cancelled is not None and cancelled.state == "cancelled" and cancelled.reason == "by ann"
    assert await told(store, begun) == ("cancelled", 4, 0, 0, 3, 1)
    assert (await worker.beat()).cancels == [running.run_id], "its worker is asked to stop it"
    assert await worker.settle(running, "cancelled")
    assert [one.due for one in await store.active_backfills()] == [True]
    await feed(store, term, begun)
    assert await told(store, begun) == ("cancelled", 4, 0, 0, 4, 0)
    assert await store.active_backfills() == []
    assert await store.steer_backfill(begun.id, "cancelled", "ann") is not None, "twice is once"
    with pytest.raises(ConfigError, match="is cancelled"):
        await store.steer_backfill(begun.id, "running", "ann")
    assert await audit(store) == ["backfill: missing, asc, max_running=4", "backfill: cancelled"]
    again = await begin(store, 8, max_running=10)
    await feed(store, term, again)
    assert (await told(store, again))[1:3] == (6, 2), "what only waited is still missing; two had started"


async def test_a_cancel_misses_no_run_that_is_being_claimed(store: Store, open_store: OpenStore) -> None:
    """Each of its runs has ended, or its worker is asked to stop it; thirty races."""
    other = await open_store()
    term, worker = await hourly(store), await hand(store)
    for _ in range(30):
        begun = await begin(store, 5, mode="all", max_running=5)
        assert (await feed(store, term, begun)).created == 5
        claimed, _ = await asyncio.gather(
            worker.claim(3, lanes=LOW), other.steer_backfill(begun.id, "cancelled", "ann")
        )
        held = [run.run_id for run in claimed]
        assert sorted((await worker.beat()).cancels) == sorted(held)
        assert await told(store, begun) == ("cancelled", 5, 0, 0, 5 - len(held), len(held))
        for run in claimed:
            assert await worker.settle(run, "cancelled")


async def test_pause_and_resume(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 3)
    await feed(store, term, begun)
    paused = await store.steer_backfill(begun.id, "paused", "ann")
    assert paused is not None and paused.state == "paused"
    await worker.complete(await worker.claim_one())
    assert (await feed(store, term, begun)).created == 0
    assert await told(store, begun) == ("paused", 1, 0, 1, 0, 0)
    assert await store.active_backfills() == []
    await store.steer_backfill(begun.id, "running", "ann")
    assert (await feed(store, term, begun)).created == 1
    assert await store.steer_backfill(999, "paused", "ann") is None


async def test_edits_and_pauses_of_the_schedule_leave_its_backfill_alone(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 3, max_running=2)
    await feed(store, term, begun)
    await put(store, schedule("tick", Every(3600), payload='{"n":2}'))
    await store.pause_schedule("tick", "ann")
    runs = await worker.claim()
    assert [run.payload.replace(" ", "") for run in runs] == ["{}", "{}"]
    await worker.complete(*runs)
    await feed(store, term, begun)
    assert (await worker.claim_one()).payload.replace(" ", "") == '{"n":2}', (
        "what is written now is as the schedule is now"
    )


async def test_a_withdrawal_that_looks_far_back_takes_none_of_a_backfill(store: Store) -> None:
    """A backlog in the schedule's lane makes it do so."""
    term = await hourly(store)
    old = await insert_one(store, due_at=START - 9 * HOUR)
    begun = await begin(store, 3, max_running=5)
    await feed(store, term, begun)
    await store.pause_schedule("tick", "ann")
    assert await told(store, begun) == ("running", 3, 0, 0, 0, 3)
    assert await state(store, old) == "ready"


async def test_a_late_tick_is_withdrawn_though_a_backfill_has_a_newer_run_of_it(store: Store, clock: Clock) -> None:
    """What a judgement let run is looked for among the last ticks; a backfill's runs are not counted among these."""
    await hourly(store)
    clock.advance(3600 + 60)
    term = await lead(store)
    assert len((await judge(store, "tick", leader=(0, term))).fire) == 1
    (late,) = await runs_of(store, "tick")
    begun = await begin(store, 3, mode="all", max_running=9, end=START + 61 * MINUTE)
    assert (await feed(store, term, begun)).created == 5
    clock.advance(60)
    await store.pause_schedule("tick", "ann")
    assert await state(store, late) == "missed"
    assert await told(store, begun) == ("running", 5, 0, 0, 0, 5)


async def test_a_schedule_that_is_removed_ends_its_backfill(store: Store) -> None:
    term, worker = await hourly(store), await hand(store)
    begun = await begin(store, 3)
    await feed(store, term, begun)
    await store.remove_schedule("tick", "ann")
    await worker.complete(await worker.claim_one())
    assert (await feed(store, term, begun)).ended
    ended = await now_of(store, begun)
    assert (ended.state, ended.reason, ended.done) == ("cancelled", "schedule removed", 1)


async def test_a_full_queue_gets_no_more(store: Store) -> None:
    term = await hourly(store)
    begun = await begin(store, 3)
    assert await feed(store, term, begun, full=["default"]) == Fed(led=True, queue="default", more=False)
    assert await told(store, begun) == ("running", 0, 0, 0, 0, 0)
    assert (await feed(store, term, begun, full=["other"])).created == 1


async def test_judgements_do_not_touch_a_backfill(store: Store, clock: Clock) -> None:
    term = await hourly(store, misfire="skip")
    begun = await begin(store, 3, max_running=3)
    await feed(store, term, begun)
    clock.advance(7200)
    term = await lead(store)
    await judge(store, "tick", leader=(0, term))
    assert await late(store) == []
    worker = await hand(store)
    assert [run.late for run in await worker.claim(lanes=LOW)] == [False, False, False]


async def test_twenty_thousand_ticks_that_have_run_are_passed_over_piece_by_piece(store: Store) -> None:
    """No piece is larger than a batch, and the cursor is what is remembered."""
    await put(store, schedule("tick", Every(60)))
    term = await lead(store)
    of = await the_schedule(store)
    end, count = total(of, START - 20_000 * MINUTE, START, START)
    begun = await begin(store, total=count, start=START - 20_000 * MINUTE, end=end, max_running=1)
    assert count == 20_000
    await feed(store, term, begun)
    assert (await now_of(store, begun)).cursor == START - 20_000 * MINUTE
    assert (await look(store, "SELECT count(*) FROM run"))[0][0] == 1


def a_leader(store: Store, term: int) -> Leadership:
    leadership = Leadership(store, DatabaseElector(), info("leader"), 0, 60.0, Contact(store))
    leadership.begin(term, monotonic())
    return leadership


async def test_the_feeder_serves_all_backfills_and_says_when_to_come_again(store: Store) -> None:
    leadership = a_leader(store, await hourly(store))
    await put(store, schedule("other", Every(3600), queue="bulk"))
    feeder, worker = Feeder(store, lambda: leadership), await hand(store)
    assert not await feeder.step() and not feeder.active
    assert feeder.pause() == IDLE
    begun = [await begin(store, 2, name, max_running=2) for name in ("tick", "other", "tick")]
    assert await feeder.step() and feeder.pause() == PACE
    assert [(await told(store, b))[:3] for b in begun] == [("running", 2, 0), ("running", 2, 0), ("done", 0, 2)]
    assert not await feeder.step() and feeder.pause() == PACE, "nothing to do, but there will be soon"
    await worker.complete(*await worker.claim())
    assert await feeder.step()
    assert {(await told(store, b))[0] for b in begun} == {"done"}
    assert not await feeder.step() and not feeder.active


async def test_a_feeder_whose_term_is_over_steps_down(store: Store) -> None:
    term = await hourly(store)
    leadership = a_leader(store, term)
    begun = await begin(store, 2)
    await store.resign(0, "leader", term)
    await lead(store, node="successor")
    feeder = Feeder(store, lambda: leadership)
    assert not await feeder.step()
    assert leadership.term() is None
    assert await told(store, begun) == ("running", 0, 0, 0, 0, 0)


async def test_old_backfills_are_pruned(store: Store, clock: Clock) -> None:
    term, worker = await hourly(store), await hand(store)
    ended, going_on = await begin(store, 1), await begin(store, 3)
    await feed(store, term, ended)
    await worker.complete(await worker.claim_one())
    await feed(store, term, ended)
    clock.advance(3600)
    await store.prune_rest(MINUTE)
    assert [b.id for b in await store.backfills()] == [going_on.id]


async def test_lists_are_newest_first_and_go_on(store: Store) -> None:
    await hourly(store)
    await put(store, schedule("other", Every(3600)))
    begun = [await begin(store, 1, name) for name in ("tick", "other", "tick")]
    ids = [b.id for b in begun]
    assert [b.id for b in await store.backfills()] == ids[::-1]
    assert [b.id for b in await store.backfills(schedule="tick")] == [ids[2], ids[0]]
    assert [b.id for b in await store.backfills(limit=1, after=ids[2])] == [ids[1]]
    assert begun[0].created_at == at(0)
