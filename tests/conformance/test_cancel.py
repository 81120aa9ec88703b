"""Cancelling."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from fleetcron.model import RunRecord
from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    START,
    Clock,
    at,
    fired,
    hand,
    insert,
    insert_keyed,
    insert_one,
    lane,
    lead,
    look,
    new,
    put,
    schedule,
    state,
    the_run,
)


async def test_what_does_not_exist_is_unknown(store: Store) -> None:
    assert await store.cancel(4711, "ann") == "unknown"


@pytest.mark.parametrize("where", ["ready", "scheduled", "timetable", "parked", "retrying", "retrying later", "tick"])
async def test_a_waiting_run_ends_at_once(store: Store, clock: Clock, where: str) -> None:
    worker = await hand(store)
    match where:
        case "ready":
            run_id = await insert_one(store)
        case "scheduled":
            run_id = await insert_one(store, delay=timedelta(seconds=90))
        case "timetable":
            run_id = await insert_one(store, delay=timedelta(days=90))
        case "parked":
            _, run_id = await insert(store, new(gate="g"), new(gate="g"))
            await store.admit(worker.id, await worker.claim())
        case "tick":
            await put(store, schedule())
            (run_id,) = await fired(store, await lead(store), "tick", at(60))
        case _:
            run_id = await insert_one(store)
            await worker.settle(await worker.claim_one(), delay=timedelta(hours=int(where == "retrying later")))
    clock.advance(1)
    assert await store.cancel(run_id, "ann") == "cancelled"
    seen = await the_run(store, run_id)
    assert (seen.state, seen.reason, seen.finished_at) == ("cancelled", "cancelled while waiting", at(1))
    assert await store.cancel(run_id, "bob") == "too late"
    clock.advance(90 * 86_400)
    await store.promote()
    assert run_id not in [run.run_id for run in await (await hand(store)).claim()]


async def test_a_running_run_is_asked(store: Store) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    for _ in range(2):
        assert await store.cancel(run_id, "ann") == "asked"
    assert await state(store, run_id) == "running"
    assert (await worker.beat()).cancels == [run_id]
    assert await worker.settle(run, "cancelled", record="cancelled", reason="cancelled while running")
    seen = await the_run(store, run_id)
    assert (seen.state, seen.reason, seen.attempt) == ("cancelled", "cancelled while running", 1)
    assert [a.state for a in await store.attempts(run_id)] == ["cancelled"]


@pytest.mark.parametrize("end", ["succeeded", "failed", "discarded", "expired", "missed"])
async def test_an_ended_run_does_not_change(store: Store, end: str) -> None:
    worker = await hand(store)
    run_id = await insert_one(store)
    run = await worker.claim_one()
    if end == "succeeded":
        await worker.complete(run, result="1")
    else:
        await worker.settle(run, end, dead=end == "failed")
    before = await the_run(store, run_id)
    assert before.state == end
    assert await store.cancel(run_id, "ann") == "too late"
    assert await the_run(store, run_id) == before


async def test_who_cancelled_is_written_down(store: Store) -> None:
    first, second_ = await insert(store, new(), new())
    worker = await hand(store)
    await store.cancel(first, "ann")
    await worker.claim_one()
    await store.cancel(second_, "bob")
    lines = await look(store, "SELECT who, what, subject FROM audit ORDER BY id")
    assert lines == [("ann", "cancel: cancelled", f"run {first}"), ("bob", "cancel: asked", f"run {second_}")]


async def test_a_cancelled_tick_does_not_come_again(store: Store, clock: Clock) -> None:
    await put(store, schedule())
    term = await lead(store, ttl=timedelta(hours=1))
    (run_id,) = await fired(store, term, "tick", at(60))
    assert await store.cancel(run_id, "ann") == "cancelled"
    assert await fired(store, term, "tick", at(120)) != [run_id]
    clock.advance(120)
    await store.promote()
    assert [run.nominal_at for run in await (await hand(store)).claim()] == [at(120)]


async def test_cancels_race_claims_and_ends(store: Store, open_store: OpenStore) -> None:
    """Case C101: in every order, the end is a legal one, fits the answer, and never changes afterwards."""
    stores = [store, await open_store()]
    workers = [await hand(s, f"node-{i}") for i, s in enumerate(stores)]
    dice = random.Random(20310506)
    legal = {
        "cancelled": {"cancelled"},
        "asked": {"cancelled", "succeeded", "failed"},
        "too late": {"succeeded", "failed"},
    }
    answers: dict[int, str] = {}
    ended: dict[int, RunRecord] = {}

    async def pause() -> None:
        for _ in range(dice.randrange(8)):
            await asyncio.sleep(0)

    async def cancel(run_id: int, i: int) -> None:
        await pause()
        answers[run_id] = await stores[i].cancel(run_id, "ann")

    async def work(tenant: str, i: int) -> None:
        await pause()
        for run in await workers[i].claim(1, lanes=[lane(tenant)]):
            await pause()
            match dice.randrange(3):
                case 0:
                    await workers[i].complete(run)
                case 1:
                    await workers[i].settle(run, "failed", dead=True)
                case 2:
                    await workers[i].settle(run)  # to be retried, unless somebody asked it to stop

    for batch in range(30):
        tenants = [f"t{batch}-{n}" for n in range(10)]
        ids = await insert(store, *(new(tenant=t) for t in tenants))
        moves = [
            f
            for n, (run_id, t) in enumerate(zip(ids, tenants, strict=True))
            for f in (cancel(run_id, n % 2), work(t, n // 2 % 2))
        ]
        dice.shuffle(moves)
        await asyncio.gather(*moves)
        ended |= {run_id: await the_run(store, run_id) for run_id in ids}
    for run_id, run in ended.items():
        assert run.state in legal[answers[run_id]]
    assert len(ended) == 300
    assert {"cancelled", "asked"} <= set(answers.values())
    for run_id, run in ended.items():
        assert await store.cancel(run_id, "bob") == "too late"
        assert await the_run(store, run_id) == run


async def test_a_cancel_that_races_a_promotion(store: Store, open_store: OpenStore, clock: Clock) -> None:
    """The run is between two tables for a moment; the answer is the same."""
    other = await open_store()
    for _ in range(20):
        ids = await insert(store, *(new(delay=timedelta(minutes=5)) for _ in range(5)))
        clock.advance(240)
        answers = await asyncio.gather(*(store.cancel(i, "ann") for i in ids), other.promote())
        assert answers[:5] == ["cancelled"] * 5
    assert await look(store, "SELECT count(*) FROM ready") == [(0,)]


async def test_a_cancel_frees_the_key(store: Store) -> None:
    first = await insert_keyed(store, delay=timedelta(hours=1))
    await store.cancel(first.id, "ann")
    again = await insert_keyed(store, delay=timedelta(hours=1))
    assert again.created
    assert (await the_run(store, again.id)).created_at == START
