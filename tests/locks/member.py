"""One of a crowd: takes a lock, writes, gives it back, again and again. It never looks at `lost` before it writes: that is for the fence.

python -m tests.locks.member URL TTL SEED
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

from fleetcron import Fleet
from tests.locks.resource import NAME, connect


async def main(url: str, ttl: float, seed: int) -> None:
    chance = random.Random(seed)
    resource = await connect(url)
    async with Fleet(url) as fleet:
        while True:
            async with fleet.lock(NAME, ttl=ttl) as lock:
                await resource.begin(lock.fence, os.getpid())
                long = chance.random() < 0.02
                for _ in range(5 if long else 1):
                    await asyncio.sleep(0.01 * chance.random())  # the time in which it may be frozen, and then be late
                    await resource.write(lock.fence, 0.03 if long else 0)
                if not lock.lost.is_set():
                    await resource.end(lock.fence)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
