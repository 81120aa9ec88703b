"""Is a process still there? On one machine the kernel knows at once what a lease tells after its time."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def process_started(pid: int) -> str | None:
    """What tells a process from a later one of the same pid: its pid namespace and its start time. None where
    /proc does not say."""
    stat = _stat(pid)
    try:
        space = (_PROC / str(pid) / "ns" / "pid").readlink()
    except OSError:
        return None
    return None if stat is None else f"{space}/{stat[1]}"


def process_gone(pid: int, started: str | None) -> bool:
    """True only if that very process has certainly ended. `started`: what `process_started` said when it lived.

    A process of another pid namespace (a container beside us on a shared file) cannot be seen from here, and is
    never called gone.
    """
    if started is not None:
        ours = process_started(os.getpid())
        if ours is None or ours.split("/")[0] != started.split("/")[0]:
            return False
        stat = _stat(pid)
        # Z, X: killed, and only not yet reaped by its parent.
        return stat is None or stat[0] in ("Z", "X") or stat[1] != started.split("/")[1]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _stat(pid: int) -> tuple[str, str] | None:
    """(state, start time in clock ticks since boot) of a process, or None. The name before them may hold spaces
    and brackets."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]
