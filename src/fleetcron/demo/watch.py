"""Waiting for what the fleet does: every wait is a look that is repeated, has a deadline, and says what it waited for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

from fleetcron.clock import sleep
from fleetcron.demo.errors import DemoFailed
from fleetcron.demo.facts import ticks_until
from fleetcron.demo.nodes import NodeProcess, Nodes
from fleetcron.demo.witness import read_witness
from fleetcron.fleet import Fleet
from fleetcron.model import Leader
from fleetcron.run import Run

T = TypeVar("T")

LOOK = 0.05
"""Seconds between looks."""
YOUNG = timedelta(seconds=0.6)
"""A night caught later than this after its start may be over before a signal arrives: half of what `aggregate` takes."""


class MidRun(NamedTuple):
    """A night that was caught between its first step and its second, and the worker that runs it."""

    run: Run
    night: datetime
    worker: NodeProcess
    pid: int
    fence: int


class Watch:
    """The demo's eyes: on the open `fleet`, on its `nodes`, on what the witness wrote in `folder`."""

    def __init__(self, fleet: Fleet, nodes: Nodes, folder: Path) -> None:
        self._fleet, self._nodes, self._folder = fleet, nodes, folder

    async def until(self, look: Callable[[], Awaitable[T | None]], what: str, within: float) -> T:
        """The first truthy answer. Raises DemoFailed after `within` seconds."""
        for _ in range(int(within / LOOK)):
            if answer := await look():
                return answer
            await sleep(LOOK)
        raise DemoFailed(f"not within {within:g} s: {what}")

    async def now(self) -> datetime:
        """By the database's clock, which is the fleet's."""
        return await self._fleet.store.now()

    async def sleep_until(self, moment: datetime) -> None:
        """Until that instant; at most a minute."""
        await sleep((moment - await self.now()).total_seconds())

    async def leader(self, above: int = 0) -> tuple[Leader, NodeProcess]:
        """Who leads, in a term above this one."""

        async def look() -> tuple[Leader, NodeProcess] | None:
            leader = (await self._fleet.leaders())[0]
            node = self._nodes.by_pid(leader.pid)
            return (leader, node) if node is not None and leader.term > above else None

        return await self.until(look, f"a leader in a term above {above}", 10.0)

    async def finished(self, run_id: int) -> Run:
        """The run when it is final."""

        async def look() -> Run | None:
            run = await self._fleet.run(run_id)
            return run if run.state.final else None

        return await self.until(look, f"run {run_id} is over", 20.0)

    async def mid_run(self, schedule: str, after: datetime) -> MidRun:
        """The first run for a tick after `after` that is caught when its first step is done and its second is not."""

        async def look() -> MidRun | None:
            now = await self.now()
            for run in await self._fleet.runs(schedule=schedule, state="running"):
                night, node = run.nominal_at, self._nodes.by_worker(run.worker)
                if night is None or night <= after or node is None or now - (run.started_at or now) > YOUNG:
                    continue
                progress = await self._fleet.progress(run.id)
                if progress is not None and progress.done == 1:
                    fence = (await run.refresh()).attempts[-1].fence
                    if node.pid is not None and fence is not None:
                        return MidRun(run, night, node, node.pid, fence)
            return None

        return await self.until(look, f"a run of {schedule} caught in the middle", 15.0)

    async def end_of(self, run_id: int, fence: int) -> str:
        """How the attempt under this fence ended, says the witness."""

        async def look() -> str | None:
            lines = [line for line in read_witness(self._folder) if (line.run_id, line.fence) == (run_id, fence)]
            return next((line.what for line in lines if line.what != "started"), None)

        return await self.until(look, f"the attempt at run {run_id} under fence {fence} has ended", 10.0)

    async def over(self, ticks: Mapping[str, Sequence[datetime]]) -> None:
        """Each of these ticks, by schedule, has been due, and has a run that is final or a miss record."""
        last = max(tick for named in ticks.values() for tick in named)
        await self.sleep_until(last)

        async def look() -> bool:
            runs, misses = await ticks_until(self._fleet, list(ticks), last), await self._fleet.misses()
            final = {(run.schedule, run.nominal_at) for run in runs if run.state.final}
            return all(
                (name, tick) in final or any(m.schedule == name and m.first <= tick <= m.last for m in misses)
                for name, named in ticks.items()
                for tick in named
            )

        await self.until(look, f"every tick up to {last:%H:%M:%S} ran or is recorded", 20.0)
