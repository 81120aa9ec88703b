"""How many runs full queues have refused: counted here and written down at most once a second, so that a flood of refusals costs the database
nothing more."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress

from fleetcron.errors import StoreError
from fleetcron.store.protocol import Store

log = logging.getLogger("fleetcron")

_EVERY = 1.0


class Refusals:
    """One event loop's. A process that dies takes those of its last second with it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    def note(self, queue: str, runs: int) -> None:
        """So many runs were refused."""
        self._counts[queue] += runs
        if self._task is None:
            self._task = asyncio.create_task(self._write_later(), name="fleetcron-refusals")

    async def _write_later(self) -> None:
        while self._counts:
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY):
                    await self._closing.wait()
            counts, self._counts = self._counts, Counter()
            try:
                await self._store.refused(counts)
            except StoreError as error:
                log.warning("%d refusals of full queues were not counted: %s", counts.total(), error)
        self._task = None

    async def close(self) -> None:
        """Write down what is left."""
        self._closing.set()
        if self._task is not None:
            await self._task
