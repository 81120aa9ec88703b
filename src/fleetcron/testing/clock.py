"""Virtual time: a clock that moves only when it is told to, and the instants at which something is known to be due."""

from __future__ import annotations

import heapq
from datetime import datetime, timedelta

STEP = timedelta(microseconds=1)
"""The resolution of every instant: `t + STEP` is the first one after t."""


class VirtualClock:
    """The database's clock under test. Call it for the time; `elapsed` counts what has passed, also across a step of the clock."""

    __slots__ = ("elapsed", "now")

    def __init__(self, start: datetime) -> None:
        self.now = start
        self.elapsed = timedelta(0)

    def __call__(self) -> datetime:
        return self.now

    def move_to(self, instant: datetime) -> None:
        """Let time pass until `instant`, which is not before now."""
        self.elapsed += instant - self.now
        self.now = instant

    def set_to(self, instant: datetime) -> None:
        """Step the clock, back or forth, without any time passing."""
        self.now = instant


class Timeline:
    """Instants, in any order, each once."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[datetime] = []

    def add(self, instant: datetime) -> None:
        heapq.heappush(self._heap, instant)

    def next(self, after: datetime) -> datetime | None:
        """The first instant after `after`; what lies before it is forgotten."""
        while self._heap and self._heap[0] <= after:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None
