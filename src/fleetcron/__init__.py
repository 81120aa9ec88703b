"""fleetcron: cron at fleet scale. A leader decides what runs and when; a pool of stateless workers runs it; a database is the only thing
they share. Every job runs at least once, with one owner at a time, and no tick is missed in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetcron.errors import (
        ConfigError,
        Discard,
        FleetcronError,
        LeaseLost,
        LockTimeout,
        NotFound,
        PayloadError,
        QueueFull,
        SchemaMismatch,
        Snooze,
        StoreError,
        StoreUnavailable,
        TriggerError,
        WaitTimeout,
    )
    from fleetcron.fleet import Fleet
    from fleetcron.lock import Lock
    from fleetcron.management import Replayed, Submitted
    from fleetcron.model import (
        Attempt,
        Backfill,
        ElectorState,
        HeldLock,
        Job,
        Leader,
        Miss,
        Missed,
        Node,
        Queue,
        Retry,
        Schedule,
        State,
        Tenant,
    )
    from fleetcron.run import Run
    from fleetcron.triggers import Cron, Every, Once, Trigger
    from fleetcron.worker.context import BlockingContext, Context

__version__ = "0.1.0.dev0"

_HOMES = {
    "Attempt": "model", "Backfill": "model", "BlockingContext": "worker.context", "ConfigError": "errors", "Context": "worker.context",
    "Cron": "triggers", "Discard": "errors", "ElectorState": "model", "Every": "triggers", "Fleet": "fleet", "FleetcronError": "errors",
    "HeldLock": "model", "Job": "model", "Leader": "model", "LeaseLost": "errors", "Lock": "lock", "LockTimeout": "errors",
    "Miss": "model", "Missed": "model", "Node": "model", "NotFound": "errors", "Once": "triggers", "PayloadError": "errors",
    "Queue": "model", "QueueFull": "errors", "Replayed": "management", "Retry": "model", "Run": "run", "Schedule": "model",
    "SchemaMismatch": "errors", "Snooze": "errors", "State": "model", "StoreError": "errors", "StoreUnavailable": "errors",
    "Submitted": "management", "Tenant": "model", "Trigger": "triggers", "TriggerError": "errors", "WaitTimeout": "errors",
}  # fmt: skip

__all__ = [
    "Attempt",
    "Backfill",
    "BlockingContext",
    "ConfigError",
    "Context",
    "Cron",
    "Discard",
    "ElectorState",
    "Every",
    "Fleet",
    "FleetcronError",
    "HeldLock",
    "Job",
    "Leader",
    "LeaseLost",
    "Lock",
    "LockTimeout",
    "Miss",
    "Missed",
    "Node",
    "NotFound",
    "Once",
    "PayloadError",
    "Queue",
    "QueueFull",
    "Replayed",
    "Retry",
    "Run",
    "Schedule",
    "SchemaMismatch",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "Submitted",
    "Tenant",
    "Trigger",
    "TriggerError",
    "WaitTimeout",
]


def __getattr__(name: str) -> Any:
    """Public names, imported when first used: `fleetcron --help` must not pay for drivers it does not need."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'fleetcron' has no attribute {name!r}")
    from importlib import import_module  # lazy: see above

    value = getattr(import_module(f"fleetcron.{home}"), name)
    globals()[name] = value
    return value
