"""What leaders do to ticks: write them ahead, promote them, prune what is old. Each function is (part of) one
transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleetcron.clock import to_us
from fleetcron.store.protocol import Fire, Fired
from fleetcron.store.sqlite import place
from fleetcron.store.sqlite.session import Session, at_or_none, json_list, us


class NewTick(NamedTuple):
    """A tick to write as a run; times in microseconds, `missed` JSON text."""

    schedule_id: int
    due_at: int
    nominal_at: int
    prev_at: int | None
    late_at: int | None
    missed: str | None = None


def write_ticks(session: Session, new: Sequence[NewTick]) -> int:
    """Write ticks as runs, once per (schedule, nominal_at, generation); returns how many are new."""
    if not new:
        return 0
    first = session.take("run", len(new))
    session.many(
        "tick_insert", [(session.now, first + i, *tick) for i, tick in enumerate(sorted(new, key=lambda t: t.due_at))]
    )
    # The ids of ticks that existed already name no run, and so put nothing anywhere.
    return place.put_runs(session, range(first, first + len(new)))


def fire(
    session: Session, shard: int, term: int, fires: Sequence[Fire], *, tzdata: str, until: datetime | None
) -> Fired:
    """Write ticks and advance their schedules, if the term holds; each schedule only if next_at and revision are
    what the ticker read."""
    if session.fetchval("led", session.now, shard, term) is None:
        return Fired(False, 0, [])
    advanced = [fire for fire in fires if _advance(session, fire, tzdata)]
    runs = write_ticks(
        session,
        [
            NewTick(f.schedule_id, to_us(t.due_at), to_us(t.nominal_at), at_or_none(t.prev_at), at_or_none(t.late_at))
            for f in advanced
            for t in f.ticks
        ],
    )
    if until is not None:
        session.execute("fire_mark", shard, to_us(until))
    return Fired(True, runs, [f.schedule_id for f in advanced])


def _advance(session: Session, fire: Fire, tzdata: str) -> bool:
    row = session.fetchval(
        "fire_advance",
        fire.schedule_id,
        fire.revision,
        to_us(fire.old_next),
        at_or_none(fire.new_next),
        at_or_none(fire.prev_at),
        tzdata,
    )
    return row is not None


def promote(session: Session, limit: int) -> int:
    """Move what comes due within the horizon from `timetable` to `ready`; returns how many. Safe for anyone, at
    any time."""
    moved = session.execute("promote", session.horizon, limit)
    if moved:
        session.execute("promote_leave", session.horizon, limit)
        session.woke = True
    return moved


def prune(session: Session, older_than: timedelta, after: int, limit: int) -> tuple[int, int]:
    """Delete up to `limit` runs that ended before the retention, ids above `after`; returns (how many, the last id
    or 0)."""
    old = [row[0] for row in session.fetch("prune", session.now - us(older_than), after, limit)]
    if not old:
        return 0, 0
    ids = json_list(old)
    for table in ("attempts", "steps", "progress"):
        session.execute(f"prune_{table}", ids)
    session.fetch("purge_dead", ids)
    session.execute("erase_runs", ids)
    return len(old), old[-1]


def prune_rest(session: Session, older_than: timedelta) -> None:
    """Delete old miss records, sessions, audit lines, backfills, and dedup keys whose time has passed."""
    before = session.now - us(older_than)
    for table in ("misses", "sessions", "audit", "backfills"):
        session.execute(f"prune_{table}", before)
    session.execute("prune_dedup", session.now)
