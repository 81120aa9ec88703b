"""A worker node on the loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from fleetcron import Fleet
from fleetcron.node import Node, NodeOptions


@asynccontextmanager
async def node(fleet: Fleet, slots: int) -> AsyncIterator[Node]:
    """It runs when this is entered, and has drained when it is left."""
    it = Node(fleet, NodeOptions(slots=slots, roles=("worker",), drain=timedelta(seconds=20)))
    started = asyncio.Event()
    task = asyncio.create_task(it.run(started.set))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    try:
        if task.done():
            await task  # it could not start: say why
        yield it
    finally:
        it.stop()
        await asyncio.wait_for(task, 30)
