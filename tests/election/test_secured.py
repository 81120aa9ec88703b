"""Electors that ask who is there: etcd over TLS, ZooKeeper with accounts; on the real servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from fleetcron.election import Elector, make_elector, parse_elector
from fleetcron.errors import ConfigError
from tests.conftest import missing
from tests.election.conftest import NewServer, StartElector
from tests.election.support import TTL, Member, members, until
from tests.support.certificates import Authority
from tests.support.etcd import Etcd

OTHER = "other"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if not Authority.here():
        missing("openssl")
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that speaks TLS, to known clients only."""
    if not Etcd.here():
        missing("Etcd")
    with Etcd(tmp_path_factory.mktemp("etcds"), authority) as server:
        yield server


def url(server: Etcd, authority: Authority, client: str = "node", **instead: str) -> str:
    cert, key = authority.certificate(client)
    words = {"cacert": str(authority.cacert), "cert": str(cert), "key": str(key)} | instead
    return server.url + "?" + "&".join(f"{name}={quote(path)}" for name, path in words.items() if path)


async def refused(node: Elector) -> str:
    """Why it is not reached, once it has been tried."""
    node.stand((), (0,), 1)
    await until(lambda: "not reached yet" not in node.state().words(), what="the first try")
    assert not node.reached() and not node.nominated(0)
    return node.state().error or ""


async def test_etcd_over_tls_elects(secured: Etcd, authority: Authority, elector: StartElector) -> None:
    """Calls, keep-alive, watch and leaving: everything that goes over a connection."""
    where = url(secured, authority)
    one, two = await elector(where, "one"), await elector(where, "two")
    one.stand((), (0,), 1)
    await until(lambda: one.nominated(0), what="the nomination")
    one.stand((0,), (), 0)
    two.stand((), (0,), 1)
    await asyncio.sleep(2 * TTL)
    assert one.nominated(0) and not two.nominated(0)
    await one.stop()
    assert await until(lambda: two.nominated(0), what="the succession") < TTL


async def test_etcd_over_tls_with_an_account(authority: Authority, tmp_path: Path, elector: StartElector) -> None:
    with Etcd(tmp_path, authority) as server:
        server.url = server.require_account("scheduler", "hush")
        node = await elector(url(server, authority), "a")
        node.stand((), (0,), 1)
        await until(lambda: node.nominated(0), what="the nomination")
        assert "hush" not in repr(node.state())


async def test_etcd_s_gateway_does_not_take_a_user_from_a_certificate(
    authority: Authority, tmp_path: Path, elector: StartElector
) -> None:
    """What the page on electors warns of: with accounts, etcd refuses the gateway's clients whose certificate has a common name."""
    with Etcd(tmp_path, authority) as server:
        server.require_account("scheduler", "hush")
        cert, key = authority.certificate("named", subject="/CN=scheduler")
        assert await refused(await elector(url(server, authority, cert=str(cert), key=str(key)), "a"))


async def test_a_server_that_nobody_vouches_for(
    secured: Etcd, authority: Authority, tmp_path: Path, elector: StartElector
) -> None:
    stranger = Authority(tmp_path)
    for cacert in ("", str(stranger.cacert)):  # the machine's own authorities; another one
        assert "certificate verify failed" in await refused(await elector(url(secured, authority, cacert=cacert), "a"))


async def test_a_certificate_of_another_name(authority: Authority, tmp_path: Path, elector: StartElector) -> None:
    """Its server is the right one, and its certificate is good: but not for this address."""
    with Etcd(tmp_path, authority, names="DNS:localhost") as server:
        assert "127.0.0.1" in await refused(await elector(url(server, authority), "a"))
        named = await elector(url(server, authority).replace("127.0.0.1", "localhost"), "b")
        named.stand((), (0,), 1)
        await until(lambda: named.nominated(0), what="the nomination under the right name")


