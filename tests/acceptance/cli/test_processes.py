"""`fleetcron run --processes N`: one node, several worker processes, and nobody left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

import psutil
import pytest

from tests.acceptance.cli.program import Node, Program, until

pytestmark = pytest.mark.crash


def workers(node: Node) -> list[int]:
    """The worker processes that the node has now."""
    found = []
    for child in psutil.Process(node.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if "--child" in child.cmdline():
                found.append(child.pid)
    return sorted(found)


def test_one_node_with_two_workers_that_drain_together(program: Program) -> None:
    program.with_app()
    with program.node("--processes", "2", "--concurrency", "3", "--json") as node:
        ready = json.loads(node.out)
        assert (ready["processes"], ready["slots"]) == (2, 6)
        [listed] = program.json("node", "list")
        assert (listed["node"], listed["pid"], listed["slots"]) == (ready["node"], node.pid, 6)
        assert sorted(listed["worker_pids"]) == workers(node)
        leader = until(lambda: [x for x in program.json("leader", "list") if x["node"]], "it leads")[0]
        assert (leader["node"], leader["pid"]) == (ready["node"], node.pid)

        ids = [program.json("submit", "app.slow", "--json-payload", '{"seconds": 4}')["id"] for _ in range(4)]
        states = lambda: {program.json("show", str(i))["state"] for i in ids}  # noqa: E731
        until(lambda: states() == {"running"}, "all run")
        node.signal()
        time.sleep(0.3)
        for pid in workers(node):  # as a service manager does, which signals everybody
            os.kill(pid, signal.SIGTERM)
        assert node.end() == 0
        assert node.is_gone()
    assert states() == {"succeeded"}
    assert {program.json("show", str(i))["result"]["pid"] for i in ids} <= set(listed["worker_pids"])
    assert program.json("node", "list") == []


def test_a_killed_worker_is_replaced_and_its_work_is_done(program: Program) -> None:
    program.with_app()
    with program.node("--processes", "2", "--concurrency", "1", "--lease", "3s") as node:
        before = workers(node)
        run = program.json("submit", "app.slow", "--json-payload", '{"seconds": 1}')["id"]
        started = until(lambda: [p for p in before if (program.folder / f"started-{p}").exists()], "the handler runs")
        os.kill(started[0], signal.SIGKILL)
        after = until(lambda: len(now := workers(node)) == 2 and started[0] not in now and now, "it is replaced")
        assert set(before) & set(after) == set(before) - {started[0]}
        assert "SIGKILL" in node.err
        done = program.json("wait", str(run), "--timeout", "40s")
        assert done["state"] == "succeeded"
        assert [a["state"] for a in program.json("show", str(run))["attempts"]] == ["lost", "succeeded"]
        until(lambda: sorted(program.json("node", "list")[0]["worker_pids"]) == after, "the list is up to date")


@pytest.mark.parametrize("blocked", [False, True], ids=["idle", "loop blocked"])
def test_a_killed_parent_takes_everything_along(program: Program, blocked: bool) -> None:
    program.with_app()
    program.run("job", "add", "sleeper", "--shell", "sleep 300")
    with program.node("--processes", "2") as node:
        program.run("submit", "sleeper")
        until(lambda: node.has_started("sleep"), "the command runs")
        if blocked:
            program.run("submit", "app.block", "--json-payload", '{"seconds": 60}')
            until((program.folder / "blocked").exists, "a loop is blocked")
        assert len(node.descendants()) >= 4
        node.signal(signal.SIGKILL)
        until(node.is_gone, "nothing of it is left", seconds=2)


def test_a_second_signal_ends_the_workers_too(program: Program) -> None:
    program.run("job", "add", "sleeper", "--shell", "sleep 300")
    with program.node("--processes", "2") as node:
        program.run("submit", "sleeper")
        until(lambda: node.has_started("sleep"), "the command runs")
        node.signal()
        until(lambda: "draining" in node.err, "it drains")
        assert len(workers(node)) >= 1
        node.signal()
        assert node.end(3) == 130
        until(node.is_gone, "nothing of it is left", seconds=2)


def test_options_reach_the_workers(program: Program) -> None:
    words = ("--processes", "2", "--queue", "a,b", "--concurrency", "3", "--log", "json", "--max-result", "1KiB")
    with program.node("--url", program.url, *words, "--role", "worker") as node:
        for pid in workers(node):
            given = psutil.Process(pid).cmdline()
            for word in ("--queue=a,b", "--concurrency=3", "--log=json", "--max-result=1KiB", "--role=worker"):
                assert word in given
        [listed] = program.json("node", "list")
        assert (listed["roles"], listed["queues"], listed["slots"]) == (["worker"], ["a", "b"], 6)
        assert node.stop() == 0
