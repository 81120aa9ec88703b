"""Delays and outcomes."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.decide.retry import LONGEST_DELAY, Outcome, outcome, rescue_delay, retry_delay
from fleetcron.errors import Discard, RetryAfter, Snooze
from fleetcron.model import Retry

SECOND = timedelta(seconds=1)
NONE = timedelta(0)


def delay(attempt: int, *, jitter: Literal["full", "none"] = "none", rnd: float = 0.5, **options: Any) -> timedelta:
    policy = Retry(**options)
    return retry_delay(
        attempt=attempt,
        backoff=policy.backoff,
        factor=policy.factor,
        max_backoff=policy.max_backoff,
        jitter=jitter,
        rnd=lambda: rnd,
    )


def ended(
    exc: BaseException | None, *, attempt: int = 1, rnd: float = 0.5, dead_letter: bool = True, **options: Any
) -> Outcome:
    defaults: dict[str, Any] = {"max_attempts": 3, "backoff": "10s"}
    policy = Retry(**defaults | options)
    return outcome(
        exc, attempt=attempt, max_attempts=policy.max_attempts, policy=policy, dead_letter=dead_letter, rnd=lambda: rnd
    )


# ── Delays ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_backoff_grows_to_its_cap() -> None:
    grown = [delay(n, backoff="10s", factor=2, max_backoff="1m") for n in range(1, 6)]
    assert grown == [10 * SECOND, 20 * SECOND, 40 * SECOND, 60 * SECOND, 60 * SECOND]


@pytest.mark.parametrize("attempt", [5_000, 32_000, 10**9, 10**400])
@pytest.mark.parametrize("factor", [1, 1.0, 1.001, 2, 1000])
def test_no_attempt_is_too_many(attempt: int, factor: float) -> None:
    expected = 10 * SECOND if factor == 1 and attempt < 10**300 else 600 * SECOND
    assert delay(attempt, backoff="10s", factor=factor, max_backoff="10m") == expected
    assert delay(attempt, backoff=0, factor=factor) == NONE


def test_no_backoff_is_too_long() -> None:
    assert delay(5_000, backoff=timedelta.max, factor=1000, max_backoff=timedelta.max) == timedelta.max


@given(
    attempt=st.integers(1, 10**6),
    backoff=st.timedeltas(NONE, timedelta(days=400)),
    factor=st.floats(1, 1000),
    max_backoff=st.timedeltas(NONE, timedelta(days=400)),
    rnd=st.floats(0, 1, exclude_max=True),
)
def test_full_jitter_is_a_part_of_the_whole(
    attempt: int, backoff: timedelta, factor: float, max_backoff: timedelta, rnd: float
) -> None:
    options: dict[str, Any] = {"backoff": backoff, "factor": factor, "max_backoff": max_backoff}
    whole = delay(attempt, **options)
    assert min(backoff, max_backoff) <= whole <= max_backoff
    assert whole <= delay(attempt + 1, **options)
    assert NONE <= delay(attempt, jitter="full", rnd=rnd, **options) <= whole


def test_rescue_delay_doubles_up_to_a_minute() -> None:
    assert [rescue_delay(n).total_seconds() for n in range(1, 10)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert rescue_delay(10**9) == 60 * SECOND
    assert rescue_delay(0) == 0.5 * SECOND


# ── C79: thousands fail at one instant ───────────────────────────────────────────────────────────────────────────────


def test_c79_a_wave_of_failures_does_not_come_back_as_a_wave() -> None:
    rnd = random.Random(79).random
    policy = Retry(backoff="60s", max_backoff="10m")
    back = Counter(
        int(
            rnd()
            + outcome(OSError(), attempt=1, max_attempts=5, policy=policy, dead_letter=True, rnd=rnd).delay / SECOND
        )
        for _ in range(5_000)
    )
    assert max(back.values()) < 0.05 * 5_000


def test_c79_retry_after_is_never_earlier_than_asked() -> None:
    rnd = random.Random(79).random
    asked = RetryAfter("60s")
    delays = [
        outcome(asked, attempt=1, max_attempts=5, policy=Retry(), dead_letter=True, rnd=rnd).delay for _ in range(5_000)
    ]
    assert min(delays) >= 60 * SECOND and max(delays) <= 72 * SECOND
    assert max(Counter(one // SECOND for one in delays).values()) < 0.1 * 5_000  # 12 seconds share them evenly


# ── Outcomes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_success() -> None:
    assert ended(None) == Outcome(state="succeeded")


def test_failures_are_retried_until_attempts_are_used_up() -> None:
    assert ended(OSError(), attempt=1) == Outcome(state="open", delay=5 * SECOND, record="failed")
    assert ended(OSError(), attempt=2) == Outcome(state="open", delay=10 * SECOND, record="failed")
    assert ended(OSError(), attempt=3) == Outcome(state="failed", record="failed", dead=True)
    assert ended(OSError(), attempt=4) == Outcome(state="failed", record="failed", dead=True)
    assert ended(OSError(), attempt=3, dead_letter=False) == Outcome(state="failed", record="failed", dead=False)


def test_the_policy_of_the_moment_decides_how_many() -> None:
    """max_attempts comes from the registry, which may be newer than the handler's policy."""
    last = outcome(OSError(), attempt=1, max_attempts=1, policy=Retry(max_attempts=9), dead_letter=True, rnd=lambda: 0)
    assert last.state == "failed"


def test_give_up_on_wins_over_retry_on() -> None:
    options: dict[str, Any] = {"retry_on": (OSError,), "give_up_on": (FileNotFoundError,)}
    assert ended(PermissionError(), **options).state == "open"
    assert ended(FileNotFoundError(), **options) == Outcome(state="failed", record="failed", dead=True)
    assert ended(ValueError(), **options) == Outcome(state="failed", record="failed", dead=True)
    assert ended(SystemExit(1)).state == "failed"  # not an Exception: not among those retried by default
    assert ended(SystemExit(1), retry_on=(Exception, SystemExit)).state == "open"


def test_retry_after_uses_an_attempt() -> None:
    assert ended(Retry.after("5m"), rnd=0) == Outcome(state="open", delay=300 * SECOND, record="failed")
    assert ended(Retry.after("5m"), rnd=1 - 1e-9).delay <= 360 * SECOND
    assert ended(Retry.after("5m"), attempt=3) == Outcome(state="failed", record="failed", dead=True)
    # The handler has spoken: its policy's lists are about errors.
    assert ended(Retry.after("5m"), give_up_on=(Exception,)).state == "open"


@pytest.mark.parametrize("attempt", [1, 3, 99])
def test_snooze_gives_the_attempt_back(attempt: int) -> None:
    expected = Outcome(state="open", delay=3600 * SECOND, attempt_used=False, record="snoozed")
    assert ended(Snooze("1h"), attempt=attempt) == expected


@pytest.mark.parametrize("attempt", [1, 3])
def test_discard_is_no_failure(attempt: int) -> None:
    assert ended(Discard("gone"), attempt=attempt) == Outcome(state="discarded", record="discarded")


@pytest.mark.parametrize("exc", [Snooze(timedelta.max), RetryAfter(timedelta.max), OSError()])
def test_every_delay_is_a_date_that_databases_know(exc: Exception) -> None:
    options: dict[str, Any] = {"backoff": timedelta.max, "factor": 1000, "max_backoff": timedelta.max}
    assert ended(exc, rnd=0.99, **options).delay == LONGEST_DELAY


class Quota(RetryAfter):
    """A user's own kind."""


def test_subclasses_of_the_controls_count() -> None:
    assert ended(Quota("1m"), rnd=0).delay == 60 * SECOND
