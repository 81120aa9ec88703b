"""Dead letters, and running them again."""

from __future__ import annotations

import asyncio

from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import Clock, at, hand, insert, insert_keyed, insert_one, look, new, second, state, the_run


async def dead(store: Store, n: int, job: str = "work", **given: object) -> list[int]:
    """Runs that have used up their attempts."""
    worker = await hand(store)
    ids = await insert(store, *(new(job, **given) for _ in range(n)))
    for run in await worker.claim(n):
        await worker.settle(run, "failed", attempt=3, dead=True)
    await store.stop_worker(worker.id)
    return ids


async def test_letters_are_listed_newest_first(store: Store) -> None:
    ids = [*await dead(store, 3), *await dead(store, 2, "other")]
    assert [letter.run_id for letter in await store.dead_letters()] == ids[::-1]
    assert [letter.run_id for letter in await store.dead_letters(job="work")] == ids[2::-1]
    assert [letter.run_id for letter in await store.dead_letters(limit=2)] == ids[:2:-1]
    assert [letter.run_id for letter in await store.dead_letters(limit=2, after=ids[3])] == ids[2:0:-1]
    assert await store.dead_letters(job="nobody") == []


async def test_a_replayed_run_starts_anew(store: Store, clock: Clock) -> None:
    """Same run, same idempotency key; its old attempts stay in the history."""
    (run_id,) = await dead(store, 1, tenant="acme", priority=2)
    clock.advance(600)
    assert await store.replay([run_id], "ann") == [run_id]
    seen = await the_run(store, run_id)
    assert (seen.state, seen.attempt, seen.due_at, seen.finished_at, seen.reason) == (
        "ready",
        0,
        at(600),
        None,
        "replayed",
    )
    assert await store.dead_letters() == []
    worker = await hand(store)
    run = await worker.claim_one()
    assert (run.run_id, run.attempt, run.deaths, run.tenant, run.priority) == (run_id, 1, 0, "acme", 2)
    await worker.complete(run)
    assert [(a.number, a.state) for a in await store.attempts(run_id)] == [(1, "failed"), (1, "succeeded")]


async def test_a_replay_may_die_again(store: Store) -> None:
    (run_id,) = await dead(store, 1)
    for _ in range(3):
        assert await store.replay([run_id], "ann") == [run_id]
        worker = await hand(store)
        await worker.settle(await worker.claim_one(), "failed", attempt=1, dead=True)
        assert [letter.run_id for letter in await store.dead_letters()] == [run_id]


async def test_only_what_is_dead_is_replayed(store: Store) -> None:
    worker = await hand(store)
    (run_id,) = await dead(store, 1)
    waiting = await insert_one(store)
    done = await insert_one(store, queue="done")
    await worker.complete(*await worker.claim(queues=["done"]))
    assert await store.replay([waiting, done, 4711, run_id], "ann") == [run_id]
    assert await store.replay([run_id], "ann") == []
    assert await store.replay([], "ann") == []
    assert await state(store, done) == "succeeded"


async def test_replaying_twice_at_once_is_once(store: Store, open_store: OpenStore) -> None:
    """Case C82: "replay all", pressed by two people."""
    other = await open_store()
    ids = await dead(store, 400)
    answers = await asyncio.gather(store.replay(ids, "ann"), other.replay(ids, "bob"), store.replay(ids[::-1], "ann"))
    assert sorted(run_id for answer in answers for run_id in answer) == ids
    assert await look(store, "SELECT count(*) FROM ready") == [(400,)]
    assert await store.dead_letters() == []


async def test_a_letter_of_a_job_that_is_gone_stays(store: Store) -> None:
    """Case C82: it is not replayed, and not lost either."""
    (gone,) = await dead(store, 1, "other")
    (kept,) = await dead(store, 1)
    assert await store.remove_job("other", "ann")
    assert await store.replay([gone, kept], "ann") == [kept]
    assert [letter.run_id for letter in await store.dead_letters()] == [gone]
    assert await state(store, gone) == "failed"


async def test_a_replay_is_neither_late_nor_expired(store: Store, clock: Clock) -> None:
    (run_id,) = await dead(store, 1, start_deadline=second(30))
    clock.advance(3600)
    await store.replay([run_id], "ann")
    run = await (await hand(store)).claim_one()
    assert (run.late, run.late_at, run.expires_at) == (False, None, None)


async def test_purged_letters_stay_in_the_history(store: Store) -> None:
    ids = await dead(store, 3)
    assert await store.purge_dead(ids[:2]) == 2
    assert await store.purge_dead(ids[:2]) == 0
    assert [letter.run_id for letter in await store.dead_letters()] == ids[2:]
    assert [await state(store, i) for i in ids] == ["failed"] * 3
    assert await store.replay(ids, "ann") == ids[2:]


async def test_a_dead_run_has_given_its_key_back(store: Store) -> None:
    (run_id,) = await dead(store, 1, key="k")
    again = await insert_keyed(store)
    assert again.created
    assert await store.replay([run_id], "ann") == [run_id]


async def test_who_replayed_is_written_down(store: Store) -> None:
    ids = await dead(store, 2)
    await store.replay(ids, "ann")
    ((who, what, subject),) = await look(store, "SELECT who, what, subject FROM audit")
    assert (who, what) == ("ann", "replay")
    assert str(ids[0]) in subject
