"""The shell target with real processes: how they end, what is kept of their output, that nothing outlives a stop."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from fleetcron.errors import ConfigError
from fleetcron.targets import shell
from fleetcron.targets.process_guard import GUARD
from fleetcron.targets.shell import ShellError, ShellResult, ShellTarget, ShellUserError, run_shell, shell_environment

ROOT = os.geteuid() == 0


async def sh(
    command: str, *, facts: dict[str, str] | None = None, timeout: float | None = 20, grace: float = 5.0, **fields: Any
) -> ShellResult:
    return await run_shell(ShellTarget(command=command, **fields), env=facts or {}, timeout=timeout, stop_grace=grace)


def alive(pid: int) -> bool:
    """Is it running? A zombie whose new parent has not looked yet is dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"


async def until(fact: Callable[[], bool], within: float = 10) -> None:
    """Wait for a fact about other processes; fail if it does not come true."""
    deadline = time.monotonic() + within
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)


async def pids(path: Path, count: int) -> list[int]:
    """The process ids that a command writes to `path`, one a line."""
    await until(lambda: path.exists() and len(path.read_text().split()) == count)
    return [int(word) for word in path.read_text().split()]


def with_fleetcron() -> dict[str, str]:
    """The environment for a Python that imports the fleetcron under test."""
    return {**os.environ, "PYTHONPATH": str(Path(shell.__file__).parents[2])}


# ── How commands end ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [0, 1, 3, 127, 255])
async def test_the_exit_code_is_the_commands(code: int) -> None:
    result = await sh(f"echo out; exit {code}")
    assert (result.exit_code, result.output, result.signal, result.timed_out) == (code, "out\n", None, False)
    assert result.ok == (code == 0)
    assert result.reason() == (None if code == 0 else f"exit code {code}")


async def test_a_command_ended_by_a_signal_has_its_name_and_no_exit_code() -> None:
    result = await sh("kill -SEGV $$")
    assert (result.exit_code, result.signal, result.ok) == (None, "SIGSEGV", False)
    assert result.reason() == "killed by SIGSEGV"


async def test_a_shell_or_directory_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ShellError, match="/no/such/shell"):
        await sh("true", shell="/no/such/shell")
    with pytest.raises(ShellError, match=re.escape(str(tmp_path / "gone"))):
        await sh("true", cwd=str(tmp_path / "gone"))


async def test_another_shell_runs_the_command() -> None:
    assert (await sh("x=abc; echo ${x^^} $SHELL", shell="/bin/bash")).output == "ABC /bin/bash\n"


# ── Output ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_stdout_and_stderr_come_together_in_order() -> None:
    assert (await sh("echo one; echo two >&2; echo three")).output == "one\ntwo\nthree\n"


async def test_ten_megabytes_of_output_are_drained_and_the_head_is_kept() -> None:
    result = await run_shell(
        ShellTarget(command="head -c 10485760 /dev/zero | tr '\\0' x; echo; echo end >&2"),
        env={},
        timeout=30,
        max_output=1000,
    )
    assert result.exit_code == 0
    assert result.output == "x" * 1000 + f"… [cut: {10485760 + 1 + 4 - 1000} bytes]"


async def test_output_as_long_as_the_limit_is_not_cut() -> None:
    target = ShellTarget(command="printf 12345678")
    assert (await run_shell(target, env={}, timeout=20, max_output=8)).output == "12345678"
    assert (await run_shell(target, env={}, timeout=20, max_output=7)).output == "1234567… [cut: 1 bytes]"


async def test_a_cut_does_not_split_a_character() -> None:
    target = ShellTarget(command="printf 'a€€'")  # 1 + 3 + 3 bytes
    for limit, kept, cut in [(3, "a", 6), (4, "a€", 3), (6, "a€", 3)]:
        result = await run_shell(target, env={}, timeout=20, max_output=limit)
        assert result.output == f"{kept}… [cut: {cut} bytes]"


async def test_output_that_is_not_utf8_and_nul_become_replacement_characters() -> None:
    result = await sh(r"printf 'caf\351 \000 \303\251'")
    assert result.output == "caf\ufffd \ufffd é"


# ── Input and environment ────────────────────────────────────────────────────────────────────────────────────────────


