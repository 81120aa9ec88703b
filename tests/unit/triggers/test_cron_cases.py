"""The shared cases decide: `tests/cases/cron_cases.json`, one test per case."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fleetcron.errors import TriggerError
from fleetcron.triggers import Cron

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "cases" / "cron_cases.json").read_text("utf-8"))


def by_id(wanted: bool) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if (case["expected"] == "error") is wanted]


def test_no_case_is_missing() -> None:
    assert len({case["id"] for case in CASES}) == len(CASES) == 123


@pytest.mark.parametrize("case", by_id(False))
def test_ticks(case: dict[str, Any]) -> None:
    trigger = Cron(case["expr"], case["tz"])
    expected = [datetime.fromisoformat(text) for text in case["expected"]]
    after = datetime.fromisoformat(case["after"])

    assert trigger.upcoming(after, max(len(expected), 1)) == expected
    # The reverse step and the count must tell the same story as the forward step.
    for earlier, tick in zip([after, *expected], expected, strict=False):
        assert trigger.latest(tick) == tick
        assert trigger.count(earlier, tick) == 1
    if expected:
        assert trigger.count(after, expected[-1]) == len(expected)


@pytest.mark.parametrize("case", by_id(True))
def test_refused(case: dict[str, Any]) -> None:
    with pytest.raises(TriggerError):
        Cron(case["expr"], case["tz"])
