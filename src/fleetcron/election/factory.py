"""From a URL to an elector."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from fleetcron.election.database import DatabaseElector
from fleetcron.election.protocol import Elector
from fleetcron.election.tls import Tls
from fleetcron.errors import ConfigError

FORMS = (
    "database, etcd://host:2379,host2:2379/prefix, zk://host:2181,host2:2181/prefix, redis://host:6379/0; "
    "over TLS etcds:// and rediss://"
)
PORTS = {"etcd": 2379, "etcds": 2379, "zk": 2181, "redis": 6379, "rediss": 6379}
_WORDS = {"etcds": ("cacert", "cert", "key"), "redis": ("prefix",), "rediss": ("prefix",)}
"""What may stand behind the question mark, by scheme."""
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
    tls: Tls | None = None


def parse_elector(url: str, env: Mapping[str, str] | None = None) -> Address | None:
    """The parts of the URL, None for "database"; files of `etcds://` that it does not name are looked for in FLEETCRON_ETCD_CACERT, _CERT and
    _KEY. Raises ConfigError saying what is allowed; the message does not show the password."""
    if url == "database":
        return None
    scheme = url.partition("://")[0].lower()
    if scheme not in PORTS or "://" not in url:
        raise ConfigError(f"elector {_masked(url)!r} is not known; it is one of: {FORMS}")
    parts = urlsplit(url)
    account, _, members = parts.netloc.rpartition("@")
    user, _, password = account.partition(":")
    path = parts.path.strip("/")
    if scheme in {"etcd", "etcds", "zk"} and bool(user) != bool(password):
        raise ConfigError(f"elector {_masked(url)!r}: {scheme}:// takes a user and a password, or neither")
    hosts = tuple(_host(member, PORTS[scheme], url) for member in members.split(","))
    words = _query(parts.query, _WORDS.get(scheme, ()), url)
    if scheme in {"redis", "rediss"}:
        if len(hosts) > 1:
            raise ConfigError(f"elector {_masked(url)!r}: Redis takes one host; name the one that clients write to")
        if not re.fullmatch(r"\d*", path):
            raise ConfigError(f"elector {_masked(url)!r}: after the host comes the number of the Redis database")
        prefix = words.get("prefix", PREFIX)
        return Address(scheme, hosts, prefix, unquote(user) or None, unquote(password) or None, int(path or 0))
    tls = _tls(words, os.environ if env is None else env, url) if scheme == "etcds" else None
    return Address(scheme, hosts, unquote(path) or PREFIX, unquote(user) or None, unquote(password) or None, tls=tls)


def make_elector(url: str, node: str, ttl: timedelta) -> Elector:
    """An elector that is not started yet. `node`: this process, random per start. Raises ConfigError for a URL that is not known."""
    address = parse_elector(url)
    if address is None:
        return DatabaseElector()
    seconds = ttl.total_seconds()
    if address.scheme in {"etcd", "etcds"}:
        from fleetcron.election.etcd import EtcdElector  # lazy: http.client and ssl cost 40 ms to import

        return EtcdElector(
            address.hosts, address.prefix, node, seconds, user=address.user, password=address.password, tls=address.tls
        )
    if address.scheme == "zk":
        from fleetcron.election.zookeeper import ZooKeeperElector  # lazy: needs the extra "zookeeper"

        return ZooKeeperElector(
            address.hosts, address.prefix, node, seconds, user=address.user, password=address.password
        )
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


def _query(text: str, allowed: Collection[str], url: str) -> dict[str, str]:
    """What stands behind the question mark. A word that is not known is refused: a typing error must not leave out a certificate."""
    found = dict(parse_qsl(text, keep_blank_values=True))
    if unknown := sorted(found.keys() - set(allowed)):
        may = f"allowed are {', '.join(allowed)}" if allowed else "it takes none"
        raise ConfigError(f"elector {_masked(url)!r}: unknown parameter {unknown[0]!r}; {may}")
    return {name: value for name, value in found.items() if value}


def _tls(words: Mapping[str, str], env: Mapping[str, str], url: str) -> Tls:
    cacert, cert, key = (words.get(name) or env.get(f"FLEETCRON_ETCD_{name.upper()}") for name in _WORDS["etcds"])
    if key and not cert:
        raise ConfigError(f"elector {_masked(url)!r}: there is a key without its cert")
    return Tls(cacert or None, cert or None, key or None)


def _masked(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)
