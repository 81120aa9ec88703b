"""Rows as records: times become datetimes, JSON becomes lists, 0 and 1 become booleans."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fleetcron.clock import from_us
from fleetcron.decide.backfill import Seen
from fleetcron.model import Attempt, Backfill, DeadLetter, Job, Leader, Miss, Node, RunRecord, Schedule, State
from fleetcron.store.codec import elector_from, job_from, missed_from, schedule_from
from fleetcron.store.protocol import Claimed

Row = dict[str, Any]

_TIMES = frozenset({
    "created_at", "cursor", "decided_at", "died_at", "due_at", "end", "finished_at", "first", "heartbeat_at", "judged_until", "last",
    "next_at", "nominal_at", "prev_at", "since", "start", "started_at", "ticks_until",
})  # fmt: skip

_decode = msgspec.json.Decoder().decode


def timed(row: Row) -> Row:
    """The row with its columns of times as datetimes, in place."""
    for name in row.keys() & _TIMES:
        if row[name] is not None:
            row[name] = from_us(row[name])
    return row


def job(row: Row) -> Job:
    """A row of jobs.sql."""
    return job_from({**row, "known": bool(row["known"])})


def schedule(row: Row) -> Schedule:
    """A row of the table schedule."""
    deadline = row["start_deadline"]
    return schedule_from(
        {**timed(row), "start_deadline": None if deadline is None else timedelta(microseconds=deadline)}
    )


def schedules(rows: Iterable[Row]) -> list[Schedule]:
    return [schedule(row) for row in rows]


def backfill(row: Row) -> Backfill:
    """A row of backfills.sql or backfill_lock.sql."""
    return Backfill(**timed(row))


def seen(found: Iterable[tuple[int, int, str, int]]) -> dict[datetime, list[Seen]]:
    """The rows of ticks_seen.sql, by tick."""
    by_tick: dict[datetime, list[Seen]] = {}
    for nominal_at, generation, state, started in found:
        by_tick.setdefault(from_us(nominal_at), []).append(Seen(generation, state, bool(started)))
    return by_tick


def run_record(row: Row) -> RunRecord:
    """A row of run.sql, runs.sql or runs_of_key.sql."""
    return RunRecord(**{**timed(row), "state": State(row["state"])})


def attempt(row: Row) -> Attempt:
    """A row of attempts.sql."""
    return Attempt(**timed(row))


def miss(row: Row) -> Miss:
    """A row of misses.sql or misses_of.sql."""
    return Miss(**timed(row))


def dead_letter(row: Row) -> DeadLetter:
    """A row of dead_letters.sql or dead_letters_of.sql."""
    return DeadLetter(**timed(row))


def leader(row: Row) -> Leader:
    """A row of leaders.sql."""
    return Leader(**timed(row))


def node(row: Row) -> Node:
    """A row of nodes.sql."""
    lists = {name: None if row[name] is None else _decode(row[name]) for name in ("roles", "queues", "worker_pids")}
    lists["worker_pids"] = sorted(lists["worker_pids"] or ())
    return Node(**{**timed(row), **lists, "elector": elector_from(row["elector"])})


def claimed(row: tuple[Any, ...], fence: int) -> Claimed:
    """A row of claim.sql, by position: this is the hot path."""
    nominal_at, expires_at, late_at, missed, prev_at = row[8], row[15], row[16], row[17], row[20]
    return Claimed(
        row[0],
        fence,
        row[1] + 1,
        row[3],
        row[4],
        row[5] / 1e6,
        bool(row[6]),
        row[7],
        None if nominal_at is None else from_us(nominal_at),
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        row[14],
        None if expires_at is None else from_us(expires_at),
        None if late_at is None else from_us(late_at),
        None if missed is None else missed_from(missed),
        row[18],
        row[19],
        None if prev_at is None else from_us(prev_at),
    )
