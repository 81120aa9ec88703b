"""Each scenario: `run(lab, options) -> Report`."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """What the command line asks for. `n` None: the scenario's own size."""

    repeat: int = 5
    peers: str = "all"
    n: int | None = None
    workers: int = 1
    seconds: int = 120
