"""One PostgreSQL database for many tests: emptied after each of them, in a tenth of the time that a new one takes (20 ms against 240 ms)."""

from __future__ import annotations

import asyncpg

from fleetcron.store.factory import make_store
from tests.conformance.kit import BROKEN, look_settings, told
from tests.support.postgres import Servers, run_apart

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'fleetcron' AND tablename <> 'meta'"

# Tables that have grown are truncated: dead rows would slow the next tests down. The rest is deleted, which is much quicker.
EMPTY = f"""
DO $$
DECLARE it text;
BEGIN
    SET LOCAL lock_timeout = '5s';
    FOR it IN {TABLES} LOOP
        IF pg_relation_size('fleetcron.' || it) > 200000 THEN EXECUTE 'TRUNCATE fleetcron.' || it;
        ELSE EXECUTE 'DELETE FROM fleetcron.' || it; END IF;
    END LOOP;
END $$"""


class Reused:
    """The databases of this process's tests, by major version, each with what its tables hold when they are new."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[str, dict[str, str]]] = {}

    def url(self, servers: Servers, version: int) -> str:
        """A database as the migrations leave it."""
        if version not in self._kept:
            url = servers.create_database(version)
            self._kept[version] = (url, run_apart(_migrate(url)))
        return self._kept[version][0]

    def reset(self, version: int) -> list[str]:
        """Make it so again; returns what is broken in the tables (see `kit.BROKEN`). If this fails, the next test gets a new one."""
        url, seed = self._kept.pop(version)
        found = run_apart(_empty(url, seed))
        self._kept[version] = (url, seed)
        return found


async def _migrate(url: str) -> dict[str, str]:
    store = make_store(url)
    await store.open()
    await store.close()
    connection = await asyncpg.connect(url)
    try:
        tables = [row[0] for row in await connection.fetch(TABLES)]
        rows = {table: await connection.fetchval(f"SELECT json_agg(t) FROM fleetcron.{table} t") for table in tables}
        return {table: found for table, found in rows.items() if found is not None}
    finally:
        await connection.close()


async def _empty(url: str, seed: dict[str, str]) -> list[str]:
    connection = await asyncpg.connect(url, server_settings=look_settings("fleetcron"))
    try:
        rows_found = [await connection.fetch(query) for query in BROKEN.values()]
        await connection.execute(EMPTY)
        for table, rows in seed.items():
            of = f"fleetcron.{table}"
            await connection.execute(
                f"INSERT INTO {of} OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::{of}, $1::json)",
                rows,
            )
        return told(rows_found)
    finally:
        await connection.close()
