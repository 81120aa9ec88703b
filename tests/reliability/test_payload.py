"""The cases of the class payload (reliability.md), by id: the same rule on both stores."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from fleetcron import Context, Fleet, Once, PayloadError, Retry
from fleetcron.cli import main
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
REFUSED: list[tuple[Any, str, str]] = [
    ({"a": ["a\x00"]}, "$.a[0]", "NUL"),
    ({"a": {"b": "\ud800"}}, "$.a.b", "surrogate"),
    ({"a": {"k\x00": 1}}, "$.a", "NUL"),
    ({"a": b"bytes"}, "$.a", "bytes"),
    ({"a": {1, 2}}, "$.a", "set"),
    ({"a": datetime(2026, 1, 1)}, "$.a", "naive datetime"),  # noqa: DTZ001  # naive
    ({"a": object()}, "$.a", "object"),
    ({"a": CIRCLE}, "$.a", "contains itself"),
]
NOT_NUMBERS: list[tuple[Any, str, str]] = [
    ({"a": [1, float("nan")]}, "$.a[1]", "nan"),
    ({"a": float("inf")}, "$.a", "inf"),
    ({"a": {"b": float("-inf")}}, "$.a.b", "-inf"),
    ({"a": 1e400}, "$.a", "inf"),
]


async def refuses(store_url: str, wrong: list[tuple[Any, str, str]]) -> None:
    """Whichever way it comes: the path of the bad value, what is wrong, and nothing is written."""
    fleet = Fleet(store_url)

    @fleet.job("take")
    async def take(a: Any) -> None: ...

    async with fleet:
        for payload, path, says in wrong:
            for submit in (
                partial(fleet.submit, take, payload),
                partial(fleet.submit, "take", payload),
                partial(fleet.submit_many, take, [{"a": 1}, payload]),
                partial(fleet.schedule, "s", take, Once(NOON + timedelta(days=36500)), payload),
            ):
                with pytest.raises(PayloadError, match=says) as caught:
                    await submit()
                assert caught.value.path.startswith(path)
        assert await fleet.runs() == [], "all or none"
        assert await fleet.schedules() == []


async def test_C84_what_would_not_come_back_is_refused_with_its_path(store_url: str) -> None:
    await refuses(store_url, REFUSED)


async def test_C87_what_is_not_a_number_is_refused_at_the_edge(store_url: str) -> None:
    await refuses(store_url, NOT_NUMBERS)


def test_C87_the_command_line_takes_json_and_nothing_else(store_url: str) -> None:
    program = CliRunner()
    for text in ("NaN", "Infinity", "-Infinity"):  # not JSON, whatever Python's reader says
        words = ["--url", store_url, "submit", "take", "--json-payload", f'{{"a": {text}}}']
        done = program.invoke(main, words, env={"FLEETCRON_APP": None})
        assert done.exit_code == 2 and "not JSON" in done.stderr, done.output


async def test_C87_a_negative_zero_stays_one(store_url: str) -> None:
    got = await there_and_back(store_url, {"zero": -0.0, "small": 5e-324, "large": 1.7976931348623157e308})
    assert [str(number) for number in got.values()] == ["-0.0", "5e-324", "1.7976931348623157e+308"]


BIG = [1970670598291982290, 2**63 - 1, -(2**63), 2**64, 2**53 + 1, -(2**53) - 1, 10**40, 0]


async def there_and_back(store_url: str, sent: Any) -> Any:
    """Submit it, let a handler return what it gets, and see the same in the payload and the result of the run."""
    fleet = Fleet(store_url)

    @fleet.job("back")
    async def back(value: Any) -> Any:
        return value

    async with VirtualFleet(fleet, now=NOON) as vf:
        run = await fleet.submit(back, {"value": sent})
        many = await fleet.submit_many(back, [{"value": sent}])
        await vf.advance(0)
        for run_id in (run.id, *many.ids):
            seen = await fleet.run(run_id)
            assert (seen.state, seen.payload) == ("succeeded", {"value": seen.result})
        return seen.result


async def test_C86_integers_keep_all_their_digits(store_url: str) -> None:
    assert await there_and_back(store_url, BIG) == BIG
    assert await there_and_back(store_url, {"id": BIG[0]}) == {"id": BIG[0]}


def test_C86_the_command_line_shows_all_digits(store_url: str) -> None:
    app = Fleet(store_url)

    @app.job("take")
    def take(ids: list[int]) -> None: ...

    with app.blocking:
        pass  # the registry now knows it
    words, env = ["--url", store_url], {"FLEETCRON_APP": None}
    text = json.dumps({"ids": BIG})
    done = CliRunner().invoke(main, [*words, "submit", "take", "--json-payload", text, "--json"], env=env)
    assert done.exit_code == 0, done.output
    for how in ([], ["--json"]):
        shown = CliRunner().invoke(main, [*words, "show", str(json.loads(done.stdout)["id"]), *how], env=env).stdout
        assert all(str(number) in shown for number in BIG), shown


async def test_C84_what_is_accepted_comes_back_equal(store_url: str) -> None:
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
