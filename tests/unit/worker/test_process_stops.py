"""Child processes are stopped for certain, with all that they started, and their death is noticed (C75)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fleetcron.handlers import Handler
from fleetcron.worker.executors import link
from fleetcron.worker.executors.errors import ChildDied, HandlerTimeout
from fleetcron.worker.executors.process import ProcessExecutor
from tests.unit.worker import process_jobs as jobs
from tests.unit.worker.support import MemoryServices, alive, facts, until, written

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def processes() -> AsyncIterator[ProcessExecutor]:
    executor = ProcessExecutor(MemoryServices(), slots=2, grace=0.5)
    yield executor
    await executor.close()


async def run(processes: ProcessExecutor, fn: Any, timeout: float | None = 30, **payload: Any) -> Any:
    return await processes.run(Handler(fn, fn.__name__), facts(), json.dumps(payload), timeout=timeout)


async def timed_out(processes: ProcessExecutor, fn: Any, timeout: float = 0.2, **payload: Any) -> float:
    await run(processes, jobs.pid)  # warm: the time to come is the stop's
    began = time.monotonic()
    with pytest.raises(HandlerTimeout, match=f"^timed out after {timeout:g}s$"):
        await run(processes, fn, timeout, **payload)
    return time.monotonic() - began


@pytest.mark.parametrize("fn", [jobs.spin, jobs.nap])
async def test_a_timeout_is_an_exception_in_the_handler(fn: Any, tmp_path: Path) -> None:
    processes = ProcessExecutor(MemoryServices(), slots=1, grace=30)
    path = tmp_path / "last words"
    assert await timed_out(processes, fn, path=str(path)) < 10  # long before the grace is over
    assert path.read_text() == "HandlerTimeout('timed out after 0.2s')"
    assert await run(processes, jobs.add, a=1) == 2
    await processes.close()


async def test_a_timeout_cancels_an_async_handler(processes: ProcessExecutor, tmp_path: Path) -> None:
    path = tmp_path / "last words"
    await timed_out(processes, jobs.nap_async, path=str(path))
    assert path.read_text() == "CancelledError()"
    await timed_out(processes, jobs.told, path=str(tmp_path / "told"))
    assert (tmp_path / "told").read_text() == "told"


async def test_a_handler_that_ignores_sigterm_is_killed_after_the_grace(
    processes: ProcessExecutor, tmp_path: Path
) -> None:
    path = tmp_path / "pid"
    assert await timed_out(processes, jobs.stubborn, path=str(path)) >= 0.7
    assert not alive(int(path.read_text()))


async def test_swallowing_the_timeout_does_not_undo_it(processes: ProcessExecutor, tmp_path: Path) -> None:
    await timed_out(processes, jobs.swallow, path=str(tmp_path / "it"))
    assert (tmp_path / "it").read_text() == "swallowed"
    await timed_out(processes, jobs.checkpoints)


async def test_a_result_that_never_gets_ready_counts_as_running(processes: ProcessExecutor) -> None:
    await timed_out(processes, jobs.slow_repr)


@pytest.mark.parametrize("fn", [jobs.with_grandchild, jobs.with_stubborn_grandchild, jobs.forks_and_naps])
async def test_what_a_handler_started_goes_with_it(processes: ProcessExecutor, fn: Any, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    await timed_out(processes, fn, timeout=1, path=str(path))
    assert not alive(int(path.read_text()))


@pytest.mark.parametrize("fn", [jobs.nap, jobs.with_grandchild])
async def test_cancelling_stops_the_code_before_it_returns(processes: ProcessExecutor, fn: Any, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    pid = await run(processes, jobs.pid)
    task = asyncio.create_task(run(processes, fn, None, path=str(path)))
    if fn is jobs.nap:
        await asyncio.sleep(0.2)
    else:
        pid = int(await written(path))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(pid)
    if fn is jobs.nap:
        assert "HandlerStopped" in path.read_text()
    assert await run(processes, jobs.add, a=1) == 2


async def test_cancelling_twice_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    processes = ProcessExecutor(MemoryServices(), slots=1, grace=30)
    path = tmp_path / "pid"
    task = asyncio.create_task(run(processes, jobs.stubborn, None, path=str(path)))
    pid = int(await written(path))
    task.cancel()
    await asyncio.sleep(0.3)
    assert alive(pid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 20)
    await until(lambda: not alive(pid))
    await processes.close()


async def test_cancelling_while_the_child_starts(processes: ProcessExecutor) -> None:
    for delay in (0, 0.001, 0.02, 0.05):
        task = asyncio.create_task(run(processes, jobs.spin, None))
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 20)
    assert await run(processes, jobs.add, a=1) == 2


def job_in(module: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A handler in a module that this process has not imported."""
    module.write_text(source)
    monkeypatch.syspath_prepend(module.parent)

    def job() -> None: ...

    job.__module__, job.__qualname__ = module.stem, "job"
    return job


