"""Taking back the runs of dead workers."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from datetime import timedelta

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    LEASE,
    START,
    Clock,
    at,
    fired,
    hand,
    insert,
    insert_keyed,
    insert_one,
    job,
    lead,
    look,
    new,
    put,
    schedule,
    second,
    state,
    the_run,
)


async def test_nothing_to_rescue(store: Store) -> None:
    rescued = await store.rescue()
    assert (rescued.workers, rescued.requeued, rescued.dead) == ([], 0, 0)
    worker = await hand(store)
    await insert_one(store)
    await worker.claim_one()
    assert (await store.rescue()).workers == []


async def test_a_dead_workers_run_waits_for_its_next_attempt(store: Store, clock: Clock) -> None:
    worker = await hand(store, host="alpha", pid=12)
    run_id = await insert_one(store, tenant="acme", priority=2)
    run = await worker.claim_one()
    clock.advance(15.000001)
    rescued = await store.rescue()
    assert (rescued.workers, rescued.requeued, rescued.dead) == ([worker.id], 1, 0)
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.error, seen.due_at) == (
        "retrying",
        1,
        "worker died",
        clock.moment + second(0.5),
    )
    assert (seen.worker, seen.started_at, seen.finished_at) == ("alpha:12", START, None)
    (attempt,) = await store.attempts(run_id)
    assert (attempt.number, attempt.state, attempt.error, attempt.fence) == (1, "lost", "worker died", run.fence)
    assert (attempt.started_at, attempt.finished_at, attempt.worker) == (START, clock.moment, "alpha:12")
    clock.advance(0.5)
    again = await (await hand(store)).claim_one()
    assert (again.run_id, again.attempt, again.deaths, again.tenant, again.priority) == (run_id, 2, 1, "acme", 2)


async def test_each_death_doubles_the_wait(store: Store, clock: Clock) -> None:
    """Case C78: what kills or blocks its workers must not go straight back to the head of the queue."""
    await store.put_jobs([job("work", max_attempts=1000)])
    run_id = await insert_one(store)
    waits = []
    for death in range(10):
        await store.promote()
        run = await (await hand(store)).claim_one()
        assert (run.run_id, run.deaths) == (run_id, death)
        died = clock.advance(20)
        await store.rescue()
        due = (await the_run(store, run_id)).due_at
        waits.append((due - died).total_seconds())
        clock.moment = due
    assert waits == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_used_up_attempts_end_in_a_dead_letter(store: Store, clock: Clock) -> None:
    """Case C75: a run that kills its workers ends, and says so."""
    run_id = await insert_one(store)
    for attempt in (1, 2, 3):
        run = await (await hand(store)).claim_one()
        assert run.attempt == attempt
        clock.advance(20)
        rescued = await store.rescue()
        assert (rescued.requeued, rescued.dead) == ((1, 0) if attempt < 3 else (0, 1))
        clock.advance(2)
    seen = await the_run(store, run_id)
    assert (seen.state, seen.error, seen.attempt, seen.finished_at) == (
        "failed",
        "worker died",
        3,
        clock.moment - second(2),
    )
    (letter,) = await store.dead_letters()
    assert (letter.run_id, letter.attempts, letter.error) == (run_id, 3, "worker died")
    assert [a.state for a in await store.attempts(run_id)] == ["lost"] * 3


async def test_a_job_without_dead_letters_leaves_none(store: Store, clock: Clock) -> None:
    await store.put_jobs([job("work", max_attempts=1, dead_letter=False)])
    run_id = await insert_one(store)
    await (await hand(store)).claim_one()
    clock.advance(20)
    assert (await store.rescue()).dead == 1
    assert await state(store, run_id) == "failed"
    assert await store.dead_letters() == []


async def test_a_run_that_was_asked_to_stop_is_cancelled(store: Store, clock: Clock) -> None:
    first = await insert_keyed(store)
    await (await hand(store)).claim_one()
    await store.cancel(first.id, "ann")
    clock.advance(20)
    rescued = await store.rescue()
    assert (rescued.requeued, rescued.dead) == (0, 0)
    seen = await the_run(store, first.id)
    assert (seen.state, seen.finished_at) == ("cancelled", at(20))
    assert await store.dead_letters() == []
    assert (await insert_keyed(store)).created


async def test_what_was_prefetched_for_later_goes_back_untouched(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store)
    (tick,) = await fired(store, term, "tick", at(60), late_at=at(75))
    run_id = await insert_one(store, delay=second(60), priority=2)
    before = await the_run(store, run_id)
    worker = await hand(store)
    assert len(await worker.claim(ahead=60)) == 2
    clock.advance(20)
    assert (await store.rescue()).requeued == 2
    after = await the_run(store, run_id)
    assert (after.state, after.attempt, after.due_at, after.error) == (before.state, 0, at(60), None)
    assert after.started_at is None
    assert await store.attempts(run_id) == []
    clock.advance(60)
    again = await (await hand(store)).claim()
    assert [(r.run_id, r.attempt, r.deaths) for r in again] == [(tick, 1, 0), (run_id, 1, 0)]
    assert again[0].late is True


async def test_a_rescued_tick_is_no_misfire(store: Store, clock: Clock) -> None:
    """It has started in time."""
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=1))
    await fired(store, term, "tick", at(60), late_at=at(75))
    clock.advance(60)
    await (await hand(store)).claim_one()
    clock.advance(20)
    await store.rescue()
    clock.advance(100)
    run = await (await hand(store)).claim_one()
    assert (run.late, run.late_at) == (False, None)


async def test_suspects_are_rescued_before_their_time(store: Store) -> None:
    suspect, other = await hand(store), await hand(store)
    await insert(store, new(), new())
    await suspect.claim_one()
    await other.claim_one()
    rescued = await store.rescue([suspect.id, 4711], expired=False)
    assert (rescued.workers, rescued.requeued) == ([suspect.id], 1)
    assert (await suspect.beat()).alive is False
    assert (await other.beat()).alive is True


async def test_sessions_past_their_time_are_left_alone_when_asked(store: Store, clock: Clock) -> None:
    """A rescuer that has not seen the database for a whole lease time judges nobody by the clock."""
    worker, suspect = await hand(store), await hand(store)
    await insert(store, new(), new())
    await worker.claim_one()
    clock.advance(20)
    assert (await store.rescue([suspect.id], expired=False)).workers == [suspect.id]
    assert (await store.rescue(expired=False)).workers == []
    assert (await store.rescue()).workers == [worker.id]


async def test_C64_one_expired_session_is_found_behind_ten_thousand_healthy_leases(store: Store, clock: Clock) -> None:
    """Found in the next pass, however many healthy ones stand before it."""
    healthy = await hand(store, ttl=timedelta(hours=1))
    await insert(store, *(new() for _ in range(10_000)))
    for _ in range(10):
        assert len(await healthy.claim(1000)) == 1000
    stuck = await hand(store)
    run_id = await insert_one(store)
    await stuck.claim_one()
    clock.advance(20)
    rescued = await store.rescue()
    assert (rescued.workers, rescued.requeued) == ([stuck.id], 1)
    assert await state(store, run_id) == "retrying"
    assert await look(store, "SELECT count(*) FROM lease") == [(10_000,)]


async def test_C63_several_rescuers_take_each_run_back_once(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """Nobody acts on a list that was read earlier."""
    rescuers = [store, *[await open_store() for _ in range(2)]]
    for _ in range(15):
        await insert(store, *(new() for _ in range(4)))
        dead = [await hand(store), await hand(store)]
        for worker in dead:
            await worker.claim(2)
        clock.advance(20)
        answers = await asyncio.gather(*(r.rescue() for r in rescuers))
        assert sorted(w for a in answers for w in a.workers) == [w.id for w in dead]
        assert sum(a.requeued for a in answers) == 4
        await _drain(store, clock)
    assert await look(store, "SELECT count(*) FROM attempt") == [(60,)]


async def test_a_completion_that_races_the_rescue(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """One of them wins each run, and a finished run never runs again."""
    rescuer = await open_store()
    for round_ in range(20):
        await insert(store, *(new() for _ in range(6)))
        worker = await hand(store)
        runs = await worker.claim()
        clock.advance(20)
        won, rescued = await asyncio.gather(worker.complete(*runs[: round_ % 7]), rescuer.rescue())
        late = await worker.complete(*runs)
        assert late == set()
        assert rescued.requeued == 6 - len(won)
        for run in runs:
            assert await state(store, run.run_id) == ("succeeded" if run.run_id in won else "retrying")
        await _drain(store, clock)


async def test_a_beat_that_races_the_rescue(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """A session is either renewed or rescued, never both."""
    rescuer = await open_store()
    for _ in range(20):
        worker = await hand(store)
        await insert_one(store)
        await worker.claim()
        clock.advance(14.9)
        beat, _ = await asyncio.gather(worker.beat(), rescuer.rescue([worker.id], expired=False))
        assert (await worker.beat()).alive is False, beat
        await _drain(store, clock)


async def _drain(store: Store, clock: Clock) -> None:
    clock.advance(5)
    worker = await hand(store)
    await worker.complete(*await worker.claim(1000))
    await store.stop_worker(worker.id)
    assert await look(store, "SELECT count(*) FROM ready") == [(0,)]


async def test_the_absence_of_a_process_is_seen_before_its_lease_ends(store: Store) -> None:
    """SQLite asks the kernel for the process; PostgreSQL looks for the lock that a session holds on a connection."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        there = await hand(store, host=socket.gethostname(), pid=process.pid)
        here = await hand(store, host=socket.gethostname(), pid=os.getpid())
        if store.absence_is_proof:
            assert await store.absent() == set()
            process.kill()
            process.wait()
            assert await store.absent() == {there.id}
            assert await store.hold_presence(here.id) is False
        else:
            assert await store.absent() == set()  # they never held a lock: its absence means nothing
            assert await store.hold_presence(here.id) is True
            assert await store.absent() == set()
            assert await store.hold_presence(here.id) is True
            await store.drop_presence()
            for _ in range(100):
                if await store.absent() == {here.id}:
                    break
                await asyncio.sleep(0.02)
            assert await store.absent() == {here.id}
            process.kill()
    assert (await store.rescue(sorted(await store.absent()), expired=False)).workers in ([there.id], [here.id])


async def test_a_session_of_another_machine_is_never_absent(store: Store) -> None:
    await hand(store, host="elsewhere", pid=2**22 - 1)
    assert await store.absent() == set()


async def test_a_rescue_leaves_the_leases_of_others(store: Store, clock: Clock) -> None:
    dead = await hand(store)
    await insert(store, new(), new())
    await dead.claim_one()
    clock.advance(10)
    living = await hand(store, ttl=LEASE)
    kept = await living.claim_one()
    clock.advance(10)
    assert (await store.rescue()).workers == [dead.id]
    assert await living.complete(kept) == {kept.run_id}