async def test_input_is_fed_and_ended() -> None:
    assert (await sh("cat; echo done", stdin="Grüße\nzwei\n")).output == "Grüße\nzwei\ndone\n"


async def test_without_input_there_is_nothing_to_read() -> None:
    assert (await sh("cat; echo done")).output == "done\n"


async def test_a_megabyte_of_input_passes_a_command_that_echoes_it() -> None:
    result = await run_shell(
        ShellTarget(command="cat", stdin="y" * 1_000_000), env={}, timeout=20, max_output=2_000_000
    )
    assert result.output == "y" * 1_000_000


async def test_a_command_may_ignore_its_input() -> None:
    assert (await sh("exec 0<&-; echo fine", stdin="z" * 1_000_000)).output == "fine\n"


async def test_the_runs_facts_win_over_the_targets_environment_which_wins_over_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("A", "B", "C"):
        monkeypatch.setenv(name, "worker")
    result = await sh("echo $A $B $C", facts={"C": "run"}, env={"B": "target", "C": "target"})
    assert result.output == "worker target run\n"


async def test_home_and_user_are_those_of_whoever_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/elsewhere")
    me = pwd.getpwuid(os.geteuid())
    result = await sh("echo $HOME $LOGNAME $USER $SHELL; pwd", cwd="~")
    assert result.output == f"{me.pw_dir} {me.pw_name} {me.pw_name} /bin/sh\n{Path(me.pw_dir).resolve()}\n"


async def test_the_home_directory_can_be_set_and_may_be_missing(tmp_path: Path) -> None:
    assert (await sh("pwd", cwd="~", env={"HOME": str(tmp_path)})).output == f"{tmp_path}\n"
    assert (await sh("pwd", cwd="~", env={"HOME": str(tmp_path / "gone")})).output == "/\n"


def test_the_facts_of_a_run_as_variables() -> None:
    facts = shell_environment(
        run_id=7,
        job="nightly",
        schedule="nightly/eu",
        tenant="acme",
        nominal_at=datetime(2024, 3, 31, 3, tzinfo=timezone(timedelta(hours=2))),
        attempt=2,
        idempotency_key="k",
        fence=99,
    )
    assert facts == {
        "FLEETCRON_RUN_ID": "7",
        "FLEETCRON_JOB": "nightly",
        "FLEETCRON_SCHEDULE": "nightly/eu",
        "FLEETCRON_TENANT": "acme",
        "FLEETCRON_NOMINAL_AT": "2024-03-31T01:00:00Z",
        "FLEETCRON_ATTEMPT": "2",
        "FLEETCRON_IDEMPOTENCY_KEY": "k",
        "FLEETCRON_FENCE": "99",
    }


