"""The running commentary: a line for each tick, as soon as its fate is known."""

from __future__ import annotations

from collections.abc import Sequence

from fleetcron.clock import sleep
from fleetcron.demo.facts import seen, ticks_until
from fleetcron.demo.nodes import Nodes
from fleetcron.demo.telling import Teller, told
from fleetcron.fleet import Fleet
from fleetcron.model import State
from fleetcron.run import Run

PAUSE = 0.2


class Commentator:
    """`schedules` may grow while it looks."""

    def __init__(self, fleet: Fleet, nodes: Nodes, teller: Teller, schedules: Sequence[str]) -> None:
        self._fleet, self._nodes, self._teller, self._schedules = fleet, nodes, teller, schedules
        self._told: set[int] = set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await sleep(PAUSE)

    async def once(self) -> None:
        """Whatever there is to tell now."""
        runs = await ticks_until(self._fleet, self._schedules, await self._fleet.store.now())
        for run in sorted(runs, key=lambda run: run.id):
            if run.state.final and run.id not in self._told:
                self._told.add(run.id)
                self._tell(await self._fleet.run(run.id))

    def _tell(self, run: Run) -> None:
        tick = f"tick {run.nominal_at:%H:%M:%S}  {run.schedule}"
        if run.state == State.MISSED:
            self._teller.say(f"{tick}: missed, {run.reason}", "dim")
            return
        facts = seen(run)
        attempts = "" if run.attempt == 1 else f" in attempt {run.attempt}"
        late = facts.first_start - facts.tick if facts.first_start and facts.tick else None
        start = (
            "never started" if late is None else f"first started {late.total_seconds() * 1000:.0f} ms after its instant"
        )
        self._teller.say(
            f"{tick}: {run.state} on {self._nodes.name(run.worker)}{attempts}, {start}{told(facts)}", "dim"
        )
