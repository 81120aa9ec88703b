"""PostgreSQL: submitting from SQL, and inside the caller's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.store.protocol import Store
from tests.conformance.conftest import OpenStore
from tests.conformance.kit import Hand, hand, job, look, new, the_run

SUBMIT = "SELECT fleetcron.submit"


@pytest.fixture
async def live(open_pg: OpenStore) -> Store:
    """A store on the database's own clock, which the SQL function goes by."""
    store = await open_pg(clock=None)
    await store.put_jobs([job("work", queue="reports", priority=3), job("other")])
    return store


@pytest.fixture
async def sql(clean_pg_url: str, live: Store) -> AsyncIterator[Any]:
    """A connection of the user's own."""
    connection = await asyncpg.connect(clean_pg_url)
    yield connection
    await connection.close()


def now() -> datetime:
    return datetime.now(UTC)


async def test_a_job_by_name_is_enough(live: Store, sql: Any) -> None:
    """Queue and priority are the job's own."""
    run_id = await sql.fetchval(f"{SUBMIT}('work')")
    run = await the_run(live, run_id)
    assert (run.job, run.queue, run.priority, run.tenant, run.payload, run.key) == (
        "work",
        "reports",
        3,
        "",
        "{}",
        None,
    )
    assert abs(run.due_at - now()) < timedelta(seconds=10)
    worker = await hand(live)
    claimed = await worker.claim_one()
    assert (claimed.run_id, claimed.attempt, claimed.expires_at) == (run_id, 1, None)
    assert await worker.complete(claimed) == {run_id}


async def test_every_argument_by_name(live: Store, sql: Any) -> None:
    run_id = await sql.fetchval(
        f"""{SUBMIT}(job => 'work', payload => '{{"a": [1, "ü"]}}', due_at => now() + interval '1 hour', key => 'k', tenant => 'acme',
        queue => 'q', priority => 0)"""
    )
    run = await the_run(live, run_id)
    assert (run.payload, run.key, run.tenant, run.queue, run.priority, run.state) == (
        '{"a": [1, "ü"]}',
        "k",
        "acme",
        "q",
        0,
        "scheduled",
    )
    assert timedelta(minutes=59) < run.due_at - now() <= timedelta(hours=1)
    assert await look(live, "SELECT run_id FROM timetable") == [(run_id,)]


async def test_no_due_time_means_now(live: Store, sql: Any) -> None:
    run_id = await sql.fetchval(f"{SUBMIT}('work', due_at => NULL)")
    assert (await the_run(live, run_id)).state == "ready"


async def test_a_key_is_one_run_until_it_has_ended(live: Store, sql: Any) -> None:
    first = await sql.fetchval(f"{SUBMIT}('work', key => 'k')")
    assert await sql.fetchval(f"{SUBMIT}('work', key => 'k')") == first
    assert await sql.fetchval(f"{SUBMIT}('work', key => 'k', tenant => 'acme')") != first
    assert await sql.fetchval(f"{SUBMIT}('other', key => 'k')") != first
    (inserted,) = await live.insert([new(key="k")])  # the same keys as everybody's
    assert (inserted.id, inserted.created) == (first, False)
    worker = await hand(live)
    runs = await worker.claim(queues=["reports"])
    await worker.complete(*runs)
    assert await sql.fetchval(f"{SUBMIT}('work', key => 'k')") not in (None, first)


async def test_a_key_whose_time_has_passed_is_free(live: Store, sql: Any) -> None:
    (held,) = await live.insert([new(key="k", key_scope=timedelta(hours=1))])
    assert await sql.fetchval(f"{SUBMIT}('work', key => 'k')") == held.id
    (over,) = await live.insert([new(key="old", key_scope=timedelta(hours=1), due_at=now() - timedelta(hours=2))])
    assert await sql.fetchval(f"{SUBMIT}('work', key => 'old')") != over.id


async def test_an_unknown_job_is_refused_by_name(sql: Any) -> None:
    with pytest.raises(asyncpg.RaiseError, match="no job is named nobody") as refused:
        await sql.fetchval(f"{SUBMIT}('nobody')")
    assert "fleetcron job add" in refused.value.hint


@pytest.mark.parametrize(
    ("payload", "kind"), [("[1]", "array"), ("1", "number"), ('"x"', "string"), ("null", "null"), ("true", "boolean")]
)
async def test_a_payload_that_is_no_object_is_refused(live: Store, sql: Any, payload: str, kind: str) -> None:
    with pytest.raises(asyncpg.RaiseError, match=f"must be a JSON object, not {kind}"):
        await sql.fetchval(f"{SUBMIT}('work', $1::jsonb)", payload)
    assert await look(live, "SELECT count(*) FROM run") == [(0,)]


async def test_a_missing_payload_is_refused(sql: Any) -> None:
    with pytest.raises(asyncpg.RaiseError, match="must be a JSON object"):
        await sql.fetchval(f"{SUBMIT}('work', NULL)")


