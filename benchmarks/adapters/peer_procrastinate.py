"""procrastinate: psycopg pool of 10, concurrency 10, finished jobs deleted, LISTEN/NOTIFY."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import common as c
from procrastinate import App, PsycopgConnector

logging.disable(logging.INFO)
app = App(connector=PsycopgConnector(conninfo=c.DSN, min_size=2, max_size=10))


@app.task(name="noop")
async def noop(n: int, pad: str = "") -> None:
    c.job(n)


@asynccontextmanager
async def session() -> AsyncIterator[App]:
    async with app.open_async():
        yield app


async def reset() -> None:
    async with session():
        await app.schema_manager.apply_schema_async()


async def enqueue(_: App, count: int) -> None:
    for i in range(0, count, c.BATCH):
        await noop.batch_defer_async(*(c.payload(j) for j in range(i, min(count, i + c.BATCH))))


async def one(_: App, n: int) -> None:
    await noop.defer_async(**c.payload(n))


async def at(_: App, n: int, due: float) -> None:
    await noop.configure(schedule_at=datetime.fromtimestamp(due, UTC)).defer_async(**c.payload(n))


async def worker() -> None:
    async with app.open_async():
        c.gate()
        await app.run_worker_async(concurrency=10, delete_jobs="always")


c.main(reset=reset, session=session, enqueue=enqueue, one=one, at=at, worker=worker)
