"""From a URL to an elector."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from fleetcron.election.database import DatabaseElector
from fleetcron.election.protocol import Elector
from fleetcron.errors import ConfigError

FORMS = "database, etcd://host:2379,host2:2379/prefix, zk://host:2181,host2:2181/prefix, redis://host:6379/0"
PORTS = {"etcd": 2379, "zk": 2181, "redis": 6379, "rediss": 6379}
PREFIX = "fleetcron"
"""Fleets that share one elector need a prefix each, or they would nominate each other's nodes."""

_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?")


class Address(msgspec.Struct, frozen=True):
    """An elector's URL, taken apart. `hosts` has all its members."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]
    prefix: str
    user: str | None = None
    password: str | None = None
    database: int = 0


def parse_elector(url: str) -> Address | None:
    """The parts of the URL, None for "database". Raises ConfigError saying what is allowed; the message does not show the password."""
    if url == "database":
        return None
    scheme = url.partition("://")[0].lower()
    if scheme not in PORTS or "://" not in url:
        raise ConfigError(f"elector {_masked(url)!r} is not known; it is one of: {FORMS}")
    parts = urlsplit(url)
    account, _, members = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    path = parts.path.strip("/")
    if scheme == "zk" and account:
        raise ConfigError(f"elector {_masked(url)!r}: ZooKeeper is used without an account")
    if scheme == "etcd" and bool(user) != bool(password):
        raise ConfigError(f"elector {_masked(url)!r}: etcd takes a user and a password, or neither")
    hosts = tuple(_host(member, PORTS[scheme], url) for member in members.split(","))
    if scheme in {"redis", "rediss"}:
        if len(hosts) > 1:
            raise ConfigError(f"elector {_masked(url)!r}: Redis takes one host; name the one that clients write to")
        if not re.fullmatch(r"\d*", path):
            raise ConfigError(f"elector {_masked(url)!r}: after the host comes the number of the Redis database")
        prefix = parse_qs(parts.query).get("prefix", [PREFIX])[0]
        return Address(scheme, hosts, prefix, unquote(user) or None, unquote(password) or None, int(path or 0))
    return Address(scheme, hosts, unquote(path) or PREFIX, unquote(user) or None, unquote(password) or None)


def make_elector(url: str, node: str, ttl: timedelta) -> Elector:
    """An elector that is not started yet. `node`: this process, random per start. Raises ConfigError for a URL that is not known."""
    address = parse_elector(url)
    if address is None:
        return DatabaseElector()
    seconds = ttl.total_seconds()
    if address.scheme == "etcd":
        from fleetcron.election.etcd import EtcdElector  # lazy: http.client and ssl cost 40 ms to import

        return EtcdElector(address.hosts, address.prefix, node, seconds, user=address.user, password=address.password)
    if address.scheme == "zk":
        from fleetcron.election.zookeeper import ZooKeeperElector  # lazy: needs the extra "zookeeper"

        return ZooKeeperElector(address.hosts, address.prefix, node, seconds)
    from fleetcron.election.redis import RedisElector  # lazy: needs the extra "redis"

    return RedisElector(
        address.hosts[0], address.prefix, node, seconds, database=address.database, user=address.user,
        password=address.password, tls=address.scheme == "rediss",
    )  # fmt: skip


def _host(text: str, port: int, url: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    if found is None or not 0 < int(found["port"] or port) < 65536:
        raise ConfigError(f"elector {_masked(url)!r}: {text!r} is not host or host:port; expected one of: {FORMS}")
    return found["host"].strip("[]"), int(found["port"] or port)


def _masked(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
