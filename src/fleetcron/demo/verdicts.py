"""The judge: facts in, one verdict per promise out. Pure: `tests/acceptance/test_demo.py` tries it on doctored facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec

from fleetcron.demo.facts import Facts, SeenRun, SeenSchedule
from fleetcron.model import Misfire, State

POLICIES = "policy/"
"""The prefix of the schedules that each try a misfire policy."""
TICKS_DOWN = 3
"""How many ticks of each the outage must cover."""
ON_TIME = timedelta(seconds=1)
"""A start within this time of its tick is on time (decide.misfire has the same), however busy the machine is."""


UNNOTED = 3
"""A worker that dies of a run before the start could be noted costs the run no attempt, but only three times."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A promise: was it kept, what was expected, and what was seen."""

    promise: str
    kept: bool
    expected: str
    seen: str


def judge(facts: Facts) -> list[Verdict]:
    """Every promise of the demo."""
    return [
        none_lost(facts),
        none_twice(facts),
        one_owner(facts),
        killed_worker(facts),
        stale_owner(facts),
        killed_leader(facts),
        *(misfire(facts, schedule) for schedule in facts.schedules if schedule.name.startswith(POLICIES)),
        poison(facts),
    ]


def none_lost(facts: Facts) -> Verdict:
    """Every tick that a trigger names has a run that succeeded or a miss record; and the records count nothing else."""
    problems = []
    total = ran = missed = 0
    for schedule in facts.schedules:
        done, gone = facts.ran(schedule), facts.missed(schedule)
        total, ran, missed = total + len(schedule.ticks), ran + len(done), missed + len(gone)
        problems += [
            f"{schedule.name} {_at(tick)} neither ran nor was recorded"
            for tick in schedule.ticks
            if tick not in done and tick not in gone
        ]
        counted = sum(miss.count for miss in facts.misses_of(schedule))
        if counted != len(gone):
            problems.append(f"{schedule.name}: the miss records count {counted} ticks, {len(gone)} did not run")
    return _verdict(
        "no tick is lost",
        problems,
        f"each of {total} ticks ran or has a miss record",
        f"{ran} ran, {missed} have a miss record that says why",
    )


def none_twice(facts: Facts) -> Verdict:
    """One run per tick, and the work of a run counted once.

    A worker can die between the end of the work and the word of it; then the work is done again, which is what "at
    least once" means. But the history must know the earlier attempt as lost.
    """
    runs = Counter((run.schedule, run.tick) for schedule in facts.schedules for run in facts.runs_of(schedule))
    problems = [f"{name} {_at(tick)} has {count} runs" for (name, tick), count in runs.items() if count > 1]
    lost = {attempt.fence for run in facts.runs for attempt in run.attempts if attempt.state == "lost"}
    done = Counter(line.run_id for line in facts.witnessed if line.what == "done" and line.fence not in lost)
    problems += [f"run {run_id} was done {count} times" for run_id, count in done.items() if count > 1]
    return _verdict(
        "no tick runs twice",
        problems,
        "one run per tick, each done once",
        f"{len(runs)} ticks with one run each, {len(done)} runs done once",
    )


def one_owner(facts: Facts) -> Verdict:
    """An attempt begins after the one before it has ended, under a higher fence."""
    problems = []
    again = 0
    for run in facts.runs:
        for earlier, later in pairwise(run.attempts):
            again += 1
            if earlier.finished_at is None or later.started_at is None or later.started_at < earlier.finished_at:
                problems.append(
                    f"run {run.id}: attempt {later.number} started before attempt {earlier.number} had ended"
                )
            if (earlier.fence or 0) >= (later.fence or 0):
                problems.append(f"run {run.id}: fence {later.fence} follows {earlier.fence}")
    return _verdict(
        "one owner at a time",
        problems,
        "attempts of a run one after the other, fences rising",
        f"{again} second and third attempts, each after the one before",
    )


def killed_worker(facts: Facts) -> Verdict:
    """The run of a worker killed in mid-run is done by another, which does not repeat the step that was done."""
    run, pid = facts.run(facts.killed.run_id), facts.killed.pid
    problems = _handed_over(run)
    by = run.result if run is not None and isinstance(run.result, dict) else {}
    if by.get("extracted_by") != pid:
        problems.append(f"extract was done by {by.get('extracted_by')}, not by the worker that was killed ({pid})")
    if by.get("published_by") in (None, pid):
        problems.append(f"the report was published by {by.get('published_by')}")
    return _verdict(
        "a killed worker's run goes on elsewhere", problems, "lost, then succeeded on another worker, without a second extract",
        f"extracted by pid {pid} before it died, published by pid {by.get('published_by')}",
    )  # fmt: skip


