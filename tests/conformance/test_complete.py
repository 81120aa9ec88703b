"""Closing runs that succeeded, and the fence that keeps everybody else from it."""

from __future__ import annotations

from fleetcron.store.protocol import Done, Store
from tests.conformance.kit import Clock, Hand, at, hand, insert, insert_one, look, new, the_run


async def test_a_completed_run_says_how_it_went(store: Store, clock: Clock) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    clock.advance(9)
    done = Done(run_id, run.fence, at(2).timestamp(), '{"rows": 12}')
    assert await store.complete(worker.id, [done]) == {run_id}
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.started_at, seen.finished_at) == ("succeeded", 1, at(2), at(9))
    assert (seen.result, seen.error, seen.reason, seen.worker) == ('{"rows": 12}', None, None, "here:4711")
    (attempt,) = await store.attempts(run_id)
    assert (attempt.number, attempt.state, attempt.started_at, attempt.finished_at) == (1, "succeeded", at(2), at(9))
    assert (attempt.fence, attempt.worker, attempt.error, attempt.traceback) == (run.fence, "here:4711", None, None)


async def test_a_result_is_kept_as_it_was_written(store: Store) -> None:
    worker = await hand(store)
    await insert(store, *(new() for _ in range(4)))
    runs = await worker.claim()
    texts = [None, "null", "9007199254740993", '{"b": [1,  2.50, "\\u0000 \\ud83d\\ude00 ü"], "a": {}}']
    done = [Done(run.run_id, run.fence, at(0).timestamp(), text) for run, text in zip(runs, texts, strict=True)]
    assert len(await store.complete(worker.id, done)) == 4
    assert [(await the_run(store, run.run_id)).result for run in runs] == texts


async def test_a_batch_of_none(store: Store) -> None:
    assert await store.complete((await hand(store)).id, []) == set()


async def test_a_run_is_completed_once(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store)
    run = await worker.claim_one()
    assert await worker.complete(run, result="1") == {run.run_id}
    assert await worker.complete(run, result="2") == set()
    assert await worker.settle(run, "failed", dead=True) is False
    assert (await the_run(store, run.run_id)).result == "1"
    assert await store.dead_letters() == []


async def test_completing_twice_in_one_batch(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store)
    run = await worker.claim_one()
    assert await worker.complete(run, run) == {run.run_id}
    assert (await the_run(store, run.run_id)).state == "succeeded"


async def test_a_wrong_fence_a_wrong_worker_and_a_wrong_run_are_refused(store: Store) -> None:
    worker, other = await hand(store), await hand(store, "node-2")
    await insert(store, new(), new())
    mine, (theirs,) = await worker.claim_one(), await other.claim()
    for run_id, fence in ((mine.run_id, mine.fence + 1000), (mine.run_id, theirs.fence), (theirs.run_id, mine.fence)):
        assert await store.complete(worker.id, [Done(run_id, fence, at(0).timestamp())]) == set()
    assert await store.complete(other.id, [Done(mine.run_id, mine.fence, at(0).timestamp())]) == set()
    assert await worker.complete(theirs) == set()
    assert {(await the_run(store, r.run_id)).state for r in (mine, theirs)} == {"running"}
    assert await worker.complete(mine, theirs) == {mine.run_id}
    assert await other.complete(mine, theirs) == {theirs.run_id}


async def test_of_two_attempts_in_one_batch_the_one_that_holds_the_lease_counts(store: Store) -> None:
    worker = await hand(store)
    await insert_one(store)
    old = await worker.claim_one()
    await worker.settle(old)
    held = await worker.claim_one()
    for order in ((old, held), (held, old)):
        done = [Done(r.run_id, r.fence, at(0).timestamp(), str(r.fence), attempt=r.attempt) for r in order]
        won = await store.complete(worker.id, done)
        assert won == ({held.run_id} if order[0] is old else set())
    seen = await the_run(store, held.run_id)
    assert (seen.result, seen.attempt) == (str(held.fence), 2)


async def test_the_late_completion_of_a_rescued_run_is_refused(store: Store, clock: Clock) -> None:
    """Cases C40, C58: a zombie that wakes finds that its run has a newer owner, whose result stays."""
    zombie = await hand(store)
    run_id = await insert_one(store)
    old = await zombie.claim_one()
    clock.advance(20)
    await store.rescue()
    assert await zombie.complete(old, result='"zombie"') == set()
    clock.advance(5)
    worker = await hand(store, "node-2")
    new_run = await worker.claim_one()
    assert (new_run.run_id, new_run.attempt) == (run_id, 2)
    assert new_run.fence > old.fence
    assert await zombie.complete(old, result='"zombie"') == set()
    assert await zombie.settle(old, "failed", dead=True) is False
    assert await Hand(store, worker.id).settle(old) is False  # the right worker with the old fence
    assert await worker.complete(new_run, result='"newer"') == {run_id}
    assert await zombie.complete(old, result='"zombie"') == set()
    seen = await the_run(store, run_id)
    assert (seen.state, seen.result, seen.attempt) == ("succeeded", '"newer"', 2)
    assert [(a.number, a.state, a.fence) for a in await store.attempts(run_id)] == [
        (1, "lost", old.fence),
        (2, "succeeded", new_run.fence),
    ]


async def test_the_same_worker_cannot_complete_its_older_attempt(store: Store, clock: Clock) -> None:
    """Only the fence tells two leases of one worker apart."""
    worker = await hand(store)
    await insert_one(store)
    old = await worker.claim_one()
    await worker.settle(old)
    again = await worker.claim_one()
    assert await worker.complete(old) == set()
    assert await worker.complete(again) == {again.run_id}


async def test_a_session_past_its_time_that_nobody_rescued_may_still_report(store: Store, clock: Clock) -> None:
    """After a failover workers report first: what was done is not done again."""
    worker = await hand(store)
    await insert_one(store)
    run = await worker.claim_one()
    clock.advance(60)
    assert await worker.complete(run) == {run.run_id}
    assert (await store.rescue()).requeued == 0
    assert (await the_run(store, run.run_id)).state == "succeeded"


async def test_a_batch_tells_which_it_won(store: Store, clock: Clock) -> None:
    worker, other = await hand(store), await hand(store, "node-2")
    await insert(store, *(new() for _ in range(500)))
    runs = await worker.claim(500)
    for run in runs[::5]:
        await store.cancel(run.run_id, "ann")
    await worker.complete(*runs[::10])
    won = await worker.complete(*runs)
    assert won == {run.run_id for i, run in enumerate(runs) if i % 10}
    assert await other.complete(*runs) == set()
    assert await look(store, "SELECT count(*) FROM run WHERE state = 'succeeded'") == [(500,)]
