"""A TCP proxy that delays, swallows, resets and refuses: the network's ways to fail, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from fleetcron.embedded_postgres import free_port


class Proxy:
    """Forwards a loopback port to another. Everything can be changed while connections are open.

    async with Proxy.to(pg_url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.delay = 0.02      # seconds, each way
        proxy.blackhole()       # nothing arrives, nothing is refused
        proxy.heal()            # what was held back arrives, as after a partition
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.host = "127.0.0.1"
        self.port = free_port()
        self.delay = 0.0
        self.connections = 0  # ever accepted
        self._url = ""
        self._passing = asyncio.Event()
        self._passing.set()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def to(cls, url: str) -> Self:
        """A proxy before the server that `url` names; `proxy.url` is the same address through it."""
        parts = urlsplit(url)
        assert parts.hostname is not None and parts.port is not None
        proxy = cls(parts.hostname, parts.port)
        proxy._url = url
        return proxy

    @property
    def url(self) -> str:
        """The address given to `to`, through this proxy."""
        parts = urlsplit(self._url)
        account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        return urlunsplit(parts._replace(netloc=f"{account}{self.host}:{self.port}"))

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_listening()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def blackhole(self) -> None:
        """From now on nothing passes in either direction; new connections are accepted and hear nothing."""
        self._passing.clear()

    def reset(self) -> None:
        """Cut every open connection with a TCP reset. New ones are welcome."""
        for writer in list(self._open):
            raw = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # closed meanwhile
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._open.clear()

    def refuse(self) -> None:
        """Cut every open connection and refuse new ones."""
        self._stop_listening()
        self.reset()

    async def heal(self) -> None:
        """Pass everything again, without delay."""
        self.delay = 0.0
        self._passing.set()
        if self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        self._open.add(writer)
        try:
            await self._passing.wait()
            upstream_reader, upstream_writer = await asyncio.open_connection(*self.target)
            self._open.add(upstream_writer)
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._pump(reader, upstream_writer))
                both_ways.create_task(self._pump(upstream_reader, writer))
        except* OSError:
            pass  # one side is gone, which is what this proxy is for
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """Copy until the source ends; then close the sink, which ends the other direction too."""
        try:
            while data := await source.read(65536):
                await asyncio.sleep(self.delay)
                await self._passing.wait()
                sink.write(data)
                await sink.drain()
        finally:
            self._open.discard(sink)
            sink.close()
