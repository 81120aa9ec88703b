"""One instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fleetcron.triggers.base import Trigger, rfc3339, utc


@dataclass(frozen=True, slots=True)
class Once(Trigger):
    """One tick, at `at` (an aware datetime in any zone, kept in UTC). Raises TypeError for a naive one."""

    at: datetime

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", utc("at", self.at))

    def next(self, after: datetime) -> datetime | None:
        return self.at if self.at > utc("after", after) else None

    def latest(self, before: datetime) -> datetime | None:
        return self.at if self.at <= utc("before", before) else None

    def count(self, after: datetime, until: datetime) -> int:
        return int(utc("after", after) < self.at <= utc("until", until))

    def explain(self) -> str:
        return f"once, at {rfc3339(self.at)}"

    def to_dict(self) -> dict[str, Any]:
        return {"type": "once", "at": rfc3339(self.at)}
