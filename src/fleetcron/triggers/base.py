"""What every trigger answers, and the one place where instants enter this package."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)


@runtime_checkable
class Trigger(Protocol):
    """When: a frozen, hashable value that names instants ("ticks"). Pure: no clock, no I/O, no state.

    Arguments are aware datetimes in any zone (a naive one is a TypeError naming the argument), answers are in UTC.
    """

    __slots__ = ()

    def next(self, after: datetime) -> datetime | None:
        """The first tick strictly after `after`, or None if there is none (before the year 10000)."""
        ...

    def latest(self, before: datetime) -> datetime | None:
        """The last tick AT or before `before`, or None. So `latest(next(t)) == next(t)` and `next(latest(t)) > t`."""
        ...

    def count(self, after: datetime, until: datetime) -> int:
        """How many ticks lie in (after, until]. Exact arithmetic, never a list: ten years of seconds cost no memory."""
        ...

    def explain(self) -> str:
        """The trigger in words."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; `trigger_from_dict` is the inverse."""
        ...

    def upcoming(self, after: datetime, n: int) -> list[datetime]:
        """The next `n` ticks strictly after `after`, in order; fewer if it ends. Raises ValueError if n < 0."""
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ValueError(f"n: {n!r} is not a whole number from 0 up")
        ticks: list[datetime] = []
        moment = utc("after", after)
        while len(ticks) < n and (tick := self.next(moment)) is not None:
            ticks.append(tick)
            moment = tick
        return ticks


def utc(name: str, value: datetime) -> datetime:
    """`value` in UTC. Raises TypeError naming the argument if it is not an aware datetime.

    Everything is compared in UTC, because Python compares two datetimes of one zone by their wall clocks:
    there 02:30 before and 02:30 after the end of summer time are "equal".
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: expected an aware datetime, got {value!r}")
    if value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        raise TypeError(f"{name}: {value!r} is naive (no time zone); say which instant is meant, e.g. tzinfo=UTC")
    try:
        return value.astimezone(UTC)
    except OverflowError:  # within hours of the ends of the calendar: the nearest instant that exists
        return _LAST if value.year > 5000 else _FIRST


def rfc3339(moment: datetime) -> str:
    """`moment` (UTC) as text: 2026-03-29T01:00:00Z."""
    return moment.isoformat().removesuffix("+00:00") + "Z"


def plus(anchor: datetime, steps: int, interval: timedelta) -> datetime | None:
    """anchor + steps × interval, or None past the end of the calendar."""
    try:
        return anchor + steps * interval
    except OverflowError:
        return None
