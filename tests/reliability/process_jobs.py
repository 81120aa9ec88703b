"""Handlers for child processes, which import them by name."""

from __future__ import annotations

import os
import signal
import socket
from typing import NoReturn


class NeedsTwo(Exception):
    """Cannot be made again from its `args`, so it cannot be unpickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a)
        self.b = b


class HoldsASocket(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a socket")
        self.socket = socket.socket()
        self.socket.close()


class HasNoText(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class CannotBeReduced(Exception):
    """Fails in the middle of being pickled."""

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("not reduced")


ERRORS: dict[str, type[Exception]] = {c.__name__: c for c in (NeedsTwo, HoldsASocket, HasNoText, CannotBeReduced)}


def fail(kind: str) -> NoReturn:
    """Raise one of the awkward ones."""
    raise NeedsTwo(1, 2) if kind == "NeedsTwo" else ERRORS[kind]()


def die() -> None:
    """As the OOM killer does it."""
    os.kill(os.getpid(), signal.SIGKILL)
