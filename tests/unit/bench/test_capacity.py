"""The model behind docs/explanation/scale.md: nothing is lost in it, and it says what can be worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.capacity import Cost, Load, Server, homes, place, queue, simulate, tenant_loads

COST, SERVER = Cost(cpu_us=40, wal_bytes=2000, commits=0.01), Server()


def test_the_scarcest_budget_counts() -> None:
    assert SERVER.carries(COST) == {"cpu": 400_000, "wal": 200_000, "commits": 500_000}
    assert SERVER.most(COST) == 200_000


def test_every_tenant_has_a_home_and_no_run_is_lost() -> None:
    loads = tenant_loads(Load())
    assert sum(loads) == pytest.approx(1_000_000)
    placed = place(loads, 9, SERVER.most(COST))
    assert sum(placed.load) == pytest.approx(1_000_000)
    assert max(placed.load) < 1.1 * min(placed.load)
    assert placed.split > 0


def test_adding_a_server_moves_only_what_it_wins() -> None:
    before = {t: homes(t, 10, 1)[0] for t in range(5000)}
    after = {t: homes(t, 11, 1)[0] for t in range(5000)}
    moved = [t for t in before if before[t] != after[t]]
    assert all(after[t] == 10 for t in moved)
    assert len(moved) / 5000 == pytest.approx(1 / 11, abs=0.02)


def test_a_herd_is_late_by_what_lies_before_it() -> None:
    steady = queue(60_000, 100_000, Load(herd=0.0))
    assert max(steady) == pytest.approx(0.06)  # what arrives in one step of a tenth, over what is done
    herd = queue(60_000, 100_000, Load(herd=0.2))
    assert max(herd) == pytest.approx((0.2 * 60_000 * 60 + 0.8 * 6_000) / 100_000, rel=0.02)
    assert max(queue(60_000, 100_000, Load(herd=0.2, jitter_s=30))) < 0.1


def test_a_fail_over_touches_one_home() -> None:
    told = simulate(Load(herd=0.0), COST, SERVER)
    assert told.servers == 8
    assert told.touched == pytest.approx(1 / 8, rel=0.2)
    assert 30 <= told.failover_late_s < 35
    # What came in 30 s is worked off by what is to spare.
    assert told.catch_up_s == pytest.approx(30 * told.busiest / (1 - told.busiest), rel=0.3)
