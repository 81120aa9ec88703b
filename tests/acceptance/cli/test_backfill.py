"""Backfills from the command line, with a node that does them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta

from tests.acceptance.cli.program import Program, until
from tests.acceptance.cli.test_terminal import on_terminal

HOUR = timedelta(hours=1)
SHELL = ("job", "add", "hello", "--every", "1h", "--misfire", "skip", "--shell")


def a_range(hours: int) -> tuple[str, ...]:
    """So many full hours, all past."""
    end = datetime.now(UTC).replace(minute=30, second=0, microsecond=0) - HOUR
    return "--from", (end - hours * HOUR).isoformat(), "--to", end.isoformat()


def test_a_backfill_from_dry_run_to_done(program: Program) -> None:
    program.run(*SHELL, "exit 0")
    tried = program.json("backfill", "hello", *a_range(6), "--dry-run")
    assert (tried["id"], tried["state"], tried["total"], tried["created"], tried["existing"]) == (0, "dry run", 6, 6, 0)
    assert (
        "would create 6 runs for 6 ticks; 0 need none"
        in program.run("backfill", "hello", *a_range(6), "--dry-run").stdout
    )
    assert program.json("backfills") == []
    with program.node():
        words = ("backfill", "hello", *a_range(6), "--max-running", "3", "--wait", "--json")
        done = json.loads(program.run(*words).stdout)
        assert (done["state"], done["created"], done["done"], done["failed"], done["max_running"]) == (
            "done",
            6,
            6,
            0,
            3,
        )
        again = program.run("backfill", "hello", *a_range(7), "--wait")
        assert "is done: 7 of 7 ticks are dealt with (1 done, 0 failed, 6 needed no run), 0 open" in again.stdout
    assert [b["created"] for b in program.json("backfills", "hello")] == [1, 6]
    listed = program.run("backfills").stdout.splitlines()
    assert listed[0].split()[:2] == ["backfill", "schedule"] and len(listed) == 3


def test_failures_are_the_exit_code(program: Program) -> None:
    program.run(*SHELL, "exit 3", "--max-attempts", "1")
    with program.node():
        done = json.loads(program.run("backfill", "hello", *a_range(2), "--wait", "--json", code=1).stdout)
        assert (done["state"], done["done"], done["failed"]) == ("done", 0, 2)


def test_pause_resume_cancel(program: Program) -> None:
    program.run(*SHELL, "exit 0")
    begun = program.json("backfill", "hello", *a_range(5))
    assert (begun["state"], begun["created"]) == ("running", 0), "without --wait it returns at once"
    number = str(begun["id"])
    assert program.json("backfill-pause", number)["state"] == "paused"
    assert program.json("backfill-resume", number)["state"] == "running"
    assert "is cancelled: 0 of 5 ticks are dealt with" in program.run("backfill-cancel", number).stdout
    assert "is cancelled; it cannot be running any more" in program.run("backfill-resume", number, code=2).stderr
    assert "there is no backfill 99" in program.run("backfill-cancel", "99", code=1).stderr


def test_days_are_those_of_the_schedule(program: Program) -> None:
    cron = ("--cron", "0 0 * * *", "--tz", "America/New_York", "--misfire", "skip")
    program.run("job", "add", "daily", *cron, "--shell", "true")
    tried = program.json("backfill", "daily", "--from", "2026-03-07", "--to", "2026-03-11", "--dry-run")
    assert (tried["start"], tried["end"], tried["total"]) == ("2026-03-07T05:00:00Z", "2026-03-11T04:00:00Z", 4)
    program.run(*SHELL, "true")
    tried = program.json("backfill", "hello", "--from", "2026-03-07", "--to", "2026-03-08T01:00:00Z", "--dry-run")
    assert (tried["start"], tried["total"]) == ("2026-03-07T00:00:00Z", 25)
    wrong = program.run("backfill", "hello", "--from", "2026-03-32", "--to", "1h", code=2).stderr
    assert "'2026-03-32' is not a time" in wrong


def test_an_interrupt_ends_the_watching_only(program: Program) -> None:
    program.run(*SHELL, "exit 0")
    watching = subprocess.Popen(
        [sys.executable, "-m", "fleetcron", "backfill", "hello", *a_range(5), "--wait"],
        cwd=program.folder, env=program.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watching.stderr is not None
        assert "no scheduler is running" in watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=20)
        assert watching.returncode == 1
        assert "backfill 1 goes on" in said
    finally:
        watching.kill()
        watching.wait()
    assert [b["state"] for b in program.json("backfills")] == ["running"]


def test_a_bar_on_a_terminal(program: Program) -> None:
    program.run(*SHELL, "sleep 0.3")
    with program.node():
        until(lambda: [x for x in program.json("leader", "list") if x["node"]], "it leads")
        shown = on_terminal(program, "backfill", "hello", *a_range(4))
    assert "━" in shown
    assert "/4" in shown
    assert "is done: 4 of 4 ticks are dealt with" in shown
