"""`submit(conn=…)`: the run is part of the caller's own transaction, whatever library it is that of."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import psycopg.rows
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio as async_alchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from fleetcron import ConfigError, Fleet, QueueFull, StoreError

FAR = datetime(2100, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
ORDERS = "INSERT INTO orders (item) VALUES ('a lamp')"


@dataclass
class Caller:
    """Somebody with a connection: `conn` for submit, and what they do with it themselves."""

    conn: Any
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]


def at_once(work: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any) -> Any:
        return work(*args)

    return call


def for_alchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://") if url.startswith("postgresql") else url


@contextlib.asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()

    async def end(how: str) -> None:
        nonlocal transaction
        await getattr(transaction, how)()
        transaction = connection.transaction()
        await transaction.start()

    try:
        yield Caller(connection, connection.execute, lambda: end("commit"), lambda: end("rollback"))
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield Caller(connection, at_once(connection.execute), at_once(connection.commit), at_once(connection.rollback))


@contextlib.asynccontextmanager
async def with_async_psycopg(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@contextlib.asynccontextmanager
async def with_psycopg2(url: str) -> AsyncIterator[Caller]:
    with (
        contextlib.closing(psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)) as connection,
        connection.cursor() as cursor,
    ):
        yield Caller(connection, at_once(cursor.execute), at_once(connection.commit), at_once(connection.rollback))


def with_alchemy(driver: str, what: str) -> Callable[[str], contextlib.AbstractAsyncContextManager[Caller]]:
    @contextlib.asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(for_alchemy(url, driver), poolclass=NullPool)
        makes: dict[str, Callable[[], Any]] = {
            "Connection": engine.connect,
            "Session": lambda: Session(engine),
            "scoped_session": scoped_session(sessionmaker(engine)),
        }
        with contextlib.closing(makes[what]()) as conn:
            yield Caller(
                conn, at_once(lambda s: conn.execute(sqlalchemy.text(s))), at_once(conn.commit), at_once(conn.rollback)
            )
        engine.dispose()

    return caller


def with_async_alchemy(driver: str, what: str) -> Callable[[str], contextlib.AbstractAsyncContextManager[Caller]]:
    @contextlib.asynccontextmanager
    async def caller(url: str) -> AsyncIterator[Caller]:
        engine = async_alchemy.create_async_engine(for_alchemy(url, driver), poolclass=NullPool)
        async with engine.connect() if what == "AsyncConnection" else async_alchemy.AsyncSession(engine) as conn:
            yield Caller(conn, lambda s: conn.execute(sqlalchemy.text(s)), conn.commit, conn.rollback)
        await engine.dispose()

    return caller


@contextlib.asynccontextmanager
async def with_sqlite3(url: str) -> AsyncIterator[Caller]:
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.row_factory = sqlite3.Row
        yield Caller(connection, at_once(connection.execute), at_once(connection.commit), at_once(connection.rollback))


POSTGRES = {
    "asyncpg": with_asyncpg,
    "psycopg": with_psycopg,
    "async psycopg": with_async_psycopg,
    "psycopg2": with_psycopg2,
    "Connection over psycopg": with_alchemy("psycopg", "Connection"),
    "Connection over psycopg2": with_alchemy("psycopg2", "Connection"),
    "Session over psycopg": with_alchemy("psycopg", "Session"),
    "Session over psycopg2": with_alchemy("psycopg2", "Session"),
    "scoped_session over psycopg": with_alchemy("psycopg", "scoped_session"),
    "AsyncConnection over asyncpg": with_async_alchemy("asyncpg", "AsyncConnection"),
    "AsyncConnection over psycopg": with_async_alchemy("psycopg", "AsyncConnection"),
    "AsyncSession over asyncpg": with_async_alchemy("asyncpg", "AsyncSession"),
    "AsyncSession over psycopg": with_async_alchemy("psycopg", "AsyncSession"),
}
SQLITE = {
    "sqlite3": with_sqlite3,
    "Connection over sqlite3": with_alchemy("", "Connection"),
    "Session over sqlite3": with_alchemy("", "Session"),
}
EACH = [
    *(pytest.param("postgres", name, id=name) for name in POSTGRES),
    *(pytest.param("sqlite", name, id=name) for name in SQLITE),
]
BLOCKING = [param for param in EACH if "sync" not in str(param.values[1])]


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: str) -> str:
    """An empty database of the kind, with a table of the caller's own."""
    tmp_path = request.getfixturevalue("tmp_path")
    url: str = f"sqlite:///{tmp_path / 'fleet.db'}" if kind == "sqlite" else request.getfixturevalue("pg_url")
    return url


@pytest.fixture
async def fleet(url: str) -> AsyncIterator[Fleet]:
    fleet = Fleet(url)
    fleet.job("work", queue="reports", priority=3)(lambda n=0: None)
    async with fleet:
        await write(url, "CREATE TABLE orders (item text)")
        yield fleet


