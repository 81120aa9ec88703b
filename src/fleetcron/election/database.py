"""The default elector: everybody is a nominee, and the database's shard row decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fleetcron.clock import wall_now
from fleetcron.model import ElectorState


class DatabaseElector:
    """No server of its own: campaigning for the shard row is the election."""

    name = "database"

    def __init__(self) -> None:
        self._since = wall_now()

    async def start(self, changed: Callable[[], None]) -> None:
        return None

    async def stop(self) -> None:
        return None

    def stand(self, keep: Collection[int], free: Sequence[int], most: int) -> None:
        return None

    def nominated(self, shard: int) -> bool:
        return True

    def reached(self) -> bool:
        return True

    def state(self) -> ElectorState:
        return ElectorState(kind=self.name, where=None, reached=True, since=self._since)
