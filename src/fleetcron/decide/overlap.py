"""A tick is due and the run before it is not finished: what now?"""

from __future__ import annotations

from typing import Literal, assert_never

from fleetcron.model import Overlap


def overlap(policy: Overlap, *, running: bool, waiting: int) -> Literal["start", "wait", "miss", "replace"]:
    """What a schedule's newest run does. `running`: an older one does; `waiting`: so many older ones wait their turn.

    * `allow`: start, side by side.
    * `skip`: a miss, unless nothing runs or waits.
    * `queue_one`: wait, if nobody else does; otherwise a miss.
    * `queue_all`: wait.
    * `replace`: cancel the running one and wait for its end ("replace"); when none runs, start. Either way this is
      the newest, and those that wait already are missed.
    """
    busy = running or waiting > 0
    match policy:
        case "allow":
            return "start"
        case "skip":
            return "miss" if busy else "start"
        case "queue_one":
            return "miss" if waiting > 0 else "wait" if running else "start"
        case "queue_all":
            return "wait" if busy else "start"
        case "replace":
            return "replace" if running else "start"
        case _:
            assert_never(policy)
