"""The cases of the class lease (reliability.md), by id, with real nodes on real time: C51, C52, C54, C55, C57, C58. C60 and C61 are in
test_lease_faults, C63 and C64 in tests/conformance/test_rescue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Context, Fleet
from fleetcron.node import Node, NodeOptions
from tests.conformance.kit import look
from tests.reliability.lease_app import APP, noted
from tests.support.processes import NodeProcess, started, wait_until

LEASE = 3.0
SETTINGS = ("--lease", "3s", "--heartbeat", "0.5s")


@contextlib.asynccontextmanager
async def nodes(*fleets: Fleet) -> AsyncIterator[None]:
    """A node of each fleet, with all roles, on this loop."""
    crew = [Node(fleet, NodeOptions(slots=100)) for fleet in fleets]
    ready = [asyncio.Event() for _ in crew]
    tasks = [asyncio.create_task(node.run(event.set)) for node, event in zip(crew, ready, strict=True)]
    try:
        for event in ready:
            await asyncio.wait_for(event.wait(), 20)
        yield
    finally:
        for node in crew:
            node.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), 40)


class Nodes:
    """Real processes of one app on one store, all of them killed at the end."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.log = url, folder, folder / "lease.log"
        self._number = itertools.count(1)
        self._stack = contextlib.ExitStack()

    def start(self, *args: str) -> NodeProcess:
        """Another one, and wait until it says that it is there."""
        with Fleet(self.url).blocking as fleet:
            node = NodeProcess(
                self.url, APP, self.folder, *SETTINGS, *args, env={"LEASE_LOG": str(self.log)}, name=f"n{next(self._number)}"
            )  # fmt: skip
            self._stack.enter_context(started(node))
            wait_until(lambda: node.pid in {known.pid for known in fleet.nodes()}, what="a node")
        return node

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def crew(store_url: str, tmp_path: Path) -> Iterator[Nodes]:
    crew = Nodes(store_url, tmp_path)
    yield crew
    crew.close()


async def test_C51_a_run_may_take_longer_than_its_lease(store_url: str) -> None:
    """The lease lives by heartbeats. Two workers; one run takes two and a half leases, another one is due after two."""
    fleet = Fleet(store_url, lease=LEASE, heartbeat="0.5s")
    starts: list[tuple[str, datetime]] = []

    @fleet.job("long")
    async def long() -> None:
        starts.append(("long", datetime.now(UTC)))
        await asyncio.sleep(2.5 * LEASE)

    @fleet.job("later")
    async def later() -> None:
        starts.append(("later", datetime.now(UTC)))

    async with fleet, nodes(fleet.twin(), fleet.twin()):
        runs = [await fleet.submit(long), await fleet.submit(later, delay=2 * LEASE)]
        for run in runs:
            await run.wait("30s")
            assert (run.state, [(a.number, a.state) for a in run.attempts]) == ("succeeded", [(1, "succeeded")])
        assert [what for what, _ in starts] == ["long", "later"]
        assert runs[1].started_at is not None and runs[1].started_at >= runs[1].due_at
        assert starts[1][1] >= runs[1].due_at - timedelta(milliseconds=5), "the clocks of one host"


