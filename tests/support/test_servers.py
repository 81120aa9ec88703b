"""The servers that other tests stand on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from fleetcron.embedded_postgres import EmbeddedPostgres, find_bin_dir
from fleetcron.errors import ConfigError
from tests.support.postgres import Servers, available
from tests.support.proxy import Proxy


async def fetch(url: str, query: str) -> object:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return await connection.fetchval(query, timeout=10)
    finally:
        await connection.close()


@pytest.mark.both_pg
async def test_each_version_answers(pg_url: str, pg_version: int) -> None:
    assert str(await fetch(pg_url, "SELECT version()")).startswith(f"PostgreSQL {pg_version}.")


async def test_statistics_of_statements_can_be_had(pg_url: str) -> None:
    await fetch(pg_url, "CREATE EXTENSION pg_stat_statements")
    assert await fetch(pg_url, "SELECT count(*) FROM pg_stat_statements WHERE dbid = 0") == 0


async def test_each_database_is_new_and_goes_again(servers: Servers, pg_version: int) -> None:
    first, second = servers.create_database(pg_version), servers.create_database(pg_version)
    await fetch(first, "CREATE TABLE mark ()")
    still_open = await asyncpg.connect(first)
    assert await fetch(second, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    for url in (first, second):
        servers.drop_database(pg_version, url)
    still_open.terminate()
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await fetch(first, "SELECT 1")


async def test_a_store_address_names_a_fresh_database(store_url: str) -> None:
    if store_url.startswith("sqlite:///"):
        path = Path(store_url.removeprefix("sqlite:///"))
        assert path.is_absolute() and not path.exists()
    else:
        assert await fetch(store_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


@pytest.mark.crash
@pytest.mark.both_pg
async def test_a_killed_server_comes_back_with_what_was_committed(crashable_postgres: EmbeddedPostgres) -> None:
    server = crashable_postgres
    address = server.url()
    connection = await asyncpg.connect(address)
    await connection.execute("CREATE TABLE mark AS SELECT 7 AS n")
    server.kill()
    assert server.pid is None
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await connection.fetchval("SELECT 1")
    connection.terminate()
    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(address)
    server.start()
    assert server.url() == address
    assert await fetch(address, "SELECT n FROM mark") == 7
    server.restart()
    assert await fetch(address, "SELECT n FROM mark") == 7


@pytest.mark.crash
async def test_a_server_goes_when_its_program_is_killed(servers: Servers, pg_version: int) -> None:
    data_dir = servers.folder / "orphan"
    program = (
        "import sys; from fleetcron.embedded_postgres import *\n"
        f"server = EmbeddedPostgres({str(data_dir)!r}, bin_dir=find_bin_dir({pg_version}), fsync=False).start()\n"
        "print(server.port, server.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        socket.create_connection(("127.0.0.1", port)).close()
        parent.kill()
    give_up_at = time.monotonic() + 20
    while (data_dir / "postmaster.pid").exists() and time.monotonic() < give_up_at:
        await asyncio.sleep(0.02)
    assert not (data_dir / "postmaster.pid").exists(), f"server {pid} outlived its program"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_data_directory_of_another_version_is_refused(servers: Servers, pg_version: int) -> None:
    data_dir = servers.folder / "of-another-version"
    data_dir.mkdir()
    (data_dir / "PG_VERSION").write_text("9\n")
    with pytest.raises(ConfigError, match=rf"made by PostgreSQL 9, .* is {pg_version}.*FLEETCRON_PG_BIN"):
        EmbeddedPostgres(data_dir, bin_dir=find_bin_dir(pg_version)).start()


def test_a_directory_with_other_files_is_refused_and_left_alone(servers: Servers, pg_version: int) -> None:
    data_dir = servers.folder / "not-ours"
    data_dir.mkdir()
    (data_dir / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="choose an empty or a new one"):
        EmbeddedPostgres(data_dir, bin_dir=find_bin_dir(pg_version)).start()
    assert [path.name for path in data_dir.iterdir()] == ["thesis.txt"]


def test_a_folder_without_a_server_is_named(servers: Servers) -> None:
    with pytest.raises(ConfigError, match=f"no usable PostgreSQL server in {servers.folder}"):
        EmbeddedPostgres(servers.folder / "data", bin_dir=servers.folder)


@pytest.mark.crash
@pytest.mark.skipif(not available(18), reason="needs a server for the inner session")
@pytest.mark.parametrize("killed", [False, True], ids=["ends", "is killed"])
def test_a_session_leaves_nothing_behind(tmp_path: Path, killed: bool) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(
        "import pathlib, sys\n"
        "def test_it(servers):\n"
        "    servers.url(18)\n"
        f"    pathlib.Path({str(tmp_path / 'folder')!r}).write_text(str(servers.folder))\n"
        f"    assert not {killed} or sys.stdin.read()\n"
    )
    root = Path(__file__).resolve().parents[2]
    options = ["-q", "-s", "-p", "no:xdist", "-p", "tests.conftest", "-c", str(root / "pyproject.toml")]
    session = subprocess.Popen([sys.executable, "-m", "pytest", *options, inner], cwd=root, stdin=subprocess.PIPE)
    give_up_at = time.monotonic() + 40
    while not (tmp_path / "folder").exists() and session.poll() is None and time.monotonic() < give_up_at:
        time.sleep(0.02)
    if killed:
        os.kill(session.pid, signal.SIGKILL)
    session.communicate(timeout=30)
    assert killed or session.returncode == 0
    folder = Path((tmp_path / "folder").read_text())
    while folder.exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert not folder.exists()


async def test_pgbouncer_shares_server_connections(pgbouncer_url: str) -> None:
    clients = [await asyncpg.connect(pgbouncer_url, statement_cache_size=0) for _ in range(6)]
    try:
        backends = {await client.fetchval("SELECT pg_backend_pid()") for client in clients}
    finally:
        for client in clients:
            await client.close()
    assert len(backends) == 1


async def test_the_proxy_delays(pg_url: str) -> None:
    async with Proxy.to(pg_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.delay = 0.05
        started = time.monotonic()
        await connection.fetchval("SELECT 1")
        assert time.monotonic() - started >= 0.1
        await connection.close()


async def test_the_proxy_swallows_and_heals(pg_url: str) -> None:
    async with Proxy.to(pg_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        await connection.execute("CREATE TABLE mark (n int)")
        proxy.blackhole()
        with pytest.raises(TimeoutError):
            await asyncpg.connect(proxy.url, timeout=0.3)
        insert = asyncio.create_task(connection.execute("INSERT INTO mark VALUES (1)"))
        done, _ = await asyncio.wait([insert], timeout=0.3)
        assert not done
        await proxy.heal()
        assert await insert == "INSERT 0 1"
        await connection.close()


async def test_the_proxy_resets(pg_url: str) -> None:
    async with Proxy.to(pg_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.reset()
        with pytest.raises((asyncpg.InterfaceError, asyncpg.PostgresConnectionError, OSError)):
            await connection.fetchval("SELECT 1")
        connection.terminate()
        assert await fetch(proxy.url, "SELECT 1") == 1


async def test_the_proxy_refuses_until_it_heals(pg_url: str) -> None:
    async with Proxy.to(pg_url) as proxy:
        assert await fetch(proxy.url, "SELECT 1") == 1
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await fetch(proxy.url, "SELECT 1")
        await proxy.heal()
        assert await fetch(proxy.url, "SELECT 1") == 1
