"""The Elector protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from fleetcron.model import ElectorState


class Elector(Protocol):
    """Nominates this node for shards. An unreachable elector nominates nobody.

    All methods but `start` and `stop` answer from memory, at once, and are called on the event loop that called `start`.
    """

    name: str

    async def start(self, changed: Callable[[], None]) -> None:
        """Begin to take part; `changed` is called on this loop when nominations may have changed. Must not fail because the elector is
        unreachable: then nobody is nominated until it is."""
        ...

    async def stop(self) -> None:
        """Give up every nomination. Bounded by a ttl."""
        ...

    def stand(self, keep: Collection[int], free: Sequence[int], most: int) -> None:
        """Go on standing for the shards of `keep`, stand for up to `most` of the `free` ones, and for nothing else. Of
        more than that, nominations for the highest are given up."""
        ...

    def nominated(self, shard: int) -> bool:
        """May this node campaign for, or go on leading, the shard right now? False on any doubt."""
        ...

    def reached(self) -> bool:
        """Can this node be nominated at present? One that cannot has no share of the shards."""
        ...

    def state(self) -> ElectorState:
        """Whether the elector is reached, since when, and why not. Shows no password."""
        ...
