"""Several processes on one file: no run is claimed twice, nobody is told "database is locked", the dead are seen."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fleetcron.store.sqlite import SqliteStore
from tests.unit.store_sqlite import workload
from tests.unit.store_sqlite.support import LEASE, info, look, new, opened

SRC = Path(__file__).resolve().parents[3] / "src"


def start(what: str, file: Path, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, workload.__file__, what, str(file), *map(str, args)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 0, "its error is above"
    return json.loads(said)


async def test_eight_processes_claim_ten_thousand_runs_once_each(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    store = await opened(file)
    for _ in range(10):
        await store.insert([new() for _ in range(1000)])
    answers = [answer(process) for process in [start("drain", file) for _ in range(8)]]
    claims = [tuple(claim) for each in answers for claim in each["claimed"]]
    assert sorted(run_id for run_id, _ in claims) == list(range(1, 10_001))
    assert sorted(fence for _, fence in claims) == list(range(1, 10_001))
    assert sum(each["lost"] for each in answers) == 0
    assert look(file, "SELECT state, count(*) FROM run GROUP BY state") == [("succeeded", 10_000)]
    await store.close()


@pytest.mark.parametrize("seconds", [4, pytest.param(60, marks=[pytest.mark.soak, pytest.mark.timeout(120)])])
async def test_eight_writers_and_a_long_reader_are_never_told_that_it_is_locked(seconds: int, tmp_path: Path) -> None:
    """Case C72. A process that gets any error ends with one."""
    file = tmp_path / "fleet.db"
    store = await opened(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM run").fetchone()
        answers = [answer(process) for process in [start("hammer", file, seconds) for _ in range(8)]]
        reader.execute("COMMIT")
    assert all(each["writes"] > 10 for each in answers)
    assert max(each["slowest"] for each in answers) < 10
    await store.close()


@pytest.fixture
def dying(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes to be ended after the test, whatever happens."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


async def test_a_killed_worker_is_seen_at_once(tmp_path: Path, dying: list[subprocess.Popen[str]]) -> None:
    file = tmp_path / "fleet.db"
    store = await opened(file)
    await store.insert([new()])
    process = start("hold", file)
    dying.append(process)
    assert process.stdout is not None
    held = json.loads(process.stdout.readline())
    assert await store.absent() == set()
    process.kill()
    killed = time.monotonic()
    while held["worker"] not in await store.absent():  # not reaped by us: a zombie counts as gone
        assert time.monotonic() - killed < 10, "its lease, of a minute, is not waited for"
        await asyncio.sleep(0.01)
    rescued = await store.rescue([held["worker"]], expired=False)
    assert (rescued.workers, rescued.requeued) == ([held["worker"]], 1)
    await store.close()


async def test_who_cannot_be_seen_is_not_called_absent(tmp_path: Path) -> None:
    store = await opened(tmp_path / "fleet.db")
    here = socket.gethostname()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    gone = await store.start_worker(info("gone", pid=process.pid, host=here), LEASE)
    await store.start_worker(info("me", pid=os.getpid(), host=here), LEASE)
    await store.start_worker(info("far away", pid=process.pid, host="elsewhere"), LEASE)
    assert await store.absent() == {gone}
    await store.close()


async def test_a_pid_used_again_is_another_process(tmp_path: Path) -> None:
    file = tmp_path / "fleet.db"
    store = await opened(file)
    worker = await store.start_worker(info(pid=os.getpid(), host=socket.gethostname()), LEASE)
    assert await store.absent() == set()
    started = look(file, "SELECT pid_started FROM worker")[0][0]
    if started is None:
        pytest.skip("no /proc here: pids are all there is")
    space, _, ticks = started.partition("/")
    await _say_started(file, f"{space}/{int(ticks) - 1}")  # the session's process began earlier than ours
    assert await store.absent() == {worker}
    await _say_started(file, f"pid:[1]/{int(ticks) - 1}")  # in a container beside us: not to be seen from here
    assert await store.absent() == set()
    await store.close()


async def _say_started(file: Path, started: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("UPDATE worker SET pid_started = ?", (started,))


async def test_presence_needs_no_connection(tmp_path: Path) -> None:
    store = await opened(tmp_path / "fleet.db")
    assert SqliteStore.absence_is_proof
    assert await store.hold_presence(1) is False
    assert store.presence_lost() is False
    await store.drop_presence()
    await store.close()
