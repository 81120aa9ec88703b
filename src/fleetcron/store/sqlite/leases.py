"""What workers do to leases: claim, complete, settle, hand back. Each function is (part of) one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from fleetcron.clock import to_us
from fleetcron.store.protocol import Claim, Claimed, Done, Lane, Settled
from fleetcron.store.sqlite import place, rows
from fleetcron.store.sqlite.session import Session, at_or_none, json_list, json_list_or_none, us

Held = tuple[int, int, int, int, int, str | None]
"""run_id, fence, attempt, started_at, cancel, tenant (if it is limited)"""


def claim(
    session: Session,
    worker: int,
    lanes: Sequence[Lane],
    *,
    limit: int,
    quantum: int | Sequence[int],
    ahead: timedelta,
    jobs: Sequence[int] | None,
) -> Claim:
    """Up to `limit` due runs of these lanes, in their order and at most `quantum` of each, leave `ready` and are
    leased, under the next fences."""
    if session.fetchval("worker_alive", session.now, worker) is None:
        return Claim(None, [])
    runs: list[Claimed] = []
    started: list[int] = []
    for i, lane in enumerate(lanes):
        if (most := min(quantum if isinstance(quantum, int) else quantum[i], limit - len(runs))) <= 0:
            continue
        found, fence = _take_from(session, worker, lane, most, session.now + us(ahead), json_list_or_none(jobs))
        runs += [rows.claimed(row, fence + n) for n, row in enumerate(found)]
        started += [row[0] for row in found if row[2] & place.DEDUP_UNTIL_STARTED]
    if not runs:
        return Claim(None, [])
    if started:
        session.execute("undup_started", json_list(started))
    if len(lanes) > 1:
        runs.sort(key=lambda run: (run.due_at, run.run_id))
    return Claim(session.moment, runs, session.fetchval("limits_version"))


def _take_from(
    session: Session, worker: int, lane: Lane, most: int, until: int, jobs: str | None
) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of claim.sql, whose leases are written, and the fence of the first."""
    place, floor = (lane.queue, lane.priority, lane.tenant), to_us(lane.first_due)
    found = session.fetch("claim", session.now, *place, floor, until, jobs, most)
    if not found:
        return [], 0
    fence = session.take("fence", len(found))
    taken = (*place, floor, found[-1][5], found[-1][0], jobs, session.now)
    session.execute("lease_insert", fence, worker, *taken)
    session.execute("claim_take", *taken)
    return found, fence


def end(session: Session, worker: int, wanted: Sequence[tuple[int, int]]) -> dict[int, Held]:
    """End the leases of these (run, fence) that the worker still holds; returns them by run. The others are lost,
    and untouched."""
    won = held(session, worker, wanted)
    session.execute("lease_delete", worker, json_list(won))
    return won


def held(session: Session, worker: int, wanted: Sequence[tuple[int, int]]) -> dict[int, Held]:
    """The leases of these (run, fence) that the worker still holds, by run."""
    found: dict[int, Any] = {
        row[0]: row for row in session.fetch("leases_held", worker, json_list(run_id for run_id, _ in wanted))
    }
    return {run_id: found[run_id] for run_id, fence in wanted if run_id in found and found[run_id][1] == fence}


def complete(session: Session, worker: int, done: Sequence[Done]) -> set[int]:
    """Close runs that succeeded; returns those whose lease was still held."""
    outcomes = [(d.run_id, d.fence, int(d.started * 1e6 + 0.5), d.result) for d in done]
    won = {d.run_id for d in done}
    if session.execute("complete", worker, session.now, msgspec.json.encode(outcomes).decode()) < len(done):
        won = set(held(session, worker, [(d.run_id, d.fence) for d in done]))
    session.execute("lease_delete", worker, json_list(won))
    _undup(session, [d.run_id for d in done if d.keyed and d.run_id in won])
    return won