async def write(url: str, statement: str) -> Any:
    """On a connection of its own."""
    async with (with_sqlite3 if url.startswith("sqlite") else with_async_psycopg)(url) as other:
        answer = await other.execute(statement)
        await other.commit()
        return answer


async def orders(url: str) -> int:
    async with (with_sqlite3 if url.startswith("sqlite") else with_asyncpg)(url) as other:
        if url.startswith("sqlite"):
            return int((await other.execute("SELECT count(*) FROM orders")).fetchone()[0])
        return int(await other.conn.fetchval("SELECT count(*) FROM orders"))


def caller(name: str, url: str) -> contextlib.AbstractAsyncContextManager[Caller]:
    return (POSTGRES | SQLITE)[name](url)


@pytest.mark.parametrize(("kind", "name"), EACH)
async def test_a_run_comes_and_goes_with_the_callers_transaction(fleet: Fleet, url: str, name: str) -> None:
    async with caller(name, url) as mine:
        for first in ("submit", "write"):  # whichever statement begins the transaction
            for end in (mine.rollback, mine.commit):
                before, written = await ids(fleet), await orders(url)
                if first == "write":
                    await mine.execute(ORDERS)
                run = await fleet.submit("work", {"n": 1}, conn=mine.conn)
                many = await fleet.submit_many("work", [{"n": 2}, {"n": 3}], conn=mine.conn)
                if first == "submit":
                    await mine.execute(ORDERS)
                assert (run.created, many.created) == (True, [True, True])
                assert await ids(fleet) == before, "nobody else sees them yet"
                await end()
                kept = end is mine.commit
                assert await ids(fleet) - before == ({run.id, *many.ids} if kept else set())
                assert await orders(url) == written + kept
    assert (await fleet.counts())["reports"].ready == 6


async def ids(fleet: Fleet) -> set[int]:
    return {run.id for run in await fleet.runs(limit=1000)}


@pytest.mark.parametrize(("kind", "name"), EACH)
async def test_every_option_is_honoured(fleet: Fleet, url: str, name: str) -> None:
    async with caller(name, url) as mine:
        plain = await fleet.submit("work", conn=mine.conn)
        full = await fleet.submit(
            "work", {"n": 7}, at=FAR, key="k", tenant="acme", queue="q", priority=0, start_deadline="1h", concurrency_key="c",
            conn=mine.conn,
        )  # fmt: skip
        later = await fleet.submit("work", delay="2h", conn=mine.conn)
        await mine.commit()
    plain, full, later = [await fleet.run(run.id) for run in (plain, full, later)]
    assert (plain.queue, plain.priority, plain.tenant, plain.key, plain.state) == ("reports", 3, "", None, "ready")
    assert (full.payload, full.due_at, full.key, full.tenant, full.queue, full.priority, full.state) == (
        {"n": 7}, FAR, "k", "acme", "q", 0, "scheduled",
    )  # fmt: skip
    assert later.due_at - plain.due_at >= timedelta(hours=2)
    assert later.due_at - plain.due_at < timedelta(hours=2, minutes=1)


@pytest.mark.parametrize(("kind", "name"), EACH)
async def test_keys_and_what_came_of_them(fleet: Fleet, url: str, name: str) -> None:
    """Also of a run that only this transaction knows yet."""
    async with caller(name, url) as mine:
        undone = await fleet.submit("work", {"n": 1}, key="K", conn=mine.conn)
        await mine.rollback()
        first = await fleet.submit("work", {"n": 2}, key="K", conn=mine.conn)
        again = await fleet.submit("work", {"n": 3}, key="K", conn=mine.conn)
        assert (undone.created, first.created, again.created) == (True, True, False)
        assert (again.id, again.payload, again.due_at.utcoffset()) == (first.id, {"n": 2}, timedelta(0))
        newer = await fleet.submit("work", {"n": 4}, key="K", at=FAR, on_duplicate="replace", conn=mine.conn)
        assert (newer.id, newer.created, newer.payload, newer.due_at) == (first.id, False, {"n": 4}, FAR)
        many = await fleet.submit_many("work", [{"n": 5}, {"n": 6}], keys=["K", "L"], conn=mine.conn)
        assert (many.created, many.ids[0]) == ([False, True], first.id)
        await mine.commit()
    stored = await fleet.submit("work", {"n": 7}, key="K")
    assert (stored.id, stored.created, stored.payload, stored.due_at) == (first.id, False, {"n": 4}, FAR)


@pytest.mark.parametrize(("kind", "name"), EACH)
async def test_a_full_queue_is_refused_inside_a_transaction(fleet: Fleet, url: str, name: str) -> None:
    await fleet.set_queue("narrow", max_depth=1)
    async with caller(name, url) as mine:
        assert (await fleet.submit("work", queue="narrow", conn=mine.conn)).created
        with pytest.raises(QueueFull):
            await fleet.submit("work", queue="narrow", conn=mine.conn)
        await mine.execute(ORDERS)
        await mine.commit()
    assert (await orders(url), len(await fleet.runs())) == (1, 1)


