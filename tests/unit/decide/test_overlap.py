"""What a tick does whose predecessor is not finished."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetcron.decide.overlap import overlap
from fleetcron.model import OVERLAPS


@pytest.mark.parametrize(
    ("policy", "idle", "running", "one_waits", "running_one_waits"),
    [
        ("allow", "start", "start", "start", "start"),
        ("skip", "start", "miss", "miss", "miss"),
        ("queue_one", "start", "wait", "miss", "miss"),
        ("queue_all", "start", "wait", "wait", "wait"),
        ("replace", "start", "replace", "start", "replace"),
    ],
)
def test_table(policy: Any, idle: str, running: str, one_waits: str, running_one_waits: str) -> None:
    assert overlap(policy, running=False, waiting=0) == idle
    assert overlap(policy, running=True, waiting=0) == running
    assert overlap(policy, running=False, waiting=1) == one_waits
    assert overlap(policy, running=True, waiting=1) == running_one_waits


@given(st.sampled_from(OVERLAPS), st.lists(st.sampled_from(["tick", "end"]), max_size=60))
def test_c11_queues_stay_as_short_as_the_policy_says(policy: Any, steps: list[str]) -> None:
    """A schedule's gate in miniature: ticks come, runs end, whoever waits longest is next."""
    running, waiting, missed, ticks, ended = 0, 0, 0, 0, 0
    for step in steps:
        if step == "end":
            if running:
                running, ended = running - 1, ended + 1
            if waiting and not running:
                running, waiting = 1, waiting - 1
            continue
        ticks += 1
        match overlap(policy, running=running > 0, waiting=waiting):
            case "start":
                running += 1
            case "wait":
                waiting += 1
            case "miss":
                missed += 1
            case "replace":
                missed, waiting = missed + waiting, 1
        assert ticks == running + waiting + missed + ended  # none is lost
        if policy != "allow":
            assert running <= 1
        if policy in ("skip", "allow"):
            assert waiting == 0
        if policy in ("queue_one", "replace"):
            assert waiting <= 1
        if policy in ("queue_all", "allow"):
            assert missed == 0
