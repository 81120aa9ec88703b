"""The node's log, on stderr."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class HumanFormatter(logging.Formatter):
    """2026-03-29 03:00:00.123 WARNING fleetcron.worker: …, in local time."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message, and the traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


def set_up(kind: str | None, level: str) -> None:
    """Log to stderr. An app that set up logging while it was imported keeps its own, unless a kind was asked for."""
    root = logging.getLogger()
    if kind is None and root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if kind == "json" else HumanFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
