"""From a URL to a store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fleetcron.errors import ConfigError
from fleetcron.store.protocol import Store


def make_store(
    url: str,
    *,
    schema: str = "fleetcron",
    clock: Callable[[], datetime] | None = None,
    shards: int = 1,
    auto_migrate: bool = False,
    pgbouncer: bool = False,
    direct_url: str | None = None,
    pool_size: int = 4,
    statement_timeout: float = 10,
    application: str = "fleetcron",
    custom_plans: bool = False,
    idle_timeout: float = 15,
) -> Store:
    """A store that is not open yet. `idle_timeout`: seconds after which a transaction whose client says nothing is ended.

    Raises ConfigError for a URL that is neither sqlite: nor postgresql:."""
    scheme = url.partition(":")[0].lower()
    if scheme in ("postgresql", "postgres"):
        from fleetcron.store.postgres import PostgresStore  # lazy: asyncpg costs 80 ms to import

        return PostgresStore(
            url, schema=schema, clock=clock, shards=shards, auto_migrate=auto_migrate, pgbouncer=pgbouncer, direct_url=direct_url,
            pool_size=pool_size, statement_timeout=statement_timeout, application=application, custom_plans=custom_plans,
            idle_timeout=idle_timeout,
        )  # fmt: skip
    if scheme == "sqlite":
        from fleetcron.store.sqlite import SqliteStore  # lazy: not needed with PostgreSQL

        return SqliteStore(url, clock=clock, shards=shards, auto_migrate=auto_migrate)
    raise ConfigError(f"url {url!r}: expected sqlite:///file.db or postgresql://user@host/database")
