"""A command in a process group of its own: its output is kept within bounds, and its end is certain.

The command leads a new session, so that one signal reaches everything it started. Its end is noticed by a thread in
waitpid, which also reaps it, whatever happens to the task that asked. Its output is drained by the event loop into a
buffer that stops growing at `max_output`. `process_guard` kills the group if this process dies. POSIX only.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import pwd
import shutil
import signal
import subprocess
import threading
from contextlib import suppress

from fleetcron import clock
from fleetcron.targets.process_guard import GUARD

# The command waits for one line until the guard knows its group: if we die first, it reads the end and never starts.
# `read` takes no byte beyond the line, so the command's own input can follow in the same pipe.
_GATE = 'read -r fleetcron_go && exec "$@"'
_CHUNK = 65536  # a Linux pipe holds this much
_POLL = 0.02  # seconds between looks at a group that was asked to stop
_DRAIN = 1.0  # seconds for the rest of the output when the leader has ended and something else holds the pipe open
_KILL_WAIT = 5.0  # seconds to wait for a killed child; one stuck in the kernel is reaped later, by its thread


class Output:
    """The first `limit` bytes of what a command wrote, and the number of the others."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        self._head += data[: max(0, self._limit - len(self._head))]

    def text(self) -> str:
        """As UTF-8; what is not, and NUL (which no database text can hold), becomes U+FFFD."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        cut = self._total > len(self._head)
        text = decoder.decode(bytes(self._head), final=not cut).replace("\0", "\ufffd")
        if not cut:
            return text
        split, _ = decoder.getstate()  # a character that the cut went through: leave it out, count it
        return f"{text}… [cut: {self._total - len(self._head) + len(split)} bytes]"


class ProcessGroup:
    """A started command. `close` must be called; it leaves no process, pipe or callback behind.

    `account`: whom to become (needs root), None to stay who we are. Raises OSError if it cannot be started.
    """

    def __init__(
        self,
        command: list[str],
        *,
        stdin: bytes,
        env: dict[str, str],
        cwd: str | None,
        account: pwd.struct_passwd | None,
        max_output: int,
    ) -> None:
        self.exited = asyncio.Event()
        self.output = Output(max_output)
        self._drained = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._input = memoryview(b"\n" + stdin)  # opens the gate
        if shutil.which(command[0]) is None:  # behind the gate this would be exit code 127, like any missing program
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GATE if stdin else f"{_GATE} </dev/null", "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd=cwd,
            env=env,
            start_new_session=True,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else os.getgrouplist(account.pw_name, account.pw_gid),
        )
        try:
            GUARD.add(self._process.pid)
            self._out, self._in = _pipes(self._process)
            self._loop.add_reader(self._out, self._on_output)
            self._loop.add_writer(self._in, self._on_input)
            threading.Thread(target=self._reap, name=f"fleetcron-shell-{self._process.pid}", daemon=True).start()
        except BaseException:
            self.close()
            raise

    @property
    def returncode(self) -> int | None:
        """As subprocess has it: negative for a signal; None while it runs."""
        return self._process.returncode

    async def stop(self, grace: float) -> None:
        """TERM the group, KILL what is left of it after `grace` seconds, or at once if cancelled meanwhile."""
        try:
            deadline = clock.monotonic() + grace
            alive = self._signal(signal.SIGTERM)
            while alive and clock.monotonic() < deadline:
                await clock.sleep(_POLL)
                self._reap_orphans()
                alive = self._signal(0)
        finally:
            self._signal(signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_WAIT):
                await self.exited.wait()
        self._reap_orphans()

    async def drain(self) -> None:
        """Read the rest of the output, for at most _DRAIN seconds: a background process may hold the pipe for hours."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN):
                await self._drained.wait()

    def close(self) -> None:
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
        self._end_output()
        self._end_input()
        GUARD.remove(self._process.pid)

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False if nobody is left in it.

        A group's number is not reused while a member lives, and nothing here signals later than one _POLL after that.
        """
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # it became somebody else (sudo): alive, and out of our reach
            return True
        return True

    def _reap(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop has closed: nobody is left to be told
            self._loop.call_soon_threadsafe(self.exited.set)

    def _reap_orphans(self) -> None:
        """Where fleetcron is process 1 (a container without an init), what the shell left behind is ours to reap.

        A dead member keeps the group "alive", so without this every stop would wait for the whole grace. Not before the
        shell itself has been reaped: its status belongs to the waiting thread.
        """
        with suppress(ChildProcessError):
            while self.returncode is not None and os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass

    def _on_output(self) -> None:
        try:
            data = os.read(self._out, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self.output.add(data)
        else:
            self._end_output()

    def _on_input(self) -> None:
        try:
            self._input = self._input[os.write(self._in, self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # the command does not want the rest
            self._input = self._input[:0]
        if not self._input:
            self._end_input()

    def _end_output(self) -> None:
        stdout = self._process.stdout
        if stdout is not None and not stdout.closed:
            self._loop.remove_reader(stdout.fileno())
            stdout.close()
        self._drained.set()

    def _end_input(self) -> None:
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            self._loop.remove_writer(stdin.fileno())
            stdin.close()


def _pipes(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """(stdout, stdin) of a child, set not to block."""
    assert process.stdout is not None
    assert process.stdin is not None
    found = process.stdout.fileno(), process.stdin.fileno()
    for pipe in found:
        os.set_blocking(pipe, False)
    return found
