"""Cases C20, C26, C29 and C36 for every elector, all at once and in random order: no tick twice, none lost, none late.

The worker is left alone; what it shows is what the schedulers did. FLEETCRON_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.election.chaos import Chaos
from tests.election.support import ElectorServer

LATE = 0.050
ELECTORS = ["database", "etcd", "zk", "redis"]


def seed() -> int:
    return int(os.environ.get("FLEETCRON_SEED") or random.randrange(1_000_000))


async def chaos(
    pg_url: str,
    elector: str,
    new_server: Callable[[str], ElectorServer],
    folder: Path,
    *,
    seconds: float,
    ttl: float,
    late: float,
) -> None:
    server = None if elector == "database" else new_server(elector)
    number = seed()
    print(f"{elector}: seed {number}")
    report = await Chaos(pg_url, server, folder, ttl=ttl, seed=number).run(seconds)
    print(f"{elector}: {report}")
    assert report.named >= seconds - 2 and len(report.faults) >= 3
    assert report.twice == [], f"ticks twice; {report}"
    assert report.lost == [], f"ticks lost; {report}"
    assert report.worst <= late, (
        f"{report}: {report.faults}; late: {report.late}; worker: {(folder / 'worker.log').read_text()[-2000:]}"
    )


@pytest.mark.crash
@pytest.mark.parametrize("elector", ELECTORS)
async def test_C20_C26_C29_faults_in_random_order(
    pg_url: str, elector: str, new_server: Callable[[str], ElectorServer], tmp_path: Path
) -> None:
    # Two cores that start Python processes all the time say little about milliseconds: the long version measures them.
    await chaos(pg_url, elector, new_server, tmp_path, seconds=11, ttl=0.8, late=1.0)


@pytest.mark.soak
@pytest.mark.crash
@pytest.mark.timeout(400)
@pytest.mark.parametrize("elector", ELECTORS)
async def test_three_minutes_of_faults_in_random_order(
    pg_url: str, elector: str, new_server: Callable[[str], ElectorServer], tmp_path: Path
) -> None:
    await chaos(pg_url, elector, new_server, tmp_path, seconds=180, ttl=2.0, late=LATE)
