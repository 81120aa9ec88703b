"""For how long this node has seen the database available without a gap.

After a restart, a failover or a promotion every heartbeat in the database is old, and nobody is dead: the workers must be heard first.
So a rescuer acts only once it has itself been in contact for a whole lease time (followers keep count too).
"""

from __future__ import annotations

from fleetcron.clock import monotonic

_GAP = 3.0
"""Seconds without an answer that count as a gap, even if nothing failed (this process may have been frozen)."""


class Contact:
    """Told of every answer and every failure; `seconds()` is the length of the present stretch."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def good(self) -> None:
        now = monotonic()
        if self._since is None or now - self._last > _GAP:
            self._since = now
        self._last = now

    def bad(self) -> None:
        self._since = None

    def seconds(self) -> float:
        return 0.0 if self._since is None or monotonic() - self._last > _GAP else self._last - self._since
