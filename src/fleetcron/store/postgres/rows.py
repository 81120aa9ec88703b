"""Rows as records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from fleetcron.model import Attempt, RunRecord, State
from fleetcron.store.codec import missed_from
from fleetcron.store.protocol import Claim, Claimed


def run_record(row: Any) -> RunRecord:
    """A row of run.sql or runs.sql."""
    return RunRecord(
        id=row["id"],
        job=row["job"],
        schedule=row["schedule"],
        tenant=row["tenant"],
        queue=row["queue"],
        priority=row["priority"],
        nominal_at=row["nominal_at"],
        due_at=row["due_at"],
        state=State(row["state"]),
        attempt=row["attempt"],
        payload=row["payload"],
        result=row["result"],
        error=row["error"],
        key=row["key"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        worker=row["worker"],
        generation=row["generation"],
        reason=row["reason"],
    )


def attempt(row: Any) -> Attempt:
    """A row of attempts.sql."""
    return Attempt(
        number=row["number"],
        state=row["state"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        worker=row["worker"],
        error=row["error"],
        traceback=row["traceback"],
        fence=row["fence"],
    )


def claim(found: Sequence[Any]) -> Claim:
    """The rows of claim.sql."""
    if not found:
        return Claim(None, [])
    return Claim(datetime.fromtimestamp(found[-1][21], UTC), [claimed(row) for row in found])


def claimed(row: Any) -> Claimed:
    """A row of claim.sql, by position: this is the hot path."""
    missed = row[17]
    return Claimed(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9], row[10], row[11], row[12], row[13], row[14], row[15],
        row[16], None if missed is None else missed_from(missed), row[18], row[19], row[20],
    )  # fmt: skip
