"""What a wake-up says: a queue, and in which of its lanes something has become due, as far as they are few.

A worker that is told of a lane claims from it at once. One that is told of a queue alone has to look which lanes there are: 1 ms with a few
of them, 10 ms and more with 10,000.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from fleetcron.store.protocol import NewRun

CANCELS, REGISTRY, SCHEDULES, LIMITS = "\x01cancel", "\x01registry", "\x01schedules", "\x01limits"
BACKFILLS = "\x01backfills"
"""Messages on the wake-up channel besides queues, told from them by a character that names cannot have: a run was asked to stop, the
job registry has changed, a schedule has changed, a limit has changed, a backfill has. An empty message may mean anything."""

Place = tuple[str, int, str]
"""Queue, priority, tenant."""

_LANE, _PRIORITY = "\x1f", ":"
"""Before each lane, and between its priority and its tenant. Names have no control characters."""
_MOST = 200
_LONGEST = 7000
"""Bytes; PostgreSQL takes 8,000."""


def of_run(run: NewRun) -> str:
    """The wake-up for a run that may be due within the horizon."""
    if run.due_at is not None or run.delay:
        return run.queue
    return f"{run.queue}{_LANE}{run.priority}{_PRIORITY}{run.tenant}"


def queue_of(wake_up: str) -> str:
    """The queue that it names; "" for any."""
    return wake_up.partition(_LANE)[0]


def places_of(wake_up: str) -> list[Place]:
    """The lanes that it names: where there are any, nothing else of the queue has become due."""
    queue, *lanes = wake_up.split(_LANE)
    return [(queue, int(priority), tenant) for priority, _, tenant in (lane.partition(_PRIORITY) for lane in lanes)]


def gathered(wake_ups: Iterable[str]) -> list[str]:
    """One for each queue."""
    lanes: defaultdict[str, set[str]] = defaultdict(set)
    for wake_up in set(wake_ups):
        queue, *theirs = wake_up.split(_LANE)
        lanes[queue].update(theirs or [""])  # "": anything
    return [_one(queue, theirs) for queue, theirs in sorted(lanes.items())]


def _one(queue: str, lanes: set[str]) -> str:
    if "" in lanes or len(lanes) > _MOST:
        return queue
    word = _LANE.join([queue, *sorted(lanes)])
    return word if len(word.encode()) <= _LONGEST else queue
