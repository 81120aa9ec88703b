"""When: cron, interval, once. Pure values: no clock, no I/O (zone data is read once per zone)."""

from __future__ import annotations

from fleetcron.triggers.base import Trigger
from fleetcron.triggers.codec import trigger_from_dict
from fleetcron.triggers.cron import Cron
from fleetcron.triggers.dst import dst_notes
from fleetcron.triggers.every import Every
from fleetcron.triggers.once import Once
from fleetcron.triggers.zones import tzdata_version

__all__ = ["Cron", "Every", "Once", "Trigger", "dst_notes", "trigger_from_dict", "tzdata_version"]
