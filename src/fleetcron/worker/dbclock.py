"""The database's clock, as a worker may assume it between two answers.

Each answer that carries the database's time t, received at r on our monotonic clock, proves that the database's clock was at least t at r.
So t + (m − r) is a lower bound of it at any later m, and the largest of the recent bounds is the closest one: a run started by it is never
early, and late by no more than the fastest recent answer took to travel. Our own wall clock plays no part: it may be minutes off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from fleetcron.clock import monotonic

_SAMPLES = 16
"""Answers remembered: enough for one of them to be fast, few enough to follow a database whose clock is being slewed."""


class DbClock:
    """A lower bound of the database's time. `override` is the tests' settable clock."""

    __slots__ = ("_offset", "_override", "_samples")

    def __init__(self, override: Callable[[], datetime] | None = None) -> None:
        self._override = override
        self._samples: deque[float] = deque(maxlen=_SAMPLES)
        self._offset = 0.0

    def observe(self, database_time: datetime) -> None:
        """Note an answer that has just arrived."""
        self._samples.append(database_time.timestamp() - monotonic())
        self._offset = max(self._samples)

    def now(self) -> float:
        """The database's time, seconds since the Unix epoch."""
        return self._override().timestamp() if self._override is not None else monotonic() + self._offset

    def at(self, moment: float) -> float:
        """`now` at a moment of `clock.monotonic`: for who has read that already."""
        return self._override().timestamp() if self._override is not None else moment + self._offset

    def steady(self) -> float:
        """Seconds for measuring how long ago something was; they pass as the tests' clock does."""
        return self._override().timestamp() if self._override is not None else monotonic()

    def moment(self) -> datetime:
        """The same as an aware datetime."""
        return datetime.fromtimestamp(self.now(), UTC)