async def test_who_has_no_certificate_is_not_let_in(
    secured: Etcd, authority: Authority, tmp_path: Path, elector: StartElector
) -> None:
    assert "certificate" in await refused(await elector(url(secured, authority, cert="", key=""), "a"))
    cert, key = Authority(tmp_path).certificate("forged")
    assert await refused(await elector(url(secured, authority, cert=str(cert), key=str(key)), "b"))
    plain = await elector(secured.url.replace("etcds", "etcd"), "c")
    assert await refused(plain)


async def test_files_from_the_environment(
    secured: Etcd, authority: Authority, elector: StartElector, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = authority.certificate("node")
    for name, path in (("CACERT", authority.cacert), ("CERT", cert), ("KEY", key)):
        monkeypatch.setenv(f"FLEETCRON_ETCD_{name}", str(path))
    node = await elector(secured.url, "a")
    node.stand((), (0,), 1)
    await until(lambda: node.nominated(0), what="the nomination")


def test_files_are_read_at_the_start(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.certificate("node")
    locked = tmp_path / "locked.key"
    locked.write_text(key.read_text().replace("BEGIN PRIVATE", "BEGIN ENCRYPTED PRIVATE"))
    for words, says in (
        (f"cacert={tmp_path / 'nowhere.pem'}", "nowhere.pem cannot be used"),
        (f"cacert={tmp_path}", "cannot be used"),
        (f"cert={cert}", "cannot be used"),
        (f"cert={cert}&key={tmp_path / 'nowhere.key'}", "nowhere.key cannot be used"),
        (f"key={key}", "a key without its cert"),
        (f"ca={authority.cacert}", "unknown parameter 'ca'; allowed are cacert, cert, key"),
    ):
        with pytest.raises(ConfigError, match=says):
            make_elector(f"etcds://one/fleet?{words}", "a", timedelta(seconds=1))


def test_what_the_address_says() -> None:
    env = {"FLEETCRON_ETCD_CACERT": "/env/ca", "FLEETCRON_ETCD_CERT": "/env/cert", "FLEETCRON_ETCD_KEY": ""}
    address = parse_elector("etcds://one,two:2/fleet?cacert=/a%26b", env)
    assert address is not None and address.tls is not None
    assert address.hosts == (("one", 2379), ("two", 2))
    assert (address.tls.cacert, address.tls.cert, address.tls.key) == ("/a&b", "/env/cert", None)
    plain = parse_elector("etcd://one/fleet", env)
    assert plain is not None and plain.tls is None


# ── ZooKeeper ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_zookeeper_with_an_account(pg_url: str, new_server: NewServer, elector: StartElector) -> None:
    """What a fleet makes is its account's alone: another account, or none, can neither read nor take it."""
    server = new_server("zk")
    mine = server.url.replace("://", "://fleet:p%40ss:word@")
    one, two = await elector(mine, "one"), await elector(mine, "two")
    one.stand((), (0, 1), 2)
    await until(lambda: one.nominated(0) and one.nominated(1), what="the nominations")
    one.stand((0,), (), 0)
    two.stand((), (1,), 1)
    await until(lambda: two.nominated(1), what="the hand-over within the account")
    for there in (server.url, mine.replace("p%40ss", OTHER), mine.replace("fleet:", "someone:", 1)):
        assert "belongs to another account" in await refused(await elector(there, "stranger"))
        assert "p@ss" not in repr(one.state())
    assert one.nominated(0) and two.nominated(1)
    for path in ("/fleet", "/fleet/shard", "/fleet/shard/0"):
        await asyncio.to_thread(locked, server.port, path)
    scheduler = Member(pg_url, mine.rpartition("/")[0] + "/another")
    async with members(scheduler):
        await until(scheduler.leads, what="a whole scheduler with an account")


def locked(port: int, path: str) -> None:
    """Nobody without the account may look, change or delete."""
    client = KazooClient(f"127.0.0.1:{port}", timeout=2)
    client.start(timeout=5)
    try:
        for attempt in (client.get, client.get_children, lambda it: client.set(it, b"mine")):
            with pytest.raises(NoAuthError):
                attempt(path)
        with pytest.raises(NoAuthError):
            client.create(f"{path}/mine")
    finally:
        client.stop()
        client.close()
