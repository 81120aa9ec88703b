"""pgqueuer: asyncpg driver, uvloop, one PgQueuer, batches of 100 (the best of a few settings that were tried)."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
import common as c
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


@asynccontextmanager
async def session() -> AsyncIterator[Queries]:
    connection = await asyncpg.connect(c.DSN)
    yield Queries(AsyncpgDriver(connection))
    await connection.close()


async def reset() -> None:
    async with session() as q:
        await q.install()


async def enqueue(q: Queries, count: int) -> None:
    for i in range(0, count, c.BATCH):
        k = min(c.BATCH, count - i)
        await q.enqueue(["noop"] * k, [json.dumps(c.payload(j)).encode() for j in range(i, i + k)], [0] * k)


async def one(q: Queries, n: int) -> None:
    await q.enqueue(["noop"], [json.dumps(c.payload(n)).encode()], [0])


async def at(q: Queries, n: int, due: float) -> None:
    await q.enqueue(["noop"], [json.dumps(c.payload(n)).encode()], [0], [timedelta(seconds=due - time.time())])


async def worker() -> None:
    pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(c.DSN)))

    @pgq.entrypoint("noop")
    async def noop(job: Job) -> None:
        c.job(json.loads(job.payload)["n"])

    c.gate()
    await pgq.run(batch_size=100)


c.main(reset=reset, session=session, enqueue=enqueue, one=one, at=at, worker=worker)
