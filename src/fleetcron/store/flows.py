"""What takes more than one statement, written once for both stores: edits of schedules, keyed inserts, admission at gates, judgement.

Every function runs inside one transaction (`tx`); either all of it happens or nothing.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime, timedelta

import msgspec

from fleetcron.decide.bounds import bounded_count, bounded_latest, bounded_next
from fleetcron.decide.misfire import Facts, MissRange, Pending, Verdict
from fleetcron.decide.overlap import overlap
from fleetcron.errors import StoreError
from fleetcron.model import Missed, Overlap, Schedule
from fleetcron.store.codec import one_shot, same_definition
from fleetcron.store.depths import insert_fresh
from fleetcron.store.job_lines import JobLimits, in_line
from fleetcron.store.protocol import Admission, Claimed, FirstFn, Inserted, JudgeFn, NewRun
from fleetcron.store.tx import KeysMoved, Tx

_TICK = timedelta(microseconds=1)
CREATE_BATCH = 1000
"""Schedules created in one transaction."""


async def put_schedule(tx: Tx, new: Schedule, who: str, first: FirstFn) -> str:
    """Create or edit one schedule: "created", "edited" or "unchanged". An edit withdraws the unstarted ticks of the old definition.

    Raises StoreError when there is no such job: one schedule without a job would stop the ticks of its whole shard.
    """
    old = await tx.lock_schedule(new.name)
    if old is not None and old.error is None and same_definition(old, new):
        return "unchanged"
    if not await tx.share_job(new.job):
        raise _no_job(new)
    now = await tx.now()
    next_at = first(new, now)
    prev_at = new.trigger.latest(next_at - _TICK) if next_at is not None else None
    if old is None:
        if await tx.insert_schedules([(new, next_at, prev_at)]):
            await tx.audit(who, "create schedule", new.name)
            return "created"
        return await put_schedule(tx, new, who, first)
    if one_shot(new) and old.trigger == new.trigger and old.next_at is None:
        next_at = prev_at = None  # it has had its run
        if new.trigger.next(now) is not None:
            next_at = first(new, now)  # written ahead, not started: withdrawn below and written anew
    await _withdraw(tx, old, "edited", unwritten=not (one_shot(new) and old.trigger == new.trigger))
    await tx.update_schedule(old, new, next_at, prev_at)
    await tx.audit(who, "edit schedule", new.name)
    return "edited"


def unknown(schedules: Sequence[Schedule], known: Container[str]) -> list[list[Schedule]]:
    """The schedules whose names are not known, one of each name, in batches for `create_schedules`."""
    new = list({schedule.name: schedule for schedule in reversed(schedules) if schedule.name not in known}.values())[
        ::-1
    ]
    return [new[i : i + CREATE_BATCH] for i in range(0, len(new), CREATE_BATCH)]


async def create_schedules(tx: Tx, new: Sequence[Schedule], who: str, first: FirstFn) -> set[str]:
    """Create those of these schedules whose names are free, together; returns their names. Raises StoreError as `put_schedule` does."""
    for job in sorted({schedule.job for schedule in new}):
        if not await tx.share_job(job):
            raise _no_job(next(schedule for schedule in new if schedule.job == job))
    now = await tx.now()
    wanted = []
    for schedule in new:
        next_at = first(schedule, now)
        wanted.append((schedule, next_at, schedule.trigger.latest(next_at - _TICK) if next_at is not None else None))
    created = await tx.insert_schedules(wanted)
    await tx.audit_each(who, "create schedule", sorted(created))
    return created


def _no_job(schedule: Schedule) -> StoreError:
    return StoreError(
        f"schedule {schedule.name!r}: the registry does not know job {schedule.job!r}: a job is registered when a process that declares it "
        "starts, or by `fleetcron job add`"
    )


async def remove_schedule(tx: Tx, name: str, who: str) -> bool:
    """Remove a schedule and its unstarted ticks. False when there is none."""
    old = await tx.lock_schedule(name)
    if old is None:
        return False
    await _withdraw(tx, old, "schedule removed")
    await tx.delete_schedule(old.id)
    await tx.audit(who, "remove schedule", name)
    return True


async def pause_schedule(tx: Tx, name: str, who: str) -> bool:
    """Pause: unstarted ticks are withdrawn. Idempotent; False when there is none of this name."""
    old = await tx.lock_schedule(name)
    if old is None:
        return False
    if not old.paused:
        await _withdraw(tx, old, "paused", unwritten=not one_shot(old))
        next_at = old.next_at
        if one_shot(old) and next_at is None:
            next_at = old.trigger.next(
                await tx.now()
            )  # written ahead, not started: withdrawn above, it must find its instant again
        await tx.pause_schedule(old.id, True, next_at)
        await tx.audit(who, "pause schedule", name)
    return True


async def resume_schedule(tx: Tx, name: str, who: str, at: datetime | None, first: FirstFn) -> bool:
    """Resume, never back-firing: the next tick is the first one after now (or after `at`). Idempotent."""
    old = await tx.lock_schedule(name)
    if old is None:
        return False
    if old.paused:
        now = await tx.now()
        start = now if at is None or at <= now else at - _TICK
        await tx.pause_schedule(old.id, False, old.next_at if one_shot(old) else first(old, start))
        await tx.audit(who, "resume schedule", name)
    return True


async def retick(tx: Tx, name: str, leader: tuple[int, int], tzdata: str, first: FirstFn | None) -> bool:
    """Compute a schedule's ticks anew with other zone data: those of the future that were written ahead are withdrawn. `first` None: its
    ticks do not depend on zone data, only the version is noted. A schedule with ticks to be judged is left until they are."""
    if not await tx.led(*leader):
        return False
    old = await tx.lock_schedule(name)
    now = await tx.now()
    if old is None or (old.next_at is not None and old.next_at <= now):
        return False
    next_at = old.next_at
    if first is not None:
        await tx.withdraw(old, now + _TICK, "zone data changed")
        next_at = first(old, now)
    await tx.retick(old, next_at, tzdata)
    return True


async def _withdraw(tx: Tx, old: Schedule, reason: str, *, unwritten: bool = True) -> None:
    """Take back what has not started. What had come due is recorded as missed, also (`unwritten`) the ticks that no leader has written yet."""
    now = await tx.now()
    due = await tx.withdraw(old, await _since(tx, old, now), reason)
    ranges = [MissRange(first=due[0], last=due[-1], count=len(due), reason=reason)] if due else []
    if unwritten and not old.paused and old.error is None and old.next_at is not None and old.next_at <= now:
        first, last = bounded_next(old, old.next_at - _TICK), bounded_latest(old, now)
        if first is not None and last is not None and first <= last:
            ranges.append(
                MissRange(first=first, last=last, count=bounded_count(old, first - _TICK, last), reason=reason)
            )
    await tx.miss(old.name, old.misfire or "", ranges)


async def _since(tx: Tx, schedule: Schedule, now: datetime) -> datetime:
    """No unstarted tick of the schedule in `ready` or `timetable` is older: due is nominal plus at most the jitter, but for `let_run`."""
    first = await tx.first_due(schedule)
    return (min(first, now) if first is not None else now) - schedule.jitter


def let_run(schedule: Schedule) -> tuple[datetime | None, int]:
    """Where the ticks are that a judgement let run though they were late: among the last so many up to that instant."""
    return schedule.judged_until, schedule.catchup_limit if schedule.misfire == "fire_all" else 1


async def insert_keyed(tx: Tx, runs: Sequence[NewRun], wake: Sequence[str]) -> list[Inserted]:
    """Insert runs of which some have dedup keys. The first of equal keys wins; later ones are told its id, and with
    on_duplicate="replace" give it their payload and due time while it still waits.

    Raises KeysMoved when a key changes hands meanwhile: the caller takes everything back and begins anew. (Taking what has become free with
    a second statement would take keys out of their order: two such inserts wait for each other.)
    """
    ids = await tx.take_ids(len(runs))
    firsts: dict[tuple[str, str, str], int] = {}
    repeats: list[int] = []
    for i, run in enumerate(runs):
        if run.key is not None:
            ident = (run.job, run.tenant, run.key)
            if ident in firsts:
                repeats.append(i)
            else:
                firsts[ident] = i
    keyed = [i for _, i in sorted(firsts.items())]
    won = await tx.dedup_take([(ids[i], runs[i]) for i in keyed])
    taken = [i for i in keyed if ids[i] not in won]
    holders = {_ident(runs[i]): ids[i] for i in keyed if ids[i] in won}
    holders |= await tx.dedup_find([runs[i] for i in taken]) if taken else {}
    if any(_ident(runs[i]) not in holders for i in taken):
        raise KeysMoved("a holder ended between two statements")
    new = {i for i, run in enumerate(runs) if run.key is None or ids[i] in won}
    due = await insert_fresh(tx, [(ids[i], runs[i]) for i in sorted(new)], wake)
    replaced: set[int] = set()
    for i in sorted([*taken, *repeats]):
        ident, run = _ident(runs[i]), runs[i]
        if i in new or run.on_duplicate == "keep":
            continue
        if await tx.replace_run(holders[ident], run):
            replaced.add(i)
        elif (await tx.dedup_find([run])).get(ident) != holders[ident]:
            raise KeysMoved("a holder ended instead of being replaced")
    return [
        Inserted(ids[i], True, due[ids[i]])
        if i in new
        else Inserted(holders[_ident(run)], False, replaced=i in replaced)
        for i, run in enumerate(runs)
    ]


def _ident(run: NewRun) -> tuple[str, str, str]:
    assert run.key is not None
    return (run.job, run.tenant, run.key)


async def admit(tx: Tx, worker: int, gated: Sequence[Claimed]) -> list[Admission]:  # noqa: PLR0912  # one arm a verdict
    """Decide for leased, unstarted runs with a gate: start, wait (parked), or missed by the overlap policy.

    The gate's row is locked first and its holders are read after that, in a statement of their own: counting holders in the statement
    that locks would read a snapshot from before the lock was granted, and overshoot.
    """
    limits = await JobLimits.of(tx, worker, gated)
    verdicts = await limits.line([run for run in gated if in_line(run)])
    gated = [run for run in gated if not in_line(run)]
    for run in sorted(gated, key=lambda r: (r.gate or "", r.due_at, r.run_id)):
        assert run.gate is not None
        await tx.gate_lock(run.gate)
        running, waiting = await tx.gate_state(run.gate, run)
        policy: Overlap = run.overlap or "queue_all"  # type: ignore[assignment]
        verdict = overlap(policy, running=running > 0, waiting=waiting)
        if policy == "replace" and run.nominal_at is not None and await tx.gate_newer(run.gate, run.nominal_at):
            verdict = "miss"  # it was overtaken: the newest tick is the one to run
        began = verdict == "miss" and await tx.has_started(run.run_id)
        if began and policy != "replace":
            verdict = "wait"  # no tick that can still be skipped, but a run that waits for its next attempt
        if verdict == "start" and limits.room(run.job_limit) <= 0:
            verdict = "wait"  # for its job's sake, at its own gate
        match verdict:
            case "start":
                if policy == "replace":
                    await _replace(tx, run.gate)
                if await tx.gate_take(worker, run) and await limits.take(run.job_limit, [run]):
                    verdicts.append(Admission(run.run_id, "start"))
            case "wait":
                if await tx.gate_park(worker, run):
                    verdicts.append(Admission(run.run_id, "parked"))
            case "miss" if began:
                await tx.drop_leased(worker, [run], "overlap: replaced")
            case "miss":
                if run.schedule is not None and await tx.drop_leased(worker, [run], "overlap"):
                    await _miss_one(tx, run.schedule, run, "overlap")
                    verdicts.append(Admission(run.run_id, "missed"))
            case "replace":
                await _replace(tx, run.gate)
                if await tx.gate_park(worker, run):
                    verdicts.append(Admission(run.run_id, "parked"))
    return verdicts


async def _replace(tx: Tx, gate: str) -> None:
    """Whoever holds the gate is asked to stop; the ticks that wait for it are missed."""
    for schedule, nominal_at in await tx.gate_replace(gate):
        await tx.miss(schedule, "replace", [MissRange(first=nominal_at, last=nominal_at, count=1, reason="overlap")])


async def _miss_one(tx: Tx, schedule: str, run: Claimed, reason: str) -> None:
    nominal_at = run.nominal_at or run.due_at
    await tx.miss(schedule, run.overlap or "", [MissRange(first=nominal_at, last=nominal_at, count=1, reason=reason)])


async def judge(
    tx: Tx,
    name: str,
    leased: Sequence[Claimed],
    *,
    worker: int | None,
    leader: tuple[int, int] | None,
    lease: timedelta,
    decide: JudgeFn,
) -> tuple[Verdict | None, list[str]]:
    """Apply the misfire policy to everything of a schedule that has not started: what the caller has leased, what waits in `ready`, and,
    for the policy only, the ticks not yet written. Unwritten ticks are written only by a leader (its term is checked first).

    Returns the verdict (None: the term is stale or the schedule is gone; leased ticks of a schedule that is gone are closed as missed)
    and the queues to wake.
    """
    if leader is not None and not await tx.led(*leader):
        return None, []
    schedule = await tx.lock_schedule(name)
    if schedule is None:
        if worker is not None and leased:
            gone = await tx.drop_leased(worker, leased, "schedule removed")
            ticks = [r.nominal_at for r in leased if r.nominal_at is not None and r.run_id in gone]
            await tx.miss(
                name, "", [MissRange(first=tick, last=tick, count=1, reason="schedule removed") for tick in ticks]
            )
        return None, []
    now = await tx.now()
    waiting = await tx.unstarted(schedule, await _since(tx, schedule, now))
    if worker is not None:
        held = await tx.held(worker, leased)
        leased = [r for r in leased if r.run_id in held]  # the others are judged by whoever holds them now
    pending = [Pending(run_id=i, nominal_at=at, missed=missed) for i, at, missed in waiting]
    pending += [
        Pending(run_id=r.run_id, nominal_at=r.nominal_at, missed=r.missed) for r in leased if r.nominal_at is not None
    ]
    pending.sort(key=lambda p: p.nominal_at)
    verdict = decide(schedule, Facts(now=now, pending=tuple(pending), lease=lease))
    reason = verdict.misses[0].reason if verdict.misses else "late"
    mine = {r.run_id: r for r in leased}
    drop_mine = [mine[i] for i in verdict.drop if i in mine]
    if worker is not None and drop_mine:
        await tx.drop_leased(worker, drop_mine, reason)
    await tx.drop_ticks([i for i in verdict.drop if i not in mine], reason)
    misses = verdict.misses if leader is not None else _written_only(verdict.misses, schedule)
    kept, late = dict(verdict.keep), [(t.nominal_at, t.missed) for t in verdict.fire] if leader is not None else []
    owed = schedule.owed
    if schedule.misfire in ("fire_once", "skip"):
        if late:
            late[-1], owed = (late[-1][0], _merge(owed, late[-1][1])), None
        elif kept:
            latest = max(kept, key=lambda i: next(p.nominal_at for p in pending if p.run_id == i))
            kept[latest], owed = _merge(owed, kept[latest]), None
        else:
            dropped = set(verdict.drop)
            for told in [p.missed for p in pending if p.run_id in dropped] + [
                Missed(first=m.first, last=m.last, count=m.count) for m in misses
            ]:
                owed = _merge(owed, told)
    await tx.keep_ticks(list(kept.items()), lease)
    queues: list[str] = []
    next_at, prev_at = schedule.next_at, None
    if leader is not None:
        queues = await tx.late_runs(
            schedule, [(at, schedule.trigger.latest(at - _TICK), missed) for at, missed in late], lease
        )
        next_at = verdict.next_at
        if next_at != schedule.next_at:
            prev_at = schedule.trigger.latest(now if next_at is None else next_at - _TICK)
    await tx.judged(schedule, verdict.judged_until, next_at, prev_at, owed)
    await tx.miss(name, schedule.misfire or "", misses)
    # Same decision, told with what is owed: the caller starts its kept runs with it.
    return msgspec.structs.replace(verdict, keep=kept, misses=misses), queues


def _merge(a: Missed | None, b: Missed | None) -> Missed | None:
    """Two accounts of ticks judged away, as one."""
    if a is None or b is None:
        return a or b
    return Missed(first=min(a.first, b.first), last=max(a.last, b.last), count=a.count + b.count)


def _written_only(misses: Sequence[MissRange], schedule: Schedule) -> list[MissRange]:
    """The part of the misses that are written ticks: only a leader writes unwritten ones off, for a worker they are still to be fired."""
    if schedule.next_at is None:
        return list(misses)
    kept = []
    for miss in misses:
        if miss.last < schedule.next_at:
            kept.append(miss)
        elif miss.first < schedule.next_at:
            last = schedule.trigger.latest(schedule.next_at - _TICK) or miss.first
            unwritten = schedule.trigger.count(schedule.next_at - _TICK, miss.last)
            kept.append(MissRange(first=miss.first, last=last, count=miss.count - unwritten, reason=miss.reason))
    return kept
