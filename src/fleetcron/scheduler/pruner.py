"""Deleting history that is older than the retention, in small batches."""

from __future__ import annotations

from datetime import timedelta

from fleetcron.clock import sleep
from fleetcron.store.protocol import Store

BATCH = 5000


async def prune(store: Store, retention: timedelta) -> int:
    """Delete what has ended before the retention; returns how many runs. Yields between batches."""
    total, after = 0, 0
    while True:
        count, last = await store.prune(retention, after, BATCH)
        total += count
        if count < BATCH:
            break
        after = last
        await sleep(0.05)
    await store.prune_rest(retention)
    return total
