"""Leading a shard: what this process believes, and for how long it may.

What a process may trust: it leads until `deadline` = the moment it *sent* the last renewal that was granted, plus the ttl, minus a margin,
on a clock that nobody sets. The answer's arrival does not count: it may have been under way for long. On a refused or failed renewal, on
any error that leaves doubt, and when the elector takes the nomination back, it steps down at once. Even so a leader that was frozen may
act on an old belief for an instant: the term in each of its writes is what makes that harmless.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from fleetcron.clock import monotonic
from fleetcron.election import Elector
from fleetcron.errors import StoreError
from fleetcron.scheduler.contact import Contact
from fleetcron.store.protocol import Store, WorkerInfo

log = logging.getLogger("fleetcron.scheduler")


class Leadership:
    """One shard, as this process sees it. `Shares` campaigns and renews; everybody else asks for `term()`."""

    def __init__(
        self, store: Store, elector: Elector, node: WorkerInfo, shard: int, ttl: float, contact: Contact
    ) -> None:
        self._store, self._elector, self._node, self.shard = store, elector, node, shard
        self._ttl, self._seconds, self._contact = timedelta(seconds=ttl), ttl, contact
        self._margin = ttl * 0.1
        self._term: int | None = None
        self._owed: int | None = None  # a term given up in memory that the database still grants us
        self._deadline = 0.0

    def term(self) -> int | None:
        """The term in which this process leads, None when it does not or cannot be sure."""
        if self._term is not None and (why := self._doubt()) is not None:
            self.step_down(why)
        return self._term

    def peek(self) -> int | None:
        """Like `term`, for other threads: steps down from nothing."""
        return self._term if self._doubt() is None else None

    def _doubt(self) -> str | None:
        if monotonic() >= self._deadline:
            return "its time ran out"
        if not self._elector.nominated(self.shard):
            return f"the {self._elector.name} elector took it back"
        return None

    def begin(self, term: int, sent: float) -> None:
        """The database has conferred this term; it was asked at `sent`."""
        self._term, self._owed = term, None
        self.renewed(sent)

    def renewed(self, sent: float) -> None:
        """The database has renewed the term; it was asked at `sent`."""
        self._deadline = sent + self._seconds - self._margin

    def step_down(self, why: str) -> None:
        """Stop leading, at once and in memory only. The shard's row runs out by itself, or sooner with `resign`."""
        if self._term is not None:
            log.warning("shard %d: no longer leading (term %d): %s", self.shard, self._term, why)
            self._owed, self._term = self._term, None

    def owes(self) -> bool:
        """Was a term given up that the database may still grant this node? Then a successor waits for its end."""
        return self._owed is not None

    async def resign(self) -> None:
        """Step down in order, so that a successor need not wait."""
        term, self._term, self._owed = self._term or self._owed, None, None
        if term is not None:
            try:
                await self._store.resign(self.shard, self._node.node, term)
            except StoreError as error:
                log.warning("shard %d: could not resign, the term will run out: %s", self.shard, error)
