"""Limits and pauses from the command line, on both stores."""

from __future__ import annotations

from tests.acceptance.cli.program import Program


def test_tenants(program: Program) -> None:
    first = program.json("tenant", "set", "acme", "--rate", "100/m", "--max-running", "5")
    assert first == {
        "name": "acme", "rate": "100/m", "burst": None, "max_running": 5, "weight": 1, "paused": False, "running": 0,
    }  # fmt: skip
    changed = program.json("tenant", "set", "acme", "--rate", "none", "--weight", "3", "--paused")
    assert changed == first | {"rate": None, "weight": 3, "paused": True}
    assert program.json("tenant", "set", "acme", "--no-paused") == changed | {"paused": False}
    assert program.json("tenant", "list") == [changed | {"paused": False}]
    assert "acme" in program.run("tenant", "list").stdout
    assert (
        "rate='often': expected a number of starts"
        in program.run("tenant", "set", "a", "--rate", "often", code=2).stderr
    )
    for words, said in (
        ((), "nothing to set"),
        (("--burst", "-1"), "expected a whole number"),
        (("--weight", "0"), "weight=0"),
    ):
        assert said in program.run("tenant", "set", "acme", *words, code=2).stderr


def test_a_full_queue(program: Program) -> None:
    program.json("job", "add", "mail", "--shell", "true", "--queue", "q")
    assert program.json("queue", "set", "q", "--max-depth", "1") == {
        "name": "q", "max_depth": 1, "on_full": "reject", "paused": False, "depth": 0, "refused": 0,
    }  # fmt: skip
    program.json("submit", "mail")
    assert "queue 'q' is full: 1 runs wait in it" in program.run("submit", "mail", code=1).stderr
    (found,) = program.json("queue", "list")
    assert (found["depth"], found["refused"]) == (1, 1)
    assert program.json("queue", "set", "q", "--max-depth", "none", "--on-full", "wait")["max_depth"] is None
    program.json("submit", "mail")
    assert "'drop'" in program.run("queue", "set", "q", "--on-full", "drop", code=2).stderr


def test_a_job_is_paused_by_name_or_beside_a_schedule_of_its_name(program: Program) -> None:
    def paused() -> tuple[bool, bool]:
        return program.json("jobs")[0]["paused"], (program.json("schedules") or [{"paused": False}])[0]["paused"]

    program.json("job", "add", "tidy", "--shell", "true")
    assert program.json("pause", "tidy") == {"paused": ["tidy"]}
    assert paused() == (True, False), "no schedule has this name"
    program.json("job", "add", "tidy", "--shell", "true", "--every", "1h", "--misfire", "skip")
    assert paused() == (True, False), "a declaration lifts no pause"
    program.json("pause", "tidy")
    assert paused() == (True, True)
    run = program.json("submit", "tidy")["id"]
    with program.node("--role", "worker"):
        other = program.json("job", "add", "other", "--shell", "true")["job"]["name"]
        assert program.json("submit", other, "--wait", "--timeout", "20s")["state"] == "succeeded"
        assert program.json("show", str(run))["state"] == "ready"
        assert program.json("resume", "tidy", "--job") == {"resumed": ["tidy"]}
        assert program.json("wait", str(run), "--timeout", "20s")["state"] == "succeeded"
    assert "no job is named 'nobody'" in program.run("pause", "nobody", "--job", code=1).stderr
    assert "no schedule or job is named 'nobody'" in program.run("resume", "nobody", code=1).stderr
    assert "--at is for schedules" in program.run("resume", "x", "--job", "--at", "2030-01-01T00:00:00Z", code=2).stderr