def test_absent_facts_are_empty_and_a_naive_time_is_refused() -> None:
    def facts(nominal_at: datetime | None) -> dict[str, str]:
        return shell_environment(
            run_id=1, job="j", schedule=None, tenant="", nominal_at=nominal_at, attempt=1, idempotency_key="k", fence=1
        )

    assert (facts(None)["FLEETCRON_SCHEDULE"], facts(None)["FLEETCRON_NOMINAL_AT"]) == ("", "")
    moment = datetime(2024, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    assert facts(moment)["FLEETCRON_NOMINAL_AT"] == "2024-01-01T00:00:00.250000Z"
    with pytest.raises(TypeError, match="nominal_at"):
        facts(datetime(2024, 1, 1))  # noqa: DTZ001  (what is tested)


# ── Stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_timeout_ends_the_whole_group_and_keeps_the_output(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    started = time.monotonic()
    result = await sh(f"echo begun; sleep 300 & echo $! $$ > {notes}; sleep 300; echo never", timeout=0.5)
    assert (result.timed_out, result.ok, result.output) == (True, False, "begun\n")
    assert result.reason() == "timed out"
    assert time.monotonic() - started < 5
    background, leader = await pids(notes, 2)
    await until(lambda: not alive(background) and not alive(leader))


async def test_a_group_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    started = time.monotonic()
    result = await sh(f"trap '' TERM; sleep 300 & echo $! > {notes}; sleep 300; sleep 300", timeout=0.3, grace=0.5)
    assert 0.8 <= time.monotonic() - started < 5
    assert (result.exit_code, result.signal, result.timed_out) == (None, "SIGKILL", True)
    (background,) = await pids(notes, 1)
    await until(lambda: not alive(background))


async def test_a_child_that_ignores_term_is_killed_although_the_shell_has_gone(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    script = tmp_path / "stubborn.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "time.sleep(300)\n"
    )
    task = asyncio.create_task(sh(f"{sys.executable} {script} {notes} & wait", timeout=None, grace=0.5))
    (background,) = await pids(notes, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not alive(background))


async def test_a_command_may_use_the_grace_to_end_well() -> None:
    result = await sh("trap 'echo tidied; exit 4' TERM; echo begun; sleep 300 & wait", timeout=0.5)
    assert (result.exit_code, result.timed_out, result.output) == (4, True, "begun\ntidied\n")


async def test_cancelling_the_task_ends_the_group(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    task = asyncio.create_task(sh(f"sleep 300 & echo $! $$ > {notes}; wait", timeout=None))
    group = await pids(notes, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    await until(lambda: not any(alive(pid) for pid in group))


async def test_a_second_cancellation_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    command = f"trap 'echo x >> {notes}' TERM; echo $$ > {notes}; while :; do sleep 0.05; done"
    task = asyncio.create_task(sh(command, grace=60))
    (leader,) = await pids(notes, 1)
    started = time.monotonic()
    task.cancel()
    await until(lambda: "x" in notes.read_text())  # it has had its TERM, and goes on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not alive(leader))
    assert time.monotonic() - started < 10


async def test_every_command_can_be_killed_from_a_thread(tmp_path: Path) -> None:
    notes = [tmp_path / "one", tmp_path / "two"]
    tasks = [asyncio.create_task(sh(f"trap '' TERM; sleep 300 & echo $! $$ > {note}; wait")) for note in notes]
    groups = [await pids(note, 2) for note in notes]
    await asyncio.to_thread(GUARD.kill_all)
    assert [(await task).signal for task in tasks] == ["SIGKILL", "SIGKILL"]
    await until(lambda: not any(alive(pid) for group in groups for pid in group))


async def test_a_background_process_that_holds_the_output_does_not_hold_the_run(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    started = time.monotonic()
    result = await sh(f"sleep 300 & echo $! > {notes}; echo ready")
    assert (result.exit_code, result.output) == (0, "ready\n")
    assert time.monotonic() - started < 10
    (background,) = await pids(notes, 1)
    assert alive(background)  # a command may start a daemon, as under cron
    os.kill(background, signal.SIGKILL)


async def test_nothing_is_left_behind_after_many_commands() -> None:
    await sh("true")
    before = len(list(Path("/proc/self/fd").iterdir()))
    results = await asyncio.gather(*(sh(f"echo {n}; exit {n % 3}") for n in range(60)))
    assert [(r.output, r.exit_code) for r in results] == [(f"{n}\n", n % 3) for n in range(60)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    children = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "stat="], capture_output=True, text=True, check=True
    )
    assert "Z" not in children.stdout


AS_PROCESS_1 = """
import asyncio, ctypes, sys, time
import psutil
from fleetcron.targets.shell import ShellTarget, run_shell
from fleetcron.targets.process_guard import GUARD

PR_SET_CHILD_SUBREAPER = 36  # orphans come to us, as to process 1
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
started = time.monotonic()
target = ShellTarget(command="sleep 300 | sleep 300; true")
result = asyncio.run(run_shell(target, env={}, timeout=0.3, stop_grace=30))
assert result.timed_out and time.monotonic() - started < 15, (result, time.monotonic() - started)
GUARD.close()
assert psutil.Process().children() == []
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's subreaper")
async def test_in_a_container_without_an_init_a_stop_neither_waits_for_zombies_nor_leaves_them() -> None:
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", AS_PROCESS_1, env=with_fleetcron())
    assert await worker.wait() == 0


# ── The fleetcron process dies ───────────────────────────────────────────────────────────────────────────────────────

WORKER = """
import asyncio, sys
from fleetcron.targets.shell import ShellTarget, run_shell
asyncio.run(run_shell(ShellTarget(command=sys.argv[1]), env={}, timeout=None))
"""

WORKER_THAT_LOSES_ITS_GUARD = """
import asyncio, os, signal, sys
import psutil
from fleetcron.targets.shell import ShellTarget, run_shell

async def main():
    first = asyncio.create_task(run_shell(ShellTarget(command=sys.argv[1]), env={}, timeout=None))
    await asyncio.sleep(0)  # it has started, and so has the guard
    (guard,) = [child for child in psutil.Process().children() if "job-guard" in child.cmdline()]
    guard.kill()
    while guard.status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    await run_shell(ShellTarget(command="true"), env={}, timeout=None)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.crash
@pytest.mark.parametrize("whole_group", [False, True], ids=["the process", "its process group"])
async def test_kill_9_of_the_worker_takes_the_commands_processes_along(tmp_path: Path, whole_group: bool) -> None:
    notes = tmp_path / "pids"
    command = f"trap '' TERM HUP; sleep 300 & echo $! $$ > {notes}; sleep 300; wait"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, command],
        env=with_fleetcron(),
        start_new_session=True,
    )
    try:
        group = await pids(notes, 2)
        assert all(alive(pid) for pid in group)
    finally:
        (os.killpg if whole_group else os.kill)(worker.pid, signal.SIGKILL)
        worker.wait()
    await until(lambda: not any(alive(pid) for pid in group))


@pytest.mark.crash
async def test_a_killed_guard_is_replaced_and_told_of_the_living(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER_THAT_LOSES_ITS_GUARD)
    notes = tmp_path / "pids"
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        str(script),
        f"echo $$ > {notes}; sleep 300; wait",
        env=with_fleetcron(),
    )
    assert await worker.wait() == -signal.SIGKILL
    (leader,) = await pids(notes, 1)
    await until(lambda: not alive(leader))


