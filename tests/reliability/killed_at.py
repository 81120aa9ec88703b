"""Lives through a minutely schedule on a SQLite file, two minutes to a process. Each mends in its first one what the one before has left, and
is killed in its second one, before the next statement that writes: python -m tests.reliability.killed_at sqlite:///file. Says how many died."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import sqlite3
import sys
from datetime import timedelta
from typing import Any

from tests.reliability.support import NOON, Notebook

WRITES = ("INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT")
MOST = 60


class Fuse(sqlite3.Connection):
    """A connection that kills its process before a statement that writes: the one that makes `left`, shared by all, zero."""

    left: int | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_trace_callback(self._look)

    def _look(self, statement: str) -> None:
        if Fuse.left is not None and statement.lstrip().startswith(WRITES):
            Fuse.left -= 1
            if Fuse.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


async def live(url: str, number: int) -> None:
    """The two minutes of the process of this number, from 1."""
    async with Notebook(url, now=NOON + timedelta(minutes=2 * number - 2)) as book:
        if number == 1:
            await book.minutely(misfire="fire_all")
        await book.vf.advance("1m")
        Fuse.left = number
        await book.vf.advance("1m")
        Fuse.left = None


def main(url: str) -> None:
    sqlite3.connect = functools.partial(sqlite3.connect, factory=Fuse)  # type: ignore[assignment]
    for number in range(1, MOST):
        child = os.fork()  # this process has one thread
        if child == 0:
            asyncio.run(live(url, number))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"{number}: {status}") if status else print(number - 1)
            return
    sys.exit(f"a minute has more than {MOST} writes")


if __name__ == "__main__":
    main(sys.argv[1])
