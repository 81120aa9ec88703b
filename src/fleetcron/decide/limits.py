"""Rates and numbers of runs at once: how many more may start now, and when to ask again.

A rate is a bucket of `burst` tokens in which one grows every `per`; a start takes one. It is kept as one instant, the time at which the
bucket will be full again (the generic cell rate algorithm, ITU-T I.371), so that nothing has to be refilled: `used` is how far that
instant lies ahead. Starts in any window of T never exceed T / per + burst.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import NamedTuple

from fleetcron.durations import parse_duration

_RATE = re.compile(r"\s*([0-9]{1,9})\s*/\s*([0-9]{0,9})\s*(ms|s|m|h|d)\s*", re.ASCII)
_MICROSECOND, _SECOND = timedelta(microseconds=1), 1_000_000
NO_LIMIT = 2**31 - 1
MOST_UNPARKED = 200
"""Runs of one job that leave its line at a time: a batch, as in a claim."""


class Rate(NamedTuple):
    """So many starts each `period`."""

    starts: int
    period: timedelta

    @property
    def per(self) -> timedelta:
        """The time in which a token grows, rounded up to a microsecond: a limit is never exceeded, not even by rounding."""
        return -(-self.period // self.starts // _MICROSECOND) * _MICROSECOND

    @property
    def burst(self) -> int:
        """How many may start at once unless told otherwise: what grows in a second, and at least one."""
        return max(1, _SECOND * _MICROSECOND // self.per)


def parse_rate(text: str, name: str = "rate") -> Rate:
    """ "100/m", "50/s", "5/10s", "1000/d". Raises ValueError naming `name`, the value and what is allowed."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is not None and int(found[1]) > 0:
        rate = Rate(int(found[1]), parse_duration(f"{found[2] or 1}{found[3]}", name=name))
        if rate.period >= rate.starts * _MICROSECOND:
            return rate
    raise ValueError(f'{name}={text!r}: expected a number of starts in a time, such as "50/s", "100/m" or "5/10s"')


def per_us(rate: str | None) -> int | None:
    """The microseconds in which a token of this rate grows."""
    return None if rate is None else parse_rate(rate).per // _MICROSECOND


def depth_us(rate: str | None, burst: int | None) -> int:
    """How far ahead the instant can lie at which the bucket is full: the time in which an empty one fills up."""
    return 0 if rate is None else (burst or parse_rate(rate).burst) * (parse_rate(rate).per // _MICROSECOND)


class Limit(NamedTuple):
    """What limits a tenant or a job at this instant. `per` and `used` in microseconds; `burst` None: what grows in a second."""

    running: int
    max_running: int | None
    per: int | None
    burst: int | None
    used: int

    def room(self) -> int:
        """How many more may start now."""
        free = NO_LIMIT if self.max_running is None else max(self.max_running - self.running, 0)
        return min(free, self._tokens())

    def _tokens(self) -> int:
        if self.per is None:
            return NO_LIMIT
        return max(self._bucket() - self.used, 0) // self.per

    def _bucket(self) -> int:
        assert self.per is not None
        return (self.burst or max(1, _SECOND // self.per)) * self.per

    def after(self, started: int) -> Limit:
        """The same when so many more have started."""
        return self._replace(running=self.running + started, used=self.used + started * (self.per or 0))

    def rest(self) -> timedelta | None:
        """How long until one more may start; None: when one of those that run has ended."""
        if self.max_running is not None and self.running >= self.max_running:
            return None
        if self.per is None:
            return timedelta(0)
        return max(self.used + self.per - self._bucket(), 0) * _MICROSECOND
