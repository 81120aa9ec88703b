"""New runs: into the history, and into where they wait."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from fleetcron.clock import from_us, to_us
from fleetcron.errors import StoreError
from fleetcron.store.protocol import NewRun
from fleetcron.store.sqlite import place
from fleetcron.store.sqlite.session import Session, json_list, us, us_or_none

_LAST = to_us(datetime.max.replace(tzinfo=UTC))


def due_us(run: NewRun, now: int) -> int:
    """When a new run is due, in microseconds. Raises StoreError past the end of the calendar, where no datetime
    could name it."""
    if run.due_at is not None:
        return to_us(run.due_at)
    due = now if run.delay is None else now + us(run.delay)
    if due > _LAST:
        raise StoreError(f"insert: a run of {run.job!r} would be due after the year 9999: name a shorter delay")
    return due


def insert_runs(session: Session, runs: Sequence[NewRun], ids: Sequence[int]) -> list[datetime]:
    """Write runs under these ids; returns when each is due. Raises StoreError for a job that the registry does not
    know; nothing is inserted then."""
    if not runs:
        return []
    jobs = job_ids(session, {run.job for run in runs})
    now = session.now
    history, waiting = [], []
    for run, run_id in zip(runs, ids, strict=True):
        due = due_us(run, now)
        deadline = us_or_none(run.start_deadline)
        expires = None if deadline is None else due + deadline
        flags = 0 if run.key is None else place.NOT_AHEAD
        if run.key is not None and run.key_scope == "started":
            flags |= place.DEDUP_UNTIL_STARTED
        history.append(
            (run_id, now, due, expires, run.priority, run.job, run.queue, run.tenant, run.key, run.gate, run.payload)
        )
        waiting.append((run.queue, run.priority, run.tenant, due, run_id, jobs[run.job], 0, flags))
    session.many("run_insert", history)
    place.put(session, waiting)
    return [from_us(row[2]) for row in history]


def job_ids(session: Session, names: set[str]) -> dict[str, int]:
    """The ids of these jobs. Raises StoreError for names that the registry does not know."""
    found: dict[str, int] = dict(session.fetch("job_ids", json_list(names)))
    if unknown := sorted(names - found.keys()):
        raise StoreError(
            f"insert: the registry does not know {', '.join(map(repr, unknown))}: "
            "a job is registered when a process that declares it starts, or by `fleetcron job add`"
        )
    return found
