"""What a worker may trust about its session: the state that the heartbeat thread writes and everybody else reads.

The session's runs are ours for sure until `deadline`: the send time of the last heartbeat that was answered, plus the lease, minus a
margin. After that nothing new is started (it may be somebody else's by now) until a heartbeat is answered. What runs goes on until the
database says that the session is gone: while the database is away nobody else can have started it, and a fail-over must not re-run
everything. `strict` jobs are stopped at the deadline itself.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from fleetcron.clock import monotonic


class Lease:
    """One worker session."""

    def __init__(self, worker: int, sent_at: float, lease: timedelta) -> None:
        self.worker = worker
        self._span = lease.total_seconds()
        self._margin = min(1.0, self._span * 0.1)
        self.deadline = sent_at + self._span - self._margin
        self.lost = threading.Event()

    def renewed(self, sent_at: float) -> None:
        """A heartbeat sent at `sent_at` (monotonic) was answered: still ours."""
        self.deadline = sent_at + self._span - self._margin

    def shorten(self, until: float) -> None:
        """Trust no longer than `until` (the presence lock was lost: the rescuer may act before the lease ends)."""
        self.deadline = min(self.deadline, until)

    def valid(self) -> bool:
        """May something new be started?"""
        return self.valid_at(monotonic())

    def valid_at(self, moment: float) -> bool:
        """The same at a moment of `clock.monotonic`, for who has read that already."""
        return moment < self.deadline and not self.lost.is_set()
