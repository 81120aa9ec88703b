"""A holder that is frozen and does not know: python -m tests.locks.late URL TTL. Says what it did in one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys

from fleetcron import Fleet
from tests.locks.resource import NAME, connect


async def main(url: str, ttl: float) -> None:
    resource = await connect(url)
    async with Fleet(url) as fleet:
        lock = await fleet.lock(NAME, ttl=ttl).acquire()
        print(lock.fence, flush=True)
        sys.stdin.readline()  # the event loop stands still as well
        lost = lock.lost.is_set()
        wrote = await resource.write(lock.fence, 0)
        renewed = await lock.renew()
        await lock.release()
        print(json.dumps({"lost": lost, "wrote": wrote, "renewed": renewed}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
