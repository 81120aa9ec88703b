"""A proxy that cuts the link at a chosen message: before the server gets it, or after it has carried it out and before its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tests.support.proxy import Proxy

_SETTLED = 0.02
"""Seconds that the server is given for what it must have done before the cut."""


class Cutter(Proxy):
    """`cut_at(gaps)`: cut all connections at the message that many after the last cut, in turn before and after; `cuts` counts."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port)
        self.cuts = 0
        self._gaps: Iterator[int] = iter(())
        self._left: int | None = None
        self._mute = False

    def cut_at(self, gaps: Iterator[int]) -> None:
        """From now on; an empty iterator ends it."""
        self._gaps = gaps
        self._left = next(gaps, None)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        to_server = sink.get_extra_info("peername")[1] == self.target[1]
        try:
            while data := await source.read(65536):
                if not to_server:
                    if self._mute:
                        continue
                elif self._left is not None:
                    self._left -= 1
                    if self._left <= 0:
                        self._left = next(self._gaps, None)
                        self.cuts += 1
                        if self.cuts % 2:
                            self.reset()
                            return
                        self._mute = True
                        sink.write(data)
                        await sink.drain()
                        await asyncio.sleep(_SETTLED)
                        self.reset()
                        self._mute = False
                        return
                sink.write(data)
                await sink.drain()
        finally:
            self._open.discard(sink)
            sink.close()
