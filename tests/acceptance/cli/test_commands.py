"""Looking and steering, on both stores: what the commands print, and their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from tests.acceptance.cli.program import Program, until

RUN_FIELDS = {
    "id", "job", "schedule", "tenant", "queue", "priority", "nominal_at", "due_at", "state", "attempt", "attempts",
    "payload", "result", "error", "reason", "key", "idempotency_key", "created_at", "started_at", "finished_at",
    "worker", "generation",
}  # fmt: skip
HUGE = 1234567890123456789012345678901234567890


def test_runs_from_submit_to_the_dead_letters(program: Program) -> None:
    program.with_app()
    with program.node("--heartbeat", "1s"):
        words = ("--json-payload", f'{{"n": {HUGE}}}', "--wait", "--timeout", "20s", "--json")
        done = json.loads(program.run("submit", "app.echo", *words).stdout)
        assert set(done) == RUN_FIELDS | {"created"}
        assert (done["state"], done["result"], done["payload"]) == ("succeeded", HUGE, {"n": HUGE})
        assert str(HUGE) in program.run("show", str(done["id"])).stdout
        for name in ("created_at", "due_at", "finished_at"):
            assert done[name].endswith("Z")
            datetime.fromisoformat(done[name])

        later = program.json(
            "submit", "app.echo", "--json-payload", "-", "--delay", "1h", "--key", "k", stdin='{"n": 1}'
        )
        again = program.json("submit", "app.echo", "--json-payload", '{"n": 2}', "--key", "k")
        assert (later["state"], later["created"]) == ("scheduled", True)
        assert (again["id"], again["created"], again["payload"]) == (later["id"], False, {"n": 1})
        assert program.json("cancel", str(later["id"])) == {"id": later["id"], "answer": "cancelled"}
        assert program.json("cancel", str(later["id"]), code=1)["answer"] == "too late"
        assert "cancelled" in program.run("wait", str(later["id"]), code=1).stdout

        slow = program.json("submit", "app.step")
        until(lambda: program.json("show", str(slow["id"]))["progress"], "the handler has told its progress")
        shown = program.json("show", str(slow["id"]))
        assert set(shown) == RUN_FIELDS | {"progress"}
        assert shown["progress"] == {"done": 3, "total": 10, "note": "three of ten"}
        assert [a["state"] for a in shown["attempts"]] == ["running"]
        assert "3 of 10: three of ten" in program.run("show", str(slow["id"])).stdout
        assert "has not ended within 0.1s" in program.run("wait", str(slow["id"]), "--timeout", "100ms", code=1).stderr
        assert program.json("cancel", str(slow["id"]))["answer"] == "asked"
        assert program.json("wait", str(slow["id"]), "--timeout", "20s", code=1)["state"] == "cancelled"

        failed = program.json("submit", "app.boom", "--wait", code=1)
        assert (failed["state"], failed["attempt"]) == ("failed", 2)
        attempts = program.json("dead", "show", str(failed["id"]))["attempts"]
        assert [(a["number"], a["state"]) for a in attempts] == [(1, "failed"), (2, "failed")]
        assert "RuntimeError: went" in attempts[0]["traceback"]
        # A job's text does not act on an operator's terminal.
        for words in (("show", str(failed["id"])), ("dead", "list")):
            shown = program.run(*words).stdout
            assert "\x1b" not in shown
            assert "went \\x1b[31mwrong" in shown

        [dead] = program.json("dead", "list")
        assert set(dead) == {"run_id", "job", "schedule", "tenant", "attempts", "error", "died_at"}
        assert program.json("dead", "replay", str(failed["id"])) == {"replayed": 1, "skipped": 0, "reasons": {}}
        assert program.json("dead", "replay", str(done["id"]), code=1)["skipped"] == 1
        until(lambda: program.json("dead", "list"), "it has died again")
        assert "not a dead letter" in program.run("dead", "show", str(done["id"]), code=1).stderr
        assert program.json("dead", "purge", "--job", "app.boom") == {"purged": 1}
        assert program.json("dead", "purge", str(failed["id"]), code=1) == {"purged": 0}
        assert program.json("dead", "list") == []

    listed = program.json("runs", "--job", "app.echo")
    assert [run["id"] for run in listed] == [later["id"], done["id"]]
    assert set(listed[0]) == RUN_FIELDS
    assert [run["id"] for run in program.json("runs", "--job", "app.echo", "--limit", "1")] == [later["id"]]
    assert [run["id"] for run in program.json("runs", "--job", "app.echo", "--after", str(later["id"]))] == [done["id"]]
    assert program.json("runs", "--since", "1h", "--until", "50m") == []
    assert f"--after {failed['id']}" in program.run("runs", "--limit", "1").stderr
    assert "expected one of scheduled" in program.run("runs", "--state", "lost", code=2).stderr
    assert "there is no run 999" in program.run("show", "999", code=1).stderr
    assert "no job is named 'nope'" in program.run("submit", "nope", code=1).stderr
    wrong = program.run("submit", "app.echo", "--json-payload", '{"n": "x"}', code=2).stderr
    assert "$.n" in wrong
    assert "Traceback" not in wrong


def test_jobs_and_schedules_without_an_app(program: Program) -> None:
    add = ("job", "add", "tidy", "--shell", "echo tidy", "--timeout", "90s", "--max-attempts", "3", "--backoff", "1m")
    when = ("--cron", "0 3 * * *", "--tz", "Asia/Kolkata", "--tenant", "acme", "--priority", "2", "--overlap", "skip")
    refused = program.run(*add, *when, code=2).stderr
    assert 'misfire="fire_all"' in refused
    assert 'misfire="skip"' in refused
    assert program.json("jobs") == []  # nothing half done

    added = program.json(*add, *when, "--misfire", "skip")
    assert added["job"]["target"] == {"type": "shell", "command": "echo tidy"}
    assert (added["job"]["timeout"], added["job"]["backoff"], added["job"]["max_attempts"]) == (90, 60, 3)
    schedule = added["schedule"]
    assert schedule["trigger"] == {"type": "cron", "expr": "0 3 * * *", "tz": "Asia/Kolkata"}
    assert (schedule["misfire"], schedule["overlap"], schedule["tenant"]) == ("skip", "skip", "acme")
    assert (schedule["priority"], schedule["payload"], schedule["paused"]) == (2, {}, False)
    assert "unchanged" in program.run(*add, *when, "--misfire", "skip").stdout
    assert [job["name"] for job in program.json("jobs")] == ["tidy"]
    assert "0 3 * * * (Asia/Kolkata)" in program.run("schedules").stdout

    assert program.json("pause", "tidy") == {"paused": ["tidy"]}
    assert program.json("schedules")[0]["paused"] is True
    assert program.json("resume", "tidy") == {"resumed": ["tidy"]}
    edited = program.json("edit", "tidy", "--every", "2h", "--misfire-grace", "5m")
    assert edited["trigger"] == {"type": "every", "seconds": 7200, "anchor": "1970-01-01T00:00:00Z"}
    assert (edited["misfire_grace"], edited["misfire"], edited["tenant"]) == (300, "skip", "acme")
    assert "--tz is the zone of --cron" in program.run("edit", "tidy", "--tz", "UTC", code=2).stderr

    run = program.json("trigger", "tidy")
    assert (run["state"], run["tenant"], run["priority"]) == ("ready", "acme", 2)
    assert "still needed" in program.run("job", "rm", "tidy", code=1).stderr
    program.run("cancel", str(run["id"]))
    assert program.json("rm", "tidy") == {"removed": ["tidy"]}
    assert program.json("schedules") == []
    assert program.json("job", "rm", "tidy") == {"removed": ["tidy"]}
    assert program.json("jobs") == []
    for words in (("pause", "tidy"), ("rm", "tidy"), ("misses", "tidy"), ("job", "rm", "tidy"), ("edit", "tidy")):
        assert "no " in program.run(*words, code=1).stderr

    once = datetime.now(UTC) + timedelta(days=1)
    program.run("job", "add", "later", "--shell", "true", "--at", once.isoformat())
    assert program.json("schedules")[0]["next_at"] == once.isoformat().replace("+00:00", "Z")
    assert (
        "--misfire belongs to a schedule"
        in program.run("job", "add", "x", "--shell", "true", "--misfire", "skip", code=2).stderr
    )
    assert program.json("job", "rm", "later", "--schedules") == {"removed": ["later"]}


def test_an_edit_takes_options_back(program: Program) -> None:
    """ "none" for a value, "" for a name; what is not named stays."""
    since, until = "2030-01-01T00:00:00Z", "2031-01-01T00:00:00Z"
    values = {"jitter": "10m", "start": since, "end": until, "start-deadline": "1h", "priority": "2"}
    names = {"queue": "night", "tenant": "acme"}
    given = [word for name, value in (values | names).items() for word in (f"--{name}", value)]
    program.json("job", "add", "tidy", "--shell", "true", "--every", "1h", "--misfire", "skip", *given)
    before = program.json("edit", "tidy", "--overlap", "skip")
    assert (before["jitter"], before["start"], before["end"], before["start_deadline"]) == (600, since, until, 3600)
    assert (before["priority"], before["queue"], before["tenant"], before["overlap"]) == (2, "night", "acme", "skip")
    for name in values:
        program.json("edit", "tidy", f"--{name}", "none")
    for name in names:
        program.json("edit", "tidy", f"--{name}", "")
    after = program.json("schedules")[0]
    assert (after["jitter"], after["start"], after["end"], after["start_deadline"], after["tenant"]) == (
        0, None, None, None, "",
    )  # fmt: skip
    assert (after["priority"], after["queue"]) == (2, "night"), "the job's own, as job add has set them"
    assert (after["overlap"], after["trigger"]["seconds"]) == ("skip", 3600)
    for words in (("--every", "none"), ("--misfire-grace", "none"), ("--jitter", "nothing")):
        assert "not a duration" in program.run("edit", "tidy", *words, code=2).stderr
    assert "not a duration" in program.run("job", "add", "x", "--shell", "true", "--jitter", "none", code=2).stderr


def test_operators_do_not_disturb_what_an_app_declares(program: Program) -> None:
    """Looking with an app at hand registers nothing; an app that starts again leaves a paused schedule paused."""
    program.with_app()
    with (program.folder / "app.py").open("a") as app:
        app.write('\n@fleet.job("tick", every="1s", misfire="skip")\ndef tick(): ...\n')
    assert program.run("jobs", "--json").stdout == "[]\n"
    with program.node() as node:
        until(lambda: program.json("runs", "--schedule", "tick", "--state", "succeeded", "--limit", "1"), "it ticks")
        program.run("pause", "tick")
        assert program.json("schedules")[0]["paused"] is True
        program.run("submit", "app.echo", "--json-payload", '{"n": 1}')  # which opens the app
        assert node.stop() == 0
    before = {run["id"] for run in program.json("runs", "--schedule", "tick")}
    with program.node() as node:
        until(lambda: [x for x in program.json("leader", "list") if x["pid"] == node.pid], "the new node leads")
        assert program.json("schedules")[0]["paused"] is True
        assert {run["id"] for run in program.json("runs", "--schedule", "tick")} == before
        program.run("resume", "tick")
        succeeded = ("runs", "--schedule", "tick", "--state", "succeeded")
        until(lambda: {run["id"] for run in program.json(*succeeded)} - before, "it ticks again")


def test_ticks_that_did_not_run_are_listed(program: Program) -> None:
    """Ticks written ahead by a scheduler that has no workers: late ones become misses."""
    program.run("job", "add", "late", "--shell", "true", "--every", "1s", "--misfire", "skip", "--misfire-grace", "1s")
    with program.node("--role", "scheduler", "--lease", "1500ms"):
        misses = until(lambda: program.json("misses", "late"), "a tick was missed", seconds=30)
    assert set(misses[0]) == {"schedule", "first", "last", "count", "reason", "policy", "decided_at"}
    assert (misses[0]["schedule"], misses[0]["policy"]) == ("late", "skip")
    assert "late" in program.run("misses").stdout


def test_migrate_says_what_it_did(program: Program) -> None:
    pending = program.json("migrate", "--check", code=1)["pending"]
    assert pending
    assert program.json("migrate") == {"applied": pending}
    assert program.json("migrate") == {"applied": []}
    assert program.json("migrate", "--check") == {"pending": []}
    assert "up to date" in program.run("migrate").stdout
