"""A database that cannot be used: down, read-only, or with the schema of an older or a newer program. Python and the command line say which
and what to do."""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetcron import Fleet, SchemaMismatch, StoreError, StoreUnavailable
from fleetcron.cli import main
from fleetcron.embedded_postgres import free_port
from tests.support.postgres import execute, run_apart

NOBODY = 65534


def change(url: str, statement: str) -> None:
    """Behind fleetcron's back."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute(statement)
            connection.commit()
    else:
        run_apart(execute(url, statement.replace("meta", "fleetcron.meta")))


def initialised(url: str) -> str:
    """With the schema and the job "work"."""
    fleet = Fleet(url)
    fleet.job("work")(lambda: None)
    with fleet.blocking:
        return url


def says(url: str, error: type[StoreError], text: str) -> None:
    """Opening a fleet and every kind of command end with this; no traceback, and not after a long wait."""
    with pytest.raises(error, match=text) as caught, Fleet(url).blocking:
        pass
    assert type(caught.value) is error
    for words in (["jobs"], ["submit", "work"], ["run", "--drain", "0"]):
        done = CliRunner().invoke(main, ["--url", url, *words], env={"FLEETCRON_APP": None})
        assert done.exit_code == 1, done.output
        assert "Traceback" not in done.output
        assert re.search(text, done.stderr), done.stderr


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_that_is_down(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        says(
            f"sqlite:///{tmp_path / 'no' / 'fleet.db'}",
            StoreUnavailable,
            "the folder .* does not exist: make it, or name",
        )
        (tmp_path / "letter").write_text("no database" * 200)
        says(
            f"sqlite:///{tmp_path / 'letter'}", StoreUnavailable, "this file is not a SQLite database: name another one"
        )
        says(f"sqlite:///{tmp_path}", StoreUnavailable, "this is a folder: name a file")
    else:
        port = free_port()
        says(
            f"postgresql://postgres@127.0.0.1:{port}/x",
            StoreUnavailable,
            rf"the database is not available: .*127\.0\.0\.1:{port}/x",
        )


def test_a_database_that_does_not_exist(pg_url: str) -> None:
    says(pg_url.rpartition("/")[0] + "/nowhere", StoreUnavailable, 'the database is not available: database "nowhere"')


@pytest.mark.parametrize("version", ["older", "newer"])
def test_a_schema_of_another_version(store_url: str, version: str) -> None:
    initialised(store_url)
    if version == "older":
        change(store_url, "DELETE FROM meta WHERE key LIKE 'migration:0003%'")
        text = "fleetcron schema is older than this program: run `fleetcron migrate`"
    else:
        value = "strftime('%s')" if store_url.startswith("sqlite") else "now()"
        change(store_url, f"INSERT INTO meta (key, value) VALUES ('migration:9999_later', {value})")
        text = "newer than this program.*9999_later"
    says(store_url, SchemaMismatch, text)
    checked = CliRunner().invoke(main, ["--url", store_url, "migrate", "--check"], env={"FLEETCRON_APP": None})
    assert checked.exit_code == 1, checked.output
    assert ("0003_limits" if version == "older" else "9999_later") in checked.output


@contextmanager
def read_only_file() -> Iterator[str]:
    """A SQLite database that may only be read; while this lasts we are somebody whom file modes stop."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders belong to one user
        file = Path(name) / "fleet.db"
        initialised(f"sqlite:///{file}")
        file.chmod(0o444)
        Path(name).chmod(0o555)
        root = os.getuid() == 0
        if root:
            os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield f"sqlite:///{file}"
        finally:
            if root:
                os.setresuid(0, 0, 0)
            Path(name).chmod(0o777)


@contextmanager
def read_only_server(url: str) -> Iterator[str]:
    initialised(url)
    run_apart(execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET default_transaction_read_only = on"))
    yield url


def test_a_database_that_may_only_be_read(store_url: str) -> None:
    how = read_only_file() if store_url.startswith("sqlite") else read_only_server(store_url)
    with how as url:
        app = Fleet(url)
        app.job("work")(lambda: None)
        with pytest.raises(StoreUnavailable, match="the database is read-only") as caught, app.blocking as fleet:
            fleet.submit("work")
        assert type(caught.value) is StoreUnavailable
        for words in (["submit", "work"], ["run", "--drain", "0"], ["pause", "work"]):
            done = CliRunner().invoke(main, ["--url", url, *words], env={"FLEETCRON_APP": None})
            assert (done.exit_code, "the database is read-only" in done.stderr) == (1, True), done.output
            assert "Traceback" not in done.output
