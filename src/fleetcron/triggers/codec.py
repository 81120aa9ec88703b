"""Triggers from their stored form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fleetcron.errors import TriggerError
from fleetcron.triggers.base import Trigger
from fleetcron.triggers.cron import Cron
from fleetcron.triggers.every import Every
from fleetcron.triggers.once import Once

# type: (keys that must be there, keys that may)
_KEYS: dict[str, tuple[set[str], set[str]]] = {
    "cron": ({"expr"}, {"tz"}),
    "every": ({"seconds"}, {"anchor"}),
    "once": ({"at"}, set()),
}


def trigger_from_dict(data: Mapping[str, Any]) -> Trigger:
    """The inverse of `Trigger.to_dict`. Raises TriggerError naming the key that is unknown, missing or malformed."""
    if not isinstance(data, Mapping):
        raise TriggerError(f"trigger: expected an object with a 'type', got {data!r}")
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise TriggerError(f"trigger: type {kind!r} is unknown; allowed are {', '.join(_KEYS)}")
    needed, optional = _KEYS[kind]
    keys = set(data) - {"type"}
    if missing := needed - keys:
        raise TriggerError(f"trigger: type {kind!r} needs {', '.join(sorted(missing))}")
    if unknown := keys - needed - optional:
        raise TriggerError(f"trigger: type {kind!r} has no {', '.join(sorted(map(repr, unknown)))}")
    if kind == "cron":
        return Cron(data["expr"], data.get("tz", "UTC"))
    if kind == "every":
        anchor = data.get("anchor")
        return Every(data["seconds"], None if anchor is None else _instant("anchor", anchor))
    return Once(_instant("at", data["at"]))


def _instant(key: str, text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise TriggerError(f"{key}: {text!r} is not an RFC 3339 time with a zone, such as 2026-03-29T01:00:00Z")
    return moment
