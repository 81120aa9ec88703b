"""`fleetcron doctor`: what is broken, what is worth a look, what is well."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Fleet
from fleetcron.cli import checks
from fleetcron.cli.urls import masked
from fleetcron.cli.zone import machine_zone
from fleetcron.model import Leader, Node, TableSize
from tests.acceptance.cli.program import Program, until


def verdicts(program: Program, code: int = 0) -> dict[str, str]:
    report = program.json("doctor", code=code)
    assert set(report) == {"ok", "checks"}
    assert report["ok"] is (code == 0)
    assert all(set(check) == {"name", "verdict", "text"} for check in report["checks"])
    return {check["name"]: check["verdict"] for check in report["checks"]}


def test_an_empty_database_is_told_and_left_empty(program: Program) -> None:
    for _ in range(2):
        found = verdicts(program, code=1)
        assert "broken" in found.values()
    if program.url.startswith("sqlite"):
        assert list(program.folder.iterdir()) == []
    program.run("migrate")
    found = verdicts(program)
    assert (found["database"], found["schema"]) == ("ok", "ok")
    assert (found["leader"], found["workers"]) == ("warning", "warning")  # nothing needs them yet
    assert found["file" if program.url.startswith("sqlite") else "wake-ups"] == "ok"


def test_from_broken_to_well(program: Program) -> None:
    program.run("job", "add", "j", "--shell", "exit 1", "--every", "1h", "--misfire", "skip", "--max-attempts", "1")
    program.run("submit", "j")
    found = verdicts(program, code=1)
    assert (found["leader"], found["workers"], found["jobs"]) == ("broken", "broken", "broken")
    with program.node():
        until(lambda: any(x["node"] for x in program.json("leader", "list")), "it leads")
        until(lambda: program.json("dead", "list"), "the run has failed")
        found = verdicts(program)
        assert {name for name, verdict in found.items() if verdict != "ok"} == {"dead letters"}
        shown = program.run("doctor").stdout
        assert "warning  dead letters: 1" in shown
        assert shown.endswith("0 broken, 1 to look at\n")


def test_a_database_that_is_away(offline: Program) -> None:
    assert verdicts(offline, code=1) == {"database": "broken"}
    shown = offline.run("doctor", code=1).stdout
    assert "BROKEN   database: postgresql://postgres:…@127.0.0.1:1/nowhere" in shown
    assert "secret" not in shown


def test_a_sqlite_file_that_is_not_in_wal_mode(tmp_path: Path) -> None:
    program = Program(f"sqlite:///{tmp_path / 'fleet.db'}", tmp_path)
    program.run("migrate")
    assert verdicts(program)["file"] == "ok"
    with sqlite3.connect(tmp_path / "fleet.db") as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    header = (tmp_path / "fleet.db").read_bytes()[:100]
    assert checks.sqlite_file(tmp_path, exists=True, writable=True, header=header).verdict == "warning"
    assert checks.sqlite_file(tmp_path, exists=True, writable=False, header=header).verdict == "broken"


def test_pgbouncer_is_noticed(pgbouncer_url: str, tmp_path: Path) -> None:
    program = Program(pgbouncer_url, tmp_path)
    assert "this looks like PgBouncer: use --pgbouncer" in program.run("doctor", code=1).stdout
    program.env["FLEETCRON_PGBOUNCER"] = "true"
    program.run("migrate")
    shown = program.run("doctor").stdout
    assert "wake-ups: off behind PgBouncer" in shown


NOW = datetime(2026, 3, 29, tzinfo=UTC)


def test_judgement_of_clocks_and_waits() -> None:
    assert checks.clock(NOW, NOW + timedelta(milliseconds=900)).verdict == "ok"
    assert checks.clock(NOW, NOW + timedelta(seconds=90)).text.startswith("this host's is 90s behind the database's")
    assert checks.clock(NOW + timedelta(seconds=2), NOW).verdict == "warning"
    assert checks.oldest(None, NOW).verdict == checks.oldest(NOW + timedelta(seconds=1), NOW).verdict == "ok"
    assert checks.oldest(NOW - timedelta(minutes=5), NOW) == checks.Check(
        name="oldest waiting run",
        verdict="warning",
        text="due 5m ago: the workers do not keep up, or none may take it",
    )


def test_judgement_of_nodes() -> None:
    def node(**changes: object) -> Node:
        fields = {
            "node": "n", "host": "h", "pid": 1, "worker_pids": [1], "roles": ["worker"], "queues": None, "slots": 5,
            "running": 0, "version": "1", "tzdata": "system 2025b", "started_at": NOW, "heartbeat_at": NOW,
        }  # fmt: skip
        return Node(**(fields | changes))  # type: ignore[arg-type]

    assert checks.zones("system 2025b", [node()]).verdict == "ok"
    assert checks.zones("system 2026a", [node()]).verdict == "warning"
    assert checks.zones("none", []).verdict == "broken"
    assert checks.versions("1", [node()]).verdict == "ok"
    assert "2 here, 1 on live nodes" in checks.versions("2", [node()]).text
    assert checks.workers([node()], waiting=True).text == "1 process with 5 slots on 1 node"
    assert checks.workers([node(worker_pids=[])], waiting=True).verdict == "broken"

    def shard(number: int, holder: str | None) -> Leader:
        return Leader(shard=number, node=holder, host="h", pid=1, term=1, since=NOW, ticks_until=NOW)

    assert checks.leaders([shard(0, "n"), shard(1, "n")], active_schedules=True).verdict == "ok"
    lacking = checks.leaders([shard(0, "n"), shard(1, None)], active_schedules=True)
    assert lacking.verdict == "broken"
    assert "nobody leads shard 1" in lacking.text
    assert checks.leaders([], active_schedules=False).verdict == "warning"
    assert checks.schedules({"s": "no zone named X"}).verdict == "broken"
    assert checks.wake_ups(False, pgbouncer=False, direct=False).verdict == "warning"
    assert checks.named(["a", "b", "c", "d", "e", "f", "g"]) == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://user:p@ss@host:5432/db", "postgresql://user:…@host:5432/db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://host:5432/db?user=u&password=p&sslmode=require", "postgresql://host:5432/db?user=u&password=…&sslmode=require"),
        ("postgresql://user:pw@one:1,two:2/db", "postgresql://user:…@one:1,two:2/db"),
        ("sqlite:///fleet.db", "sqlite:///fleet.db"),
    ],
)  # fmt: skip
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert masked(url) == shown


def test_the_zone_of_the_machine(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    assert machine_zone(tmp_path, {}) is None
    (etc / "timezone").write_text("Asia/Kolkata\n")
    assert machine_zone(tmp_path, {}) == "Asia/Kolkata"
    (tmp_path / "zoneinfo" / "Europe").mkdir(parents=True)
    (tmp_path / "zoneinfo" / "Europe" / "Berlin").touch()
    (etc / "localtime").symlink_to("../zoneinfo/Europe/Berlin")
    assert machine_zone(tmp_path, {}) == "Europe/Berlin"
    assert machine_zone(tmp_path, {"TZ": ":America/New_York"}) == "America/New_York"
    assert machine_zone(tmp_path, {"TZ": "CET-1CEST"}) == "Europe/Berlin"


def test_an_old_snapshot_and_dead_rows() -> None:
    assert checks.snapshots(None).verdict == "ok"
    assert checks.snapshots(("pid 5 (psql, idle in transaction)", timedelta(minutes=4))).verdict == "ok"
    old = checks.snapshots(("pid 5 (psql, idle in transaction)", timedelta(minutes=8)))
    assert (old.verdict, "pid 5 (psql, idle in transaction) has held one for 8m" in old.text) == ("warning", True)
    assert (
        checks.bloat([TableSize("ready", 10, 99_000, 2**30), TableSize("run", 9_000_000, 400_000, 2**33)]).verdict
        == "ok"
    )
    swollen = checks.bloat([TableSize("ready", 10, 4_000_000, 2**30), TableSize("run", 9_000_000, 400_000, 2**33)])
    assert swollen.verdict == "warning"
    assert swollen.text.startswith("ready: 4,000,000 dead rows beside 10, 1,024 MiB: ")


async def test_who_holds_the_oldest_snapshot_is_named(pg_url: str) -> None:
    async with Fleet(pg_url) as fleet:
        holder = await asyncpg.connect(pg_url, server_settings={"application_name": "report"})
        try:
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class LIMIT 1")
            care = await fleet.store.care()
            assert care is not None and care.snapshot is not None
            assert care.snapshot[0] == f"pid {holder.get_server_pid()} (report, idle in transaction)"
            assert care.snapshot[1] >= timedelta(0)
            assert {"ready", "lease", "run"} <= {table.name for table in care.tables}
        finally:
            await holder.close()
