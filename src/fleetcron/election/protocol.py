"""The Elector protocol."""

from __future__ import annotations

from typing import Protocol


class Elector(Protocol):
    """Nominates this node for shards. Methods never block for longer than a few seconds; an unreachable elector nominates nobody."""

    name: str

    async def start(self) -> None:
        """Begin to take part. Must not fail because the elector is unreachable: then nobody is nominated until it is."""
        ...

    async def stop(self) -> None:
        """Give up every nomination."""
        ...

    def nominated(self, shard: int) -> bool:
        """May this node campaign for, or go on leading, the shard right now? Answers from memory; False on any doubt."""
        ...
