"""A schedule's ticks: those of its trigger within `start` and `end`, both inclusive; and its jitter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256

from fleetcron.model import Schedule

STEP = timedelta(microseconds=1)
"""The resolution of every instant here, so `t − STEP` turns "strictly after" into "at or after"."""

_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def bounded_next(schedule: Schedule, after: datetime) -> datetime | None:
    """The first tick strictly after `after`, or None."""
    if schedule.start is not None:
        after = max(after, shift(schedule.start, -STEP))
    tick = schedule.trigger.next(after)
    return None if tick is None or (schedule.end is not None and tick > schedule.end) else tick


def bounded_latest(schedule: Schedule, before: datetime) -> datetime | None:
    """The last tick at or before `before`, or None."""
    if schedule.end is not None:
        before = min(before, schedule.end)
    tick = schedule.trigger.latest(before)
    return None if tick is None or (schedule.start is not None and tick < schedule.start) else tick


def bounded_count(schedule: Schedule, after: datetime, until: datetime) -> int:
    """How many ticks lie in (after, until]."""
    if schedule.start is not None:
        after = max(after, shift(schedule.start, -STEP))
    if schedule.end is not None:
        until = min(until, schedule.end)
    return schedule.trigger.count(after, until)


def jitter_offset(schedule: Schedule) -> timedelta:
    """How long after its instant each tick of this schedule is due: in [0, jitter).

    From a SHA-256 of the name, so it is the same on every node, in every process and after every restart (Python's
    `hash` is salted per process), and 10,000 schedules on `0 0 * * *` spread evenly. One offset for all ticks of a
    schedule: its rhythm stays exact.
    """
    if schedule.jitter <= timedelta(0):
        return timedelta(0)
    number = int.from_bytes(sha256(schedule.name.encode("utf-8", "backslashreplace")).digest())
    return timedelta(microseconds=number % (schedule.jitter // STEP))


def shift(moment: datetime, by: timedelta) -> datetime:
    """moment + by, held at the ends of the calendar: a grace of a million years is legal and means "for ever"."""
    try:
        return moment + by
    except OverflowError:
        return _LAST if by > timedelta(0) else _FIRST
