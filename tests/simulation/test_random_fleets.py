"""Random fleets keep their promises. A seed that fails is printed with its story; `SIMULATION_SEED=n` runs it alone."""

from __future__ import annotations

import os

import pytest

from tests.simulation.simulator import Simulation

SEED = os.environ.get("SIMULATION_SEED")
SEEDS = [int(SEED)] if SEED else list(range(int(os.environ.get("SIMULATION_SEEDS", "16"))))
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
