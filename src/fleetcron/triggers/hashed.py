"""`H`: a value picked by the schedule's name, so that ten thousand hourly jobs do not all start at minute 0.

After Jenkins: `H`, `H/15`, `H(0-29)`, `H(0-29)/10`. The picks are a stable hash of (name, field), the same on every
node and after every restart; they are written out as plain numbers before anything else sees the expression.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from fleetcron.errors import TriggerError
from fleetcron.triggers.fields import DAY, WEEKDAY, Field

_HASHED = re.compile(r"H(?:\((?P<first>[0-9]+|[A-Z]{3})-(?P<last>[0-9]+|[A-Z]{3})\))?(?:/(?P<step>[0-9]+))?", re.ASCII)


def resolve(kind: Field, text: str, name: str | None) -> str:
    """The field with every H item replaced by plain numbers. Raises TriggerError if there is one but no name."""
    if "H" not in text:
        return text
    return ",".join(_resolve_item(kind, item, name) for item in text.split(","))


def _resolve_item(kind: Field, item: str, name: str | None) -> str:
    if not item.startswith("H"):  # THU, MARCH-like names
        return item
    found = _HASHED.fullmatch(item)
    if not found:
        kind.refuse(item, "is not understood (H is written H, H/n, H(a-b) or H(a-b)/n)")
    if not name:
        raise TriggerError(
            f"{kind.name}: {item!r} picks a value by the schedule's name; give one, as in Cron(…, name='reports/42')"
        )
    low, high = kind.low, kind.high
    if found["first"]:
        low, high = kind.value(found["first"], item), kind.value(found["last"], item)
        if high < low:
            kind.refuse(item, "has a range that runs backwards")
    elif kind is DAY:
        high = 28  # a day that every month has
    elif kind is WEEKDAY:
        high = 6
    step = int(found["step"]) if found["step"] else None
    if step == 0:
        kind.refuse(item, "has step 0")
    width = high - low + 1
    start = low + _pick(name, kind) % (width if step is None else min(step, width))
    return str(start) if step is None else f"{start}-{high}/{step}"


def _pick(name: str, kind: Field) -> int:
    return int.from_bytes(blake2b(f"{kind.name}\0{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest())
