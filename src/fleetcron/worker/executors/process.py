"""Handlers in child processes: code that may block, crash, leak or run too long, and that can be stopped for certain.

One warm child per slot, started when first needed. `link` starts and stops a child, `child` is what it does.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

from fleetcron.handlers import Handler
from fleetcron.payload import decode, safe_text
from fleetcron.worker.context import RunFacts, Services
from fleetcron.worker.executors import wire
from fleetcron.worker.executors.errors import ChildDied, HandlerTimeout
from fleetcron.worker.executors.link import Answer, Child, Expired
from fleetcron.worker.executors.reference import reference
from fleetcron.worker.executors.remote import rebuild

CLOSE_LIMIT = 2.0  # seconds for children to end by themselves at `close`


class ProcessExecutor:
    """Runs functions that a child can import, async ones too, in at most `slots` child processes.

    `grace`: seconds from SIGTERM to SIGKILL. `max_result` and `max_error`: bytes of a result and of an error's texts;
    what is longer is cut in the child.
    """

    def __init__(
        self,
        services: Services,
        *,
        slots: int,
        grace: float = 5.0,
        max_result: int = 256 * 1024,
        max_error: int = 64 * 1024,
    ) -> None:
        self._services = services
        self._slots = asyncio.Semaphore(slots)
        self._grace = grace
        self._max_result = max_result
        self._max_error = max_error
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._lock = threading.Lock()  # `kill_all` comes from another thread
        self._kills = 0  # how often; a run that saw another number at its start must not begin
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, handler: Handler, facts: RunFacts | None, payload: str, *, timeout: float | None) -> Any:
        """See Executor. The timeout counts from the call of the handler. At its end, and when cancelled, the child's
        handler gets an exception, and the whole process group is killed once that is through or the grace is over."""
        frame = wire.Run(reference(handler), handler.name, facts, payload)
        kills = self._kills
        async with self._slots:
            child = self._warm()
            answer = None if child is None else await self._attempt(child, frame, timeout, kills)
            # A warm child may have died since its last run. This run did not begin in it: a new child, no attempt lost.
            if child is None or (isinstance(answer, ChildDied) and not child.started):
                child = await self._start()
                answer = await self._attempt(child, frame, timeout, kills)
        match answer:
            case wire.Returned(value):
                return None if value is None else decode(value)
            case wire.Raised(error):
                raise rebuild(error)
            case ChildDied():
                raise answer
            case _:
                assert timeout is not None
                raise HandlerTimeout(timeout)

    def kill_all(self) -> None:
        """SIGKILL to every child and what it started, now; runs that are about to begin do not. From any thread: the
        heartbeat's, when the lease is lost. Their `run` raises ChildDied."""
        with self._lock:
            self._kills += 1
            for child in self._children:
                child.kill()

    async def close(self) -> None:
        """End all children: idle ones by themselves, the others by SIGKILL. Takes at most `CLOSE_LIMIT` and a bit."""
        idle, self._idle = self._idle, []
        children = list(self._children)
        for child in children:
            if child in idle:
                child.bye()
            else:
                child.kill()
        if children:
            await asyncio.wait([child.gone for child in children], timeout=CLOSE_LIMIT)
        self.kill_all()
        if self._children:
            await asyncio.wait([child.gone for child in self._children], timeout=CLOSE_LIMIT)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _warm(self) -> Child | None:
        while self._idle:
            child = self._idle.pop()
            if not child.ended:
                return child
        return None

    async def _start(self) -> Child:
        with self._lock:
            child = Child(self._called, self._gone)
            self._children.add(child)
        await child.open(max_result=self._max_result, max_error=self._max_error)
        return child

    async def _attempt(self, child: Child, frame: wire.Run, timeout: float | None, kills: int) -> Answer:
        if kills != self._kills:
            child.kill()
            raise ChildDied(signal=signal.SIGKILL, note="all children of this worker were told to end")
        try:
            answer = await child.begin(frame, timeout)
        except asyncio.CancelledError:
            await self._stop(child, None)
            raise
        if isinstance(answer, Expired):
            await self._stop(child, timeout)
        elif not child.ended:
            self._idle.append(child)
        return answer

    async def _stop(self, child: Child, timeout: float | None) -> None:
        """Returns when the child is dead. Cancelled while it waits, it kills at once."""
        stopping = asyncio.create_task(child.stop(timeout, self._grace))
        self._keep(stopping)
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            child.kill()
            raise

    def _gone(self, child: Child) -> None:
        with self._lock:
            self._children.discard(child)
        if child in self._idle:
            self._idle.remove(child)

    def _called(self, child: Child, call: wire.Call) -> None:
        self._keep(asyncio.create_task(self._serve(child, call)))

    async def _serve(self, child: Child, call: wire.Call) -> None:
        """What a handler asks of the engine, for the run that its child is in now."""
        facts = child.facts
        value: str | None = None
        try:
            if facts is None or facts.run_id != call.run_id:
                child.reply(wire.Reply(call.id, error=("LeaseLost", f"run {call.run_id} has ended")))
                return
            match call.method:
                case "step_get":
                    value = await self._services.step_get(facts.run_id, call.name)
                case "step_put":
                    await self._services.step_put(facts, call.name, call.json)
                case _:
                    await self._services.progress(facts, call.done, call.total, call.note)
        except Exception as error:  # noqa: BLE001 - it is raised where the handler asked
            child.reply(wire.Reply(call.id, error=(type(error).__name__, safe_text(str(error)))))
        else:
            child.reply(wire.Reply(call.id, value))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
