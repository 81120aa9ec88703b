"""Real workers under overload, killed at random: limits hold at every instant by the database's clock, are used up, and nothing leaks."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from fleetcron import Fleet
from tests.crash.test_kills import APP, lines
from tests.support.processes import NodeProcess, on_both_stores, started, wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

RATE, BURST, MAX_RUNNING = 50, 10, 3

# Whatever happens to a lease of the tenant, with the database's clock. A claim holds the limiter's lock (on SQLite: the writer's) from count
# to its commit, so that what is noted lies in the order in which it holds.
ON_POSTGRES = """
CREATE TABLE witness (n bigserial PRIMARY KEY, what int NOT NULL, run_id bigint NOT NULL, at double precision);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' AND NEW.tenant = 'acme' THEN
        INSERT INTO witness (what, run_id, at) VALUES (1, NEW.run_id, extract(epoch FROM NEW.started_at));
    END IF;
    IF TG_OP = 'DELETE' AND OLD.tenant = 'acme' THEN INSERT INTO witness (what, run_id) VALUES (-1, OLD.run_id); END IF;
    RETURN NULL; END $$;
CREATE TRIGGER see AFTER INSERT OR DELETE ON fleetcron.lease FOR EACH ROW EXECUTE FUNCTION see();
"""
ON_SQLITE = """
CREATE TABLE witness (n INTEGER PRIMARY KEY, what INTEGER, run_id INTEGER, at REAL);
CREATE TRIGGER come AFTER UPDATE OF tenant ON lease WHEN NEW.tenant = 'acme' BEGIN
    INSERT INTO witness (what, run_id, at) VALUES (1, NEW.run_id, NEW.started_at / 1e6); END;
CREATE TRIGGER go AFTER DELETE ON lease WHEN OLD.tenant = 'acme' BEGIN
    INSERT INTO witness (what, run_id) VALUES (-1, OLD.run_id); END;
"""


async def watch(url: str) -> None:
    """From now on, note what happens to the tenant's leases."""
    if path := _file(url):
        with closing(sqlite3.connect(path, timeout=30)) as file:
            file.executescript(ON_SQLITE)
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(ON_POSTGRES)
    finally:
        await connection.close()


async def noted(url: str) -> list[tuple[int, float]]:
    """What was noted, in order: +1 and the time of the claim, or -1."""
    query = "SELECT what, coalesce(at, 0) FROM witness ORDER BY n"
    if path := _file(url):
        with closing(sqlite3.connect(path, timeout=30)) as file:
            return list(file.execute(query))
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def _file(url: str) -> str:
    return url.removeprefix("sqlite:///") if url.startswith("sqlite") else ""


def make_nodes(url: str, folder: Path, log: Path, *args: str) -> Iterator[NodeProcess]:
    for n in count():
        yield NodeProcess(url, APP, folder, *args, "--lease", "3s", env={"CRASH_LOG": str(log)}, name=f"{args[1]}{n}")


@pytest.mark.parametrize(
    ("seconds", "used"),
    [(12, 0.8), pytest.param(60, 0.95, marks=[pytest.mark.soak])],
)
def test_limits_under_overload_with_kills(pg_url: str, tmp_path: Path, seconds: float, used: float) -> None:
    """On both stores at once: the limits leave the nodes little to do."""
    on_both_stores(pg_url, tmp_path, lambda url, folder: overload_with_kills(url, folder, seconds, used))


def overload_with_kills(store_url: str, folder: Path, seconds: float, used: float) -> None:
    log = folder / "crash.log"
    chance = random.Random(seconds)
    nodes = make_nodes(store_url, folder, log, "--role", "worker", "--concurrency", "8")
    scheduler = next(make_nodes(store_url, folder, log, "--role", "scheduler"))
    live = [next(nodes) for _ in range(4)]
    total = int(RATE * seconds * 1.5)
    with started(scheduler, *live), Fleet(store_url).blocking as fleet:
        wait_until(lambda: len(fleet.nodes()) == 5, what="five nodes")
        asyncio.run(watch(store_url))
        fleet.set_tenant("acme", rate=f"{RATE}/s", burst=BURST, max_running=MAX_RUNNING)
        time.sleep(1.2)  # a change takes effect within a second
        fleet.submit_many("slow", [{"n": n, "seconds": 0.005} for n in range(total)], tenant="acme")
        begin = time.time()
        kills = 0
        try:
            while time.time() < begin + seconds:
                time.sleep(chance.uniform(1.5, 4) if seconds < 30 else chance.uniform(6, 10))
                victim = chance.randrange(4)
                live[victim].kill()
                kills += 1
                live[victim] = next(nodes).start()
            took = time.time() - begin
            fleet.set_tenant("acme", paused=True)
            time.sleep(1)
            wait_until(lambda: fleet.tenants()[0].running == 0, within=30, what="nothing left running")
        finally:
            for node in live:
                node.kill()
    seen = asyncio.run(noted(store_url))
    running = worst = 0
    for what, _ in seen:
        running += what
        worst = max(worst, running)
    claims = sorted(at for what, at in seen if what == 1)
    over = max(
        (j - i + 1) - (RATE * (claims[j] - claims[i]) + BURST)
        for i in range(len(claims))
        for j in range(i, len(claims))
    )
    share = len(claims) / (RATE * took + BURST)
    begun = sorted(float(line[2]) for line in lines(log, "start"))
    print(
        f"{kills} kills in {took:.1f} s: {len(claims)} claims, {share:.1%} of the allowed, at most {worst} at once, "
        f"{over:+.2f} over the rate in the worst window; {len(begun)} handlers started, {excess(begun):+.2f} by their own clocks"
    )
    assert kills >= 3
    assert worst <= MAX_RUNNING
    assert over <= 1e-3, "no window has more, but for the rounding of seconds to floats"
    assert running == 0
    assert share >= used


def excess(starts: list[float]) -> float:
    """By how many starts the worst window exceeds rate × length + burst."""
    return max(
        j - i + 1 - RATE * (starts[j] - starts[i]) - BURST for i in range(len(starts)) for j in range(i, len(starts))
    )
