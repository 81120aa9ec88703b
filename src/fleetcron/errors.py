"""The exception tree. Everything that fleetcron raises on purpose is a `FleetcronError`.

FleetcronError
├── ConfigError (ValueError)            an option is wrong; says which and what is allowed
├── TriggerError (ValueError)           a cron expression, interval or zone is wrong
├── PayloadError (ValueError)           a payload cannot be stored; `.path` says where
├── NotFound (LookupError)              no such run, job, schedule …
├── QueueFull                           the queue has as many waiting runs as it may; `.queue`, `.depth`, `.limit`
├── LeaseLost                           this owner's lease has ended; its writes are refused
├── LockTimeout (TimeoutError)          the lock was not free in time
├── WaitTimeout (TimeoutError)          the run did not end in time
└── StoreError                          the database
    ├── StoreUnavailable                down, unreachable, read-only
    └── SchemaMismatch                  older or newer than this program
Control                                 raised by handlers to choose an outcome
├── RetryAfter                          `raise Retry.after("5m")`
├── Snooze                              again later, no attempt used
└── Discard                             no retry, no dead letter
"""

from __future__ import annotations

from datetime import timedelta

from fleetcron.durations import parse_duration


class FleetcronError(Exception):
    """Base of every error that fleetcron raises on purpose."""


class ConfigError(FleetcronError, ValueError):
    """An option is wrong. The message names the option, the value and what is allowed."""


class TriggerError(FleetcronError, ValueError):
    """A trigger is malformed, or can never fire where one that fires is needed."""


class PayloadError(FleetcronError, ValueError):
    """A payload cannot be stored or does not fit the handler. `path` is like `$.user.tags[3]`."""

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(f"payload at {path}: {message}")
        self.path = path


class NotFound(FleetcronError, LookupError):
    """The named thing does not exist."""


class QueueFull(FleetcronError):
    """A queue has as many waiting runs as it may (`set_queue(…, max_depth=)`), and nothing was submitted. `wait`: it was set to
    `on_full="wait"`, and the caller could not wait (inside a transaction of its own), or for ever: `coming` runs will not fit."""

    def __init__(self, queue: str, depth: int, limit: int, *, wait: bool = False, coming: int = 1) -> None:
        super().__init__(
            f"queue {queue!r} is full: {depth} runs wait in it, and its max_depth is {limit}; nothing was submitted"
        )
        self.queue, self.depth, self.limit, self.wait, self.coming = queue, depth, limit, wait, coming


class LeaseLost(FleetcronError):
    """This owner's lease has ended: somebody else may own the run now, and the write was refused."""


class LockTimeout(FleetcronError, TimeoutError):
    """The lock was not free within the time the caller was ready to wait."""


class WaitTimeout(FleetcronError, TimeoutError):
    """The run did not reach a final state within the timeout."""


class StoreError(FleetcronError):
    """The database refused or failed."""


class StoreUnavailable(StoreError):
    """The database is down, unreachable or read-only. Nothing was written."""


class SchemaMismatch(StoreError):
    """The database's schema is older or newer than this program."""


class Control(Exception):
    """Raised by a handler to choose the outcome of its run; not an error."""


class RetryAfter(Control):
    """Try again after `delay`; an attempt is used. Made by `Retry.after(…)`."""

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        self.delay = parse_duration(delay, name="delay", allow_zero=True)
        super().__init__(reason or f"retry after {delay}")


class Snooze(Control):
    """Run again after `delay`; no attempt is used."""

    def __init__(self, delay: timedelta | float | str) -> None:
        self.delay = parse_duration(delay, name="delay", allow_zero=True)
        super().__init__(f"snoozed for {delay}")


class Discard(Control):
    """End the run now as `discarded`: no retry, no dead letter."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "discarded by the handler")
