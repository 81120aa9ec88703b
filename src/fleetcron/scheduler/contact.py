"""For how long the database has been seen available without a gap, by any scheduler node.

After a restart, a failover or a promotion every heartbeat in the database is old, and nobody is dead: the workers must be heard first.
So a rescuer acts only once the database has been watched for a whole lease time. Every scheduler node, leader or not, looks once a second
and writes that down in one row, so that a new leader need not begin to count: with leaders killed every seven seconds none would ever have
watched for fifteen. The row names the server process: another one (restarted, promoted) begins a new watch, however short the gap was.
"""

from __future__ import annotations

from fleetcron.store.protocol import Store


class Contact:
    """This node's share in the watch."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seconds = 0.0

    async def look(self) -> None:
        """Look at the database once. Raises StoreUnavailable, and then nothing is known any more."""
        self._seconds = 0.0
        self._seconds = await self._store.watch()

    def lost(self) -> None:
        """The database did not answer."""
        self._seconds = 0.0

    def seconds(self) -> float:
        """The length of the watch at the last look, 0 when in doubt."""
        return self._seconds
