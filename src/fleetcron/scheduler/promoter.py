"""Moving runs that come due within the horizon from the cold `timetable` to the hot `ready`. It never looks at the rest."""

from __future__ import annotations

from fleetcron.store.protocol import Store

BATCH = 5000


async def promote(store: Store) -> int:
    """Promote everything within the horizon; returns how many runs."""
    moved = 0
    while True:
        batch = await store.promote(BATCH)
        moved += batch
        if batch < BATCH:
            return moved