@pytest.mark.parametrize(("kind", "name"), EACH)
async def test_what_the_database_refuses_is_ours_to_tell(fleet: Fleet, url: str, name: str) -> None:
    """The job has been removed since this process looked."""
    await write(url, f"DELETE FROM {'' if url.startswith('sqlite') else 'fleetcron.'}job")
    async with caller(name, url) as mine:
        with pytest.raises(StoreError, match="insert: "):
            await fleet.submit("work", conn=mine.conn)
        await mine.rollback()
    assert await fleet.runs() == []


@pytest.mark.parametrize(("kind", "name"), BLOCKING)
def test_synchronous_code_uses_its_connection_on_its_own_thread(url: str, name: str) -> None:
    app = Fleet(url)
    app.job("work")(lambda n=0: None)

    async def story() -> None:
        await write(url, "CREATE TABLE orders (item text)")
        async with caller(name, url) as mine:
            with app.blocking as fleet:
                for end, left in ((mine.rollback, 0), (mine.commit, 3)):
                    await mine.execute(ORDERS)
                    run = fleet.submit("work", {"n": 1}, key="K", conn=mine.conn)
                    again = fleet.submit("work", {"n": 2}, key="K", conn=mine.conn)
                    assert (run.created, again.created, again.id, again.payload) == (True, False, run.id, {"n": 1})
                    assert len(fleet.submit_many("work", [{}, {}], conn=mine.conn).ids) == 2
                    assert fleet.runs() == []
                    await end()
                    assert len(fleet.runs()) == left
                with pytest.raises(ConfigError, match="priority"):
                    fleet.submit("work", priority=10, conn=mine.conn)

    with app.blocking:
        asyncio.run(story())


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_anything_else_is_refused_with_what_is_taken(fleet: Fleet, url: str, kind: str) -> None:
    wrong: list[Any] = [object(), url, 5, sqlalchemy.create_engine("sqlite://")]
    wrong.append(sqlite3.connect(":memory:") if kind == "postgres" else None)
    taken = (
        r"asyncpg, psycopg or psycopg2, .*SQLAlchemy" if kind == "postgres" else r"sqlite3\.Connection, or .*SQLAlchemy"
    )
    for conn in wrong:
        if conn is not None:
            for options in ({}, {"key": "k"}):
                with pytest.raises(TypeError, match=rf"^conn: expected .*{taken} .*; got .*{type(conn).__name__}"):
                    await fleet.submit("work", conn=conn, **options)
    if kind == "postgres":
        wrong[-1].close()
        with (
            sqlalchemy.create_engine("sqlite://", poolclass=NullPool).connect() as alchemy,
            pytest.raises(TypeError, match=r"got one of SQLAlchemy over sqlite\+pysqlite"),
        ):
            await fleet.submit("work", conn=alchemy)
        async with await psycopg.AsyncConnection.connect(url) as asynchronous:
            with pytest.raises(TypeError, match="belongs to an event loop"):
                fleet.blocking.submit("work", conn=asynchronous)
    assert await fleet.runs() == []


@pytest.mark.parametrize("name", ["psycopg", "async psycopg", "psycopg2"])
@pytest.mark.parametrize("kind", ["postgres"])
async def test_a_connection_that_commits_by_itself(fleet: Fleet, url: str, name: str) -> None:
    async with caller(name, url) as mine:
        if "async" in name:
            await mine.conn.set_autocommit(True)
        else:
            mine.conn.autocommit = True
        plain = await fleet.submit("work", conn=mine.conn)
        keyed = await fleet.submit("work", key="k", conn=mine.conn)
        again = await fleet.submit("work", key="k", conn=mine.conn)
        assert (keyed.created, again.created) == (True, False)
        assert {run.id for run in await fleet.runs()} == {plain.id, keyed.id}


async def test_an_open_transaction_with_the_first_run_of_a_lane_holds_nobody_up(pg_url: str) -> None:
    fleet = Fleet(pg_url)

    @fleet.job(name="mail")
    async def mail() -> None: ...

    async with fleet:
        async with with_asyncpg(pg_url) as caller:
            mine = await fleet.submit(mail, tenant="acme", conn=caller.conn)
            async with asyncio.timeout(5):
                theirs = await fleet.submit(mail, tenant="acme")
                (many,) = (await fleet.submit_many(mail, [{}], tenant="acme")).ids
            await caller.commit()
        assert {run.id for run in await fleet.runs(tenant="acme")} == {mine.id, theirs.id, many}
        lanes = (await fleet.store.lanes(None)).lanes
        assert [lane.tenant for lane in lanes] == ["acme"]
