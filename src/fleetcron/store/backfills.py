"""Backfills, written once for both stores: feeding one, and steering it. Each function runs inside one transaction.

A backfill's runs that are open are listed in `backfill_run`, and never more of them than `max_running`: a run is written only when there is
room. They are counted in a statement of its own, after the backfill's row was locked, so that two leaders who both believe that there is room
cannot both be right (case C93). A run that waits for its next attempt keeps its place, so that with one place the order holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fleetcron.decide.backfill import portion, ticks
from fleetcron.errors import ConfigError
from fleetcron.model import Backfill, BackfillState
from fleetcron.store.protocol import Fed
from fleetcron.store.tx import Tx

BATCH = 500
"""Ticks looked at in one transaction: a few milliseconds."""


async def add_backfill(tx: Tx, new: Backfill, who: str) -> int:
    """Begin a backfill; returns its id."""
    backfill_id = await tx.insert_backfill(new)
    await tx.audit(who, f"backfill: {new.mode}, {new.order}, max_running={new.max_running}", _subject(backfill_id, new))
    return backfill_id


async def feed(tx: Tx, backfill_id: int, name: str, leader: tuple[int, int], full: Sequence[str]) -> Fed:
    """Count what has ended, and write as many runs as there is room for; a backfill whose ticks are all dealt with is done."""
    if not await tx.led(*leader):
        return Fed(led=False)
    schedule = await tx.lock_schedule(name)
    backfill = await tx.lock_backfill(backfill_id)
    if backfill is None:
        return Fed(led=True)
    open_runs = await tx.fold_backfill(backfill_id)
    if backfill.state != "running":
        return Fed(led=True)
    if schedule is None:
        await tx.end_backfill(backfill_id, "cancelled", "schedule removed")
        return Fed(led=True, ended=True)
    if schedule.error is not None:  # its ticks cannot be told on this node
        return Fed(led=True)
    room = 0 if schedule.queue in full else max(backfill.max_running - open_runs, 0)
    look = ticks(schedule, backfill, BATCH)
    seen = await tx.seen_ticks(name, [tick.nominal_at for tick in look]) if backfill.mode != "all" or room > 0 else {}
    part = portion(backfill.mode, look, seen, room)
    created = await tx.backfill_runs(backfill_id, schedule, part.run) if part.run else 0
    walked = len(look) < BATCH and (not look or part.cursor == look[-1].nominal_at)
    if part.cursor is not None or walked:
        moved = msgspec.structs.replace(
            backfill,
            cursor=part.cursor or backfill.cursor,
            created=backfill.created + created,
            existing=backfill.existing + part.existing + len(part.run) - created,
        )
        await tx.note_backfill(moved, walked=walked)
    if walked and open_runs + created == 0:
        await tx.end_backfill(backfill_id, "done", None)
        return Fed(led=True, ended=True)
    return Fed(led=True, created=created, queue=schedule.queue, more=not walked and created < room)


async def steer(tx: Tx, backfill_id: int, to: BackfillState, who: str) -> bool:
    """Pause a backfill ("paused"), resume it ("running") or cancel it: its runs that wait end, those that run are asked to stop. False when
    there is none. Raises ConfigError when it has ended; to cancel it is then nothing to do."""
    backfill = await tx.lock_backfill(backfill_id)
    if backfill is None:
        return False
    if backfill.state == to or (to == "cancelled" and backfill.state == "done"):
        return True
    if backfill.state not in ("running", "paused"):
        raise ConfigError(f"backfill {backfill_id} is {backfill.state}; it cannot be {to} any more")
    await tx.end_backfill(backfill_id, to, f"by {who}" if to == "cancelled" else None)
    if to == "cancelled":
        for run_id in await tx.open_backfill_runs(backfill_id):
            await tx.cancel_run(run_id)
    await tx.audit(who, f"backfill: {to}", _subject(backfill_id, backfill))
    return True


def _subject(backfill_id: int, backfill: Backfill) -> str:
    return f"{backfill.schedule}: backfill {backfill_id}, {backfill.start.isoformat()} to {backfill.end.isoformat()}"
