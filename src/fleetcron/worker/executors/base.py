"""What every executor can do."""

from __future__ import annotations

from typing import Any, Protocol

from fleetcron.handlers import Handler
from fleetcron.worker.context import RunFacts


class Executor(Protocol):
    """Runs handlers. One per kind and worker, used from the worker's event loop."""

    async def run(self, handler: Handler, facts: RunFacts | None, payload: str, *, timeout: float | None) -> Any:
        """Run `handler` with the arguments in `payload` (JSON text); what it returned, else what its context's
        `result` says.

        `facts` may be None if the handler takes no context. `timeout` is in seconds, None for none. Raises what the
        handler raised, PayloadError if the payload does not fit, HandlerTimeout, HandlerExit, ChildDied. Cancelling
        the awaiting task stops the code as far as that is possible, and returns when it has stopped or is given up.
        """

    async def close(self) -> None:
        """End what is left, within seconds."""
