"""`fleetcron run`: ready, working, draining, ending."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from tests.acceptance.cli.program import Program, until


def test_it_says_what_it_is_and_lists_itself(program: Program) -> None:
    with program.node("--concurrency", "7", "--queue", "a,b", "--queue", "c", "--json") as node:
        ready = json.loads(node.out)
        assert (ready["pid"], ready["slots"], ready["queues"]) == (node.pid, 7, ["a", "b", "c"])
        assert ready["roles"] == ["scheduler", "worker"]
        [listed] = program.json("node", "list")
        assert set(listed) == {
            "node", "host", "pid", "worker_pids", "roles", "queues", "slots", "running", "version", "tzdata",
            "started_at", "heartbeat_at", "elector",
        }  # fmt: skip
        assert (listed["node"], listed["pid"], listed["worker_pids"]) == (ready["node"], node.pid, [node.pid])
        assert (listed["queues"], listed["slots"], listed["running"]) == (["a", "b", "c"], 7, 0)
        leader = until(lambda: [x for x in program.json("leader", "list") if x["node"]], "it leads")[0]
        assert set(leader) == {"shard", "node", "host", "pid", "term", "since", "ticks_until"}
        assert (leader["node"], leader["pid"], leader["shard"]) == (ready["node"], node.pid, 0)
        assert node.stop() == 0
    assert program.json("node", "list") == []
    assert program.json("leader", "list")[0]["node"] is None


def test_the_ready_line_names_the_place_and_no_password(program: Program) -> None:
    with program.node("--role", "worker") as node:
        assert node.out.count("\n") == 1
        where = "fleet.db" if program.url.startswith("sqlite") else program.url.rpartition("/")[2]
        for part in (where, "roles worker", "100 slots", "all queues", "is ready"):
            assert part in node.out
        assert [(n["roles"], n["pid"]) for n in program.json("node", "list")] == [(["worker"], node.pid)]


def test_sigterm_lets_running_work_end_and_hands_back_the_rest(program: Program) -> None:
    program.with_app()
    with program.node("--concurrency", "1", "--log", "json") as node:
        slow = program.json("submit", "app.slow", "--json-payload", '{"seconds": 2}')["id"]
        until((program.folder / f"started-{node.pid}").exists, "the handler runs")
        waiting = program.json("submit", "app.echo", "--json-payload", '{"n": 1}')["id"]
        assert node.stop() == 0
        lines = [json.loads(line) for line in node.err.splitlines()]
    assert program.json("show", str(slow))["state"] == "succeeded"
    left = program.json("show", str(waiting))
    assert (left["state"], left["attempt"], left["attempts"]) == ("ready", 0, [])
    said = next(line for line in lines if "draining" in line["message"])
    assert set(said) == {"time", "level", "logger", "message"}
    assert said["level"] == "info"


def test_work_that_outlasts_the_drain_is_handed_back_without_an_attempt(program: Program) -> None:
    program.with_app()
    with program.node("--drain", "300ms") as node:
        slow = program.json("submit", "app.slow", "--json-payload", '{"seconds": 60}')["id"]
        until((program.folder / f"started-{node.pid}").exists, "the handler runs")
        began = time.monotonic()
        assert node.stop() == 0
        assert time.monotonic() - began < 10
    left = program.json("show", str(slow))
    assert (left["state"], left["attempt"]) == ("ready", 0)


@pytest.mark.crash
def test_a_second_signal_ends_at_once_with_everything_it_started(program: Program) -> None:
    program.run("job", "add", "sleeper", "--shell", "sleep 300")
    with program.node() as node:
        run = program.json("submit", "sleeper")["id"]
        until(lambda: node.has_started("sleep"), "the command runs")
        node.signal()
        until(lambda: "draining" in node.err, "it drains")
        assert program.json("show", str(run))["state"] == "running"
        node.signal(signal.SIGINT)
        assert node.end(3) == 130
        until(node.is_gone, "nothing of it is left", seconds=3)


@pytest.mark.crash
def test_a_second_signal_ends_it_though_a_handler_blocks_the_loop(program: Program) -> None:
    program.with_app()
    with program.node() as node:
        program.json("submit", "app.block", "--json-payload", '{"seconds": 60}')
        until((program.folder / "blocked").exists, "the loop is blocked")
        node.signal()
        with pytest.raises(subprocess.TimeoutExpired):
            node.end(0.5)
        node.signal()
        assert node.end(3) == 130


def test_a_database_that_is_away_at_the_start_is_an_error(offline: Program) -> None:
    done = offline.run("run", code=1)
    assert "not available" in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr


def test_a_queue_that_is_not_ours_is_left_alone(program: Program) -> None:
    program.run("job", "add", "here", "--shell", "true", "--queue", "a")
    program.run("job", "add", "there", "--shell", "true", "--queue", "b")
    with program.node("--queue", "a"):
        there = program.json("submit", "there")["id"]
        assert program.json("submit", "here", "--wait", "--timeout", "20s")["state"] == "succeeded"
        assert program.json("show", str(there))["state"] == "ready"