def stale_owner(facts: Facts) -> Verdict:
    """A worker that sleeps through its lease is stopped or refused when it wakes up; what its successor wrote stays."""
    frozen = facts.frozen
    run = facts.run(frozen.run_id)
    problems = _handed_over(run)
    ends = [
        line.what
        for line in facts.witnessed
        if line.run_id == frozen.run_id and line.fence == frozen.fence and line.what != "started"
    ]
    if ends not in (["stopped"], ["refused"]):
        problems.append(f"the stale attempt ended as {', '.join(ends) or 'nothing'}")
    newest = run.attempts[-1].fence if run is not None and run.attempts else None
    if frozen.report_fence != newest:
        problems.append(f"the report bears fence {frozen.report_fence}, its run was completed under {newest}")
    if not frozen.refused:
        problems.append(f"a write under the stale fence {frozen.fence} was accepted")
    return _verdict(
        "a stale owner's writes are refused", problems, "the sleeper is stopped or refused, the report is its successor's",
        f"the sleeper was {''.join(ends)}, its fence {frozen.fence} is refused, the report bears {frozen.report_fence}",
    )  # fmt: skip


def killed_leader(facts: Facts) -> Verdict:
    """The tick after the leader's death starts on time all the same, and a new leader takes over in a higher term."""
    t = facts.takeover
    problems = []
    starts = [
        run.first_start for run in facts.runs if run.tick == t.tick and not (run.schedule or "").startswith(POLICIES)
    ]
    late = max((start - t.tick for start in starts if start is not None), default=None)
    if late is None or late > ON_TIME:
        problems.append(f"the tick at {_at(t.tick)} started {'never' if late is None else f'{_seconds(late)} late'}")
    if t.new_term <= t.old_term:
        problems.append(f"term {t.new_term} follows term {t.old_term}")
    return _verdict(
        "ticks start without a leader",
        problems,
        f"the tick after its death within {_seconds(ON_TIME)}, and a higher term",
        f"started {_seconds(late or timedelta(0))} after its instant; the leader had died {_seconds(t.tick - t.killed_at)} before, "
        f"term {t.new_term} began {_seconds(t.led_again_at - t.tick)} after",
    )


def misfire(facts: Facts, schedule: SeenSchedule) -> Verdict:
    """After the outage, exactly what the policy allows."""
    up = facts.outage.up_at
    down = [tick for tick in schedule.ticks if facts.outage.down_at < tick and tick + schedule.grace < up]
    expected, check = _MISFIRES[schedule.misfire]
    problems = check(facts, schedule, down)
    if len(down) < TICKS_DOWN:
        problems.append(f"the outage covered {len(down)} ticks, not {TICKS_DOWN}")
    late, missed = [tick for tick in down if tick in facts.ran(schedule)], facts.missed(schedule)
    seen = f"of {len(down)} ticks down {len(late)} ran late, {len(missed)} are recorded as missed"
    if schedule.misfire == "fire_once":
        told = sum(map(_told, facts.runs_of(schedule)))
        seen += f"; told to a run: {told}" + (f", owed to the next: {schedule.owed}" if schedule.owed else "")
    return _verdict(f"misfire={schedule.misfire}", problems, expected, seen)


def _all(facts: Facts, schedule: SeenSchedule, down: Sequence[datetime]) -> list[str]:
    return [f"{_at(tick)} did not run" for tick in down if tick not in facts.ran(schedule)]


