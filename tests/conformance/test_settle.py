"""Attempts that end in any other way than success."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from fleetcron.store.protocol import Settled, Store
from tests.conformance.kit import (
    START,
    Clock,
    at,
    fired,
    hand,
    insert,
    insert_one,
    lead,
    look,
    new,
    put,
    schedule,
    second,
    state,
    the_run,
)

HANDBACKS = 10
"""Hand-backs that cost no attempt."""


async def test_a_failed_attempt_is_kept_and_the_run_waits_for_the_next(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    clock.advance(3)
    assert await worker.settle(run, delay=second(10), error="ValueError: ü", traceback="Traceback …", started_at=at(1))
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.due_at, seen.error) == ("retrying", 1, at(13), "ValueError: ü")
    assert (seen.started_at, seen.finished_at) == (at(1), None)
    (attempt,) = await store.attempts(run_id)
    assert (attempt.number, attempt.state, attempt.error, attempt.traceback) == (
        1,
        "failed",
        "ValueError: ü",
        "Traceback …",
    )
    assert (attempt.started_at, attempt.finished_at, attempt.fence) == (at(1), at(3), run.fence)
    clock.advance(9.9)
    assert await worker.claim() == []
    clock.advance(0.1)
    again = await worker.claim_one()
    assert (again.run_id, again.attempt) == (run_id, 2)
    await worker.complete(again)
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.error) == ("succeeded", 2, None)
    assert [a.state for a in await store.attempts(run_id)] == ["failed", "succeeded"]


@pytest.mark.parametrize(("delay", "hot"), [(0, True), (119, True), (120, False), (86_400 * 60, False)])
async def test_a_retry_waits_in_ready_or_in_the_timetable(store: Store, clock: Clock, delay: float, hot: bool) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.settle(await worker.claim_one(), delay=second(delay))
    assert await look(store, "SELECT count(*) FROM ready") == [(int(hot),)]
    clock.advance(delay)
    assert await store.promote() == int(not hot)
    run = await (await hand(store)).claim_one()
    assert (run.run_id, run.attempt) == (run_id, 2)


async def test_used_up_attempts_end_in_a_dead_letter(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store, tenant="acme")
    run = await worker.claim_one()
    clock.advance(1)
    assert await worker.settle(run, "failed", attempt=3, dead=True, error="it broke")
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.error, seen.finished_at) == ("failed", 3, "it broke", at(1))
    (letter,) = await store.dead_letters()
    assert (letter.run_id, letter.job, letter.tenant, letter.schedule) == (run_id, "work", "acme", None)
    assert (letter.attempts, letter.error, letter.died_at) == (3, "it broke", at(1))
    assert await worker.claim() == []


async def test_a_failure_without_a_dead_letter(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.settle(await worker.claim_one(), "failed", dead=False)
    assert await state(store, run_id) == "failed"
    assert await store.dead_letters() == []


async def test_a_snooze_uses_no_attempt(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.settle(await worker.claim_one(), attempt=0, record="snoozed", delay=second(30), error=None)
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.due_at) == ("scheduled", 0, at(30))
    clock.advance(30)
    worker = await hand(store)
    run = await worker.claim_one()
    assert run.attempt == 1
    await worker.complete(run)
    assert [(a.number, a.state) for a in await store.attempts(run_id)] == [(1, "snoozed"), (1, "succeeded")]


async def test_a_discarded_run_has_its_reason_and_no_dead_letter(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.settle(
        await worker.claim_one(), "discarded", record="discarded", reason="no such user", error="no such user"
    )
    seen = await the_run(store, run_id)
    assert (seen.state, seen.reason, seen.finished_at) == ("discarded", "no such user", START)
    assert await store.dead_letters() == []
    assert [a.state for a in await store.attempts(run_id)] == ["discarded"]


@pytest.mark.parametrize("record", ["failed", "snoozed", None])
async def test_a_cancel_beats_another_attempt(store: Store, record: str | None) -> None:
    """Case C101: after an accepted cancel there is no retry."""
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    assert await store.cancel(run_id, "ann") == "asked"
    assert await worker.settle(run, record=record, delay=second(10))
    seen = await the_run(store, run_id)
    assert (seen.state, seen.finished_at) == ("cancelled", START)
    assert [a.state for a in await store.attempts(run_id)] == ([] if record is None else ["cancelled"])
    assert await worker.claim(ahead=60) == []


async def test_a_cancel_beats_a_hand_back(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    await store.cancel(run_id, "ann")
    assert await worker.hand_back(run, started=False)
    assert await state(store, run_id) == "cancelled"


async def test_a_cancel_does_not_beat_what_has_ended(store: Store) -> None:
    worker = await hand(store)
    await insert(store, new(), new(), new())
    runs = await worker.claim()
    for run in runs:
        await store.cancel(run.run_id, "ann")
    await worker.settle(runs[0], "failed", dead=True)
    await worker.settle(runs[1], "discarded")
    await worker.complete(runs[2])
    assert [await state(store, run.run_id) for run in runs] == ["failed", "discarded", "succeeded"]
    assert len(await store.dead_letters()) == 1


async def test_what_was_not_started_goes_back_as_it_was(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store, delay=second(30), tenant="acme", priority=2)
    before = await the_run(store, run_id)
    for _ in range(HANDBACKS * 2):  # unlike interrupted runs, without a bound: nothing was done
        run = await worker.claim_one(ahead=60)
        assert run.attempt == 1
        assert await worker.hand_back(run, started=False)
        clock.advance(0.1)
    assert msgspec.structs.replace(await the_run(store, run_id), worker=None) == before
    assert await store.attempts(run_id) == []


async def test_a_hand_back_of_a_started_run_costs_no_attempt_within_bounds(store: Store, clock: Clock) -> None:
    """Case C104: deploys must not burn the attempts of long jobs; a crash loop must end all the same."""
    worker = await hand(store)
    run_id = await insert_one(store)
    for _ in range(HANDBACKS):
        run = await worker.claim_one()
        assert run.attempt == 1
        await worker.hand_back(run, started=True)
    assert [(a.number, a.state) for a in await store.attempts(run_id)] == [(1, "released")] * HANDBACKS
    for attempt in (1, 2, 3):
        run = await worker.claim_one()
        assert run.attempt == attempt
        await worker.hand_back(run, started=True)
    assert (await worker.claim_one()).attempt == 4


async def test_a_tick_that_expires_leaves_a_miss(store: Store, clock: Clock) -> None:
    """Every tick ends as a run or as a record that says why it did not."""
    await put(store, schedule(start_deadline=second(10)))
    term = await lead(store)
    (run_id,) = await fired(store, term, "tick", at(60))
    clock.advance(75)
    worker = await hand(store)
    run = await worker.claim_one()
    assert await worker.settle(
        run, "expired", attempt=0, record=None, error=None, started_at=None, reason="not started in time"
    )
    seen = await the_run(store, run_id)
    assert (seen.state, seen.reason, seen.attempt, seen.started_at) == ("expired", "not started in time", 0, None)
    (miss,) = await store.misses("tick")
    assert (miss.first, miss.last, miss.count, miss.reason, miss.decided_at) == (at(60), at(60), 1, "expired", at(75))
    assert await store.attempts(run_id) == []


async def test_a_submitted_run_that_expires_leaves_no_miss(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store)
    await worker.settle(await worker.claim_one(), "expired", record=None)
    assert await store.misses(None) == []


async def test_a_mixed_batch(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    await insert(store, *(new(tenant=f"{i:02}") for i in range(6)))
    runs = await worker.claim()
    assert await worker.settle(runs[0])
    ends = ["open", "failed", "discarded", "cancelled", "open"]
    delays = [0, 0, 0, 0, 600]
    batch = [
        Settled(
            run_id=r.run_id, fence=r.fence, state=end, attempt=1, delay=second(delay), record="failed", started_at=START
        )
        for r, end, delay in zip(runs[:5], ends, delays, strict=True)
    ]
    assert await store.settle(worker.id, batch) == {run.run_id for run in runs[1:5]}
    assert [await state(store, run.run_id) for run in runs] == [
        "retrying",
        "failed",
        "discarded",
        "cancelled",
        "retrying",
        "running",
    ]
    assert await look(store, "SELECT count(*) FROM timetable") == [(1,)]


async def test_a_retried_tick_is_no_misfire(store: Store, clock: Clock) -> None:
    """It has started in time; that it failed is another matter."""
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=2))
    await fired(store, term, "tick", at(60), late_at=at(75))
    clock.advance(60)
    worker = await hand(store, ttl=timedelta(hours=2))
    await worker.settle(await worker.claim_one(), delay=second(600))
    clock.advance(3600)
    await store.promote()
    run = await worker.claim_one()
    assert (run.late, run.late_at, run.attempt) == (False, None, 2)


async def test_a_tick_that_nobody_could_start_stays_a_misfire(store: Store, clock: Clock) -> None:
    """A worker that has no handler puts it back unstarted: late is late, whatever the cause."""
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=2))
    await fired(store, term, "tick", at(60), late_at=at(75))
    clock.advance(60)
    worker = await hand(store, ttl=timedelta(hours=2))
    run = await worker.claim_one()
    assert await worker.settle(
        run, attempt=0, record=None, error=None, started_at=None, delay=second(5), reason="no worker knows this job"
    )
    clock.advance(3600)
    run = await worker.claim_one()
    assert (run.late, run.late_at, run.attempt) == (True, at(75), 1)