def settle(session: Session, worker: int, settled: Sequence[Settled]) -> set[int]:
    """Record attempts that ended in any other way than success; returns those whose lease was still held. A cancel
    asked for in the meantime wins over another attempt."""
    won = end(session, worker, [(s.run_id, s.fence) for s in settled])
    ours = {s.run_id: s for s in settled if s.run_id in won and won[s.run_id][1] == s.fence}
    fates = {i: "cancelled" if won[i][4] and s.state == "open" else s.state for i, s in ours.items()}
    for i, s in ours.items():
        _settle_one(session, worker, s, won[i], fates[i])
    place.put_runs(session, [i for i, fate in fates.items() if fate == "open"])
    _undup(session, [i for i, fate in fates.items() if fate != "open"])
    refund(session, [won[i] for i, s in ours.items() if s.started_at is None])
    return set(won)


def refund(session: Session, ended: Iterable[Held]) -> None:
    """The rate tokens of limited runs that have not started are given back."""
    for lease in ended:
        if lease[5] is not None:
            session.execute("limiter_refund", lease[5], lease[3])


def _settle_one(session: Session, worker: int, s: Settled, held: Held, fate: str) -> None:
    untouched = s.handback and s.started_at is None  # handed back before it started: as if never claimed
    due = session.now + us(s.delay) if fate == "open" and not untouched else None
    session.execute(
        "settle", session.now, worker, s.run_id, fate, s.attempt, due, s.error, s.reason, s.result,
        at_or_none(s.started_at), s.fence, s.handback and not untouched,
    )  # fmt: skip
    if s.record is not None:
        state = "cancelled" if fate == "cancelled" else s.record
        session.execute(
            "attempt_insert",
            s.run_id,
            s.fence,
            held[2],
            state,
            at_or_none(s.started_at),
            session.now,
            worker,
            s.error,
            s.traceback,
        )
    if s.dead and fate == "failed":
        session.execute("dead_letter_insert", session.now, s.run_id, s.attempt, s.error)
    if fate == "expired":
        session.execute("expired_miss", session.now, s.run_id)


def _undup(session: Session, run_ids: Sequence[int]) -> None:
    if run_ids:
        session.execute("undup", json_list(run_ids))


def stop_worker(session: Session, worker: int) -> int:
    """A worker session ends in order: whatever it still holds goes back at once, no attempt used; but what was asked
    to stop is cancelled. Returns how many went back."""
    if session.fetchval("worker_stop", worker) is None:
        return 0
    _undup(session, [row[0] for row in session.fetch("lease_cancel", session.now, worker)])
    returned = session.execute("lease_return", worker)
    session.woke = session.woke or returned > 0
    session.execute("lease_clear", json_list([worker]))
    session.execute("session_end", session.now, json_list([worker]), "stopped")
    return returned


def rescue(session: Session, suspects: Sequence[int], expired: bool) -> tuple[list[int], int, int]:
    """Take back the runs of dead worker sessions: suspects that were seen dead and, if `expired`, those past their
    time. Sessions and leases go in one transaction, so nobody acts on a list read earlier. Returns (workers, runs
    put back, runs failed)."""
    dead = [row[0] for row in session.fetch("rescue", session.now, json_list(suspects), expired)]
    if not dead:
        return [], 0, 0
    workers = json_list(dead)
    session.execute("rescue_attempts", session.now, workers)
    session.execute("rescue_runs", session.now, workers)
    ended = session.fetch("rescue_ended", workers)
    failed = [(run_id, attempt, keep) for run_id, state, attempt, keep in ended if state == "failed"]
    for run_id, attempt, keep in failed:
        if keep:
            session.execute("dead_letter_insert", session.now, run_id, attempt, "worker died")
    _undup(session, [row[0] for row in ended if row[1] != "open"])
    session.execute("lease_clear", workers)
    session.execute("session_end", session.now, workers, "died")
    return dead, place.put_runs(session, [row[0] for row in ended if row[1] == "open"]), len(failed)


def unpark(session: Session) -> list[str]:
    """The first run that waits at each free gate goes back to `ready`, due as it was; returns the queues."""
    free = session.fetch("gates_free")
    for row in free:
        session.fetch("parked_delete", row[8], row[3], row[4], place.ANY_ATTEMPTS)
    if free:
        session.many("ready_insert", [row[:8] for row in free])
        session.woke = True
    return sorted({row[0] for row in free})
