"""The cases of the class payload (reliability.md), by id: the same rule on both stores."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from fleetcron import Context, Fleet, PayloadError, Retry
from fleetcron.testing import VirtualFleet
from tests.reliability.support import NOON


async def test_C83_nothing_that_a_handler_says_keeps_its_run_from_ending(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("raises", retry=Retry(max_attempts=1))
    async def raises(ctx: Context) -> None:
        raise ValueError("a\x00b \ud800 \x1b[31m")

    @fleet.job("returns")
    async def returns(ctx: Context) -> Any:
        await ctx.progress(1, note="p\x00\udfff")
        loop: dict[str, Any] = {}
        loop["self"] = loop
        return {"k\x00": "v\x00", "\ud800": "\udfff", "nan": float("nan"), "what": object(), "loop": loop}

    async with VirtualFleet(fleet, now=NOON) as vf:
        bad, odd = await fleet.submit(raises), await fleet.submit(returns)
        await vf.advance("1s")
        await bad.refresh()
        await odd.refresh()
        assert (bad.state, odd.state) == ("failed", "succeeded")
        assert bad.error is not None and bad.error.startswith("ValueError: a\\x00b \\ud800")
        assert bad.attempts[0].traceback is not None and "a\\x00b" in bad.attempts[0].traceback
        assert [d.error for d in await fleet.dead_letters()] == [bad.error]
        assert odd.result["k\\x00"] == "v\\x00"
        assert "\x00" not in str(odd.result) + str(bad.error)


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
REFUSED: list[tuple[Any, str]] = [
    ({"a": ["a\x00"]}, "$.a[0]"),
    ({"a": {"b": "\ud800"}}, "$.a.b"),
    ({"a": {"k\x00": 1}}, "$.a"),
    ({"a": b"bytes"}, "$.a"),
    ({"a": {1, 2}}, "$.a"),
    ({"a": datetime(2026, 1, 1)}, "$.a"),  # noqa: DTZ001  # naive
    ({"a": object()}, "$.a"),
    ({"a": CIRCLE}, "$.a"),
    ({"a": [1, float("nan")]}, "$.a[1]"),
    ({"a": float("inf")}, "$.a"),
    ({"a": float("-inf")}, "$.a"),
    ({"a": 1e400}, "$.a"),
]


async def test_C84_C87_what_would_not_come_back_is_refused_with_its_path(store_url: str) -> None:
    fleet = Fleet(store_url)

    @fleet.job("take")
    async def take(a: Any) -> None: ...

    async with fleet:
        for payload, path in REFUSED:
            for submit in (fleet.submit(take, payload), fleet.submit_many(take, [{"a": 1}, payload])):
                with pytest.raises(PayloadError) as caught:
                    await submit
                assert caught.value.path.startswith(path)
        assert await fleet.runs() == [], "all or none"


BIG = [1970670598291982290, 2**63 - 1, -(2**63), 2**64, 2**53 + 1, -(2**53) - 1, 0]


async def test_C84_C86_C87_what_is_accepted_comes_back_equal(store_url: str) -> None:
    fleet = Fleet(store_url)
    got: list[Any] = []

    @fleet.job("take")
    async def take(
        big: list[int], when: datetime, day: date, price: Decimal, ident: UUID, span: timedelta, zero: float, text: str
    ) -> Any:
        got.append((big, when, day, price, ident, span, zero, text))
        return {"big": big, "text": text}

    sent = (
        BIG, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), date(2026, 2, 28), Decimal("1.10"), UUID(int=2**127 + 1),
        timedelta(seconds=90.5), -0.0, "snow \u2603 \U0001f600 \x7f \"quotes\" \\ / \u2028",
    )  # fmt: skip
    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(take, fleet.payload(take, *sent))
        await vf.advance(0)
        await run.refresh()
        assert run.state == "succeeded", run.error
        assert got == [sent]
        assert str(got[0][6]) == "-0.0"
        assert run.result == {"big": BIG, "text": sent[-1]}
        assert (await fleet.runs())[0].payload["big"] == run.to_dict()["payload"]["big"] == BIG
