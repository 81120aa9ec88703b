"""How handlers end that did not simply return or raise."""

from __future__ import annotations

import signal as signals

from fleetcron.errors import FleetcronError


class HandlerTimeout(FleetcronError, TimeoutError):
    """The handler ran longer than its job's `timeout` (seconds)."""

    def __init__(self, timeout: float) -> None:
        super().__init__(f"timed out after {timeout:g}s")
        self.timeout = timeout


class HandlerExit(FleetcronError):
    """The handler raised what would end the worker (SystemExit, KeyboardInterrupt) or fool it (CancelledError)."""


class HandlerStopped(BaseException):
    """Raised inside a child process where a cancelled run is. Like asyncio's CancelledError, no `except Exception`
    catches it; `finally` blocks run."""


class ChildDied(FleetcronError):
    """The child process ended in the middle of a run. `exit_code` or `signal` is None, both if nobody could tell."""

    def __init__(self, exit_code: int | None = None, signal: int | None = None, note: str = "") -> None:
        if signal is not None:
            how = f"killed by signal {signal}{_name(signal)}"
        else:
            how = "for an unknown reason" if exit_code is None else f"exit code {exit_code}"
        super().__init__(f"the child process died: {how}{note and f'; {note}'}")
        self.exit_code = exit_code
        self.signal = signal


def contained(error: BaseException) -> Exception:
    """`error` as one that a worker survives."""
    if isinstance(error, Exception):
        return error
    name = type(error).__name__
    if isinstance(error, SystemExit):
        return HandlerExit(f"the handler called exit({error.code!r})")
    return HandlerExit(f"the handler raised {name}, though nobody asked it to stop")


def _name(signal: int) -> str:
    try:
        return f" ({signals.Signals(signal).name})"
    except ValueError:
        return ""
