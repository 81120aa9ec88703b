"""What these tests share."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from fleetcron.model import Job
from fleetcron.store.protocol import Claimed, Done, NewRun, WorkerInfo
from fleetcron.store.sqlite import SqliteStore

LEASE = timedelta(seconds=60)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


async def opened(path: Path, **options: Any) -> SqliteStore:
    """A store on this file that knows one job, "work"."""
    store = SqliteStore(url(path), **options)
    await store.open()
    if not options.get("read_only"):
        await store.put_jobs([Job(name="work", target={"type": "python"}, max_attempts=3)])
    return store


def new(job: str = "work", payload: str = "{}", **given: Any) -> NewRun:
    return NewRun(job=job, payload=payload, queue="default", priority=5, **given)


def info(node: str = "node", pid: int = 4711, host: str = "elsewhere") -> WorkerInfo:
    return WorkerInfo(
        node=node, host=host, pid=pid, roles=("worker",), queues=None, slots=10, version="1", tzdata="2031a"
    )


async def claim(store: SqliteStore, worker: int, limit: int = 100) -> list[Claimed]:
    lanes = (await store.lanes(None)).lanes
    found = await store.claim(worker, lanes, limit=limit, quantum=limit, ahead=timedelta(0), jobs=None)
    return found.runs


def done(run: Claimed) -> Done:
    return Done(run.run_id, run.fence, run.due, attempt=run.attempt)


def look(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What is in the file, seen by another connection."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def count(path: Path, table: str = "run") -> int:
    return int(look(path, f"SELECT count(*) FROM {table}")[0][0])
