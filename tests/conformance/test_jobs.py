"""The registry of jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fleetcron.errors import StoreError
from fleetcron.store.protocol import Store
from tests.conformance.kit import Clock, hand, insert_one, job, look, put, schedule


async def ids(store: Store) -> dict[str, int]:
    return await store.put_jobs([])


async def test_put_jobs_tells_the_ids_of_all_jobs(store: Store) -> None:
    before = await ids(store)
    after = await store.put_jobs([job("third")])
    assert set(after) == {"work", "other", "third"}
    assert {name: after[name] for name in before} == before
    assert len(set(after.values())) == 3


async def test_a_job_comes_back_as_it_was_put(store: Store) -> None:
    full = job(
        "Überweisung/täglich",
        target={"type": "shell", "command": ["echo", "ünï", "'; drop table job; --"]},
        queue="reports",
        priority=9,
        timeout=timedelta(minutes=30),
        max_attempts=32_000,
        backoff=timedelta(milliseconds=250),
        factor=1.5,
        max_backoff=timedelta(days=2),
        executor="process",
        strict=True,
        dead_letter=False,
        start_deadline=timedelta(seconds=90),
        aliases=("old.name", "älter"),
    )
    known = await store.put_jobs([full])
    (found,) = [j for j in await store.jobs() if j.name == full.name]
    assert found == job(
        **{f: getattr(full, f) for f in full.__struct_fields__}
        | {"id": known[full.name], "known": False, "paused": False}
    )


async def test_a_job_that_is_put_again_changes_and_keeps_its_id(store: Store) -> None:
    before = await ids(store)
    after = await store.put_jobs([job("work", max_attempts=7, queue="elsewhere")])
    assert after == before
    (found,) = [j for j in await store.jobs() if j.name == "work"]
    assert (found.max_attempts, found.queue) == (7, "elsewhere")


async def test_a_job_is_known_while_a_live_worker_has_a_handler_for_it(store: Store, clock: Clock) -> None:
    known = await ids(store)

    async def seen() -> dict[str, bool | None]:
        return {j.name: j.known for j in await store.jobs()}

    assert await seen() == {"work": False, "other": False}
    worker = await hand(store, jobs=(known["work"],))
    assert await seen() == {"work": True, "other": False}
    await store.worker_jobs(worker.id, [known["other"]])
    assert await seen() == {"work": False, "other": True}
    await store.worker_jobs(worker.id, None)
    assert await seen() == {"work": True, "other": True}
    clock.advance(60)
    assert await seen() == {"work": False, "other": False}


async def test_due_runs_of_jobs_that_nobody_knows_are_visible(store: Store, clock: Clock) -> None:
    known = await ids(store)
    worker = await hand(store, jobs=(known["other"],))
    for _ in range(3):
        await insert_one(store, "work")
    await insert_one(store, "other")
    await insert_one(store, "work", delay=timedelta(seconds=30))  # not due: nobody misses a handler yet
    assert await store.unknown_jobs() == {"work": 3}
    await store.worker_jobs(worker.id, [known["work"]])
    assert await store.unknown_jobs() == {"other": 1}
    clock.advance(60)  # the worker is dead
    assert await store.unknown_jobs() == {"other": 1, "work": 4}


async def test_removing_a_job(store: Store) -> None:
    assert await store.remove_job("nobody", "ann") is False
    assert await store.remove_job("other", "ann") is True
    assert set(await ids(store)) == {"work"}
    assert await store.remove_job("other", "ann") is False
    assert ("ann", "remove job", "other") in await look(store, "SELECT who, what, subject FROM audit")


async def test_an_id_is_not_given_to_another_job(store: Store) -> None:
    gone = (await ids(store))["other"]
    await store.remove_job("other", "ann")
    assert (await store.put_jobs([job("third")]))["third"] != gone


@pytest.mark.parametrize("where", ["a schedule", "ready", "timetable", "parked", "lease"])
async def test_a_job_that_is_needed_stays(store: Store, where: str) -> None:
    worker = await hand(store)
    match where:
        case "a schedule":
            await put(store, schedule())
        case "ready" | "lease":
            await insert_one(store)
        case "timetable":
            await insert_one(store, delay=timedelta(hours=1))
        case "parked":
            await insert_one(store, "other", gate="g")
            await insert_one(store, gate="g")
            await store.admit(worker.id, await worker.claim())
    if where == "lease":
        await worker.claim_one()
    with pytest.raises(StoreError, match=r"'work' is still needed"):
        await store.remove_job("work", "ann")
    assert "work" in await ids(store)


async def test_a_job_whose_runs_have_ended_can_go(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    await worker.complete(await worker.claim_one())
    assert await store.remove_job("work", "ann")
    assert await store.run(run_id) is not None
