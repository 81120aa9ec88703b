"""Database URLs in messages."""

from __future__ import annotations

import re

_USER_INFO = re.compile(r"(://[^/@:]*:)[^/]*@")  # greedy: a password may hold an @
_PARAMETER = re.compile(r"([?&]password=)[^&]*")


def masked(url: str) -> str:
    """The URL without its password."""
    return _PARAMETER.sub(r"\1…", _USER_INFO.sub(r"\1…@", url))
