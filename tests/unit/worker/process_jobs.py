"""Handlers that child processes import by name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fleetcron.errors import Discard, RetryAfter, Snooze
from fleetcron.worker.context import BlockingContext, Context


def add(a: int, b: int = 1) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


async def add_async(ctx: Context, a: int) -> list[Any]:
    await asyncio.sleep(0)
    await ctx.progress(1, 2)
    return [a + 1, await ctx.step("one", lambda: 41)]


def facts(ctx: BlockingContext) -> list[Any]:
    ctx.result = "unused"
    return [ctx.run_id, ctx.idempotency_key, ctx.fence, ctx.attempt, ctx.nominal_at, ctx.cancelled.is_set()]


def by_result(ctx: BlockingContext) -> None:
    ctx.result = {"set": True}


def steps(ctx: BlockingContext, path: str) -> Any:
    def once() -> dict[str, Any]:
        with Path(path).open("a") as file:
            file.write("x")
        return {"n": 2**64}

    ctx.progress(1, 3, "first")
    return ctx.step("once", once)


def steps_from_threads(ctx: BlockingContext) -> list[int]:
    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.append(ctx.step(f"s{n}", lambda: n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return sorted(found)


def spin(path: str = "") -> None:
    """Until something interrupts it; then says so."""
    try:
        while True:
            pass
    finally:
        if path:
            Path(path).write_text(repr(sys.exc_info()[1]))


def nap(path: str) -> None:
    try:
        time.sleep(60)
    except BaseException as error:
        Path(path).write_text(repr(error))
        raise


async def nap_async(path: str) -> None:
    try:
        await asyncio.sleep(60)
    finally:
        Path(path).write_text(repr(sys.exc_info()[1]))


def stubborn(path: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(path).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def swallow(path: str) -> str:
    with contextlib.suppress(TimeoutError):
        time.sleep(60)
    Path(path).write_text("swallowed")
    return "done after all"


def with_grandchild(path: str) -> None:
    grandchild = subprocess.Popen(["sleep", "60"])
    Path(path).write_text(str(grandchild.pid))
    time.sleep(60)


def with_stubborn_grandchild(path: str) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    grandchild = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert grandchild.stdout is not None
    grandchild.stdout.readline()
    Path(path).write_text(str(grandchild.pid))
    time.sleep(60)


def with_grandchild_and_no_gil(path: str) -> None:
    """What the child's threads would have to do, they cannot."""
    Path(path).write_text(str(subprocess.Popen(["sleep", "60"]).pid))
    pow(3, 10**8)  # one C call of many seconds that holds the interpreter lock


def forks(path: str) -> int:
    """A fork that goes on as if it were the child."""
    forked = os.fork()
    if forked == 0:
        time.sleep(60)
        os._exit(0)
    Path(path).write_text(str(forked))
    return forked


def forks_and_dies(path: str) -> None:
    forks(path)
    os.kill(os.getpid(), signal.SIGKILL)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(code: int) -> None:
    os._exit(code)


def call_exit(code: int) -> None:
    sys.exit(code)


def terminate_self() -> str:
    """SIGTERM from anywhere else than the worker, as a service manager sends to all processes of a unit."""
    os.kill(os.getpid(), signal.SIGTERM)
    return "still here"


def write_everywhere() -> str:
    for fd in range(1, 64):
        with contextlib.suppress(OSError):
            os.write(fd, b"\x00\x01 not a frame \xff\n")
    return "written"


def close_everything() -> str:
    os.closerange(3, 64)
    return "closed"


def cut_the_line() -> None:
    os.closerange(3, 1024)


def garble() -> None:
    for fd in range(64, 1024):
        with contextlib.suppress(OSError):
            os.write(fd, b"no frame at all, but long enough")
    time.sleep(60)


def echo(value: Any) -> Any:
    return value


def odd_result() -> Any:
    return {"k\x00": "v\x00", "nan": float("nan"), "object": object(), "bytes": b"\xff", "lone": "\ud800"}


def big_result(size: int) -> str:
    return "x" * size


def slow_repr() -> Any:
    class Slow:
        def __repr__(self) -> str:
            time.sleep(60)
            return "slow"

    return Slow()


async def in_transaction(ctx: Context) -> None:
    async with ctx.transaction():
        pass


async def told(ctx: Context, path: str) -> None:
    """Only looks at the event."""
    await ctx.cancelled.wait()
    Path(path).write_text("told")


def checkpoints(ctx: BlockingContext) -> None:
    """Swallows the exception of the stop, and meets the next one."""
    try:
        time.sleep(60)
    except TimeoutError:
        ctx.progress(1)


class Holder:
    @staticmethod
    def inside(a: int) -> int:
        return a * 2


def environment() -> list[Any]:
    return [os.environ.get("FLEETCRON_CHILD_PATH"), sys.argv, os.getpgrp() == os.getpid() == os.getsid(0)]


class TwoArguments(Exception):
    """Cannot be un-pickled: its __init__ wants another number of arguments than its `args` has."""

    def __init__(self, a: str, b: str) -> None:
        super().__init__(a)
        self.b = b


class HoldsSocket(Exception):
    def __init__(self) -> None:
        super().__init__("holds a socket")
        self.socket = socket.socket()

    def __del__(self) -> None:
        self.socket.close()


class BrokenStr(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class BrokenReduce(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("no pickle")


class WithSlots(OSError):
    __slots__ = ("extra",)

    def __new__(cls, *args: object) -> WithSlots:
        if not args:
            raise TypeError("needs arguments")
        return super().__new__(cls, *args)


class Deeper(TwoArguments, KeyError):
    pass


def raise_odd(which: str) -> None:
    class Local(BrokenReduce):
        pass

    errors: dict[str, BaseException] = {
        "two": TwoArguments("a", "b"),
        "socket": HoldsSocket(),
        "str": BrokenStr("x"),
        "reduce": BrokenReduce("r"),
        "slots": WithSlots(1, "two"),
        "deeper": Deeper("a", "b"),
        "local": Local("in a function"),
        "nul": ValueError("a\x00b \ud800"),
        "long": ValueError("x" * 500_000),
        "group": ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
        "stop": StopIteration(7),
        "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        "retry": RetryAfter("90s", "not yet"),
        "snooze": Snooze("1h"),
        "discard": Discard("no use"),
        "interrupt": KeyboardInterrupt(),
        "cancelled": asyncio.CancelledError(),
    }
    raise errors[which]


def raise_chain() -> None:
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def forks_and_naps(path: str) -> None:
    forks(path)
    time.sleep(60)


def naps(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"
