"""Blocking calls from a coroutine, also at the interpreter's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def off_loop(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `call` in a thread while the loop goes on.

    When the interpreter is ending (what `atexit` closes) no thread can be begun any more; then it is called here, and the loop waits.
    """
    try:
        return await asyncio.to_thread(call, *args, **kwargs)
    except RuntimeError as error:
        if "shutdown" not in str(error):
            raise
        return call(*args, **kwargs)
