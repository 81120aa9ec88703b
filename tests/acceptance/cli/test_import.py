"""`fleetcron import crontab`, from the file to the run."""

from __future__ import annotations

import getpass
from pathlib import Path

from tests.acceptance.cli.program import Program, until

CRONTABS = Path(__file__).resolve().parents[2] / "data" / "crontabs"
ALICE, WATCH = str(CRONTABS / "spool-alice"), str(CRONTABS / "log-watch")


def test_the_report_and_what_it_registers(program: Program) -> None:
    report = program.json("import", "crontab", ALICE, "--tz", "Europe/Berlin")
    assert set(report) == {
        "tz", "misfire", "max_attempts", "dry_run", "imported", "refused", "vanished", "removed",
    }  # fmt: skip
    assert (report["tz"], report["misfire"], report["refused"], report["vanished"]) == (
        "Europe/Berlin",
        "fire_once",
        [],
        [],
    )
    first = report["imported"][0]
    assert set(first) == {"file", "line", "schedule", "trigger", "notes", "change"}
    assert (first["line"], first["trigger"], first["change"]) == (8, "5 0 * * * (Europe/Berlin)", "created")
    assert len(report["imported"]) == 8

    schedules = {s["name"]: s for s in program.json("schedules")}
    jobs = {j["name"]: j for j in program.json("jobs")}
    assert set(schedules) == {entry["schedule"] for entry in report["imported"]}
    assert {s["misfire"] for s in schedules.values()} == {"fire_once"}
    assert {j["max_attempts"] for j in jobs.values()} == {1}  # cron runs a command once, also one that fails
    assert (len(schedules), len(jobs)) == (8, 7)  # one command at two times is one job
    letter = next(j for j in jobs.values() if "mail" in j["name"])["target"]
    assert letter["type"] == "shell"
    assert letter["stdin"] == "Dear Bob,\n\nwhere are the 5% that you owe us?\n"
    assert letter["env"]["GREETING"] == "  Guten Morgen"
    assert letter["shell"] == "/bin/bash"


def test_again_changes_only_what_has_changed(program: Program) -> None:
    file = program.folder / "mine"
    file.write_text("1 2 * * * backup --all\n3 4 * * * report\n5 6 * * * tidy\n")
    words = ("import", "crontab", str(file), "--tz", "UTC")

    def changes(*more: str, code: int = 0) -> dict[str, str]:
        report = program.json(*words, *more, code=code)
        return {entry["schedule"]: entry["change"] for entry in report["imported"]}

    assert set(changes().values()) == {"created"}
    assert set(changes().values()) == {"unchanged"}
    program.run("pause", "mine:tidy")
    file.write_text("# moved\n\n1 2 * * * backup --all\n30 4 * * * report\n5 6 * * * tidy\n")
    assert changes() == {"mine:backup": "unchanged", "mine:report": "edited", "mine:tidy": "unchanged"}
    assert next(s for s in program.json("schedules") if s["name"] == "mine:tidy")["paused"]  # an operator's word holds

    program.run("job", "add", "mine-own", "--shell", "true", "--every", "1h", "--misfire", "skip")
    file.write_text("1 2 * * * backup --all\n99 4 * * * report\n")
    gone = [{"file": str(file), "schedule": name} for name in ("mine:report", "mine:tidy")]
    report = program.json(*words, code=1)
    assert (report["vanished"], report["removed"]) == (gone, [])
    # A line that is refused may be the one that seems to be gone: nothing is removed on the strength of a typo.
    assert program.json(*words, "--prune", code=1)["removed"] == []
    file.write_text("1 2 * * * backup --all\n")
    assert "mine:tidy is not in the file any more" in program.run(*words).stdout
    assert program.json(*words, "--prune")["removed"] == ["mine:report", "mine:tidy"]
    assert {s["name"] for s in program.json("schedules")} == {"mine-own", "mine:backup"}
    assert {j["name"] for j in program.json("jobs")} == {"mine-own", "mine:backup"}
    assert program.json(*words)["vanished"] == []


