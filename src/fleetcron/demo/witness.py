"""The demo's second opinion, outside of the database: an attempt writes a line when it starts and one when it ends.

A worker that was killed leaves no second line. Lines are appended in one write each, so processes do not mix theirs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fleetcron import Context
from fleetcron.demo.pipeline import StaleFence

NAME = "witness.jsonl"


class Witnessed(msgspec.Struct, frozen=True, kw_only=True):
    """`what`: started, done, stopped (its lease was lost), refused (by the fence), failed."""

    run_id: int
    attempt: int
    fence: int
    pid: int
    what: str


@contextmanager
def witnessed(ctx: Context, folder: Path) -> Iterator[None]:
    """Around an attempt's work."""
    what = "failed"
    _write(folder, ctx, "started")
    try:
        yield
        what = "done"
    except asyncio.CancelledError:
        what = "stopped"
        raise
    except StaleFence:
        what = "refused"
        raise
    finally:
        _write(folder, ctx, what)


def read_witness(folder: Path) -> list[Witnessed]:
    """Every line so far, oldest first."""
    try:
        lines = (folder / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Witnessed) for line in lines]


def _write(folder: Path, ctx: Context, what: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    line = Witnessed(run_id=ctx.run_id, attempt=ctx.attempt, fence=ctx.fence, pid=os.getpid(), what=what)
    file = os.open(folder / NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, msgspec.json.encode(line) + b"\n")
    finally:
        os.close(file)
