"""PostgreSQL that is away, in a way of its own, or behind a pooler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from fleetcron.embedded_postgres import EmbeddedPostgres, free_port
from fleetcron.errors import StoreError, StoreUnavailable
from fleetcron.model import State
from fleetcron.store.factory import make_store
from fleetcron.store.postgres.database import translated
from fleetcron.store.protocol import RunFilter, Store
from fleetcron.triggers import Every
from tests.conformance.kit import (
    LEASE,
    Hand,
    broken,
    fire,
    hand,
    info,
    insert,
    insert_keyed,
    insert_one,
    job,
    judge,
    lead,
    new,
    put,
    schedule,
    second,
    state,
    the_run,
    the_schedule,
)

HOURS = timedelta(hours=2)


@pytest.fixture
async def admin(pg_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(pg_url)
    yield connection
    await connection.close()


async def opened(url: str, **options: Any) -> Store:
    store = make_store(url, **options)
    await store.open()
    await store.put_jobs([job("work"), job("other")])
    return store


# Away
async def test_a_server_that_is_not_there() -> None:
    store = make_store(f"postgresql://postgres@127.0.0.1:{free_port()}/fleet")
    with pytest.raises(StoreUnavailable, match=r"open: the database is not available: .*127\.0\.0\.1"):
        await store.open()
    await store.close()


async def test_a_database_that_does_not_exist(pg_url: str) -> None:
    store = make_store(pg_url.rpartition("/")[0] + "/nowhere")
    with pytest.raises(StoreUnavailable, match='"nowhere" does not exist'):
        await store.open()


async def test_a_wrong_password(crashable_postgres: EmbeddedPostgres) -> None:
    with_password = await asyncpg.connect(crashable_postgres.url())
    await with_password.execute("CREATE ROLE fleet LOGIN PASSWORD 'right'")
    rules = crashable_postgres.data_dir / "pg_hba.conf"
    rules.write_text(f"host all fleet 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    await with_password.execute("SELECT pg_reload_conf()")
    await with_password.close()
    parts = urlsplit(crashable_postgres.url())
    url = parts._replace(netloc=f"fleet:wrong@127.0.0.1:{parts.port}").geturl()
    for _ in range(100):  # until the server has read its rules again it lets everybody in, but not make a schema
        store = make_store(url)
        with pytest.raises(StoreError) as refused:
            await store.open()
        await store.close()
        if isinstance(refused.value, StoreUnavailable):
            break
        await asyncio.sleep(0.02)
    assert isinstance(refused.value, StoreUnavailable)
    assert 'password authentication failed for user "fleet"' in str(refused.value)
    assert "wrong" not in str(refused.value)


async def test_a_server_that_dies_and_comes_back(crashable_postgres: EmbeddedPostgres) -> None:
    """Case C65: what is asked meanwhile fails as unavailable; afterwards the same store works on."""
    store = await opened(crashable_postgres.url())
    try:
        worker = await hand(store, ttl=HOURS)
        run_id = await insert_one(store)
        run = await worker.claim_one()
        crashable_postgres.kill()
        for call in (store.now, store.lanes, store.counts, worker.beat, store.rescue, lambda: worker.complete(run)):
            with pytest.raises(StoreUnavailable):
                await (call(None) if call == store.lanes else call())  # type: ignore[operator]
        with pytest.raises(StoreUnavailable):
            await store.insert([new(), new(key="k")])
        crashable_postgres.start()
        async with asyncio.timeout(20):
            while True:
                try:
                    assert await worker.complete(run) == {run_id}
                    break
                except StoreUnavailable:
                    await asyncio.sleep(0.05)
        assert await state(store, run_id) == "succeeded"
    finally:
        await store.close()


async def test_a_handlers_transaction_whose_server_dies_says_so(crashable_postgres: EmbeddedPostgres) -> None:
    store = await opened(crashable_postgres.url())
    try:
        worker = await hand(store, ttl=HOURS)
        await insert_one(store)
        run = await worker.claim_one()
        with pytest.raises(StoreUnavailable):
            async with store.transaction(worker.id, run, await store.now(), lambda: None):
                crashable_postgres.kill()
    finally:
        await store.close()


async def test_a_handlers_statements_are_planned_as_usual(pg_url: str) -> None:
    """Our settings are for our statements; the handler's may well want to scan a table, or take an hour."""
    store = await opened(pg_url, statement_timeout=1)
    try:
        worker = await hand(store, ttl=HOURS)
        await insert_one(store)
        run = await worker.claim_one()
        async with store.transaction(worker.id, run, await store.now(), lambda: None) as connection:
            for name in ("enable_seqscan", "enable_mergejoin", "enable_hashjoin", "enable_bitmapscan"):
                assert await connection.fetchval(f"SHOW {name}") == "on"
            await connection.execute("SELECT pg_sleep(1.2)")
        assert await state(store, run.run_id) == "succeeded"
    finally:
        await store.close()


