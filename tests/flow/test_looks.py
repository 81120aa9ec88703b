"""What happens while a worker looks which lanes there are: nothing of it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from fleetcron import Fleet, StoreUnavailable
from fleetcron.store.protocol import Lane, Look, NewRun, Store
from fleetcron.worker.dbclock import DbClock
from fleetcron.worker.lanes import Lanes, place_of

HERE = ("default", 5, "")


class Meanwhile:
    """The real store, in front of which something happens after it has looked, and before the worker hears of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.happens: Callable[[], None] = lambda: None

    async def lanes(self, *args: Any, **how: Any) -> Look:
        look = await self._store.lanes(*args, **how)
        self.happens()
        return look


class Scene:
    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, DbClock()
        self.meanwhile = Meanwhile(store)
        self.lanes = Lanes(cast("Store", self.meanwhile), self.clock, None)

    async def look(self) -> None:
        await self.lanes.look({}, lambda: True)

    def wanted(self) -> bool:
        return self.lanes.look_in(self.clock.steady()) <= 0

    def first(self) -> Lane:
        return next(lane for lane in self.lanes if place_of(lane) == HERE)

    async def submit(self, seconds: float) -> None:
        delay = timedelta(seconds=seconds)
        await self.store.insert([NewRun(job="work", payload="{}", queue="default", priority=5, tenant="", delay=delay)])


@pytest.fixture
async def scene(store_url: str) -> AsyncIterator[Scene]:
    fleet = Fleet(store_url)

    @fleet.job("work")
    async def work() -> None: ...

    async with fleet:
        yield Scene(fleet.store)


async def test_a_doubt_that_comes_during_a_look_asks_for_another(scene: Scene) -> None:
    scene.meanwhile.happens = scene.lanes.doubt
    await scene.look()
    assert scene.wanted()
    scene.meanwhile.happens = lambda: None
    await scene.look()
    assert not scene.wanted()


async def test_what_is_told_during_a_look_is_not_overwritten_by_it(scene: Scene) -> None:
    await scene.submit(30)
    await scene.look()
    later = scene.first().first_due
    scene.meanwhile.happens = lambda: scene.lanes.tell([HERE])
    await scene.look()
    assert scene.first().first_due < later
    scene.lanes.emptied(scene.first())
    assert scene.first().first_due == later


async def test_a_look_that_failed_is_taken_again(scene: Scene) -> None:
    def fails() -> None:
        raise StoreUnavailable("gone")

    scene.meanwhile.happens = fails
    with pytest.raises(StoreUnavailable):
        await scene.look()
    assert scene.wanted()


async def test_a_claim_of_what_others_took_forgets_no_timer(scene: Scene) -> None:
    """Told of a run that is due, in a lane whose next run is due later: when the first is gone, the timer is for the other."""
    await scene.submit(30)
    await scene.look()
    later = scene.first()
    scene.lanes.tell([HERE])
    told = scene.first()
    assert told.first_due < later.first_due
    scene.lanes.emptied(told)
    scene.lanes.ran_dry([told], gave=False)
    assert scene.first() == later
    assert scene.lanes.first_after(scene.clock.now(), 2.0) == later.first_due.timestamp() - 2.0
