"""Taking back the runs of dead workers.

A session is dead when its time is past (`lease` after the last heartbeat), or, sooner, when its presence is gone: on PostgreSQL a lock
that the server drops with the connection, on SQLite the process itself. A lock may also be missing because the connection broke; the
worker then takes it again at once and trusts its session for no longer than PRESENCE_TRUST, and we wait longer than that.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from fleetcron.clock import monotonic
from fleetcron.scheduler.contact import Contact
from fleetcron.store.protocol import Rescued, Store

log = logging.getLogger("fleetcron.scheduler")

ABSENCE = 1.0
"""Seconds that a presence lock must be missing: more than heartbeat.PRESENCE_CHECK + PRESENCE_TRUST (0.7 s)."""


class Rescuer:
    """Run by one leader, but safe for several at once: the statement that finds a dead session also deletes it."""

    def __init__(self, store: Store, contact: Contact, lease: timedelta) -> None:
        self._store, self._contact, self._lease = store, contact, lease.total_seconds()
        self._missing: dict[int, float] = {}
        self.rescued = 0

    async def step(self) -> Rescued | None:
        """One look; None while this node has not been in contact with the database for a whole lease time."""
        if self._store.absence_is_proof:
            suspects = await self._store.absent()
        elif self._contact.seconds() < self._lease:
            self._missing.clear()
            return None
        else:
            suspects = self._overdue(await self._store.absent())
        done = await self._store.rescue(sorted(suspects), expired=self._contact.seconds() >= self._lease)
        if done.workers:
            self.rescued += done.requeued + done.dead
            log.warning(
                "rescued workers %s: %d runs put back, %d to the dead letters", done.workers, done.requeued, done.dead
            )
            if done.requeued:
                await self._store.notify([""])
        return done

    def _overdue(self, absent: set[int]) -> set[int]:
        now = monotonic()
        self._missing = {worker: self._missing.get(worker, now) for worker in absent}
        return {worker for worker, since in self._missing.items() if now - since >= ABSENCE}
