"""The machine's own time zone, by name: what its cron goes by."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from fleetcron.errors import TriggerError
from fleetcron.triggers import Cron


def machine_zone(root: Path = Path("/"), env: Mapping[str, str] = os.environ) -> str | None:
    """The IANA name that $TZ, /etc/localtime or /etc/timezone says, the first that is one; None when none is."""
    candidates = [env.get("TZ", "").removeprefix(":")]
    try:
        _, found, name = str((root / "etc/localtime").resolve()).rpartition("zoneinfo/")
        candidates.append(name if found else "")
    except OSError:
        pass
    try:
        candidates.append((root / "etc/timezone").read_text(encoding="ascii", errors="replace").strip())
    except OSError:
        pass
    return next((name for name in candidates if _exists(name)), None)


def _exists(name: str) -> bool:
    try:
        Cron("@daily", name)
    except TriggerError:
        return False
    return True
