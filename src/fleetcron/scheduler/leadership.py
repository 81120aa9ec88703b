"""Leading a shard: campaigning for a term, renewing it, and knowing for how long it may be believed in.

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
    """One shard. `step` is called every `ttl / 5`: it campaigns, or renews once a third of the ttl has passed."""

    def __init__(self, store: Store, elector: Elector, node: WorkerInfo, shard: int, ttl: float, contact: Contact) -> None:
        self._store, self._elector, self._node, self.shard = store, elector, node, shard
        self._ttl, self._seconds, self._contact = timedelta(seconds=ttl), ttl, contact
        self._margin = ttl * 0.1
        self._term: int | None = None
        self._deadline = self._renew_at = 0.0

    def term(self) -> int | None:
        """The term in which this process leads, None when it does not or cannot be sure."""
        if self._term is not None and (monotonic() >= self._deadline or not self._elector.nominated(self.shard)):
            self.step_down("its time ran out" if monotonic() >= self._deadline else f"the {self._elector.name} elector took it back")
        return self._term

    def step_down(self, why: str) -> None:
        """Stop leading, at once and in memory only: the shard's row runs out by itself."""
        if self._term is not None:
            log.warning("shard %d: no longer leading (term %d): %s", self.shard, self._term, why)
            self._term = None

    async def step(self) -> bool:
        """Campaign or renew; returns True when a term has just begun."""
        term, sent = self.term(), monotonic()
        try:
            if term is None:
                if not self._elector.nominated(self.shard):
                    return False
                term = await self._store.campaign(self.shard, self._node, self._ttl)
                if term is None:
                    return False
                self._term = term
                log.info("shard %d: leading in term %d", self.shard, term)
                self._renewed(sent)
                return self.term() is not None
            if sent >= self._renew_at:
                if await self._store.renew(self.shard, self._node.node, term, self._ttl):
                    self._renewed(sent)
                else:
                    self.step_down("the database refused the renewal")
        except StoreError as error:
            self._contact.lost()
            self.step_down(f"the database did not answer: {error}")
        return False

    def _renewed(self, sent: float) -> None:
        self._deadline = sent + self._seconds - self._margin
        self._renew_at = sent + self._seconds / 3

    async def resign(self) -> None:
        """Step down in order, so that a successor need not wait."""
        term, self._term = self._term, None
        if term is not None:
            try:
                await self._store.resign(self.shard, self._node.node, term)
            except StoreError as error:
                log.warning("shard %d: could not resign, the term will run out: %s", self.shard, error)
