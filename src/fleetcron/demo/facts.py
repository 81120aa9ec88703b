"""What was seen: run history, miss records, dead letters, the witness, and what the demo did to its fleet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fleetcron.demo.witness import Witnessed
from fleetcron.fleet import Fleet
from fleetcron.model import Attempt, DeadLetter, Misfire, Miss, State
from fleetcron.run import Run
from fleetcron.triggers import Trigger

MOST = 1000


class SeenSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, and the ticks that its trigger names while it was watched: computed here, not read back.

    `owed`: how many of its missed ticks no run has been told of yet.
    """

    name: str
    misfire: Misfire
    grace: timedelta
    ticks: tuple[datetime, ...]
    owed: int = 0


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its attempts, oldest first. `tick` is None for one that was submitted."""

    id: int
    job: str
    schedule: str | None
    tick: datetime | None
    state: State
    attempts: tuple[Attempt, ...]
    result: Any = None

    @property
    def first_start(self) -> datetime | None:
        """When the first attempt started."""
        return self.attempts[0].started_at if self.attempts else None


class Killed(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that was killed -9 in mid-run."""

    run_id: int
    pid: int


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """The leader that was killed -9 shortly before `tick`."""

    tick: datetime
    killed_at: datetime
    old_term: int
    new_term: int
    led_again_at: datetime


class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """The worker that was stopped in mid-run and thawed after another had finished its run.

    `fence`: its own. `report_fence`: of the report in the end. `refused`: was a write under `fence` refused?
    """

    run_id: int
    pid: int
    fence: int
    report_fence: int
    refused: bool


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """From the kill -9 of everything to the instant when every node was ready again."""

    down_at: datetime
    up_at: datetime


class Poison(msgspec.Struct, frozen=True, kw_only=True):
    """The run that kills its workers, how many died meanwhile, and the ordinary runs that were submitted beside it."""

    run_id: int
    max_attempts: int
    deaths: int
    bystanders: tuple[int, ...]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the verdicts rest on."""

    schedules: tuple[SeenSchedule, ...]
    runs: tuple[SeenRun, ...]
    misses: tuple[Miss, ...]
    letters: tuple[DeadLetter, ...]
    witnessed: tuple[Witnessed, ...]
    killed: Killed
    takeover: Takeover
    frozen: Frozen
    outage: Outage
    poison: Poison

    def runs_of(self, schedule: SeenSchedule) -> list[SeenRun]:
        """Its runs that were not judged away."""
        return [
            run
            for run in self.runs
            if run.schedule == schedule.name and run.tick in schedule.ticks and run.state != State.MISSED
        ]

    def ran(self, schedule: SeenSchedule) -> set[datetime]:
        """The ticks that have a run which succeeded."""
        return {run.tick for run in self.runs_of(schedule) if run.state == State.SUCCEEDED and run.tick is not None}

    def misses_of(self, schedule: SeenSchedule) -> list[Miss]:
        return [miss for miss in self.misses if miss.schedule == schedule.name]

    def missed(self, schedule: SeenSchedule) -> dict[datetime, Miss]:
        """The ticks without a run that a miss record covers, with it."""
        taken = {run.tick for run in self.runs_of(schedule)}
        left = [tick for tick in schedule.ticks if tick not in taken]
        return {tick: miss for tick in left for miss in self.misses_of(schedule) if miss.first <= tick <= miss.last}

    def run(self, run_id: int) -> SeenRun | None:
        return next((run for run in self.runs if run.id == run_id), None)


def named(trigger: Trigger, after: datetime, until: datetime) -> tuple[datetime, ...]:
    """The ticks in (after, until]."""
    return tuple(trigger.upcoming(after, trigger.count(after, until)))


def seen(run: Run) -> SeenRun:
    """A run with its attempts loaded."""
    return SeenRun(
        id=run.id,
        job=run.job,
        schedule=run.schedule,
        tick=run.nominal_at,
        state=run.state,
        attempts=tuple(run.attempts),
        result=run.result,
    )


async def ticks_until(fleet: Fleet, schedules: Sequence[str], until: datetime) -> list[Run]:
    """The runs of ticks up to `until`, attempts not loaded."""
    found: list[Run] = []
    for name in schedules:
        runs = await fleet.runs(schedule=name, limit=MOST)
        found += [run for run in runs if run.nominal_at is not None and run.nominal_at <= until]
    return found
