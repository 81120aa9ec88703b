"""PostgreSQL: handlers' transactions, locks, other schemas, presence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from fleetcron.errors import LeaseLost, StoreError
from fleetcron.store.factory import make_store
from fleetcron.store.protocol import Claimed, RunFilter, Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import (
    Clock,
    Hand,
    at,
    fire,
    hand,
    info,
    insert_keyed,
    insert_one,
    job,
    lead,
    put,
    runs_of,
    schedule,
    second,
    state,
    the_run,
    the_schedule,
)


@pytest.fixture
async def sql(clean_pg_url: str, pg_store: Store) -> AsyncIterator[Any]:
    """A connection of the user's own, with a table."""
    connection = await asyncpg.connect(clean_pg_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS public.orders (id int)")
    yield connection
    await connection.execute("DROP TABLE public.orders")
    await connection.close()


async def orders(sql: Any) -> int:
    found: int = await sql.fetchval("SELECT count(*) FROM public.orders")
    return found


async def claimed(store: Store, **given: Any) -> tuple[Hand, Claimed]:
    worker = await hand(store)
    await insert_one(store, **given)
    return worker, await worker.claim_one()


# A handler's transaction
async def test_a_handlers_writes_and_the_completion_commit_together(pg_store: Store, sql: Any, clock: Clock) -> None:
    await insert_keyed(pg_store)
    worker = await hand(pg_store)
    run = await worker.claim_one()
    clock.advance(1)
    async with pg_store.transaction(worker.id, run, at(0.5), lambda: '{"n":1}') as connection:
        await connection.execute("INSERT INTO public.orders VALUES (1)")
        assert await orders(sql) == 0
        assert await state(pg_store, run.run_id) == "running"
    assert await orders(sql) == 1
    seen = await the_run(pg_store, run.run_id)
    assert (seen.state, seen.result, seen.started_at, seen.attempt) == ("succeeded", '{"n":1}', at(0.5), 1)
    assert (await insert_keyed(pg_store)).created


async def test_a_handler_that_raises_takes_both_back(pg_store: Store, sql: Any) -> None:
    worker, run = await claimed(pg_store)

    async def handler() -> None:
        async with pg_store.transaction(worker.id, run, at(0), lambda: None) as connection:
            await connection.execute("INSERT INTO public.orders VALUES (1)")
            raise KeyError("no such customer")

    with pytest.raises(KeyError):
        await handler()
    assert await orders(sql) == 0
    assert await state(pg_store, run.run_id) == "running"
    assert await worker.settle(run)


async def test_a_result_that_cannot_be_told_takes_both_back(pg_store: Store, sql: Any) -> None:
    worker, run = await claimed(pg_store)

    def result() -> str:
        raise ValueError("not JSON")

    with pytest.raises(ValueError, match="not JSON"):
        async with pg_store.transaction(worker.id, run, at(0), result) as connection:
            await connection.execute("INSERT INTO public.orders VALUES (1)")
    assert await orders(sql) == 0


@pytest.mark.parametrize("when", ["before", "within"])
async def test_a_lost_lease_takes_both_back_and_says_so(pg_store: Store, sql: Any, when: str) -> None:
    worker, run = await claimed(pg_store)
    if when == "before":
        await pg_store.rescue([worker.id], expired=False)

    async def handler() -> None:
        async with pg_store.transaction(worker.id, run, at(0), lambda: None) as connection:
            await connection.execute("INSERT INTO public.orders VALUES (1)")
            if when == "within":
                await pg_store.rescue([worker.id], expired=False)

    with pytest.raises(LeaseLost):
        await handler()
    assert await orders(sql) == 0
    assert await state(pg_store, run.run_id) == "retrying"


async def test_a_handler_that_holds_its_transaction_does_not_hold_up_anything(open_pg: OpenStore) -> None:
    """Case C30: it is not one of the pool's connections."""
    store = await open_pg(pool_size=1)
    await store.put_jobs([job()])
    worker, run = await claimed(store)
    async with store.transaction(worker.id, run, at(0), lambda: None) as connection:
        await connection.execute("SELECT 1")
        async with asyncio.timeout(5):
            assert (await worker.beat()).alive
            await insert_one(store)
            assert len(await worker.claim()) == 1


# Locks between leaders
async def test_a_takeover_waits_for_a_tick_under_way(
    pg_store: Store, open_pg: OpenStore, clock: Clock, clean_pg_url: str
) -> None:
    """The old leader's statement holds its shard's row: what it writes is there before the next one looks."""
    await put(pg_store, schedule())
    term = await lead(pg_store)
    read = await the_schedule(pg_store)
    blocker = await asyncpg.connect(clean_pg_url)
    try:
        async with blocker.transaction():
            # Somebody holds the schedule's row: the tick under way has locked the shard and waits.
            await blocker.execute("SELECT * FROM fleetcron.schedule FOR UPDATE")
            tick = asyncio.ensure_future(fire(pg_store, term, read, at(60)))
            await _waits(blocker, tick)
            clock.advance(20)
            successor = await open_pg()
            takeover = asyncio.ensure_future(successor.campaign(0, info("b"), second(15)))
            await _waits(blocker, takeover, 2)
        assert (await tick).runs == 1
        assert await takeover == term + 1
    finally:
        await blocker.close()
    assert (await the_schedule(pg_store)).next_at == at(120)
    assert len(await runs_of(pg_store, "tick")) == 1


async def test_a_tick_that_waits_for_a_takeover_writes_nothing(
    pg_store: Store, clock: Clock, clean_pg_url: str
) -> None:
    await put(pg_store, schedule())
    term = await lead(pg_store, ttl=timedelta(hours=1))
    read = await the_schedule(pg_store)
    usurper = await asyncpg.connect(clean_pg_url)
    try:
        async with usurper.transaction():
            await usurper.execute("UPDATE fleetcron.shard SET term = term + 1 WHERE id = 0")
            tick = asyncio.ensure_future(fire(pg_store, term, read, at(60)))
            await _waits(usurper, tick)
        answer = await tick
    finally:
        await usurper.close()
    assert (answer.led, answer.runs, answer.advanced) == (False, 0, [])
    assert await runs_of(pg_store, "tick") == []


async def test_an_edit_that_waits_for_a_tick_withdraws_it(
    pg_store: Store, open_pg: OpenStore, clean_pg_url: str
) -> None:
    """Case C18, the other way round: the tick is first, and the edit sees what it wrote."""
    await put(pg_store, schedule())
    term = await lead(pg_store)
    read = await the_schedule(pg_store)
    other = await open_pg()
    blocker = await asyncpg.connect(clean_pg_url)
    held = blocker.transaction()
    await held.start()
    try:
        # The same tick, never to be committed: it holds the leader up after it has locked its schedule.
        await blocker.execute(
            "INSERT INTO fleetcron.run (due_at, nominal_at, priority, job, queue, tenant, schedule, payload) "
            "VALUES ($1, $1, 5, 'work', 'default', '', 'tick', '{}')",
            at(60),
        )
        tick = asyncio.ensure_future(fire(pg_store, term, read, at(60)))
        await _waits(blocker, tick)
        edit = asyncio.ensure_future(other.pause_schedule("tick", "ann"))
        await _waits(blocker, edit, 2)
        await held.rollback()
        assert (await tick).runs == 1
        assert await edit is True
    finally:
        await blocker.close()
    assert await runs_of(pg_store, "tick") == []


async def test_a_replacement_that_meets_a_promotion_is_not_dropped(
    pg_store: Store, clock: Clock, clean_pg_url: str
) -> None:
    """Case C98: the run is between two tables for a moment, and still waits: it must take the last payload."""
    first = await insert_keyed(pg_store, payload='{"n":1}', delay=second(300))
    promoter = await asyncpg.connect(clean_pg_url)
    try:
        async with promoter.transaction():
            moved = "WITH t AS (DELETE FROM fleetcron.timetable RETURNING *) INSERT INTO fleetcron.ready "
            await promoter.execute(
                moved
                + "(queue, priority, tenant, due_at, run_id, job_id) SELECT queue, priority, tenant, due_at, run_id, job_id FROM t"
            )
            replacing = asyncio.ensure_future(
                insert_keyed(pg_store, payload='{"n":2}', delay=second(400), on_duplicate="replace")
            )
            await asyncio.sleep(0.05)
        assert (await replacing).id == first.id
    finally:
        await promoter.close()
    run = await the_run(pg_store, first.id)
    assert (run.payload, run.due_at) == ('{"n":2}', at(400))


async def test_cancels_and_replacements_of_one_run_do_not_deadlock(pg_store: Store, open_pg: OpenStore) -> None:
    other = await open_pg()
    for _ in range(30):
        run = await insert_keyed(pg_store, delay=second(30))
        answer, _ = await asyncio.gather(
            other.cancel(run.id, "ann"),
            insert_keyed(pg_store, delay=second(40), on_duplicate="replace"),
            return_exceptions=True,
        )
        assert answer == "cancelled"
        for left in await pg_store.runs(RunFilter(key="k", limit=2)):
            await pg_store.cancel(left.id, "ann")


async def _waits(observer: Any, task: asyncio.Future[Any], n: int = 1) -> None:
    """Until the task waits for a lock, as the n-th of those that do."""
    for _ in range(200):
        # The observer may be in a transaction, which sees one state of the sessions. And other tests use the same server.
        await observer.execute("SELECT pg_stat_clear_snapshot()")
        waiting = await observer.fetchval(
            "SELECT count(DISTINCT pid) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()"
        )
        if waiting >= n:
            return
        assert not task.done(), task.exception() or task.result()
        await asyncio.sleep(0.01)
    raise AssertionError("nobody waits")


# Schemas
async def test_another_schema_works_side_by_side(pg_store: Store, open_pg: OpenStore, sql: Any) -> None:
    second_fleet = await open_pg(schema="tenant_b")
    try:
        await second_fleet.put_jobs([job()])
        run_id = await insert_one(second_fleet, key="k", payload='{"b":1}')
        assert await second_fleet.insert([], wake=["default"]) == []
        assert [known.name for known in await pg_store.jobs()] == ["other", "work"]
        await insert_one(pg_store, key="k", payload='{"a":1}')
        for store, payload in ((pg_store, '{"a":1}'), (second_fleet, '{"b":1}')):
            worker = await hand(store)
            run = await worker.claim_one()
            assert run.payload == payload
            await worker.complete(run)
            assert await lead(store) == 1
        sent = await sql.fetchval("SELECT tenant_b.submit('work')")
        assert sent > run_id
        assert len(await (await hand(second_fleet)).claim()) == 1
        assert await (await hand(pg_store)).claim() == []
        with pytest.raises(asyncpg.RaiseError, match=r"tenant_b\.submit"):
            await sql.fetchval("SELECT tenant_b.submit('nobody')")
    finally:
        await sql.execute("DROP SCHEMA tenant_b CASCADE")


async def test_wake_ups_of_another_schema_are_not_heard(pg_store: Store, open_pg: OpenStore, sql: Any) -> None:
    other = await open_pg(schema="tenant_b")
    try:
        heard: list[str] = []
        await pg_store.listen(heard.append)
        while not heard:
            await asyncio.sleep(0.01)
        await other.notify(["theirs"])
        await pg_store.notify(["ours"])
        async with asyncio.timeout(3):
            while "ours" not in heard:
                await asyncio.sleep(0.01)
        assert "theirs" not in heard
    finally:
        await sql.execute("DROP SCHEMA tenant_b CASCADE")


async def test_an_unopened_store_says_so(clean_pg_url: str) -> None:
    with pytest.raises(StoreError, match="not open"):
        await make_store(clean_pg_url).jobs()
