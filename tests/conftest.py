"""Servers and databases for every test. CONTRIBUTING.md has the list of fixtures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import settings

from fleetcron.embedded_postgres import EmbeddedPostgres
from tests.support import pgbouncer, postgres

CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}
TESTS = Path(__file__).parent
MIGRATED = {"crash", "election", "flow", "locks", "reliability", "simulation"}
"""Folders whose tests begin when our tables are there, which saves each a tenth of a second or two; in the others somebody makes them."""
SERVERS = pytest.StashKey[postgres.Servers]()
SESSION = pytest.StashKey[ExitStack]()

# No deadline: two cores that also run database servers say little about one example. A build must not depend on luck.
settings.register_profile("fleetcron", deadline=None, derandomize=CI, print_blob=True)
settings.load_profile("fleetcron")


def pytest_configure(config: pytest.Config) -> None:
    """The first process of the session owns the servers' folder; xdist workers are told where it is."""
    if hasattr(config, "workerinput"):
        config.stash[SERVERS] = postgres.Servers(Path(config.workerinput["fleetcron_servers"]))
        return
    config.stash[SESSION] = ExitStack()
    config.stash[SERVERS] = config.stash[SESSION].enter_context(postgres.Servers.session())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist's hook: about to start a worker."""
    node.workerinput["fleetcron_servers"] = str(node.config.stash[SERVERS].folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the servers."""
    if SESSION in config.stash:
        config.stash[SESSION].close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`both_pg` tests run on every version, others on one; `store_url` tests run on SQLite too."""
    both = metafunc.definition.get_closest_marker("both_pg") is not None
    if "store_url" in metafunc.fixturenames:
        on_postgres = [f"postgres{version}" for version in postgres.VERSIONS] if both else ["postgres"]
        metafunc.parametrize("store_url", ["sqlite", *on_postgres], indirect=True)
    elif "pg_version" in metafunc.fixturenames and both:
        metafunc.parametrize("pg_version", postgres.VERSIONS, ids=[f"pg{v}" for v in postgres.VERSIONS], indirect=True)


def missing(what: str) -> NoReturn:
    """A service is not on this machine: a skip that says so; in a build, a failure."""
    if CI:
        pytest.fail(f"{what} is missing, and CI is set")
    pytest.skip(f"{what} is not on this machine (scripts/install-services.sh, make setup)")


@pytest.fixture
def servers(pytestconfig: pytest.Config) -> postgres.Servers:
    """The session's PostgreSQL servers."""
    return pytestconfig.stash[SERVERS]


@pytest.fixture
def pg_version(request: pytest.FixtureRequest) -> int:
    """The major version that this test runs on."""
    version: int = getattr(request, "param", None) or postgres.default_version()
    if not postgres.available(version):
        missing(f"PostgreSQL {version}")
    return version


@pytest.fixture
def migrated(request: pytest.FixtureRequest) -> bool:
    """Whether the databases of this test begin with our tables in them."""
    return request.path.relative_to(TESTS).parts[0] in MIGRATED


@pytest.fixture
def pg_url(servers: postgres.Servers, pg_version: int, migrated: bool) -> Iterator[str]:
    """A fresh, empty PostgreSQL database."""
    url = servers.create_database(pg_version, migrated=migrated)
    yield url
    servers.drop_database(pg_version, url)


@pytest.fixture
def store_url(
    request: pytest.FixtureRequest, servers: postgres.Servers, tmp_path: Path, migrated: bool
) -> Iterator[str]:
    """A fresh, empty database of either kind: the test runs once on each."""
    kind: str = request.param
    if kind == "sqlite":
        file = tmp_path / "fleet.db"
        if migrated:
            shutil.copyfile(servers.sqlite_template(), file)
        yield f"sqlite:///{file}"
        return
    version = int(kind.removeprefix("postgres") or postgres.default_version())
    if not postgres.available(version):
        missing(f"PostgreSQL {version}")
    url = servers.create_database(version, migrated=migrated)
    yield url
    servers.drop_database(version, url)


@pytest.fixture
def crashable_postgres(servers: postgres.Servers, pg_version: int) -> Iterator[EmbeddedPostgres]:
    """A running server of this test's own, to kill and restart."""
    with servers.own(pg_version) as server:
        yield server


@pytest.fixture
def pgbouncer_url(pg_url: str, servers: postgres.Servers) -> Iterator[str]:
    """The database of `pg_url`, through PgBouncer in transaction mode."""
    if pgbouncer.program() is None:
        missing("PgBouncer")
    with pgbouncer.pgbouncer(pg_url, servers.folder) as url:
        yield url
