"""What is asked wrongly: exit code 2 and one clear line, before any database is touched."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fleetcron.cli import main
from fleetcron.cli.program import COMMANDS
from fleetcron.options import Options

UNREACHABLE = "postgresql://postgres@127.0.0.1:1/nowhere"


def refused(*words: str) -> str:
    done = CliRunner().invoke(main, ["--url", UNREACHABLE, *words], env={"FLEETCRON_APP": None})
    assert done.exit_code == 2, f"{done.exit_code}: {done.output}"
    return done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("run", "--frobnicate"), "No such option"),
        (("run", "--role", "api"), "this version has scheduler, worker"),
        (("run", "--role", ","), "none given"),
        (("run", "--role", "scheduler", "--processes", "2"), "no worker role"),
        (("run", "--lease", "3s", "--heartbeat", "2s"), "at least 3 × heartbeat"),
        (("run", "--lease", "0"), "--lease"),
        (("run", "--drain", "-1s"), "--drain"),
        (("run", "--elector", "consul://127.0.0.1:8500/x"), "it is one of: database, etcd://"),
        (("run", "--max-payload", "much"), "not a size"),
        (("run", "--shards", "0"), "shards"),
        (("run", "--concurrency", "0"), "--concurrency"),
        (("run", "--child", "1"), "not by people"),
        (("--url", "mysql://x", "run"), "expected sqlite:///file.db or postgresql://"),
        (("--url", "sqlite:///:memory:", "run", "--processes", "2"), "belongs to one process"),
        (("submit", "j", "--json-payload", "{"), "not JSON"),
        (("submit", "j", "--priority", "10"), "--priority"),
        (("submit", "j", "--delay", "soon"), "not a duration"),
        (("submit", "j", "--at", "2026-01-01"), "no time zone"),
        (("runs", "--since", "yesterday"), "90m"),
        (("show", "x"), "not a valid integer"),
        (("wait",), "Missing argument"),
        (("dead", "replay"), "one of the three"),
        (("dead", "replay", "5", "--all"), "one of the three"),
        (("dead", "purge", "--job", "j", "--all"), "one of the three"),
        (("job", "add", "j"), "--shell"),
        (("pause",), "Missing argument"),
        (("import", "crontab", "no-such-file"), "does not exist"),
    ],
)
def test_usage_errors(words: tuple[str, ...], says: str) -> None:
    assert says in refused(*words)


@pytest.mark.parametrize(
    ("app", "says"),
    [
        ("no_such_module:fleet", "no module named 'no_such_module'"),
        ("good_app:missing", "good_app has no 'missing'; it has fleet"),
        ("good_app:job", "job is a function, not a Fleet"),
        ("good_app.sub:fleet", "no module named 'good_app.sub'"),
        ("not an app", "expected module:fleet"),
        ("wrong_app:fleet", "at least 3 × heartbeat"),
    ],
)
def test_an_app_that_is_not_one(app: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good_app.py").write_text("from fleetcron import Fleet\nfleet = Fleet()\n@fleet.job\ndef job(): ...\n")
    (tmp_path / "wrong_app.py").write_text("from fleetcron import Fleet\nfleet = Fleet(lease=1, heartbeat=1)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    assert says in refused("--app", app, "run")


def test_an_app_that_raises_shows_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raising_app.py").write_text("import surely_not_there\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["--url", UNREACHABLE, "--app", "raising_app:fleet", "run"])
    assert done.exit_code == 1
    assert "importing it failed: ModuleNotFoundError: No module named 'surely_not_there'" in done.stderr
    assert "raising_app.py" in done.stderr


def test_a_database_that_is_away_is_an_error_without_a_traceback() -> None:
    done = CliRunner().invoke(main, ["--url", UNREACHABLE, "jobs"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "not available" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_option_of_a_fleet_is_an_option_of_run() -> None:
    with click.Context(main) as ctx:
        run = main.get_command(ctx, "run")
    assert run is not None
    assert {p.name for p in run.params} >= set(Options.__struct_fields__) - {"url"}


def test_every_command_that_is_listed_can_be_imported() -> None:
    for section in COMMANDS.values():
        for name, (place, _) in section.items():
            module, _, attribute = place.partition(":")
            assert getattr(import_module(f"fleetcron.cli.{module}"), attribute).name == name