async def test_a_fault_of_ours_is_no_outage(pg_url: str) -> None:
    """asyncpg says both with the same exception. An outage is tried again until it is over, a fault would be for ever."""
    store = await opened(pg_url)
    try:
        for args in ((), (None, 1), ("not a time",)):
            with pytest.raises(StoreError, match=r"^now: ") as caught:
                await store.db.fetch("now", *args)  # type: ignore[attr-defined]
            assert not isinstance(caught.value, StoreUnavailable), args
        async with store.db.pool.acquire() as connection:  # type: ignore[attr-defined]
            await connection.close()
            with pytest.raises(StoreUnavailable, match="not available"), translated("now"):
                await connection.fetchval("SELECT 1")
        await store.db.pool.close()  # type: ignore[attr-defined]
        with pytest.raises(StoreUnavailable, match="clos"):
            await store.now()
    finally:
        await store.close()


async def test_a_read_only_database(admin: Any, pg_url: str) -> None:
    """A standby, or a primary that was told so: reading works, writing is refused as unavailable."""
    store = await opened(pg_url)
    run_id = await insert_one(store)
    worker = await hand(store, ttl=HOURS)
    await store.close()
    await admin.execute(f"ALTER DATABASE {pg_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    store = make_store(pg_url)
    await store.open()
    try:
        assert (await the_run(store, run_id)).state is State.READY
        assert len((await store.lanes(None)).lanes) == 1
        for write in (
            lambda: store.insert([new()]),
            lambda: store.insert([new(key="k")]),
            lambda: Hand(store, worker.id).claim(),
            lambda: store.beat(worker.id, LEASE),
            lambda: store.campaign(0, info(), LEASE),
            lambda: put(store, schedule()),
            store.migrate,
        ):
            with pytest.raises(StoreUnavailable, match="read-only"):
                await write()
    finally:
        await store.close()


async def test_an_empty_read_only_database_is_not_migrated(admin: Any, pg_url: str) -> None:
    await admin.execute(f"ALTER DATABASE {pg_url.rpartition('/')[2]} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match="read-only and has no fleetcron schema"):
        await make_store(pg_url).open()


async def test_a_statement_that_hangs_is_given_up(admin: Any, pg_url: str) -> None:
    """Case C66: each has a time limit, below any lease."""
    await (await opened(pg_url)).close()
    store = await opened(pg_url, statement_timeout=0.3)
    try:
        run_id = await insert_one(store)
        async with admin.transaction():
            await admin.execute("LOCK TABLE fleetcron.ready IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreUnavailable):
                await store.cancel(run_id, "ann")
        assert await store.cancel(run_id, "ann") == "cancelled"
    finally:
        await store.close()


# Listening
async def test_listening_comes_back_after_its_connection_was_cut(admin: Any, pg_url: str) -> None:
    """Case C68: within 5 s, with one wake-up for whatever was missed."""
    store, other = await opened(pg_url), await opened(pg_url)
    try:
        heard: list[str] = []
        await store.listen(heard.append)
        await _until(lambda: heard == [""])
        for _ in range(2):
            heard.clear()
            cut = await admin.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
            )
            assert cut == 1
            await _until(lambda: "" in heard, within=5)
            heard.clear()
            await other.notify(["q"])
            await _until(lambda: "q" in heard)
    finally:
        await store.close()
        await other.close()


async def test_nothing_is_left_behind_by_a_closed_store(admin: Any, pg_url: str) -> None:
    store = await opened(pg_url)
    await store.listen(lambda _message: None)
    worker = await hand(store)
    await store.hold_presence(worker.id)
    await store.close()
    mine = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    for _ in range(200):
        if await admin.fetchval(mine) == 0:
            break
        await asyncio.sleep(0.02)
    assert await admin.fetchval(mine) == 0


async def _until(true: Any, within: float = 3) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)


# PgBouncer, transaction mode
async def test_everything_works_through_pgbouncer(pgbouncer_url: str, pg_url: str) -> None:
    """Case C69: no session state is relied upon; four server connections serve two stores of four."""
    store, other = await opened(pgbouncer_url, pgbouncer=True), await opened(pgbouncer_url, pgbouncer=True)
    try:
        await put(
            store, schedule(trigger=Every("1d", anchor=await store.now() + timedelta(hours=12))), schedule("gone")
        )
        assert await store.remove_schedule("gone", "ann")
        term = await lead(store, ttl=HOURS)
        read = await the_schedule(store)
        assert read.next_at is not None
        assert (await fire(store, term, read, read.next_at)).runs == 1
        await judge(store, "tick", leader=(0, term))
        await insert(store, *(new(tenant=f"t{i % 5}", payload=f'{{"n":{i}}}') for i in range(200)))
        first = await insert_keyed(store)
        assert (await insert_keyed(other)).id == first.id
        workers = [await hand(s, f"node-{i}", ttl=HOURS) for i, s in enumerate((store, other))]
        done: set[int] = set()

        async def work(worker: Hand) -> None:
            while runs := await worker.claim(23):
                done.update(await worker.complete(*runs))

        await asyncio.gather(*(work(w) for w in workers for _ in range(3)))
        await asyncio.gather(*(work(w) for w in workers))
        assert len(done) == 201
        assert (await workers[0].beat()).alive
        await insert(store, *(new(gate="g") for _ in range(3)))
        runs = await workers[0].claim()
        assert sorted(a.verdict for a in await store.admit(workers[0].id, runs)) == ["parked", "parked", "start"]
        assert await store.cancel(runs[0].run_id, "ann") == "asked"
        assert await workers[0].settle(runs[0], "failed", dead=True)
        assert await store.unpark() == ["default"]
        assert await store.replay([runs[0].run_id], "ann") == [runs[0].run_id]
        run = await workers[0].claim_one()
        async with store.transaction(workers[0].id, run, await store.now(), lambda: "1") as connection:
            await connection.execute("SELECT 1")
        assert await state(store, run.run_id) == "succeeded"
        await insert_one(store)
        held = await workers[1].claim_one()
        assert (await store.rescue([workers[1].id], expired=False)).requeued == 1
        assert await workers[1].complete(held) == set()
        assert await store.renew(0, "leader", term, LEASE) and await store.resign(0, "leader", term)
        assert await store.promote() == 0
        assert len(await store.runs(RunFilter(limit=1000))) > 200
        await store.prune(timedelta(days=1), 0)
        await store.prune_rest(timedelta(days=1))
        assert await broken(make_store(pg_url)) == []
    finally:
        await store.close()
        await other.close()


async def test_what_pgbouncer_cannot_do_is_left_out(pgbouncer_url: str, pg_url: str) -> None:
    """No wake-ups, no presence: polling and lease times do it."""
    store = await opened(pgbouncer_url, pgbouncer=True)
    try:
        heard: list[str] = []
        await store.listen(heard.append)
        worker = await hand(store, ttl=second(0.01))
        assert await store.hold_presence(worker.id) is False
        assert store.presence_lost() is False
        assert await store.absent() == set()
        await store.insert([new()], wake=["default"])
        await asyncio.sleep(0.3)
        assert heard == []
        assert (await store.rescue()).workers == [worker.id]
    finally:
        await store.close()


async def test_wake_ups_come_past_pgbouncer_by_a_direct_address(pgbouncer_url: str, pg_url: str) -> None:
    store = await opened(pgbouncer_url, pgbouncer=True, direct_url=pg_url)
    try:
        heard: list[str] = []
        await store.listen(heard.append)
        await _until(lambda: heard == [""])
        await store.insert([new()], wake=["default"])
        await _until(lambda: "default" in heard)
    finally:
        await store.close()
