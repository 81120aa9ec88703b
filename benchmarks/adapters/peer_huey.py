"""huey; its consumer loads tasks_huey (one thread, poll delay 10 ms). It has no bulk call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import common as c
from tasks_huey import noop


@asynccontextmanager
async def session() -> AsyncIterator[None]:
    yield None


async def reset() -> None:
    pass


async def enqueue(_: None, count: int) -> None:
    for i in range(count):
        noop(**c.payload(i))


async def one(_: None, n: int) -> None:
    noop(**c.payload(n))


async def at(_: None, n: int, due: float) -> None:
    noop.schedule(kwargs=c.payload(n), eta=datetime.fromtimestamp(due))


c.main(reset=reset, session=session, enqueue=enqueue, one=one, at=at)
