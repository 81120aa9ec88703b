"""Where a run waits: putting it there, and taking it out. Every way into `ready` passes here, and so wakes the
workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetcron.store.sqlite.session import Session, json_list

ANY_ATTEMPTS = 2**31
DEDUP_UNTIL_STARTED = 1
"""Flag of a ready row: its dedup key ends when it is claimed."""
NOT_AHEAD = 4
"""Flag of a ready row: it has a dedup key, and is not claimed ahead of its time, so that it can be replaced until then.
(Flag 2, set in gate_park.sql: it has waited for a gate. Flag 8, set in place_ready.sql: a tick that is judged if it does not start in time.)"""

Waiting = tuple[str, int, str, int, int, int, int, int]
"""queue, priority, tenant, due_at, run_id, job_id, attempt, flags"""


def put(session: Session, rows: Sequence[Waiting]) -> None:
    """Runs wait: in `ready` when due within the horizon, else in `timetable`."""
    horizon = session.horizon
    soon = [row for row in rows if row[3] < horizon]
    later = [row for row in rows if row[3] >= horizon] if len(soon) < len(rows) else []
    if soon:
        session.many("ready_insert", soon)
        session.woke = True
    if later:
        session.many("timetable_insert", later)


def put_runs(session: Session, run_ids: Sequence[int]) -> int:
    """Those of these runs that exist and are open wait, as their rows say; returns how many."""
    if not run_ids:
        return 0
    ids = json_list(run_ids)
    soon = session.execute("place_ready", ids, session.horizon)
    session.woke = session.woke or soon > 0
    return soon + session.execute("place_timetable", ids, session.horizon)


def take_out(session: Session, run: Sequence[Any], attempts: int = ANY_ATTEMPTS) -> tuple[int, int, int] | None:
    """A run (id, queue, priority, tenant, due_at, gate, …) leaves where it waits, if it does and has used no more
    than `attempts`; returns (job_id, attempt, flags) or None."""
    run_id, queue, priority, tenant, due_at, gate = run[:6]
    found = (
        session.fetchrow("ready_delete", queue, priority, tenant, due_at, run_id, attempts)
        or session.fetchrow("timetable_delete", due_at, run_id, attempts)
        or session.fetchrow("parked_delete", gate, due_at, run_id, attempts)
    )
    return None if found is None else (found[0], found[1], found[2])


def cancel(session: Session, run_id: int) -> str:
    """ "cancelled" (it waited), "asked" (its worker will stop it), "too late" (it had ended), or "unknown"."""
    run = session.fetchrow("run_place", run_id)
    if run is None:
        return "unknown"
    if run[6] != "open":
        return "too late"
    if take_out(session, run) is not None:
        session.execute("cancel_run", session.now, run_id)
        session.execute("undup", json_list([run_id]))
        return "cancelled"
    session.fetch("cancel_ask", run_id)
    return "asked"
