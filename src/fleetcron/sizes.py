"""Sizes as people write them: bytes, or text such as "256KiB", "1MiB"."""

from __future__ import annotations

import re

_UNITS = {"": 1, "B": 1, "KB": 1000, "KIB": 1024, "MB": 1000**2, "MIB": 1024**2, "GB": 1000**3, "GIB": 1024**3}
_TEXT = re.compile(r"([0-9]{1,15})\s*([A-Za-z]*)", re.ASCII)


def parse_size(value: int | str, name: str) -> int:
    """Bytes. Raises ValueError naming `name` and what is allowed."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found and found[2].upper() in _UNITS and int(found[1]) > 0:
        return int(found[1]) * _UNITS[found[2].upper()]
    raise ValueError(f'{name}: {value!r} is not a size; expected bytes or text such as "256KiB", "1MiB"')
