"""What the pages say that each policy does after an outage is what it does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleetcron import Context, Fleet
from fleetcron.testing import VirtualFleet
from tests.acceptance.docs.pages import DOCS, README, section, table

HOUR = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)


async def outage(options: dict[str, Any]) -> tuple[int, int]:
    """A job of every minute, no node from 12:00:30 to 13:00:30: (late runs, ticks in miss records)."""
    fleet = Fleet("sqlite:///:memory:")

    @fleet.job("job", cron="* * * * *", **options)
    async def job(ctx: Context) -> None: ...

    async with VirtualFleet(fleet, now=HOUR - timedelta(minutes=3)) as vf:
        await vf.advance(HOUR)
        vf.stop_scheduler()
        vf.stop_worker()
        await vf.advance("1h")
        vf.start_scheduler()
        vf.start_worker()
        await vf.advance("25s")
        ran = [run for run in vf.runs if run.nominal_at is not None and run.nominal_at > HOUR]
        assert all(run.state == "succeeded" for run in ran)
        before = len(vf.runs)
        await vf.advance("2m")
        assert len(vf.runs) == before + 2, "ticks after the outage are on time again"
        return len(ran), sum(miss.count for miss in vf.misses)


def policy_rows() -> list[tuple[dict[str, Any], int, int]]:
    rows = []
    for row in table(section(DOCS / "how-to" / "choose-a-misfire-policy.md", "What each does")):
        policy, *more = re.findall(r"`([^`]+)`", row["policy"])
        options = {"misfire": policy} | {
            name: int(text) if text.isdecimal() else text.strip('"') for name, text in (m.split("=") for m in more)
        }
        rows.append((options, int(row["late runs"]), int(row["miss records"].split()[0])))
    return rows


@pytest.mark.parametrize(("options", "late", "missed"), policy_rows(), ids=str)
async def test_the_how_to_page(options: dict[str, Any], late: int, missed: int) -> None:
    assert await outage(options) == (late, missed)


async def test_the_readme() -> None:
    rows = {row["`misfire`"].strip("`"): row for row in table(section(README, "Misfires"))}
    shown = {
        policy: next(cell for name, cell in row.items() if "all nodes down for 1 h" in name)
        for policy, row in rows.items()
    }
    assert shown["fire_all"] == f"{(await outage({'misfire': 'fire_all'}))[0]} late runs"
    assert shown["fire_once"] == f"{(await outage({'misfire': 'fire_once'}))[0]} late run"
    young, old = await outage({"misfire": "skip"}), await outage({"misfire": "skip", "misfire_grace": "20s"})
    assert (young[0], old[0]) == (1, 0)
    assert shown["skip"] == "1 run if a tick was less than 60 s ago, else 0"


async def test_three_ticks_within_their_grace_are_one_late_run() -> None:
    """The example of the page on misfires and of decision 0007: every 15 s, grace 60 s, 52 s down."""
    for policy, late in (("fire_once", 1), ("skip", 1), ("fire_all", 3)):
        fleet = Fleet("sqlite:///:memory:")

        @fleet.job("job", every="15s", misfire=policy)
        async def job() -> None: ...

        async with VirtualFleet(fleet, now=datetime(2026, 3, 1, 16, 43, tzinfo=UTC)) as vf:
            await vf.advance("50s")
            before = len(vf.runs)
            vf.stop_scheduler()
            vf.stop_worker()
            await vf.advance("52s")
            vf.start_scheduler()
            vf.start_worker()
            await vf.advance("1s")
            assert len(vf.runs) - before == late, policy
