"""How an attempt ended, and when the next one comes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import msgspec

from fleetcron.decide.describe import cut, describe_error
from fleetcron.errors import Discard, RetryAfter, Snooze
from fleetcron.model import Retry

__all__ = ["Outcome", "cut", "describe_error", "outcome", "rescue_delay", "retry_delay"]

Random = Callable[[], float]
"""Like `random.random`: a number in [0, 1)."""

RETRY_AFTER_SPREAD = 0.2
"""Runs that are all told "in 60 s" come back over 60 to 72 s: spread, and none earlier than asked."""

LONGEST_DELAY = timedelta(days=36_525)
"""A century. `Snooze(timedelta.max)` is legal, but now + that is no date in any database."""

_NO_DELAY = timedelta(0)
_RESCUE_FIRST, _RESCUE_LONGEST = timedelta(seconds=0.5), timedelta(minutes=1)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run goes after an attempt.

    `state` "open" means again after `delay`. `attempt_used` False gives the attempt back. `record` is the state of
    the attempt's row, None for no row. `dead`: write a dead letter.
    """

    state: Literal["succeeded", "open", "failed", "discarded"]
    delay: timedelta = _NO_DELAY
    attempt_used: bool = True
    record: str | None = None
    dead: bool = False


def outcome(
    exc: BaseException | None, *, attempt: int, max_attempts: int, policy: Retry, dead_letter: bool, rnd: Random
) -> Outcome:
    """The outcome of attempt number `attempt` (from 1), which returned (`exc` None) or raised."""
    again = attempt < max_attempts
    failed = Outcome(state="failed", record="failed", dead=dead_letter)
    match exc:
        case None:
            return Outcome(state="succeeded")
        case Discard():
            return Outcome(state="discarded", record="discarded")
        case Snooze():
            return Outcome(state="open", delay=min(exc.delay, LONGEST_DELAY), attempt_used=False, record="snoozed")
        case RetryAfter() if again:
            delay = min(exc.delay, LONGEST_DELAY) * (1 + RETRY_AFTER_SPREAD * rnd())
        case _ if again and isinstance(exc, policy.retry_on) and not isinstance(exc, policy.give_up_on):
            delay = retry_delay(
                attempt=attempt,
                backoff=policy.backoff,
                factor=policy.factor,
                max_backoff=policy.max_backoff,
                jitter=policy.jitter,
                rnd=rnd,
            )
        case _:
            return failed
    return Outcome(state="open", delay=min(delay, LONGEST_DELAY), record="failed")


def retry_delay(
    *,
    attempt: int,
    backoff: timedelta,
    factor: float,
    max_backoff: timedelta,
    jitter: Literal["full", "none"],
    rnd: Random,
) -> timedelta:
    """How long the retry after attempt number `attempt` (from 1) waits: min(max_backoff, backoff × factor^(attempt−1)).

    With full jitter a random part of that ("Exponential Backoff And Jitter", M. Brooker, AWS 2015): runs that failed
    in one instant do not come back in one instant.
    """
    try:
        # float first: 2 ** 10**9 as an int would fill the memory before anything could cap it
        grown = backoff.total_seconds() * float(factor) ** (attempt - 1) if backoff else 0.0
    except OverflowError:
        grown = float("inf")
    longest = max_backoff if grown >= max_backoff.total_seconds() else timedelta(seconds=grown)
    return longest if jitter == "none" else rnd() * longest


def rescue_delay(deaths: int) -> timedelta:
    """How long a run waits whose worker died, `deaths` times up to now: 0.5 s, doubled each time, at most a minute.

    Short, since most workers die of a deploy or a lost machine; growing, since some die of the run.
    """
    return min(_RESCUE_LONGEST, _RESCUE_FIRST * (1 << min(max(deaths - 1, 0), 7)))
