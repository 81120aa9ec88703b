"""Job process groups die with the fleetcron process, even when that one is killed with SIGKILL.

One tiny helper (a POSIX shell, about 1 MB) per fleetcron process holds the read end of a pipe and the list of live
groups. When the last write end closes, which the kernel does however a process ends, it kills every group on the
list.

Linux has PR_SET_PDEATHSIG for this, and it is not enough: it reaches the direct child alone (`sh` dies, the `sleep`
that it started lives on), is sent when the *thread* that forked ends, and is cleared by set-user-ID programs; and to
set it between fork and exec is to run Python in the forked copy of a threaded process. The guard kills whole groups,
on every POSIX system. What neither reaches: a process that left the group by calling setsid itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import IO

# Only the end of the pipe may end the helper: a Ctrl-C or a TERM for everybody must not leave the groups unguarded.
_SCRIPT = """
trap '' HUP INT QUIT TERM
live=
while read -r verb group; do
    case $verb in
        +) live="$live $group" ;;
        -) kept=
           for each in $live; do [ "$each" = "$group" ] || kept="$kept $each"; done
           live=$kept ;;
    esac
done
for each in $live; do kill -s KILL -- "-$each" 2>/dev/null; done
"""


class ProcessGuard:
    """Watches over the process groups of this process. Thread-safe; the helper starts with the first group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._helper: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        """From now on `group` dies with this process."""
        with self._lock:
            self._groups.add(group)
            if not self._tell(f"+ {group}\n"):
                self._start()

    def remove(self, group: int) -> None:
        """`group` has ended, or may outlive this process."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"- {group}\n")

    def kill_all(self) -> None:
        """SIGKILL every live group, from any thread: also when the event loop is blocked and a lease must end now."""
        with self._lock:
            for group in self._groups:
                with suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is still on the list and end the helper."""
        with self._lock:
            helper, self._helper = self._helper, None
            self._groups.clear()
        if helper is not None:
            _pipe(helper).close()
            with suppress(subprocess.TimeoutExpired):
                helper.wait(timeout=2)

    def forget(self) -> None:
        """In a forked child: let go of the pipe, so that the parent's end is the only one that counts."""
        self._lock = threading.Lock()  # another thread may have held it at the fork, and is not here to release it
        self._groups = set()
        if self._helper is not None:
            _pipe(self._helper).close()
            self._helper = None

    def _tell(self, line: str) -> bool:
        if self._helper is None:
            return False
        try:
            _pipe(self._helper).write(line.encode())
        except BrokenPipeError:  # somebody killed the helper
            self._helper.wait()
            self._helper = None
            return False
        return True

    def _start(self) -> None:
        self._helper = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "job-guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"PATH": os.defpath},
            start_new_session=True,  # killing fleetcron's own process group must not take the guard along
        )
        _pipe(self._helper).write("".join(f"+ {group}\n" for group in sorted(self._groups)).encode())


def _pipe(helper: subprocess.Popen[bytes]) -> IO[bytes]:
    assert helper.stdin is not None
    return helper.stdin


GUARD = ProcessGuard()
atexit.register(GUARD.close)
os.register_at_fork(after_in_child=GUARD.forget)
