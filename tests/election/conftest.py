"""Servers for electors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from fleetcron.election import Elector, make_elector
from tests.conftest import missing
from tests.election.support import SERVERS, ElectorServer

StartElector = Callable[..., Awaitable[Elector]]
NewServer = Callable[[str], ElectorServer]


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[[str], ElectorServer]]:
    """Starts the server of an elector, by the scheme of its URL."""
    made: list[ElectorServer] = []

    def start(scheme: str) -> ElectorServer:
        kind = SERVERS[scheme]
        if not kind.here():
            missing(kind.__name__)
        server = kind(tmp_path / f"{scheme}-{len(made)}")
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ElectorServer]]:
    """Servers that are left in peace, by scheme: started when first asked for."""
    made: dict[str, ElectorServer] = {}
    yield made
    for server in made.values():
        server.stop()


@pytest.fixture
def shared_url(shared: dict[str, ElectorServer], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The URL of a shared server, with a prefix of this test's own."""

    def url(scheme: str) -> str:
        if scheme == "database":
            return scheme
        if scheme not in shared:
            if not SERVERS[scheme].here():
                missing(SERVERS[scheme].__name__)
            shared[scheme] = SERVERS[scheme](tmp_path_factory.mktemp(scheme)).start()
        prefix = uuid.uuid4().hex
        return (
            f"{shared[scheme].url}?prefix={prefix}"
            if scheme == "redis"
            else shared[scheme].url.replace("/fleet", f"/{prefix}")
        )

    return url


@pytest.fixture(params=list(SERVERS))
def scheme(request: pytest.FixtureRequest) -> str:
    """Each elector that has a server of its own."""
    return str(request.param)


@pytest.fixture
def server(scheme: str, new_server: Callable[[str], ElectorServer]) -> ElectorServer:
    return new_server(scheme)


@pytest.fixture
async def elector() -> AsyncIterator[StartElector]:
    """Starts electors on this loop: `await elector(url, node, ttl)`; all are stopped at the end."""
    started: list[Elector] = []

    async def start(url: str, node: str, ttl: float = 1.0, changed: Callable[[], None] = lambda: None) -> Elector:
        one = make_elector(url, node, timedelta(seconds=ttl))
        await one.start(changed)
        started.append(one)
        return one

    yield start
    await asyncio.gather(*(one.stop() for one in started))
