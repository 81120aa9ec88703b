"""Processes that are frozen at the worst moment: in a transaction that holds a row, or with runs in their hands."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.errors import StoreUnavailable
from fleetcron.store.factory import make_store
from fleetcron.store.protocol import Store
from tests.conformance.kit import info
from tests.election.support import TTL, Member, members, until
from tests.election.test_leader_cases import SOAK
from tests.support.processes import NodeProcess, started, wait_until

ROOT = Path(__file__).parents[2]
APP = "tests.crash.app:fleet"
LEASE = 3.0


@pytest.mark.crash
async def test_a_leader_frozen_in_a_transaction_holds_nobody_up(pg_url: str) -> None:
    """It holds the shard's row, on a link that is well. The server ends its transaction after a ttl, and a successor leads; thawed, it is
    told."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.election.frozen", pg_url, str(TTL)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}, stdout=subprocess.PIPE, text=True,
    ) as frozen:  # fmt: skip
        try:
            assert frozen.stdout is not None
            assert await asyncio.to_thread(frozen.stdout.readline) == "in\n"
            began = time.monotonic()
            successor = Member(pg_url)
            async with members(successor):
                await until(successor.leads, what="the successor leading")
                print(f"succeeded {time.monotonic() - began:.2f} s after the freeze")
                assert time.monotonic() - began < 2 * TTL + 5.0
                frozen.send_signal(signal.SIGCONT)
                said = [await asyncio.to_thread(frozen.stdout.readline) for _ in range(2)]
                assert said[0].startswith("refused: judge: the database is not available"), said
                assert said[1] == "renewed: False\n"
                assert successor.leads()
            assert frozen.wait(20) == 0
        finally:
            frozen.kill()


async def say_nothing(store: Store, other: Store, term: int) -> None:
    """Hold the shard's row until `other` has it."""
    async with store.tx("judge") as tx:  # type: ignore[attr-defined]
        assert await tx.led(0, term)
        assert not await other.campaign_many([0], info("b"), timedelta(seconds=1), 1)
        assert await asyncio.wait_for(other.resign(0, "a", term), 5), "it waited for the row, and got it"
        await tx.led(0, term)


@pytest.mark.parametrize("pgbouncer", [False, True])
async def test_only_our_own_transactions_are_ended(
    request: pytest.FixtureRequest, pg_url: str, pgbouncer: bool
) -> None:
    """A store's transaction that says nothing ends after its time limit, also behind PgBouncer, and what waits for its rows goes on. A
    transaction that a user handed in is the user's business."""
    url = request.getfixturevalue("pgbouncer_url") if pgbouncer else pg_url
    store, other = make_store(url, pgbouncer=pgbouncer, idle_timeout=0.5), make_store(pg_url)
    await store.open()
    await other.open()
    users = await asyncpg.connect(pg_url)
    try:
        term = await store.campaign(0, info("a"), timedelta(seconds=30))
        assert term is not None
        async with users.transaction():
            await users.execute("SELECT 1")
            with pytest.raises(StoreUnavailable):
                await say_nothing(store, other, term)
            assert await store.renew(0, "a", term, timedelta(seconds=1)) is False, "and the store goes on"
            assert await users.fetchval("SHOW idle_in_transaction_session_timeout") == "0"
            assert await users.fetchval("SELECT 1") == 1
        handler = await asyncpg.connect(pg_url, **other.db.handler_options())  # type: ignore[attr-defined]
        assert await handler.fetchval("SHOW idle_in_transaction_session_timeout") == "0"
        await handler.close()
    finally:
        await users.close()
        await store.close()
        await other.close()


@pytest.mark.crash
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "elector", ["database", *(pytest.param(other, marks=SOAK) for other in ("etcd", "zk", "redis"))]
)
async def test_C36_a_node_that_was_declared_dead_learns_it(
    pg_url: str, elector: str, shared_url: Callable[[str], str], tmp_path: Path
) -> None:
    """Node A, leader and worker, is frozen for longer than a lease in the middle of a run; B takes its shard and its run over. Thawed, A drops
    the run, says so, works on under another session, and takes nothing back a second time: B ends the run."""
    log = tmp_path / "crash.log"
    words = [
        "--elector",
        shared_url(elector),
        "--election-ttl",
        f"{TTL}s",
        "--lease",
        f"{LEASE}s",
        "--concurrency",
        "4",
    ]
    a, b = (NodeProcess(pg_url, APP, tmp_path, *words, env={"CRASH_LOG": str(log)}, name=name) for name in "ab")

    def said(word: str) -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines() if line.startswith(f"{word} ")]

    with started(a), Fleet(pg_url).blocking as fleet:
        wait_until(lambda: fleet.leaders()[0].pid == a.pid, what="A leading")
        wait_until(lambda: any(node.worker_pids for node in fleet.nodes()), what="A working")
        run = fleet.submit("slow", {"n": 1, "seconds": 12.0})
        wait_until(lambda: said("start"), what="A running it")
        sessions = await workers(pg_url)
        a.freeze()
        with started(b):
            wait_until(lambda: fleet.leaders()[0].pid == b.pid, what="B leading")
            wait_until(lambda: len(said("start")) == 2, what="B running it")
            a.thaw()
            wait_until(
                lambda: "has lost its leases: its session was taken over" in a.log.read_text(), what="A learning it"
            )
            wait_until(lambda: said("stopped"), what="A dropping the run")
            done = run.wait(timeout=30)
            assert (done.state, done.attempt) == ("succeeded", 2)
            more = [fleet.submit("slow", {"n": n, "seconds": 0.2}) for n in range(2, 30)]
            for one in more:
                assert one.wait(timeout=30).attempt == 1, "nothing is taken back from a node that lives"
            assert {start[3] for start in said("start")[2:]} == {str(a.pid), str(b.pid)}, "A works on"
            run.refresh()
            assert [attempt.state for attempt in run.attempts] == ["lost", "succeeded"]
            assert len(said("end")) == len(more) + 1, "only B ended the first run"
            assert fleet.leaders()[0].pid == b.pid
            after = await workers(pg_url)
            assert len(after) == 2 and not sessions & after, "A's session is another one"
            assert a.stop() == 0 and b.stop() == 0


async def workers(url: str) -> set[int]:
    """The sessions that live."""
    connection = await asyncpg.connect(url)
    try:
        return {row[0] for row in await connection.fetch("SELECT id FROM fleetcron.worker")}
    finally:
        await connection.close()
