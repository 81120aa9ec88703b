"""`python -m fleetcron.demo.tether ALIVE PARENT …` is `fleetcron …`, and ends when the demo does, however that ends.

A demo that is killed -9 cannot clean up any more. ALIVE is the read end of a pipe; the demo, pid PARENT, holds the other.
"""

from __future__ import annotations

import runpy
import sys

from fleetcron.worker.executors.child import die_with

if __name__ == "__main__":
    die_with(int(sys.argv[2]), int(sys.argv[1]))
    sys.argv[1:] = sys.argv[3:]
    runpy.run_module("fleetcron", run_name="__main__", alter_sys=True)
