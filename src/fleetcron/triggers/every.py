"""A fixed interval, in elapsed time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from fleetcron.durations import format_duration, parse_duration
from fleetcron.errors import TriggerError
from fleetcron.triggers.base import EPOCH, Trigger, plus, rfc3339, utc


@dataclass(frozen=True, slots=True, init=False)
class Every(Trigger):
    """Ticks at anchor + k × interval for k = 0, 1, 2, …

    `interval` is a timedelta, seconds, or text ("90s", "1h30m"). The anchor is the first tick; it defaults to the Unix
    epoch, so restarts, late runs and re-creation never shift the rhythm (a rhythm counted from the last run drifts).
    Whole microseconds, exact; elapsed time, so zones and DST play no part.
    Raises TriggerError for a bad interval, TypeError for a naive anchor.
    """

    interval: timedelta
    anchor: datetime

    def __init__(self, interval: timedelta | float | str, anchor: datetime | None = None) -> None:
        try:
            parsed = parse_duration(interval, name="interval")
        except ValueError as error:
            raise TriggerError(str(error)) from None
        object.__setattr__(self, "interval", parsed)
        object.__setattr__(self, "anchor", EPOCH if anchor is None else utc("anchor", anchor))

    def next(self, after: datetime) -> datetime | None:
        return plus(self.anchor, self._ticks_until(utc("after", after)), self.interval)

    def latest(self, before: datetime) -> datetime | None:
        ticks = self._ticks_until(utc("before", before))
        return plus(self.anchor, ticks - 1, self.interval) if ticks else None

    def count(self, after: datetime, until: datetime) -> int:
        return max(0, self._ticks_until(utc("until", until)) - self._ticks_until(utc("after", after)))

    def explain(self) -> str:
        words = f"every {format_duration(self.interval)}"
        return words if self.anchor == EPOCH else f"{words}, counted from {rfc3339(self.anchor)}"

    def to_dict(self) -> dict[str, Any]:
        return {"type": "every", "seconds": _seconds(self.interval), "anchor": rfc3339(self.anchor)}

    def _ticks_until(self, moment: datetime) -> int:
        """The number of ticks at or before `moment`, which is also the k of the tick that follows it."""
        return max(0, (moment - self.anchor) // self.interval + 1)


def _seconds(interval: timedelta) -> int | float | str:
    """JSON's number where it is exact; text beyond that (microseconds on top of centuries do not fit a float)."""
    if not interval.microseconds:
        return interval // timedelta(seconds=1)
    seconds = interval.total_seconds()
    return seconds if parse_duration(seconds) == interval else format_duration(interval)
