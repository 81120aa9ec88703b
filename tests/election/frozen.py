"""A leader that stops in the middle of a transaction: python -m tests.election.frozen URL TTL.

It says "in" when it holds the shard's row, stops itself (SIGSTOP), and when it is continued tries to go on and says what that came to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta

from fleetcron import Fleet, StoreUnavailable
from tests.conformance.kit import info


async def main(url: str, ttl: float) -> None:
    fleet = Fleet(url, election_ttl=ttl)
    store = fleet.make_store(application="frozen", idle_timeout=fleet.options.election_ttl)
    await store.open()
    term = await store.campaign(0, info("frozen"), fleet.options.election_ttl)
    assert term is not None
    try:
        async with store.tx("judge") as tx:  # type: ignore[attr-defined]
            assert await tx.led(0, term)
            print("in", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            print(f"still led: {await tx.led(0, term)}", flush=True)
    except StoreUnavailable as error:
        print(f"refused: {error}", flush=True)
    print(f"renewed: {await store.renew(0, 'frozen', term, timedelta(seconds=ttl))}", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
