"""Three scheduler nodes, a worker that is left alone, and everything else failing in random order."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fleetcron import Fleet
from tests.election.support import ElectorServer
from tests.support.processes import NodeProcess
from tests.support.proxy import Proxy

APP = "tests.crash.app:fleet"


@dataclass
class Report:
    """What happened to the ticks of the time under fault."""

    seed: int
    faults: list[str] = field(default_factory=list)
    named: int = 0
    lost: list[float] = field(default_factory=list)
    twice: list[float] = field(default_factory=list)
    worst: float = 0.0
    late: list[str] = field(default_factory=list)
    terms: int = 0

    def __str__(self) -> str:
        counted = ", ".join(
            f"{kind} {n}" for kind, n in sorted(Counter(fault.split()[0] for fault in self.faults).items())
        )
        return (
            f"seed {self.seed}: {self.named} ticks, {len(self.twice)} twice, {len(self.lost)} lost, the latest start "
            f"{self.worst * 1000:.1f} ms late; {self.terms} terms; faults: {counted}"
        )


@dataclass
class Member:
    """One node, and its links to the database and to the elector."""

    process: NodeProcess
    database: Proxy
    elector: Proxy | None
    busy: bool = False  # a fault is under way


class Chaos:
    """`await run(seconds)` does it all; the report is judged by the test."""

    def __init__(
        self, url: str, server: ElectorServer | None, folder: Path, *, ttl: float, seed: int, shards: int = 4
    ) -> None:
        self.url, self.server, self.folder, self.ttl, self.shards = url, server, folder, ttl, shards
        self.log = folder / "ticks.log"
        self.random = random.Random(seed)
        self.report = Report(seed)
        self.members: list[Member] = []
        self._env = {"CRASH_LOG": str(self.log), "CRASH_POLICY": "fire_all"}
        self._started = 0
        self._elector_down = False

    async def run(self, seconds: float) -> Report:
        async with self._crew():
            for member in self.members:
                await self._ready(member)
            await self._until(self._written_ahead, 30, "ticks being written ahead")
            await asyncio.sleep(1.5)  # and nobody waits to be told of the first ones
            begin = time.time()
            end = begin + seconds
            under_way: set[asyncio.Task[None]] = set()
            while time.time() < end - 3 * self.ttl - 1:
                fault = self._choose()
                if fault is not None:
                    under_way.add(asyncio.create_task(fault))
                await asyncio.sleep(self.random.uniform(0.3, 1.0) * self.ttl)
            await asyncio.gather(*under_way)
            await asyncio.sleep(max(0.5, end - time.time()))
            self._judge(begin, time.time() - 0.5)
            await self._end_in_order()
        return self.report

    @asynccontextmanager
    async def _crew(self) -> AsyncIterator[None]:
        worker = NodeProcess(self.url, APP, self.folder, "--role", "worker", env=self._env, name="worker").start()
        async with AsyncExitStack() as stack:
            try:
                for _ in range(3):
                    database = await stack.enter_async_context(Proxy.to(self.url))
                    link = None
                    if self.server is not None:
                        link = await stack.enter_async_context(Proxy("127.0.0.1", self.server.port))
                    member = Member(self._node(database, link), database, link)
                    self.members.append(member)
                    member.process.start()
                yield
            finally:
                for member in self.members:
                    member.process.kill()
                    for link in (member.database, member.elector):
                        if link is not None:
                            await link.heal()
                worker.kill()
                await asyncio.sleep(0.3)  # the proxies see that everybody has gone

    def _node(self, database: Proxy, link: Proxy | None) -> NodeProcess:
        self._started += 1
        elector = (
            "database"
            if self.server is None or link is None
            else self.server.url.replace(str(self.server.port), str(link.port))
        )
        words = [
            "--role",
            "scheduler",
            "--elector",
            elector,
            "--election-ttl",
            f"{self.ttl}s",
            "--shards",
            str(self.shards),
        ]
        return NodeProcess(database.url, APP, self.folder, *words, env=self._env, name=f"node{self._started}")

    # faults
    def _choose(self) -> Awaitable[None] | None:  # type: ignore[type-arg]
        """A fault that leaves at least one node alone, or None."""
        idle = [member for member in self.members if not member.busy]
        if len(idle) < 2:
            return None
        kinds: list[Callable[[Member], Awaitable[None]]] = [self._kill, self._freeze, self._cut_database]
        if self.server is not None:
            kinds += [self._cut_elector, self._restart_elector, self._stop_elector]
        kind = self.random.choice(kinds)
        if kind in {self._restart_elector, self._stop_elector} and self._elector_down:
            return None
        member = self._leader(idle) if self.random.random() < 0.7 else self.random.choice(idle)
        return kind(member)

    def _leader(self, among: list[Member]) -> Member:
        """The node that leads the shard of the job's schedule, if it is one of these: faults elsewhere would show little."""
        with Fleet(self.url).blocking as fleet:
            leader = fleet.leaders()[1 % self.shards]
            self.report.terms = max(self.report.terms, leader.term)
        return next((member for member in among if member.process.pid == leader.pid), among[0])

    def _note(self, kind: str, member: Member | None = None) -> None:
        self.report.faults.append(f"{kind} {member.process.name if member else ''} at {time.time():.1f}")

    async def _kill(self, member: Member) -> None:
        self._note("SIGKILL", member)
        member.busy = True
        member.process.kill()
        await asyncio.sleep(0.5 * self.ttl)
        member.process = self._node(member.database, member.elector).start()
        await self._ready(member)
        member.busy = False

    async def _freeze(self, member: Member) -> None:
        self._note("SIGSTOP", member)
        member.busy = True
        member.process.freeze()
        await asyncio.sleep(3 * self.ttl)
        member.process.thaw()
        member.busy = False

    async def _cut_database(self, member: Member) -> None:
        self._note("database-link-cut", member)
        await self._cut(member, member.database)

    async def _cut_elector(self, member: Member) -> None:
        self._note("elector-link-cut", member)
        assert member.elector is not None
        await self._cut(member, member.elector)

    async def _cut(self, member: Member, link: Proxy) -> None:
        member.busy = True
        if self.random.random() < 0.5:
            link.refuse()
        else:
            link.blackhole()
        await asyncio.sleep(3 * self.ttl)
        link.reset()
        await link.heal()
        member.busy = False

    async def _restart_elector(self, _: Member) -> None:
        self._note("elector-restarted")
        await self._elector_away(0)

    async def _stop_elector(self, _: Member) -> None:
        self._note("elector-stopped")
        await self._elector_away(3 * self.ttl)

    async def _elector_away(self, seconds: float) -> None:
        assert self.server is not None
        self._elector_down = True
        await asyncio.to_thread(self.server.stop)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self.server.start)
        self._elector_down = False

    # judgement
    def _starts(self) -> list[tuple[float, float]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(float(words[1]), float(words[2])) for words in map(str.split, lines) if words[0] == "tick"]

    def _judge(self, begin: float, end: float) -> None:
        starts: dict[float, list[float]] = {}
        for nominal, start in self._starts():
            starts.setdefault(nominal, []).append(start)
        named = [float(tick) for tick in range(math.ceil(begin), math.floor(end) + 1)]
        self.report.named = len(named)
        self.report.lost = [tick for tick in named if tick not in starts]
        self.report.worst = max((min(starts[tick]) - tick for tick in named if tick in starts), default=0.0)
        with Fleet(self.url).blocking as fleet:
            runs = fleet.runs(schedule="tick", limit=10_000)
        created = Counter(run.nominal_at for run in runs)
        written = {run.nominal_at.timestamp(): run.created_at.timestamp() for run in runs if run.nominal_at is not None}
        for tick in named:
            if tick in starts and (late := min(starts[tick]) - tick) > 0.05:
                self.report.late.append(f"{tick:.0f}: started {late:+.2f} s, written {written[tick] - tick:+.2f} s")
        self.report.twice = [tick for tick in named if len(starts.get(tick, [])) > 1]
        self.report.twice += [at.timestamp() for at, n in created.items() if n > 1 and at is not None]

    async def _end_in_order(self) -> None:
        """Nobody has died of any of it, and everybody drains (case C26)."""
        for member in self.members:
            assert member.process.alive(), f"{member.process.name} has ended: {member.process.log.read_text()[-2000:]}"
            code = await asyncio.to_thread(member.process.stop)
            assert code == 0, f"{member.process.name} ended with {code}"

    def _written_ahead(self) -> bool:
        """The first ticks may be late, and then they are judged and written one by one: no fault before that is over."""
        with Fleet(self.url).blocking as fleet:
            newest = [
                run.nominal_at.timestamp() for run in fleet.runs(schedule="tick", limit=1) if run.nominal_at is not None
            ]
        return len(self._starts()) > 1 and max(newest, default=0.0) > time.time() + 20

    async def _ready(self, member: Member) -> None:
        """A node that cannot open its database at the start says so and ends: no fault before it has."""
        await self._until(
            lambda: "is ready" in member.process.log.read_text(), 30, f"{member.process.name} being ready"
        )

    async def _until(self, condition: Callable[[], object], within: float, what: str) -> None:
        give_up_at = time.monotonic() + within
        while not condition():
            assert time.monotonic() < give_up_at, f"{what}: not within {within:g} s"
            await asyncio.sleep(0.05)
