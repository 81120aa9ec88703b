"""Handlers on the event loop, in the task of the caller: nothing is started, nothing is switched to."""

from __future__ import annotations

import asyncio
from typing import Any

from fleetcron.handlers import Handler
from fleetcron.worker.context import Context, RunFacts, Services
from fleetcron.worker.executors.errors import HandlerTimeout, contained


class AsyncExecutor:
    """Runs `async def` handlers. `contexts` has the contexts of the handlers that took one, by run id, while they run:
    `contexts[run_id].stop()` sets `ctx.cancelled`, which the cancelling of a task alone does only afterwards."""

    __slots__ = ("_services", "contexts")

    def __init__(self, services: Services) -> None:
        self._services = services
        self.contexts: dict[int, Context] = {}

    async def run(self, handler: Handler, facts: RunFacts | None, payload: str, *, timeout: float | None) -> Any:
        """See Executor. A handler that swallows its cancellation cannot be stopped; at its end it still timed out."""
        arguments = handler.arguments(payload)
        if handler.takes_context:
            assert facts is not None
            context = self.contexts[facts.run_id] = Context(facts, self._services)
            try:
                value = await _run(handler, context, arguments, timeout)
            except asyncio.CancelledError:
                context.stop()  # for tasks that the handler left behind
                raise
            finally:
                self.contexts.pop(facts.run_id, None)
            return context.result if value is None else value
        return await _run(handler, None, arguments, timeout)

    async def close(self) -> None:
        """Nothing to end: the tasks are the caller's."""


async def _run(handler: Handler, context: Context | None, arguments: dict[str, Any], timeout: float | None) -> Any:
    try:
        if timeout is None:
            return await handler.call(context, arguments)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                value = await handler.call(context, arguments)
        except Exception as error:
            if limit.expired():  # else it is the handler's own, a TimeoutError too
                raise HandlerTimeout(timeout) from (None if isinstance(error, TimeoutError) else error)
            raise
        if limit.expired():
            raise HandlerTimeout(timeout)
    except (SystemExit, KeyboardInterrupt) as error:
        # asyncio would end the whole loop, and every other run with it
        raise contained(error) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise contained(error) from error
    else:
        return value
