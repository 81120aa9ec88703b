"""What the reliability cases share: a fleet with one job that notes what it was told, and the account of every tick."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fleetcron import Context, Cron, Every, Fleet, Miss, Missed, Run
from fleetcron.testing import VirtualFleet

Trigger = Cron | Every

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)  # a Tuesday far from any change of clocks in UTC
ON_TIME = timedelta(seconds=1)
POLICIES = ("skip", "fire_once", "fire_all")


def at(hour: int, minute: int = 0, second: float = 0, day: int = 10) -> datetime:
    """An instant of the day of NOON, or of another day of that month."""
    return datetime(2026, 3, day, tzinfo=UTC) + timedelta(hours=hour, minutes=minute, seconds=second)


class Start(NamedTuple):
    """A run as its handler saw it."""

    schedule: str | None
    nominal_at: datetime | None
    started_at: datetime
    missed: Missed | None
    attempt: int

    @property
    def late(self) -> bool:
        return self.nominal_at is not None and self.started_at - self.nominal_at > ON_TIME


class Notebook:
    """A fleet on virtual time with the job "work": `starts` has every start of it, in order."""

    def __init__(self, url: str, now: datetime = NOON, **options: Any) -> None:
        virtual = {
            name: options.pop(name)
            for name in ("ahead", "patience", "schedulers", "seed", "slots", "workers")
            if name in options
        }
        self.fleet = Fleet(url, **options)
        self.starts: list[Start] = []

        @self.fleet.job("work")
        async def work(ctx: Context) -> None:
            self.starts.append(Start(ctx.schedule, ctx.nominal_at, self.vf.now, ctx.missed, ctx.attempt))

        self.work = work
        self.vf = VirtualFleet(self.fleet, now=now, **virtual)

    async def __aenter__(self) -> Notebook:
        await self.vf.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.vf.__aexit__(*error)

    async def each_policy(self, trigger: Trigger, **options: Any) -> None:
        """Define the trigger once under each misfire policy, as schedules named for it, in one fleet and through one story."""
        await self.fleet.schedule_many([(p, self.work, trigger, {}, {"misfire": p, **options}) for p in POLICIES])

    def of(self, schedule: str) -> list[Start]:
        """The starts of one schedule."""
        return [start for start in self.starts if start.schedule == schedule]

    def check_account(self, schedule: str, named: Sequence[datetime]) -> None:
        """See `check_account` below."""
        runs = [run for run in self.vf.runs if run.schedule == schedule]
        check_account(named, runs, [miss for miss in self.vf.misses if miss.schedule == schedule])

    async def minutely(self, **options: Any) -> Cron:
        """Schedule "work" for every minute."""
        trigger = Cron("* * * * *")
        await self.fleet.schedule("work", self.work, trigger, **options)
        return trigger

    def late(self, schedule: str = "work") -> list[Start]:
        """Starts of a schedule that were not on time."""
        return [start for start in self.of(schedule) if start.late]

    def nominals(self, schedule: str = "work") -> list[datetime | None]:
        return [start.nominal_at for start in self.of(schedule)]


def ticks(trigger: Trigger, after: datetime, until: datetime) -> list[datetime]:
    """The instants in (after, until]."""
    return list(trigger.upcoming(after, trigger.count(after, until)))


def check_account(named: Sequence[datetime], runs: Sequence[Run], misses: Sequence[Miss]) -> None:
    """Every tick that was named is one run or in one miss record: none is lost, none counted twice, nothing else is there."""
    ran = [run.nominal_at for run in runs if run.nominal_at is not None and run.state != "expired"]
    assert len(set(ran)) == len(ran), "a tick ran twice"
    assert set(ran) <= set(named)
    missing = [tick for tick in named if tick not in set(ran)]
    covered = {tick for tick in missing if any(miss.first <= tick <= miss.last for miss in misses)}
    assert covered == set(missing), f"no run and no miss record: {sorted(set(missing) - covered)[:5]}"
    assert sum(miss.count for miss in misses) == len(missing), "the miss records count other than what did not run"
    assert {miss.first for miss in misses} | {miss.last for miss in misses} <= set(missing)