@pytest.mark.parametrize("priority", [-1, 10, 32767, 100_000])
async def test_a_priority_out_of_range_is_refused(live: Store, sql: Any, priority: int) -> None:
    with pytest.raises(asyncpg.RaiseError, match=rf"priority must be from 0 \(first\) to 9 \(last\), not {priority}"):
        await sql.fetchval(f"{SUBMIT}('work', key => 'k', priority => $1)", priority)
    for table in ("run", "lane", "dedup"):
        assert await look(live, f"SELECT count(*) FROM {table}") == [(0,)], table
    assert await sql.fetchval(f"{SUBMIT}('work', priority => 9)")


async def test_what_is_rolled_back_never_was(live: Store, sql: Any) -> None:
    transaction = sql.transaction()
    await transaction.start()
    run_id = await sql.fetchval(f"{SUBMIT}('work', key => 'k')")
    assert await live.run(run_id) is None  # nobody sees it before the commit
    await transaction.rollback()
    assert await live.run(run_id) is None
    for table in ("ready", "dedup", "run"):
        assert await look(live, f"SELECT count(*) FROM {table}") == [(0,)], table
    async with sql.transaction():
        kept = await sql.fetchval(f"{SUBMIT}('work', key => 'k')")
    assert (await the_run(live, kept)).state == "ready"


async def test_two_submits_of_one_key_at_once_are_one_run(live: Store, sql: Any, clean_pg_url: str) -> None:
    """The second waits for the first to commit, and is told its id."""
    other = await asyncpg.connect(clean_pg_url)
    try:
        async with sql.transaction():
            first = await sql.fetchval(f"{SUBMIT}('work', key => 'k')")
            waiting = asyncio.ensure_future(other.fetchval(f"{SUBMIT}('work', key => 'k')"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
        assert await waiting == first
    finally:
        await other.close()


async def test_the_caller_s_transaction_decides(live: Store, sql: Any) -> None:
    """`conn=`: the run exists if and when the caller's own writes do."""
    await sql.execute("CREATE TEMP TABLE orders (id int)")
    for keep in (False, True):
        transaction = sql.transaction()
        await transaction.start()
        await sql.execute("INSERT INTO orders VALUES (1)")
        plain, keyed = await live.insert([new(), new(key="k")], conn=sql)
        assert (plain.created, keyed.created) == (True, True)
        assert await live.run(plain.id) is None
        await (transaction.commit() if keep else transaction.rollback())
        assert (await live.run(plain.id) is not None) is keep
        assert (await live.run(keyed.id) is not None) is keep
    assert await sql.fetchval("SELECT count(*) FROM orders") == 1
    assert len(await (await hand(live)).claim()) == 2


async def test_a_refused_job_leaves_the_caller_to_decide(live: Store, sql: Any) -> None:
    await sql.execute("CREATE TEMP TABLE orders (id int)")
    async with sql.transaction():
        await sql.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(StoreError):
            async with sql.transaction():
                await live.insert([new("nobody")], conn=sql)
    assert await sql.fetchval("SELECT count(*) FROM orders") == 1


@pytest.mark.parametrize("how", ["conn", "function"])
@pytest.mark.parametrize("due", [timedelta(0), timedelta(hours=1)], ids=["ready", "timetable"])
async def test_a_job_is_not_removed_from_under_a_run_that_is_about_to_commit(
    live: Store, sql: Any, how: str, due: timedelta
) -> None:
    """Nobody sees the run yet, and it will need its job. The fleet is not held up meanwhile."""
    worker = await hand(live)
    await live.insert([new()])  # the first run of a lane, which everybody else would wait for
    await worker.complete(*await worker.claim())
    transaction = sql.transaction()
    await transaction.start()
    if how == "conn":
        await live.insert([new("other", due_at=now() + due)], conn=sql)
    else:
        await sql.fetchval(f"{SUBMIT}('other', due_at => now() + $1::interval)", due)
    removal = asyncio.create_task(live.remove_job("other", "ann"))
    longest = 0.0
    while not removal.done():
        began = asyncio.get_running_loop().time()
        await live.insert([new()])
        await worker.complete(*await worker.claim())
        longest = max(longest, asyncio.get_running_loop().time() - began)
        await asyncio.sleep(0.01)
    with pytest.raises(StoreUnavailable, match=r"job 'other' was not removed: .*open transaction"):
        await removal
    assert longest < 5
    await transaction.commit()
    with pytest.raises(StoreError, match="job 'other' is still needed"):
        await live.remove_job("other", "ann")
    for place in ("ready", "timetable"):
        assert await look(live, f"SELECT run_id FROM {place} WHERE job_id NOT IN (SELECT id FROM job)") == []


async def test_waiting_runs_of_both_ways_are_one_queue(live: Store, sql: Any) -> None:
    ids = [await sql.fetchval(f"{SUBMIT}('work', queue => 'q')"), (await live.insert([new(queue="q")]))[0].id]
    worker: Hand = await hand(live)
    assert sorted(run.run_id for run in await worker.claim(queues=["q"])) == sorted(ids)