# ── Another user ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(not ROOT, reason="only root can switch users")
async def test_root_switches_to_the_user_with_its_groups_and_without_our_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEETCRON_URL", "postgresql://secret")
    nobody = pwd.getpwnam("nobody")
    result = await sh("id -u; id -g; id -G; echo $LOGNAME $HOME; echo [$FLEETCRON_URL]; pwd", user="nobody", cwd="~")
    groups = " ".join(map(str, os.getgrouplist("nobody", nobody.pw_gid)))
    home = nobody.pw_dir if Path(nobody.pw_dir).is_dir() else "/"
    assert result.output.splitlines() == [
        str(nobody.pw_uid),
        str(nobody.pw_gid),
        groups,
        f"nobody {nobody.pw_dir}",
        "[]",
        home,
    ]


async def test_ones_own_user_needs_no_switch() -> None:
    assert (await sh("id -u", user=pwd.getpwuid(os.geteuid()).pw_name)).output == f"{os.geteuid()}\n"


async def test_an_unknown_user_is_refused() -> None:
    with pytest.raises(ShellUserError, match="no-such-user"):
        await sh("true", user="no-such-user")


async def test_without_root_another_user_is_refused_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ShellUserError, match=r"'nobody'.*54321.*run the worker as root"):
        await sh(f"touch {tmp_path}/ran", user="nobody")
    assert not (tmp_path / "ran").exists()


# ── The record ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_target_survives_its_dictionary() -> None:
    target = ShellTarget(command="echo é", shell="/bin/bash", stdin="x\n", env={"A": "1"}, cwd="~", user="root")
    assert ShellTarget.from_dict(target.to_dict()) == target
    assert ShellTarget(command="true").to_dict() == {"type": "shell", "command": "true"}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"type": "shell"}, "command"),
        ({"type": "shell", "command": 3}, "command"),
        ({"type": "http", "command": "true"}, "http"),
        ({"type": "shell", "command": "true", "nice": 5}, "nice"),
        ({"type": "shell", "command": "true", "env": {"A": 1}}, "env"),
        ({"type": "shell", "command": "  "}, "command"),
        ({"type": "shell", "command": "tr\0ue"}, "command"),
        ({"type": "shell", "command": "true", "env": {"A=B": "1"}}, "A=B"),
        ({"type": "shell", "command": "true", "env": {"A": "\0"}}, "A"),
        ({"type": "shell", "command": "true", "stdin": "\ud800"}, "stdin"),
    ],
)
def test_a_target_that_cannot_run_is_refused_and_the_field_named(data: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(named)):
        ShellTarget.from_dict(data)
