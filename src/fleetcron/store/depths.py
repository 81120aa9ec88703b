"""Inserting into queues that have a depth, and setting limits: written once for both stores, each inside one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from fleetcron.errors import QueueFull
from fleetcron.model import Queue, Tenant
from fleetcron.store.protocol import NewRun
from fleetcron.store.tx import Tx


async def insert_fresh(tx: Tx, runs: Sequence[tuple[int, NewRun]], wake: Sequence[str]) -> dict[int, datetime]:
    """Insert runs under these ids, all or none; returns their due times. Raises QueueFull."""
    due = await tx.insert_with_ids(runs, wake, looked=False)
    if runs and not due:
        await _look(tx, [run for _, run in runs])
        due = await tx.insert_with_ids(runs, wake, looked=True)
    return due


async def _look(tx: Tx, runs: Sequence[NewRun]) -> None:
    """Is there room for them all? The queue's row is locked first and its depth counted after that, in a statement of its own: then nobody
    fills it meanwhile. What is due later is not held back: the limit is on what waits, not on the calendar."""
    now = await tx.now()
    coming = Counter(run.queue for run in runs if (run.due_at or now + (run.delay or timedelta(0))) <= now)
    for name in sorted(coming):
        queue = await tx.queue(name)
        if queue is None or queue.max_depth is None:
            continue
        depth = await tx.depth(name, queue.max_depth)
        if depth + coming[name] > queue.max_depth:
            raise QueueFull(name, depth, queue.max_depth, wait=queue.on_full == "wait", coming=coming[name])


async def set_tenant(tx: Tx, name: str, changes: Mapping[str, Any], who: str) -> Tenant:
    """Change what is named in `changes`; the rest stays as it is."""
    new = msgspec.structs.replace(await tx.limiter("tenant", name) or Tenant(name=name), **changes)
    await tx.put_limiter("tenant", new)
    await tx.limits_changed()
    await tx.audit(who, f"set tenant: {_said(changes)}", name)
    return new


async def set_queue(tx: Tx, name: str, changes: Mapping[str, Any], who: str) -> Queue:
    """As set_tenant."""
    new = msgspec.structs.replace(await tx.queue(name) or Queue(name=name), **changes)
    await tx.put_queue(new)
    await tx.limits_changed()
    await tx.audit(who, f"set queue: {_said(changes)}", name)
    return new


async def pause_job(tx: Tx, name: str, paused: bool, who: str) -> bool:
    """Have workers claim no runs of a job, or claim them again. False when there is no such job."""
    if not await tx.share_job(name):
        return False
    await tx.put_limiter(
        "job", msgspec.structs.replace(await tx.limiter("job", name) or Tenant(name=name), paused=paused)
    )
    await tx.limits_changed()
    await tx.audit(who, "pause job" if paused else "resume job", name)
    return True


def _said(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"{what}={value}" for what, value in sorted(changes.items()))
