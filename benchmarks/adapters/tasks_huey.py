"""huey SqliteHuey (WAL, synchronous FULL as sqlite has it by default), results off."""

from __future__ import annotations

import sys

import common as c
from huey import SqliteHuey

huey = SqliteHuey("bench", filename=str(c.DIR / "huey.db"), results=False)


@huey.task()
def noop(n: int, pad: str = "") -> None:
    c.job(n)


if "huey_consumer" in sys.argv[0]:
    c.gate()