async def test_C52_beats_are_written_in_time_also_when_there_is_nothing_else_to_write(store_url: str) -> None:
    """A hundred runs that outlast the lease, on one of two workers or both, and handlers that block their event loop now and then."""
    fleet = Fleet(store_url, lease=LEASE)  # beats are LEASE / 3 apart
    starts: list[int] = []

    @fleet.job("long")
    async def long(ctx: Context, n: int) -> None:
        starts.append(n)
        await asyncio.sleep(LEASE / 2)
        time.sleep(0.01)  # a hundred of them block the loop for as long as a beat is due in
        await asyncio.sleep(LEASE)

    async with fleet, nodes(fleet.twin(), fleet.twin()):
        ids = (await fleet.submit_many(long, [{"n": n} for n in range(100)])).ids
        beats: dict[int, set[float]] = {}
        ages = []
        async with asyncio.timeout(30):
            while sum(count.running + count.ready for count in (await fleet.counts()).values()):
                now = (await fleet.store.now()).timestamp()
                for worker, at in await look(fleet.store, "SELECT id, heartbeat_at FROM worker"):
                    beat = at.timestamp() if isinstance(at, datetime) else at / 1e6
                    beats.setdefault(worker, set()).add(beat)
                    ages.append(now - beat)
                await asyncio.sleep(0.02)
        assert max(ages) < LEASE, "no session has come to its end"
        for written in beats.values():
            gaps = [b - a for a, b in itertools.pairwise(sorted(written))]
            assert len(gaps) >= 2 and sorted(gaps)[len(gaps) // 2] <= LEASE / 3 * 1.75, gaps
        assert sorted(starts) == list(range(100)), "none was claimed a second time"
        for run_id in ids:
            run = await fleet.run(run_id)
            assert (run.state, len(run.attempts)) == ("succeeded", 1)


def test_C54_a_draining_worker_keeps_its_leases(crew: Nodes) -> None:
    """SIGTERM in the middle of a run that goes on for two leases: it ends where it began, a cancel still gets through, and what is
    submitted meanwhile is for others."""
    old = crew.start("--drain", "30s", "--role", "worker")
    with Fleet(crew.url).blocking as fleet:
        long = fleet.submit("work", {"n": 1, "first": 2.2 * LEASE})
        endless = fleet.submit("work", {"n": 2, "first": 600.0})
        wait_until(lambda: len(noted(crew.log, "start")) == 2, what="two starts")
        new = crew.start()
        os.kill(old.pid, signal.SIGTERM)
        time.sleep(0.3)
        after = [fleet.submit("work", {"n": n}) for n in range(10, 15)]
        for run in after:
            assert run.wait("20s").state == "succeeded"
        time.sleep(LEASE)  # past the lease that it had when it was told to stop
        assert endless.cancel() == "asked"
        assert endless.wait("20s").state == "cancelled"
        assert old.alive(), "one run is still at it"
        assert long.wait("20s").state == "succeeded"
        wait_until(lambda: not old.alive(), what="the end of the drain")
        starts = noted(crew.log, "start")
        assert [(s.n, s.pid) for s in starts[:2]] == [(1, old.pid), (2, old.pid)]
        assert sorted((s.n, s.pid) for s in starts[2:]) == [(n, new.pid) for n in range(10, 15)]
        assert [len(run.refresh().attempts) for run in (long, endless)] == [1, 1]


def test_C55_what_a_killed_worker_held_counts_against_no_limit(crew: Nodes) -> None:
    """A job, a tenant and a concurrency key, each with room for one, and each with one more that waits."""
    held = {"first": 600.0}
    with Fleet(crew.url).blocking as fleet:
        victim = crew.start("--role", "worker")
        fleet.set_tenant("narrow", max_running=1)
        runs = [
            fleet.submit("single", {"n": 1, **held}),
            fleet.submit("work", {"n": 2, **held}, tenant="narrow"),
            fleet.submit("work", {"n": 3, **held}, concurrency_key="only one"),
        ]
        wait_until(lambda: len(noted(crew.log, "start")) == 3, what="three starts")
        waiting = [
            fleet.submit("single", {"n": 4}),
            fleet.submit("work", {"n": 5}, tenant="narrow"),
            fleet.submit("work", {"n": 6}, concurrency_key="only one"),
        ]
        time.sleep(0.3)
        assert len(noted(crew.log, "start")) == 3
        victim.kill()
        killed = time.time()
        crew.start()
        for run in [*runs, *waiting]:
            assert run.wait("30s").state == "succeeded"
        again = [s for s in noted(crew.log, "start") if s.attempt == 2]
        assert sorted(s.n for s in again) == [1, 2, 3]
        assert [[a.state for a in run.refresh().attempts] for run in runs] == [["lost", "succeeded"]] * 3
        assert [len(run.refresh().attempts) for run in waiting] == [1] * 3
        # A lease, the watch that a rescuer keeps first (it may have begun with the new node), the wait after a death, and some slack.
        assert max(s.at for s in again) - killed < 2 * LEASE + 0.5 + 5


@contextlib.asynccontextmanager
async def rescues_held_up(url: str, run_id: int) -> AsyncIterator[None]:
    """Somebody keeps the lock that a rescue of this run needs."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.close()
        return
    holder = await asyncpg.connect(url)
    try:
        async with holder.transaction():
            await holder.execute("SELECT 1 FROM fleetcron.run WHERE id = $1 FOR UPDATE", run_id)
            yield
    finally:
        await holder.close()


async def rescue_under_way(url: str) -> None:
    """Until one waits for the lock. SQLite does not tell; there a dead process is seen at the next look, a quarter of a second later."""
    if url.startswith("sqlite"):
        await asyncio.sleep(1.0)
        return
    connection = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(20):
            while not await connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock' AND query LIKE '%DELETE FROM fleetcron.worker w%'"
            ):
                await asyncio.sleep(0.02)
    finally:
        await connection.close()


async def test_C57_a_rescuer_that_dies_in_the_middle_is_replaced(crew: Nodes) -> None:
    """Rescuing is no job and holds no lock of its own: whoever comes next does it, once."""
    async with Fleet(crew.url) as fleet:
        victim, rescuer = await asyncio.gather(
            asyncio.to_thread(crew.start, "--role", "worker"), asyncio.to_thread(crew.start, "--role", "scheduler")
        )
        run = await fleet.submit("work", {"n": 1, "first": 600.0})
        await asyncio.to_thread(wait_until, lambda: noted(crew.log, "start"), what="the start")
        # It rescues once it has watched the database for a lease time.
        await asyncio.gather(asyncio.to_thread(crew.start), asyncio.sleep(LEASE))
        async with rescues_held_up(crew.url, run.id):
            victim.kill()
            await rescue_under_way(crew.url)
            rescuer.kill()
        assert [a.state for a in (await run.refresh()).attempts] == ["running"], "nothing of it was written"
        await run.wait("30s")
        assert (run.state, run.result) == ("succeeded", "attempt 2")
        assert [(a.number, a.state) for a in run.attempts] == [(1, "lost"), (2, "succeeded")]
        assert [s.attempt for s in noted(crew.log, "start")] == [1, 2]


def test_C58_a_thawed_worker_learns_that_its_run_is_somebody_elses(crew: Nodes) -> None:
    """Its handler is stopped, and what it returns all the same is refused."""
    frozen = crew.start("--role", "worker")
    with Fleet(crew.url).blocking as fleet:
        run = fleet.submit("work", {"n": 1, "first": 600.0, "stubborn": True})
        wait_until(lambda: noted(crew.log, "start"), what="the start")
        other = crew.start()
        frozen.freeze()
        at = time.time()
        assert run.wait("30s").state == "succeeded"
        wait_until(lambda: time.time() > at + 2 * LEASE, what="two leases")
        assert noted(crew.log, "stopped") == []
        frozen.thaw()
        wait_until(lambda: noted(crew.log, "stopped"), within=10, what="the old attempt's end")
        assert [(s.pid, s.attempt) for s in noted(crew.log, "stopped")] == [(frozen.pid, 1)]
        assert [(s.pid, s.attempt) for s in noted(crew.log, "end")] == [(other.pid, 2)]
        assert fleet.submit("work", {"n": 2}).wait("10s").state == "succeeded"
        assert frozen.stop() == 0, "it goes on under a new session, and ends in order"
        assert (run.refresh().result, [a.state for a in run.attempts]) == ("attempt 2", ["lost", "succeeded"])
        assert run.attempts[0].fence < run.attempts[1].fence
