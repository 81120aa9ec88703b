"""What a node says of its elector and its leaderships: in memory, in the database, in `leader list` and `doctor`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.cli import checks
from fleetcron.model import ElectorState, Node
from fleetcron.scheduler.scheduler import LATE_SCANS, SCAN
from tests.acceptance.cli.program import Program
from tests.conformance.kit import job, put, schedule
from tests.election.conftest import NewServer
from tests.election.support import TTL, Member, members, until
from tests.support.processes import NodeProcess, started, wait_until

NOW = datetime(2026, 3, 29, tzinfo=UTC)


@pytest.mark.crash
@pytest.mark.parametrize("elector", ["etcd", "zk", "redis"])
def test_an_elector_that_is_away_at_the_start(pg_url: str, elector: str, new_server: NewServer, tmp_path: Path) -> None:
    """The node starts, is a follower that says so everywhere, tries again in bounded pauses, and leads once it is there."""
    server = new_server(elector)
    server.stop()
    kind = "zookeeper" if elector == "zk" else elector
    place = f"{kind} at 127.0.0.1:{server.port}"
    program = Program(pg_url, tmp_path)
    program.run("job", "add", "j", "--shell", "true", "--every", "1h", "--misfire", "skip")
    words = ["--role", "scheduler", "--elector", server.url, "--election-ttl", f"{TTL}s"]
    node = NodeProcess(pg_url, "tests.crash.app:fleet", tmp_path, *words)
    with started(node), Fleet(pg_url).blocking as fleet:

        def state() -> ElectorState | None:
            return next((node.elector for node in fleet.nodes()), None)

        wait_until(
            lambda: (now := state()) is not None and "not reached yet" not in (now.error or ""), what="a word of it"
        )
        away = state()
        assert away is not None and (away.kind, away.where, away.reached) == (kind, f"127.0.0.1:{server.port}", False)
        assert away.error and away.retry_in is not None and away.retry_in <= timedelta(seconds=TTL / 2)
        assert fleet.leaders()[0].node is None
        assert f"{place} is not reached, so this node is a follower" in node.log.read_text()
        checked = {check["name"]: check for check in program.json("doctor", code=1)["checks"]}
        assert checked["elector"]["verdict"] == "broken" and place in checked["elector"]["text"]
        shown = program.run("leader", "list").stdout
        headings = [" ".join(shown.splitlines()[line].split()) for line in (0, 3)]
        assert headings[0] == "shard node host pid term since ticks until ahead"
        assert headings[1] == "scheduler host pid elector at reached since error tries every"
        assert [word in shown.splitlines()[4].split() for word in (kind, "no", str(node.pid))] == [True] * 3
        server.start()
        wait_until(lambda: fleet.leaders()[0].pid == node.pid, what="leading")
        wait_until(lambda: (now := state()) is not None and now.reached, what="its state")
        there = state()
        assert there is not None and there.error is None and there.retry_in is None and there.since > away.since
        assert place in {check["name"]: check for check in program.json("doctor")["checks"]}["elector"]["text"]
        assert program.json("node", "list")[0]["elector"]["reached"] is True
        assert node.stop() == 0
    assert program.json("node", "list") == []


async def test_a_follower_without_its_elector_is_not_ready(pg_url: str, new_server: NewServer) -> None:
    server = new_server("redis")
    member = Member(pg_url, server.url)
    async with members(member):
        await until(member.leads)
        ready = member.scheduler.status()
        assert (ready.ready, ready.why, ready.leading) == (True, None, {0: 1})
        await asyncio.to_thread(server.stop)
        await until(lambda: not member.scheduler.status().ready)
        lost = member.scheduler.status()
        assert lost.why is not None and "is not reached, so this node is a follower" in lost.why
        assert lost.leading == {} and not lost.elector.reached
        await asyncio.to_thread(server.start)
        await until(lambda: member.scheduler.status().ready)


async def test_a_node_without_its_database_is_not_ready(pg_url: str) -> None:
    member = Member(pg_url)
    async with members(member):
        await until(lambda: member.scheduler.status().ready)
        member.proxy.refuse()
        await until(lambda: not member.scheduler.status().ready)
        assert member.scheduler.status().why == "the database does not answer"
        await member.proxy.heal()
        await until(lambda: member.scheduler.status().ready)


async def test_C29_a_leader_that_does_not_scan_is_not_ready(pg_url: str) -> None:
    """It renews its term, but what it asks for its ticks hangs: after three intervals its health says so, by shard."""
    member = Member(pg_url, shards=2)
    async with members(member):
        await member.store.put_jobs([job()])
        await put(member.store, schedule())
        await until(lambda: member.scheduler.leading() == [0, 1] and member.scheduler.status().ready)
        blocker = await asyncpg.connect(pg_url)
        try:
            async with blocker.transaction():
                await blocker.execute("LOCK TABLE fleetcron.schedule IN ACCESS EXCLUSIVE MODE")
                await asyncio.sleep(SCAN)
                assert member.scheduler.status().ready, "one look may be slow"
                await until(lambda: not member.scheduler.status().ready, within=LATE_SCANS * SCAN + 5)
                late = member.scheduler.status()
                assert set(late.leading) == {0, 1}, "it leads all the same"
                assert late.why == "it leads shards 0, 1, and has not looked for ticks to write for 3 s"
        finally:
            await blocker.close()
        await until(lambda: member.scheduler.status().ready, within=10)


def node(state: ElectorState | None, pid: int = 1) -> Node:
    return Node(
        node=f"n{pid}", host="h", pid=pid, worker_pids=[], roles=["scheduler"], queues=None, slots=0, running=0, version="1",
        tzdata="", started_at=NOW, heartbeat_at=NOW, elector=state,
    )  # fmt: skip


def test_the_doctor_s_judgement_of_electors() -> None:
    there = ElectorState(kind="etcd", where="a:1,b:1", reached=True, since=NOW)
    same = ElectorState(kind="etcd", where="b:1,a:1", reached=True, since=NOW)
    away = ElectorState(
        kind="etcd", where="a:1,b:1", reached=False, since=NOW, error="refused", retry_in=timedelta(seconds=2.5)
    )
    database = ElectorState(kind="database", where=None, reached=True, since=NOW)

    def judged(*states: ElectorState | None, active: bool = True) -> checks.Check | None:
        return checks.electors([node(state, pid) for pid, state in enumerate(states)], active_schedules=active)

    assert judged() is None and judged(None) is None, "no scheduler: that is told elsewhere"
    assert judged(database, None) == checks.Check(name="elector", verdict="ok", text="the database elects")
    assert judged(there, same) == checks.Check(
        name="elector", verdict="ok", text="etcd at a:1,b:1 is reached by 2 schedulers"
    )
    one = judged(there, away)
    assert one is not None and one.verdict == "warning"
    assert one.text == (
        "h:1 since 2026-03-29T00:00:00Z: etcd at a:1,b:1 is not reached, so this node is a follower: refused; "
        "trying again every 2.5s or so"
    )
    for active, verdict in ((True, "broken"), (False, "warning")):
        found = judged(away, away, active=active)
        assert found is not None and found.verdict == verdict
    mixed = judged(there, database)
    assert mixed is not None and mixed.verdict == "warning" and mixed.text.startswith("not the same for all")
