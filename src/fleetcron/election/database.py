"""The default elector: everybody is a nominee, and the database's shard row decides."""

from __future__ import annotations


class DatabaseElector:
    """No server of its own: campaigning for the shard row is the election."""

    name = "database"

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def nominated(self, shard: int) -> bool:
        return True
