"""A database's schema as text, so that an edit of a released migration is noticed.

Until the first release the migration may change: `python -m tests.migrations.snapshot` then writes the stored texts anew.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from fleetcron.store import sql
from fleetcron.store.postgres import PostgresStore
from fleetcron.store.protocol import Store
from fleetcron.store.sqlite import SqliteStore
from tests.support.postgres import VERSIONS, Servers, available

HERE = Path(__file__).parent
STORES = {"postgres": PostgresStore, "sqlite": SqliteStore}


def migrations(kind: str) -> list[str]:
    """Their names, oldest first."""
    return sorted(sql.load(f"fleetcron.store.{kind}", "migrations"))


def stored(kind: str, version: int) -> Path:
    """Where the schema of a version is kept."""
    return HERE / f"schema_v{version:04}{'' if kind == 'postgres' else '_sqlite'}.txt"


def release(url: str, version: int, **options: Any) -> Store:
    """The store as it was when there were so many migrations."""
    kind = "sqlite" if url.startswith("sqlite") else "postgres"
    known = migrations(kind)[:version]

    class Release(STORES[kind]):  # type: ignore[misc]
        def _migrations(self) -> dict[str, str]:
            every = super()._migrations()
            return {name: every[name] for name in known}

    store: Store = Release(url, **options)
    return store


async def schema_of(store: Store) -> str:
    """A store's schema as text."""
    return sqlite_schema(store.db.path) if store.kind == "sqlite" else await postgres_schema(store.db.url)  # type: ignore[attr-defined]


# One column of text each. What PostgreSQL 18 shows differently from 15 (NOT NULL as a constraint) is asked for in one way.
_POSTGRES = {
    "columns": """
        SELECT format('%s.%s %s%s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                      CASE WHEN a.attnotnull THEN ' not null' END,
                      CASE a.attidentity WHEN 'a' THEN ' always identity' WHEN 'd' THEN ' default identity' END,
                      ' default ' || pg_get_expr(d.adbin, d.adrelid))
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'fleetcron'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY c.relname COLLATE "C", a.attnum""",
    "options": """
        SELECT format('%s %s', relname, reloptions) FROM pg_class
        WHERE relnamespace = 'fleetcron'::regnamespace AND reloptions IS NOT NULL ORDER BY relname COLLATE "C" """,
    "constraints": """
        SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
        WHERE connamespace = 'fleetcron'::regnamespace AND contype <> 'n' ORDER BY conname COLLATE "C" """,
    "indexes": """
        SELECT indexdef FROM pg_indexes WHERE schemaname = 'fleetcron' ORDER BY indexname COLLATE "C" """,
    "sequences": """
        SELECT format('%s %s start %s by %s cache %s cycle %s', sequencename, data_type, start_value, increment_by, cache_size, cycle)
        FROM pg_sequences WHERE schemaname = 'fleetcron' ORDER BY sequencename COLLATE "C" """,
    "types": """
        SELECT format('%s %s', t.typname, array_agg(e.enumlabel ORDER BY e.enumsortorder)) FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
        WHERE t.typnamespace = 'fleetcron'::regnamespace GROUP BY t.typname ORDER BY t.typname COLLATE "C" """,
    "triggers": """
        SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = 'fleetcron'::regnamespace AND NOT t.tgisinternal ORDER BY t.tgname COLLATE "C" """,
    "views": """
        SELECT format('%s: %s', viewname, definition) FROM pg_views WHERE schemaname = 'fleetcron' ORDER BY viewname COLLATE "C" """,
    "functions": """
        SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'fleetcron'::regnamespace ORDER BY proname COLLATE "C", oid""",
}


async def postgres_schema(url: str) -> str:
    """Everything in the schema, and the rows that it begins with."""
    connection = await asyncpg.connect(url)
    try:
        parts = [
            f"-- {what}\n" + "\n".join(row[0] for row in await connection.fetch(query))
            for what, query in _POSTGRES.items()
        ]
        tables = (
            "SELECT tablename FROM pg_tables WHERE schemaname = 'fleetcron' AND tablename <> 'meta' ORDER BY tablename"
        )
        names = [row[0] for row in await connection.fetch(tables)]
        rows = [(name, await connection.fetchval(f"SELECT json_agg(t) FROM fleetcron.{name} t")) for name in names]
        parts.append("-- rows\n" + "\n".join(f"{name} {found}" for name, found in rows if found is not None))
    finally:
        await connection.close()
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def sqlite_schema(path: Path | str) -> str:
    """Everything in the file, and the rows that it begins with."""
    with closing(sqlite3.connect(path)) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        rows = [
            (name, connection.execute(f"SELECT * FROM {name}").fetchall())
            for name in tables
            if not name.startswith("sqlite_")
        ]
    found = [
        f"{name} {[row for row in seed if not str(row[0]).startswith('migration:')]}" for name, seed in rows if seed
    ]
    return "\n\n".join(row[0] for row in made) + "\n\n-- rows\n" + "\n".join(found) + "\n"


async def _write(servers: Servers) -> None:
    server = next(version for version in VERSIONS if available(version))
    with tempfile.TemporaryDirectory() as folder:
        for kind in STORES:
            for version in range(1, len(migrations(kind)) + 1):
                url = servers.create_database(server) if kind == "postgres" else f"sqlite:///{folder}/{version}.db"
                store = release(url, version)
                await store.open()
                await store.close()
                stored(kind, version).write_text(await schema_of(store))
                print(stored(kind, version).name)


if __name__ == "__main__":
    with Servers.session() as session:
        asyncio.run(_write(session))
