"""Random fleets keep their promises. A seed that fails is printed with its story; `SIMULATION_SEED=n` runs it alone."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.simulation.simulator import Simulation

SEED = os.environ.get("SIMULATION_SEED")
SEEDS = [int(SEED)] if SEED else list(range(8))
SOAK_SECONDS = float(os.environ.get("SIMULATION_SECONDS", "240"))
STEPS = 40


async def simulate(url: str, seed: int, steps: int = STEPS) -> None:
    simulation = Simulation(url, seed)
    try:
        await simulation.live(steps)
    except BaseException:
        print(f"SIMULATION_SEED={seed}", *simulation.story, sep="\n  ")
        raise


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_random_fleet_keeps_its_promises(seed: int) -> None:
    await simulate("sqlite:///:memory:", seed)


async def test_it_does_so_on_postgres(pg_url: str) -> None:
    await simulate(pg_url, seed=3, steps=10)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 300)
async def test_many_random_fleets_keep_their_promises() -> None:
    """Other seeds each time: the one that fails is printed."""
    until = time.monotonic() + SOAK_SECONDS
    while time.monotonic() < until:
        await simulate("sqlite:///:memory:", seed=random.randrange(10**9), steps=60)
