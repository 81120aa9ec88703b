"""Errors as text that any database stores and any terminal shows: recording a failure never fails for what it says."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable

# PostgreSQL refuses NUL, UTF-8 refuses lone surrogates, and other control characters would steer the reader's terminal.
_UNSAFE_IN_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSAFE_IN_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def describe_error(exc: BaseException, limit_bytes: int) -> tuple[str, str]:
    """`exc` as one line ("ValueError: bad id") and as a traceback, each at most `limit_bytes` of UTF-8.

    Causes, contexts, notes and groups are in the traceback. NUL, lone surrogates and control characters become
    visible escapes. Never raises, whatever the exception's methods do.
    """
    name = _try(lambda: type(exc).__name__, "an exception")
    message = _try(lambda: str.__str__(str(exc)), "its message could not be read")
    line = f"{name}: {message}" if message else name
    trace = (
        _try(lambda: "".join(traceback.format_exception(exc)))
        or _try(
            lambda: "".join(["Traceback (innermost exception only):\n", *traceback.format_tb(exc.__traceback__), line])
        )
        or line
    )
    return cut(_UNSAFE_IN_LINE.sub(_escape, line), limit_bytes), cut(_UNSAFE_IN_TEXT.sub(_escape, trace), limit_bytes)


def cut(text: str, limit_bytes: int) -> str:
    """`text` within `limit_bytes` of UTF-8; what is longer ends in "… [cut: N bytes]", N being what is not there.

    Only a limit below the length of that mark (some 20 bytes) is exceeded, by the mark. Raises UnicodeEncodeError for
    lone surrogates.
    """
    data = text.encode()
    if len(data) <= limit_bytes:
        return text
    room = max(0, limit_bytes - len(_mark(len(data)).encode()))
    kept = data[:room].decode(errors="ignore")  # a character that would be split goes whole
    return kept + _mark(len(data) - len(kept.encode()))


def _mark(size: int) -> str:
    return f"… [cut: {size} bytes]"


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if char < "\u0100" else f"\\u{ord(char):04x}")


def _try(read: Callable[[], str], otherwise: str = "") -> str:
    try:
        return read()
    except BaseException:  # noqa: BLE001 - the exception's own code runs here: it may raise anything, SystemExit too
        return otherwise
