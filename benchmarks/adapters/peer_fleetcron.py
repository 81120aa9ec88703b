"""fleetcron, by its public interface; history, lease and fence are on (there is no way without). The worker is `fleetcron run`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import common as c

from fleetcron import Fleet, Retry

fleet = Fleet(c.DSN or None)
RESULT = {"rows": 1234, "note": "x" * 100} if os.environ.get("BENCH_RESULTS") else None


@fleet.job(name="noop", retry=Retry(max_attempts=5))
async def noop(n: int, pad: str = "") -> dict[str, object] | None:
    c.job(n)
    return RESULT


@asynccontextmanager
async def session() -> AsyncIterator[Fleet]:
    async with fleet:
        yield fleet


async def reset() -> None:
    async with fleet:
        pass


async def enqueue(f: Fleet, count: int) -> None:
    for i in range(0, count, c.BATCH):
        await f.submit_many(noop, [c.payload(j) for j in range(i, min(count, i + c.BATCH))])


async def one(f: Fleet, n: int) -> None:
    await f.submit(noop, c.payload(n))


async def at(f: Fleet, n: int, due: float) -> None:
    await f.submit(noop, c.payload(n), at=datetime.fromtimestamp(due, UTC))


if __name__ == "__main__":
    c.main(reset=reset, session=session, enqueue=enqueue, one=one, at=at)
elif "run" in sys.argv and "--child" not in sys.argv and "BENCH_NOGATE" not in os.environ:
    c.gate()