async def test_importing_the_handler_is_not_its_time(
    processes: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path / "slow_import.py", "import time; time.sleep(0.6)\ndef job(): return 'ran'", monkeypatch)
    assert await run(processes, job, 0.3) == "ran"


async def test_importing_the_handler_is_not_endless(
    processes: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "START_LIMIT", 0.5)
    job = job_in(tmp_path / "endless_import.py", "import time; time.sleep(60)\ndef job(): ...", monkeypatch)
    with pytest.raises(ChildDied, match=r"after 0\.5s it had not begun"):
        await asyncio.wait_for(run(processes, job, None), 10)


async def test_a_module_that_cannot_be_imported(
    processes: ProcessExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path / "broken_import.py", "raise LookupError('no such plugin')", monkeypatch)
    with pytest.raises(LookupError, match="no such plugin"):
        await run(processes, job)


# ── death ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_child_that_kills_itself_costs_its_own_run_only(processes: ProcessExecutor) -> None:
    other = asyncio.create_task(run(processes, jobs.naps, seconds=0.5))
    for _ in range(3):
        with pytest.raises(ChildDied, match="killed by signal 9 \\(SIGKILL\\)") as died:
            await run(processes, jobs.die)
        assert (died.value.signal, died.value.exit_code) == (9, None)
    assert await run(processes, jobs.add, a=1) == 2
    assert await other == "rested"


async def test_a_child_that_leaves_says_its_code(processes: ProcessExecutor) -> None:
    with pytest.raises(ChildDied, match="exit code 3") as died:
        await run(processes, jobs.leave, code=3)
    assert (died.value.signal, died.value.exit_code) == (None, 3)


