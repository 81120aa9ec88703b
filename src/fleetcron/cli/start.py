"""A node's main loop: everything in this process, or a parent with worker processes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

import fleetcron
from fleetcron.cli import output
from fleetcron.cli.crew import Crew, Link
from fleetcron.cli.settings import Settings
from fleetcron.cli.urls import masked
from fleetcron.fleet import Fleet
from fleetcron.node import Node, NodeOptions, node_info, on_signals
from fleetcron.store.sqlite.connection import parse_url

SWITCH = 0.0005
"""Seconds that a thread of ours (heartbeat, scheduler, loop) keeps the interpreter when another one asks for it. Python's own 5 ms are longer
than what a start may be late."""


def start(work: Coroutine[Any, Any, None]) -> None:
    """Run it, on uvloop where that is installed: it takes half of the event loop's work away."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop  # lazy: an extra that may be missing

        new_loop = uvloop.new_event_loop
    except ImportError:
        pass
    _collect_less()
    sys.setswitchinterval(SWITCH)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work)


def _collect_less() -> None:
    """This process is ours: what was loaded lives as long as it does, and a claim makes thousands of objects that live for milliseconds. At
    Python's own threshold of 700 the search for cycles among them took a fifth of a busy worker's CPU; at this one, 2 %."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def run_node(fleet: Fleet, plan: NodeOptions, settings: Settings) -> None:
    """All roles in this process."""
    node = Node(fleet, plan)
    on_signals(asyncio.get_running_loop(), node.stop)
    await node.run(lambda: _say_ready(fleet, node, plan, settings, 1 if "worker" in plan.roles else 0))


async def run_worker_process(fleet: Fleet, plan: NodeOptions, link: Link) -> None:
    """One worker process of a node. Signals drain it, however many come: its parent's, and a service manager's that
    signals everybody. It ends at once when its parent does, and that is not left to this loop (see `crew.follow`)."""
    node = Node(fleet, plan, node_info(plan, link.node))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, node.stop)
    await node.run(link.say_ready)


async def run_crew(fleet: Fleet, plan: NodeOptions, settings: Settings, processes: int, words: dict[str, Any]) -> None:
    """The scheduler (if asked for) and the node's row in this process, workers in others, started with the options
    `words`. The scheduler outlasts their drain."""
    own = msgspec.structs.replace(plan, roles=tuple(role for role in plan.roles if role != "worker"))
    node = Node(fleet, own, node_info(plan, uuid.uuid4().hex))
    crew = Crew(node.info.node, partial(child_command, words), processes, plan.drain)
    on_signals(asyncio.get_running_loop(), crew.stop)
    working: list[asyncio.Task[None]] = []

    async def work() -> None:
        try:
            await crew.run(lambda: _say_ready(fleet, node, plan, settings, processes))
        finally:
            node.stop()

    try:
        await node.run(lambda: working.append(asyncio.create_task(work(), name="fleetcron-crew")))
    finally:
        crew.kill()
    await asyncio.gather(*working)


def child_command(words: dict[str, Any], link: Link) -> list[str]:
    """The options that were given, given again. With -P nothing in the current directory stands in for a module of
    ours, unless this program itself was found there."""
    here = Path(fleetcron.__file__).parents[1] == Path.cwd()
    command = [sys.executable, *([] if here else ["-P"]), "-m", "fleetcron", "run", "--child", str(link)]
    for name, value in words.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            command.append(flag)
        elif value is not None:
            command.append(f"{flag}={value}")
    return command


def _say_ready(fleet: Fleet, node: Node, plan: NodeOptions, settings: Settings, processes: int) -> None:
    found = {
        "node": node.info.node,
        "host": node.info.host,
        "pid": os.getpid(),
        "version": fleetcron.__version__,
        "url": masked(fleet.options.url),
        "roles": plan.roles,
        "processes": processes,
        "slots": plan.slots * processes,
        "queues": plan.queues,
    }
    parts = [_place(fleet.options.url), "roles " + " + ".join(plan.roles)]
    if processes:
        each = f" in {processes} processes" if processes > 1 else ""
        queues = f"queues {', '.join(plan.queues)}" if plan.queues else "all queues"
        parts += [f"{plan.slots * processes} slots{each}", queues]
    who = f"node {node.info.node[:12]}, pid {os.getpid()}"
    words = f"fleetcron {fleetcron.__version__} is ready: {'; '.join(parts)} ({who})"
    output.emit(settings, found, lambda: click.echo(output.clean(words)))
    sys.stdout.flush()


def in_memory(url: str) -> bool:
    """Does the database die with the process that has it?"""
    return url.lower().startswith("sqlite:") and parse_url(url).path is None


def _place(url: str) -> str:
    path = parse_url(url).path if url.lower().startswith("sqlite:") else None
    return masked(url) if path is None else f"sqlite {path.absolute()}"
