"""What must hold for any fleet, whatever happens to it: the ledger that a simulation is checked against.

The ledger knows only what users know: when each schedule was defined how, and what handlers saw. It names the ticks by the triggers alone
and never asks the engine what it meant to do.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleetcron import Miss, Run, Schedule, State
from fleetcron.decide.bounds import bounded_next, jitter_offset
from fleetcron.decide.misfire import late_at

STEP = timedelta(microseconds=1)
HORIZON = timedelta(minutes=2)
NOT_RUN = (State.MISSED, State.EXPIRED)
NO_QUEUE = ("allow", "skip")  # overlaps under which a tick never waits for another one


@dataclass
class Era:
    """A schedule as it was defined from `since` (exclusive) to `until`."""

    schedule: Schedule
    since: datetime
    until: datetime | None = None

    def ticks(self, upto: datetime) -> list[datetime]:
        end = upto if self.until is None else min(self.until, upto)
        found = []
        tick = bounded_next(self.schedule, self.since)
        while tick is not None and tick <= end:
            found.append(tick)
            tick = bounded_next(self.schedule, tick)
        return found


@dataclass
class Start:
    """A handler began: of which run, when, and as which attempt."""

    run_id: int
    schedule: str | None
    nominal_at: datetime | None
    at: datetime
    attempt: int
    worker: object


@dataclass
class Ledger:
    """`ahead`: how long before its time a worker may have taken a tick that is then withdrawn from the schedule."""

    lease: timedelta
    ahead: timedelta
    max_attempts: int
    eras: dict[str, list[Era]] = field(default_factory=lambda: defaultdict(list))
    starts: list[Start] = field(default_factory=list)
    final: dict[int, State] = field(default_factory=dict)
    unnoted: set[int] = field(default_factory=set)

    def defined(self, schedule: Schedule, now: datetime) -> None:
        """Created, edited or resumed."""
        self.ended(schedule.name, now)
        self.eras[schedule.name].append(Era(schedule, now))

    def ended(self, name: str, now: datetime) -> None:
        """Paused or removed."""
        for era in self.eras[name]:
            era.until = now if era.until is None else era.until

    def died(self, worker: object, now: datetime) -> None:
        """A worker dies in the instant in which it has started runs. What of that it could still note is up to chance: of a run claimed
        ahead, nobody may know that it has started."""
        self.unnoted |= {start.run_id for start in self.starts if start.worker is worker and start.at == now}

    # what must hold
    def check(self, now: datetime, runs: list[Run], misses: list[Miss], unwritten: dict[str, list[datetime]]) -> None:
        """`unwritten`: the ticks ≤ now that no leader has got to yet, by schedule."""
        by_schedule: dict[str, list[Run]] = defaultdict(list)
        for run in runs:
            if run.schedule is not None:
                by_schedule[run.schedule].append(run)
        for name, eras in self.eras.items():
            records = [miss for miss in misses if miss.schedule == name]
            self._check_account(name, eras, now, by_schedule[name], records, unwritten.get(name, []))
            self._check_late(name, eras)
        self._check_runs(runs)

    def _check_account(
        self, name: str, eras: list[Era], now: datetime, runs: list[Run], misses: list[Miss], unwritten: list[datetime]
    ) -> None:
        """Every tick named is exactly one run, or covered by exactly one miss record, or still to be written."""
        named = {tick for era in eras for tick in era.ticks(now)}
        nominals = [run.nominal_at for run in runs if run.nominal_at is not None and run.nominal_at <= now]
        assert len(nominals) == len(set(nominals)), f"{name}: a tick was written twice"
        cancelled = {run.nominal_at for run in runs if run.state is State.CANCELLED}
        for nominal in set(nominals) - named:
            # Somebody had cancelled it before the change withdrew the others, or a worker had it in hand.
            within = HORIZON if nominal in cancelled else self.ahead
            assert self._taken_before(eras, nominal, within), f"{name}: a run for {nominal}, which no definition names"
            named.add(nominal)
        ran = {run.nominal_at for run in runs if run.state not in NOT_RUN}
        assert not (ran - cancelled) & set(unwritten), (
            f"{name}: next_at moved back behind {min(ran & set(unwritten), key=str)}"
        )
        unwritten = [tick for tick in unwritten if tick not in cancelled]
        gone = named - ran - set(unwritten)
        silent = sorted(tick for tick in gone if not any(miss.first <= tick <= miss.last for miss in misses))
        assert not silent, f"{name}: neither run nor record of {silent[:3]} ({len(silent)})"
        total = sum(miss.count for miss in misses)
        # A tick that was cancelled ahead of its time and is named by a later definition again has both, if that one is judged away.
        early = [run for run in runs if run.nominal_at in cancelled and run.finished_at < run.nominal_at]  # type: ignore[operator]
        assert len(gone) <= total <= len(gone) + len(early), (
            f"{name}: the records count {total}, {len(gone)} ticks did not run: {sorted(gone)[-5:]} {misses[-5:]}"
        )
        closed = {run.nominal_at for run in runs if run.state in NOT_RUN and run.nominal_at is not None}
        assert closed <= gone | {t for t in closed if t > now}

    def _taken_before(self, eras: list[Era], nominal: datetime, within: timedelta) -> bool:
        return any(
            era.until is not None
            and era.until < nominal <= era.until + within
            and bounded_next(era.schedule, nominal - STEP) == nominal
            for era in eras
        )

    def _check_late(self, name: str, eras: list[Era]) -> None:
        """Under fire_once and skip an outage costs one late start at most. When a tick starts late, everything of its schedule that was
        due a lease earlier has been judged with it (what is judged to run has a lease to begin), so none of it may start late as well."""
        first: dict[int, Start] = {}
        for start in self.starts:
            if start.schedule == name:
                first.setdefault(start.run_id, start)
        for era in eras:
            if era.schedule.misfire not in ("fire_once", "skip") or era.schedule.overlap not in NO_QUEUE:
                continue
            offset = jitter_offset(era.schedule)
            late = [s for s in first.values() if s.attempt == 1 and self._within(era, s) and self._is_late(era, s)]
            for one, other in itertools.pairwise(late):
                assert one.nominal_at is not None and other.nominal_at is not None
                due = other.nominal_at + offset
                assert due > one.at - self.lease, f"{name}: {one} and {other} both started late, of one outage"

    def _within(self, era: Era, start: Start) -> bool:
        return (
            start.nominal_at is not None
            and era.since < start.nominal_at
            and (era.until is None or start.nominal_at <= era.until)
        )

    def _is_late(self, era: Era, start: Start) -> bool:
        assert start.nominal_at is not None
        limit = late_at(era.schedule, start.nominal_at, bounded_next(era.schedule, start.nominal_at), self.lease)
        return limit is not None and start.at > limit

    def _check_runs(self, runs: list[Run]) -> None:
        seen = {run.id: run.state for run in runs}
        for run_id, state in self.final.items():
            assert seen.get(run_id) is state, f"run {run_id} was {state}, a final state, and is {seen.get(run_id)}"
        for run in runs:
            assert run.attempt <= self.max_attempts, f"{run}: attempt {run.attempt}"
            if run.state is State.FAILED:
                assert run.attempt == self.max_attempts
            if run.state.final:
                self.final[run.id] = run.state
        started = {start.run_id for start in self.starts} - self.unnoted
        assert {run.id for run in runs if run.state is State.SUCCEEDED} <= started | self.unnoted
        for run in runs:
            assert run.state is not State.MISSED or run.id not in started, f"{run}, missed ({run.reason}), had started"