async def test_a_death_is_noticed_though_a_fork_holds_the_socket(processes: ProcessExecutor, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with pytest.raises(ChildDied):
        await asyncio.wait_for(run(processes, jobs.forks_and_dies, None, path=str(path)), 10)
    await until(lambda: not alive(int(path.read_text())))


async def test_a_child_that_died_idle_costs_no_run(processes: ProcessExecutor) -> None:
    for _ in range(5):
        os.kill(await run(processes, jobs.pid), signal.SIGKILL)
        assert await run(processes, jobs.add, a=1) == 2


async def test_kill_all_comes_from_another_thread(processes: ProcessExecutor, tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    tasks = [asyncio.create_task(run(processes, jobs.with_grandchild, None, path=str(path))) for path in paths]
    waiting = asyncio.create_task(run(processes, jobs.add, a=1))  # for a slot
    pids = [int(await written(path)) for path in paths]
    heartbeat = threading.Thread(target=processes.kill_all)
    heartbeat.start()
    heartbeat.join(5)
    for task in [*tasks, waiting]:
        with pytest.raises(ChildDied):
            await asyncio.wait_for(task, 20)
    await until(lambda: not any(map(alive, pids)))
    assert await run(processes, jobs.add, a=1) == 2  # what comes afterwards is another matter


async def test_close_is_bounded_and_leaves_nothing(tmp_path: Path) -> None:
    processes = ProcessExecutor(MemoryServices(), slots=3, grace=30)
    idle = await run(processes, jobs.pid)
    path = tmp_path / "pid"
    task = asyncio.create_task(run(processes, jobs.stubborn, None, path=str(path)))
    busy = int(await written(path))
    began = time.monotonic()
    await processes.close()
    assert time.monotonic() - began < 10, "the grace, of half a minute, is not waited for"
    assert not alive(busy)
    assert not alive(idle)
    with pytest.raises(ChildDied):
        await asyncio.wait_for(task, 20)


# ── a channel that handlers cannot spoil ─────────────────────────────────────────────────────────────────────────────


async def test_writing_to_and_closing_descriptors_does_not_matter(processes: ProcessExecutor) -> None:
    assert await run(processes, jobs.write_everywhere) == "written"
    assert await run(processes, jobs.close_everything) == "closed"
    assert await run(processes, jobs.add, a=1) == 2


async def test_a_sigterm_that_is_not_from_the_worker_is_ignored(processes: ProcessExecutor) -> None:
    assert await run(processes, jobs.terminate_self) == "still here"


@pytest.mark.parametrize(("fn", "says"), [(jobs.cut_the_line, "died"), (jobs.garble, "other than fleetcron wrote")])
async def test_a_spoilt_connection_ends_the_child(processes: ProcessExecutor, fn: Any, says: str) -> None:
    with pytest.raises(ChildDied, match=says):
        await asyncio.wait_for(run(processes, fn, None), 10)
    assert await run(processes, jobs.add, a=1) == 2


# ── the program around it ────────────────────────────────────────────────────────────────────────────────────────────

PARENT = """
import asyncio, os, signal, sys, time
from pathlib import Path
from fleetcron.handlers import Handler
from fleetcron.worker.executors.process import ProcessExecutor
from tests.unit.worker import process_jobs

async def main():
    processes = ProcessExecutor(None, slots=1)
    job = Handler(getattr(process_jobs, sys.argv[1]), "job")
    path = Path(sys.argv[2])
    asyncio.create_task(processes.run(job, None, f'{{"path":"{path}"}}', timeout=None))
    while not path.exists() or not path.read_text():
        await asyncio.sleep(0.01)
    (child,) = processes._children
    fork = 0
    if "fork" in sys.argv and (fork := os.fork()) == 0:  # what it inherits, it holds open
        os.close(1)
        time.sleep(30)
        os._exit(0)
    print(child.pid, fork, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child without a free GIL outlives its parent")
@pytest.mark.parametrize(
    "how", [["with_stubborn_grandchild"], ["with_grandchild_and_no_gil"], ["with_grandchild", "fork"]], ids=" ".join
)
async def test_children_and_what_they_started_die_with_the_worker(how: list[str], tmp_path: Path) -> None:
    path = tmp_path / "pid"
    command = [sys.executable, "-c", PARENT, how[0], path, *how[1:]]
    parent = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=30, check=False)
    assert parent.returncode == -signal.SIGKILL
    child, fork = map(int, parent.stdout.split())
    try:
        await until(lambda: not alive(child) and not alive(int(path.read_text())), 5)
    finally:
        if fork:
            os.kill(fork, signal.SIGKILL)


SCRIPT = """
import asyncio
from fleetcron.handlers import Handler
from fleetcron.worker.executors.process import ProcessExecutor

class Mine(Exception):
    pass

def job(n: int) -> list:
    if n < 0:
        raise Mine("negative")
    return [n + 1, __name__]

async def main():
    processes = ProcessExecutor(None, slots=1)
    handler = Handler(job, "job")
    print(await processes.run(handler, None, '{"n":1}', timeout=30))
    try:
        await processes.run(handler, None, '{"n":-1}', timeout=30)
    except Mine as error:
        print("caught", error)
    await processes.close()

"""
GUARD = "if __name__ == '__main__':\n    asyncio.run(main())\n"


@pytest.mark.parametrize(("how", "name"), [("path", "__mp_main__"), ("module", "app.main")])
def test_functions_of_the_program_itself(how: str, name: str, tmp_path: Path) -> None:
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(SCRIPT + GUARD)
    command = [str(package / "main.py")] if how == "path" else ["-m", "app.main"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == f"[2, '{name}']\ncaught negative\n", done.stderr


def test_a_program_that_starts_itself_when_imported_is_told(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SCRIPT + "asyncio.run(main())\n")
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "put what starts it under `if __name__ == '__main__':`" in done.stderr


def test_output_of_handlers_passes_through(tmp_path: Path) -> None:
    script = SCRIPT.replace("return [", "print('from the child'); return [") + GUARD
    (tmp_path / "app.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.startswith("from the child\n[2,"), done.stderr


def test_a_function_typed_at_a_prompt_is_refused() -> None:
    code = SCRIPT + "asyncio.run(main())\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "was typed at a prompt" in done.stderr