def test_refused_lines_are_reported_and_fail(program: Program) -> None:
    report = program.json("import", "crontab", WATCH, "--system", "--tz", "UTC", code=1)
    assert [line["line"] for line in report["refused"]] == [4]
    assert set(report["refused"][0]) == {"file", "line", "reason"}
    assert "@reboot" in report["refused"][0]["reason"]
    assert len(program.json("schedules")) == len(report["imported"]) == 1
    assert "REFUSED: @reboot" in program.run("import", "crontab", WATCH, "--system", code=1).stdout


def test_a_dry_run_touches_no_database(offline: Program) -> None:
    report = offline.json("import", "crontab", ALICE, "--dry-run")
    assert report["dry_run"] is True
    assert {entry["change"] for entry in report["imported"]} == {None}
    assert "8 would be imported, 0 refused; time zone" in offline.run("import", "crontab", ALICE, "--dry-run").stdout
    assert 'misfire="skip"' in offline.run("import", "crontab", ALICE, "--misfire", "never", code=2).stderr
    assert "Nowhere/Else" in offline.run("import", "crontab", ALICE, "--dry-run", "--tz", "Nowhere/Else", code=1).stdout


def test_what_cannot_be_told_apart_needs_a_prefix(program: Program) -> None:
    for host in ("one", "two"):
        (program.folder / host).mkdir()
        (program.folder / host / "crontab").write_text(f"0 0 * * * backup {host}\n")
    both = [str(program.folder / host / "crontab") for host in ("one", "two")]
    assert "--prefix" in program.run("import", "crontab", *both, code=2).stderr
    for host, file in zip(("one", "two"), both, strict=True):
        program.json("import", "crontab", file, "--prefix", f"{host}/", "--prune")
    names = ["one/crontab:backup-one", "two/crontab:backup-two"]
    assert [s["name"] for s in program.json("schedules")] == names
    assert [s["job"] for s in program.json("schedules")] == names


def test_bytes_that_are_no_text_and_standard_input(program: Program) -> None:
    file = program.folder / "latin"
    file.write_bytes("0 1 * * * echo größe\n0 2 * * * echo ok\r\n".encode("latin-1"))
    report = program.json("import", "crontab", str(file), code=1)
    assert [(line["line"], line["reason"]) for line in report["refused"]] == [(1, "is not UTF-8; convert the file")]
    assert [entry["line"] for entry in report["imported"]] == [2]
    report = program.json("import", "crontab", "-", stdin="0 3 * * * echo piped\n")
    assert [entry["schedule"] for entry in report["imported"]] == ["crontab:echo-piped"]


def test_an_imported_job_runs_when_it_is_due(program: Program) -> None:
    """The user column, cron's environment and the `%` reach the command; a tick a minute is not waited for."""
    file = program.folder / "cron.d" / "greet"
    file.parent.mkdir()
    out = program.folder / "out"
    command = f'(echo "$GREETING $FLEETCRON_SCHEDULE $PATH"; cat) > {out}%line'
    file.write_text(f'GREETING="hello  there"\n* * * * * {getpass.getuser()} {command}\n')
    [entry] = program.json("import", "crontab", str(file))["imported"]
    with program.node():
        done = program.json("trigger", entry["schedule"])
        assert program.json("wait", str(done["id"]), "--timeout", "20s")["result"] == {"exit_code": 0, "output": ""}
        assert out.read_text() == "hello  there  /usr/bin:/bin\nline\n"
        out.unlink()
        # The same command once a second: what the scheduler writes runs by itself.
        program.json("edit", entry["schedule"], "--cron", "* * * * * *", "--tz", "UTC")
        until(out.exists, "a tick has run")
        until(lambda: out.read_text().count("\n") == 2, "the command is done")
        assert out.read_text() == f"hello  there {entry['schedule']} /usr/bin:/bin\nline\n"