def _once(facts: Facts, schedule: SeenSchedule, down: Sequence[datetime]) -> list[str]:
    ran, missed = facts.ran(schedule), facts.missed(schedule)
    problems = [f"{_at(tick)}: {miss.reason}" for tick, miss in missed.items() if miss.reason != "coalesced"]
    late = [tick for tick in down if tick in ran]
    if len(late) > 1:
        problems.append(f"{len(late)} ticks of the outage ran late")
    problems += [f"{_at(tick)} is not recorded" for tick in down if tick not in ran and tick not in missed]
    # The ticks of an outage may be claimed by two workers. If the one with the latest judges first, its run starts before the
    # other's ticks are judged away; these are then owed to the next run that is judged. Told or owed: none is forgotten.
    told = [run for run in facts.runs_of(schedule) if _told(run)]
    if sum(_told(run) for run in told) + schedule.owed != len(missed):
        problems.append(
            f"runs were told of {sum(map(_told, told))} missed ticks, {schedule.owed} are owed, there are {len(missed)}"
        )
    if any(run.tick is None or any(tick > run.tick for tick in missed) for run in told):
        problems.append("the run that stands for missed ticks is not for the latest of them")
    return problems


def _skip(facts: Facts, schedule: SeenSchedule, down: Sequence[datetime]) -> list[str]:
    missed = facts.missed(schedule)
    problems = [f"{_at(tick)}: {miss.reason}" for tick, miss in missed.items() if miss.reason != "late"]
    problems += [f"{_at(tick)} is not recorded" for tick in down if tick not in missed]
    for run in facts.runs_of(schedule):
        late = run.first_start - run.tick if run.first_start and run.tick else timedelta(0)
        # A tick is judged when it is claimed; what was in time then starts in milliseconds, or less than half a second.
        if late > schedule.grace + ON_TIME / 2:
            problems.append(f"{_at(run.tick)} started {_seconds(late)} late")
    return problems


Check = Callable[[Facts, SeenSchedule, Sequence[datetime]], list[str]]
_MISFIRES: dict[Misfire, tuple[str, Check]] = {
    "fire_all": ("each missed tick runs, late", _all),
    "fire_once": ("one run for the whole outage, the other ticks recorded as coalesced, and told to a run", _once),
    "skip": ("nothing older than the grace runs; what was missed is recorded as late", _skip),
}


def poison(facts: Facts) -> Verdict:
    """It ends in the dead letters after its attempts; nothing else does, and what ran beside it succeeded."""
    case = facts.poison
    run = facts.run(case.run_id)
    problems = []
    states = [attempt.state for attempt in run.attempts] if run is not None else []
    if run is None or run.state != State.FAILED or states != ["lost"] * case.max_attempts:
        state = run.state if run is not None else "nowhere"
        problems.append(f"run {case.run_id} is {state}, its attempts are {', '.join(states) or 'none'}")
    if not case.max_attempts <= case.deaths <= case.max_attempts + UNNOTED:
        problems.append(f"{case.deaths} workers died of it")
    if [letter.run_id for letter in facts.letters] != [case.run_id]:
        letters = ", ".join(f"run {letter.run_id}" for letter in facts.letters)
        problems.append(f"dead letters: {letters or 'none'}")
    beside = [facts.run(run_id) for run_id in case.bystanders]
    done = sum(run is not None and run.state == State.SUCCEEDED for run in beside)
    if done < len(beside):
        problems.append(f"{len(beside) - done} of the {len(beside)} runs beside it did not succeed")
    return _verdict(
        "a poison job is contained",
        problems,
        f"a dead letter after {case.max_attempts} attempts and at most {UNNOTED} more dead workers; everything else succeeds",
        f"{case.deaths} workers died of it in {len(states)} attempts, then it was a dead letter; {done} runs beside it succeeded",
    )


def _handed_over(run: SeenRun | None) -> list[str]:
    """Lost by one worker, done by another."""
    if run is None:
        return ["its run is not in the history"]
    states = [attempt.state for attempt in run.attempts]
    problems = (
        []
        if run.state == State.SUCCEEDED and states[:1] == ["lost"] and states[-1] == "succeeded"
        else [f"its attempts are {', '.join(states)}"]
    )
    if len(run.attempts) > 1 and run.attempts[0].worker == run.attempts[-1].worker:
        problems.append(f"{run.attempts[0].worker} did both")
    return problems


def _told(run: SeenRun) -> int:
    """How many missed ticks the run says it was told of."""
    return int(run.result.get("missed", 0)) if isinstance(run.result, dict) else 0


def _verdict(promise: str, problems: Sequence[str], expected: str, seen: str) -> Verdict:
    return Verdict(
        promise=promise, kept=not problems, expected=expected, seen="; ".join(problems) if problems else seen
    )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.3f} s"


def _at(tick: datetime | None) -> str:
    return "-" if tick is None else f"{tick:%H:%M:%S}"
