"""Programs that the tests run as processes of their own: `python workload.py drain|hammer|hold FILE [SECONDS]`.

They print JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from fleetcron.model import Job
from fleetcron.store.protocol import Done, NewRun, WorkerInfo
from fleetcron.store.sqlite import SqliteStore

LEASE = timedelta(seconds=60)


async def drain(store: SqliteStore) -> object:
    """Claim and complete until nothing is left: the run ids and fences, and what was lost."""
    worker = await _worker(store)
    claimed: list[tuple[int, int]] = []
    lost = 0
    while True:
        lanes = (await store.lanes(None)).lanes
        if not lanes:
            return {"claimed": claimed, "lost": lost}
        claim = await store.claim(worker, lanes, limit=50, quantum=50, ahead=timedelta(0), jobs=None)
        won = await store.complete(
            worker, [Done(run.run_id, run.fence, run.due, attempt=run.attempt) for run in claim.runs]
        )
        claimed += [(run.run_id, run.fence) for run in claim.runs]
        lost += len(claim.runs) - len(won)


async def hammer(store: SqliteStore, seconds: float) -> object:
    """Every kind of small write, one after the other, for so long: how many, and the slowest in seconds."""
    worker = await _worker(store)
    writes, slowest, ends = 0, 0.0, time.monotonic() + seconds
    while time.monotonic() < ends:
        for write in (_submit, _beat, _run_one):
            began = time.monotonic()
            await write(store, worker)
            slowest = max(slowest, time.monotonic() - began)
            writes += 1
    return {"writes": writes, "slowest": slowest}


async def hold(store: SqliteStore) -> object:
    """Claim one run and keep it, until killed."""
    worker = await _worker(store)
    lanes = (await store.lanes(None)).lanes
    claim = await store.claim(worker, lanes, limit=1, quantum=1, ahead=timedelta(0), jobs=None)
    print(json.dumps({"worker": worker, "run": claim.runs[0].run_id}), flush=True)
    await asyncio.sleep(60)
    return None


async def _worker(store: SqliteStore) -> int:
    info = WorkerInfo(
        node=f"n{os.getpid()}",
        host=socket.gethostname(),
        pid=os.getpid(),
        roles=("worker",),
        queues=None,
        slots=1,
        version="1",
        tzdata="",
    )
    return await store.start_worker(info, LEASE)


async def _submit(store: SqliteStore, worker: int) -> None:
    await store.insert([NewRun(job="work", payload="{}", queue="default", priority=5, key=f"{os.getpid()}")])


async def _beat(store: SqliteStore, worker: int) -> None:
    await store.beat(worker, LEASE)


async def _run_one(store: SqliteStore, worker: int) -> None:
    lanes = (await store.lanes(None)).lanes
    claim = await store.claim(worker, lanes, limit=5, quantum=5, ahead=timedelta(0), jobs=None)
    await store.complete(worker, [Done(run.run_id, run.fence, run.due, keyed=True) for run in claim.runs])


async def main(what: str, file: str, *seconds: str) -> None:
    store = SqliteStore(f"sqlite:///{file}")
    await store.open()
    await store.put_jobs([Job(name="work", target={"type": "python"})])
    work: dict[str, Callable[..., Awaitable[object]]] = {"drain": drain, "hammer": hammer, "hold": hold}
    print(json.dumps(await work[what](store, *map(float, seconds))))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
