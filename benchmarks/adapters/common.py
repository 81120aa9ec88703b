"""Shared by the Python adapters: the handlers, and the words that an adapter knows.

reset          make the tables
enqueue N      N runs by the bulk call; says `secs`
single N C     N runs by the single call, C at a time; says `secs`
timed N GAP    one run every GAP seconds; writes sent.json: (number, when the call returned)
scheduled N S  N runs due at distinct instants within S seconds, from 2 s on; S = 0: all at one instant
feed B         keep B runs waiting until the file `stop` appears
worker         run them
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

DIR = Path(os.environ.get("BENCH_DIR", "."))
DSN = os.environ.get("BENCH_DSN", "")
MODE = os.environ.get("BENCH_MODE", "count")
BATCH = int(os.environ.get("BENCH_BATCH", "5000"))
PAD = "x" * int(os.environ.get("BENCH_PAD", "180"))
"""Makes a payload of about 200 bytes."""

_hits: list[int] = []
_counting = False
_log: tuple[int, int] | None = None


def payload(n: int) -> dict[str, Any]:
    return {"n": n, "pad": PAD} if PAD else {"n": n}


def job(n: int) -> None:
    """What every handler does: one append; a thread writes the count down every 10 ms. (Mode "log": a line a start.)"""
    global _counting
    if MODE == "count":
        if not _counting:
            _counting = True
            _start_counting()
        _hits.append(1)
    else:
        line(n, f"{time.time():.6f}")


def _start_counting() -> None:
    first = time.time()
    _hits.clear()
    fd = os.open(DIR / f"{os.getpid()}.cnt", os.O_CREAT | os.O_WRONLY)

    def loop() -> None:
        n = -1
        while True:
            if len(_hits) != n:
                n = len(_hits)
                os.pwrite(fd, f"{n:>12} {first:.6f} {time.time():.6f}\n".encode(), 0)
            time.sleep(0.01)

    threading.Thread(target=loop, daemon=True).start()


def line(*fields: object) -> None:
    global _log
    if _log is None or _log[0] != os.getpid():
        _log = (os.getpid(), os.open(DIR / f"{os.getpid()}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND))
    os.write(_log[1], (" ".join(map(str, fields)) + "\n").encode())


def gate() -> None:
    """Everything is loaded; wait for the word, so that two workers begin together."""
    (DIR / f"ready.{os.getpid()}").touch()
    until = time.time() + 60
    while not (DIR / "go").exists() and time.time() < until:
        time.sleep(0.002)


def say(**values: Any) -> None:
    print("RESULT " + json.dumps(values), flush=True)


def _sent(pairs: list[tuple[int, float]]) -> None:
    (DIR / "sent.json").write_text(json.dumps(pairs))


def _done() -> int:
    return sum(int(path.read_text()[:12] or 0) for path in DIR.glob("*.cnt"))


def main(
    *,
    reset: Callable[[], Awaitable[None]],
    session: Callable[[], Any],
    enqueue: Callable[[Any, int], Awaitable[None]],
    one: Callable[[Any, int], Awaitable[None]],
    at: Callable[[Any, int, float], Awaitable[None]],
    worker: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """The command line of an adapter; `session()` is an async context manager whose value the others are given."""
    try:
        import uvloop  # lazy: not every peer's environment has it

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    run(_main(sys.argv[1], [float(word) for word in sys.argv[2:]], reset, session, enqueue, one, at, worker))


async def _main(word, numbers, reset, session, enqueue, one, at, worker):  # type: ignore[no-untyped-def]
    if word == "reset":
        return await reset()
    if word == "worker":
        return await worker()
    async with session() as context:
        if word == "enqueue":
            began = time.perf_counter()
            await enqueue(context, int(numbers[0]))
            say(secs=time.perf_counter() - began)
        elif word == "single":
            await _single(context, one, int(numbers[0]), int(numbers[1]))
        elif word == "timed":
            await _timed(context, one, int(numbers[0]), numbers[1])
        elif word == "scheduled":
            count, span = int(numbers[0]), numbers[1]
            first = time.time() + (2.0 if span else numbers[2])
            dues = [first + (i + 0.37) * span / count for i in range(count)]
            await asyncio.gather(*(at(context, i, due) for i, due in enumerate(dues)))
            _sent(list(enumerate(dues)))
            say(done_before_first=dues[0] - time.time())
        elif word == "feed":
            sent = 0
            while not (DIR / "stop").exists():
                if sent - _done() < numbers[0]:
                    await enqueue(context, 500)
                    sent += 500
                else:
                    await asyncio.sleep(0.005)


async def _single(context, one, count, together):  # type: ignore[no-untyped-def]
    numbers = iter(range(count))

    async def caller() -> None:
        for n in numbers:
            await one(context, n)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(together)))
    say(secs=time.perf_counter() - began)


async def _timed(context, one, count, gap):  # type: ignore[no-untyped-def]
    sent, when = [], time.time() + 0.2
    for i in range(count):
        await asyncio.sleep(max(0.0, when - time.time()))
        when += gap
        await one(context, i)
        sent.append((i, time.time()))
    _sent(sent)
