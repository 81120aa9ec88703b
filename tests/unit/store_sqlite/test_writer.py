"""The one writer: group commit, requests that fail alone, and a database that is not there for it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetcron.errors import ConfigError, StoreError, StoreUnavailable
from fleetcron.store.sqlite import SqliteStore
from tests.unit.store_sqlite.support import LEASE, claim, count, done, info, look, new, opened


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fleet.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = await opened(file, lock_timeout=0.5)
    yield store
    await store.close()


def commits(file: Path) -> int:
    """How many commits added to `ready`: the counter that wakes other processes."""
    return int(look(file, "SELECT value FROM meta WHERE key = 'wake'")[0][0])


async def test_requests_that_arrive_together_share_a_commit(store: SqliteStore, file: Path) -> None:
    await asyncio.gather(*(store.insert([new()]) for _ in range(200)))
    assert count(file) == 200
    assert commits(file) <= 20


async def test_one_failing_request_takes_no_other_down(store: SqliteStore, file: Path) -> None:
    answers = await asyncio.gather(
        *(store.insert([new("nobody" if n == 5 else "work"), new()]) for n in range(10)), return_exceptions=True
    )
    failed = [answer for answer in answers if isinstance(answer, Exception)]
    assert len(failed) == 1
    assert isinstance(failed[0], StoreError)
    assert "'nobody'" in str(failed[0])
    assert count(file) == 18


async def test_a_request_sees_those_before_it(store: SqliteStore) -> None:
    inserted, cancelled = await asyncio.gather(store.insert([new()]), store.cancel(1, "ann"))
    assert (inserted[0].id, cancelled) == (1, "cancelled")


async def test_the_answer_comes_after_the_commit(store: SqliteStore, file: Path) -> None:
    for expected in range(1, 51):
        await store.insert([new()])
        assert count(file) == expected


async def test_a_request_whose_caller_has_gone_is_not_run(store: SqliteStore, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first = asyncio.create_task(store.insert([new()]))
        await asyncio.sleep(0.05)  # the writer now waits for the lock, with the first request in hand
        second = asyncio.create_task(store.insert([new()]))
        await asyncio.sleep(0)
        second.cancel()
        other.execute("COMMIT")
    await first
    await store.insert([new()])
    assert second.cancelled()
    assert count(file) == 2


async def test_a_lock_held_for_a_while_only_delays(store: SqliteStore, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        insert = asyncio.create_task(store.insert([new()]))
        await asyncio.sleep(0.2)
        assert not insert.done()
        other.execute("COMMIT")
        await insert
    assert count(file) == 1


async def test_a_lock_held_too_long_is_unavailable_and_then_all_is_well(store: SqliteStore, file: Path) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.insert([new()])
        assert await store.counts() == {}  # reads do not wait for it
        other.execute("ROLLBACK")
    await store.insert([new()])
    assert count(file) == 1


async def test_a_long_reader_stops_nobody(store: SqliteStore, file: Path) -> None:
    await store.insert([new()])
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM run").fetchone() == (1,)
        worker = await store.start_worker(info(), LEASE)
        (run,) = await claim(store, worker)
        assert await store.complete(worker, [done(run)]) == {run.run_id}


async def test_a_full_disk_fails_what_does_not_fit_and_nothing_else(store: SqliteStore, file: Path) -> None:
    await store.insert([new()])
    pages = look(file, "PRAGMA page_count")[0][0]
    await store.db.write("limit", lambda session: session._cursor().execute(f"PRAGMA max_page_count = {pages + 20}"))
    big = store.insert([new(payload=f'"{"x" * 1_000_000}"')])
    answers = await asyncio.gather(store.insert([new()]), big, store.insert([new()]), return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, StoreUnavailable, list]
    assert "disk is full" in str(answers[1])
    assert count(file) == 3


async def test_a_deleted_file_is_not_written_to(store: SqliteStore, file: Path) -> None:
    file.unlink()
    with pytest.raises(StoreUnavailable, match="moved or deleted"):
        await store.insert([new()])


async def test_a_fault_in_one_request_is_its_callers(store: SqliteStore, file: Path) -> None:
    def broken(_: Any) -> None:
        raise ZeroDivisionError

    answers = await asyncio.gather(store.db.write("x", broken), store.insert([new()]), return_exceptions=True)
    assert isinstance(answers[0], ZeroDivisionError)
    assert count(file) == 1


async def test_closing_finishes_what_was_asked_for(file: Path) -> None:
    store = await opened(file)
    inserts = [asyncio.create_task(store.insert([new()])) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert len(await asyncio.gather(*inserts)) == 20
    with pytest.raises(StoreError, match="not open"):
        await store.insert([new()])
    assert not file.with_name("fleet.db-wal").exists()


async def test_several_event_loops_share_a_store(store: SqliteStore, file: Path) -> None:
    async def insert_some() -> None:
        for _ in range(20):
            await store.insert([new()])

    threads = [threading.Thread(target=asyncio.run, args=(insert_some(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    await insert_some()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert count(file) == 100


async def test_several_stores_share_a_file(store: SqliteStore, file: Path) -> None:
    others = [await opened(file) for _ in range(3)]
    for round_ in range(20):
        await asyncio.gather(*(each.insert([new(key=f"{round_}")]) for each in (store, *others)))
    for other in others:
        await other.close()
    assert count(file) == 20


async def test_a_database_in_memory_is_one_database() -> None:
    store = SqliteStore("sqlite:///:memory:")
    await store.open()
    wakes: list[str] = []
    await store.listen(wakes.append)
    await store.put_jobs([])
    with pytest.raises(StoreError, match="does not know 'work'"):
        await store.insert([new()])
    assert await store.counts() == {}
    await store.close()


async def test_fences_rise_for_ever(file: Path) -> None:
    fences = []
    for _ in range(3):  # three lives of the file, with nothing left of the runs in between
        store = await opened(file)
        worker = await store.start_worker(info(), LEASE)
        await store.insert([new() for _ in range(5)])
        runs = await claim(store, worker, 3) + await claim(store, worker, 3)
        await store.complete(worker, [done(run) for run in runs])
        fences += [run.fence for run in runs]
        await store.prune(-LEASE, 0)
        await store.close()
    assert fences == list(range(1, 16))
    assert count(file) == 0


@pytest.mark.parametrize(
    "bad", ["sqlite://x", "sqlite:fleet.db", "sqlite:///", "sqlite:///a.db?mode=ro", "postgresql://x/y"]
)
def test_a_url_of_another_form_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="expected sqlite:///"):
        SqliteStore(bad)


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="synchronous"):
        SqliteStore("sqlite:///x.db", synchronous="OFF")
    with pytest.raises(ConfigError, match="read_only"):
        SqliteStore("sqlite:///:memory:", read_only=True)


async def test_a_relative_path_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = await opened(Path("own name 100%.db"))
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["own name 100%.db"]


async def test_transactions_of_handlers_need_postgres(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="needs PostgreSQL"):
        store.transaction(1, None, None, None)  # type: ignore[arg-type]


async def test_a_pile_of_slow_requests_lets_others_in(store: SqliteStore, file: Path) -> None:
    """A transaction takes no further request after a while; else 100 of 50 ms would hold the lock for 5 s."""
    other = await opened(file, lock_timeout=2)
    slow = [asyncio.create_task(store.db.write("slow", lambda _: time.sleep(0.05))) for _ in range(100)]
    await asyncio.sleep(0.1)
    await other.insert([new()])
    assert sum(task.done() for task in slow) < 60
    await asyncio.gather(*slow)
    await other.close()
