"""A resource that checks fences, in two ways, and the books from which a crowd's run is judged.

On PostgreSQL it lives in the fleet's own database: one table is guarded by `fence_ok`, the other by the highest fence that it has seen. On
SQLite it is a file of its own and has the second guard only. The history of the lock itself is written by triggers, in the database.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import Any, Protocol

import asyncpg

NAME = "resource"

POSTGRES = """
CREATE TABLE hold (fence bigint PRIMARY KEY, pid int NOT NULL, began timestamptz NOT NULL DEFAULT clock_timestamp(), ended timestamptz);
CREATE TABLE guarded (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, fence bigint NOT NULL, written_at timestamptz NOT NULL);
CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, fence bigint NOT NULL);
CREATE TABLE latest (fence bigint NOT NULL);
INSERT INTO latest VALUES (0);
CREATE TABLE refused (fence bigint NOT NULL, by text NOT NULL);
CREATE TABLE history (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, fence bigint NOT NULL, owner text NOT NULL,
    acquired_at timestamptz NOT NULL, expires_at timestamptz, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON history (fence);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO public.history (fence, owner, acquired_at) VALUES (OLD.fence, OLD.owner, OLD.acquired_at);
        RETURN OLD;
    END IF;
    INSERT INTO public.history (fence, owner, acquired_at, expires_at)
        VALUES (NEW.fence, NEW.owner, NEW.acquired_at, nullif(NEW.expires_at, '-infinity'));
    RETURN NEW;
END $$;
CREATE TRIGGER note BEFORE INSERT OR UPDATE OR DELETE ON fleetcron.lock FOR EACH ROW EXECUTE FUNCTION note();
"""
# Without an expiry: given back, or pruned.

SQLITE = """
CREATE TABLE hold (fence INTEGER PRIMARY KEY, pid INTEGER NOT NULL, began INTEGER NOT NULL, ended INTEGER);
CREATE TABLE kept (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL);
CREATE TABLE latest (fence INTEGER NOT NULL);
INSERT INTO latest VALUES (0);
CREATE TABLE refused (fence INTEGER NOT NULL, by TEXT NOT NULL);
"""
NOW = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000"  # to the millisecond below
SQLITE_HISTORY = f"""
CREATE TABLE history (id INTEGER PRIMARY KEY, fence INTEGER NOT NULL, owner TEXT NOT NULL, acquired_at INTEGER NOT NULL, expires_at INTEGER,
    at INTEGER NOT NULL);
CREATE TRIGGER note_insert BEFORE INSERT ON lock WHEN NOT EXISTS (SELECT 1 FROM lock WHERE name = NEW.name) BEGIN
    INSERT INTO history (fence, owner, acquired_at, expires_at, at) VALUES (NEW.fence, NEW.owner, NEW.acquired_at, NEW.expires_at, {NOW});
END;
CREATE TRIGGER note_update BEFORE UPDATE ON lock BEGIN
    INSERT INTO history (fence, owner, acquired_at, expires_at, at) VALUES (NEW.fence, NEW.owner, NEW.acquired_at, NEW.expires_at, {NOW});
END;
CREATE TRIGGER note_delete BEFORE DELETE ON lock BEGIN
    INSERT INTO history (fence, owner, acquired_at, at) VALUES (OLD.fence, OLD.owner, OLD.acquired_at, {NOW});
END;
"""


class Resource(Protocol):
    """What a holder does to it. Writes answer whether they were accepted."""

    async def begin(self, fence: int, pid: int) -> None: ...
    async def end(self, fence: int) -> None: ...
    async def write(self, fence: int, seconds: float) -> bool: ...
    async def query(self, statement: str) -> list[Any]: ...
    async def close(self) -> None: ...


class OnPostgres:
    def __init__(self, connection: Any) -> None:
        self._db = connection

    @classmethod
    async def at(cls, url: str) -> OnPostgres:
        return cls(await asyncpg.connect(url))

    async def begin(self, fence: int, pid: int) -> None:
        await self._db.execute("INSERT INTO hold (fence, pid) VALUES ($1, $2)", fence, pid)

    async def end(self, fence: int) -> None:
        await self._db.execute("UPDATE hold SET ended = clock_timestamp() WHERE fence = $1", fence)

    async def write(self, fence: int, seconds: float) -> bool:
        """One write by each of the guards; the first is a transaction that takes so long."""
        async with self._db.transaction():
            guarded = await self._db.fetchval("SELECT fleetcron.fence_ok($1, $2)", NAME, fence)
            if guarded:
                if seconds:
                    await asyncio.sleep(seconds)
                await self._db.execute("INSERT INTO guarded (fence, written_at) VALUES ($1, clock_timestamp())", fence)
            else:
                await self._db.execute("INSERT INTO refused VALUES ($1, 'fence_ok')", fence)
        kept = await self._db.fetchval(
            "WITH newest AS (UPDATE latest SET fence = $1 WHERE fence <= $1 RETURNING fence), "
            "kept AS (INSERT INTO kept (fence) SELECT fence FROM newest RETURNING fence), "
            "refused AS (INSERT INTO refused SELECT $1, 'highest' WHERE NOT EXISTS (SELECT FROM newest)) SELECT count(*) FROM kept",
            fence,
        )
        return bool(kept)

    async def query(self, statement: str) -> list[Any]:
        return list(await self._db.fetch(statement))

    async def close(self) -> None:
        await self._db.close()


class OnSqlite:
    def __init__(self, path: str, fleet: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, timeout=20)
        self._db.execute(f"ATTACH '{fleet}' AS fleet")

    async def begin(self, fence: int, pid: int) -> None:
        self._db.execute("INSERT INTO hold (fence, pid, began) VALUES (?, ?, ?)", (fence, pid, time.time_ns() // 1000))

    async def end(self, fence: int) -> None:
        self._db.execute("UPDATE hold SET ended = ? WHERE fence = ?", (time.time_ns() // 1000, fence))

    async def write(self, fence: int, seconds: float) -> bool:
        time.sleep(seconds)
        self._db.execute("BEGIN IMMEDIATE")
        kept = bool(self._db.execute("UPDATE latest SET fence = ? WHERE fence <= ?", (fence, fence)).rowcount)
        if kept:
            self._db.execute("INSERT INTO kept (fence) VALUES (?)", (fence,))
        else:
            self._db.execute("INSERT INTO refused VALUES (?, 'highest')", (fence,))
        self._db.execute("COMMIT")
        return kept

    async def query(self, statement: str) -> list[Any]:
        return self._db.execute(statement.replace("history", "fleet.history")).fetchall()

    async def close(self) -> None:
        self._db.close()


async def prepare(url: str) -> None:
    """Make the tables and the triggers. The fleet's schema is there already."""
    if not url.startswith("sqlite"):
        connection = await asyncpg.connect(url)
        await connection.execute(POSTGRES)
        await connection.close()
        return
    fleet = url.removeprefix("sqlite:///")
    for path, script in ((fleet, SQLITE_HISTORY), (f"{fleet}.resource", SQLITE)):
        db = sqlite3.connect(path)
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(script)
        db.close()


async def connect(url: str) -> Resource:
    if not url.startswith("sqlite"):
        return await OnPostgres.at(url)
    path = url.removeprefix("sqlite:///")
    return OnSqlite(f"{path}.resource", path)


# ── What must hold, by SQL; each statement finds what breaks it ──────────────────────────────────────────────────────────────

# When each holder's time was over: given back, or run out.
SPANS = """
WITH span AS (
    SELECT fence, min(acquired_at) AS acquired_at, max(expires_at) AS expires_at,
           min(CASE WHEN expires_at IS NULL THEN at END) AS released_at, min(id) AS id
    FROM history GROUP BY fence),
term AS (
    SELECT fence, acquired_at, id, CASE WHEN released_at < expires_at THEN released_at ELSE expires_at END AS over FROM span)
"""

RULES = {
    "two holders inside their ttl": SPANS
    + """SELECT * FROM (SELECT fence, acquired_at, lag(over) OVER (ORDER BY fence) AS before FROM term) t WHERE acquired_at < before""",
    "two holders at it at once": SPANS
    + """SELECT * FROM (
        SELECT h.fence, h.began, lag(CASE WHEN h.ended < t.over THEN h.ended ELSE t.over END) OVER (ORDER BY h.fence) AS before
        FROM hold h JOIN term t ON t.fence = h.fence) x WHERE began < before""",
    "a fence that does not rise": SPANS
    + """SELECT * FROM (SELECT fence, lag(fence) OVER (ORDER BY id) AS before FROM term) t WHERE fence <= before""",
    "a fence for two owners": """SELECT fence FROM history GROUP BY fence HAVING count(DISTINCT owner) > 1""",
    "a holder without a fence of the lock": """SELECT fence FROM hold WHERE fence NOT IN (SELECT fence FROM history)""",
    "a stale write past the highest fence": """
        SELECT * FROM (SELECT fence, lag(fence) OVER (ORDER BY id) AS before FROM kept) t WHERE fence < before""",
}
ON_POSTGRES = {
    "a stale write past fence_ok": """
        SELECT * FROM (SELECT fence, lag(fence) OVER (ORDER BY id) AS before FROM guarded) t WHERE fence < before""",
    "a guarded write after the takeover": """
        SELECT g.fence, g.written_at, h.fence, h.at FROM guarded g JOIN history h ON h.fence > g.fence AND h.at <= g.written_at
        AND h.fence = (SELECT min(fence) FROM history WHERE fence > g.fence)""",
}
