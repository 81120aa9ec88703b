"""APScheduler 3.x: start precision of date jobs, in one process. `peer_apscheduler.py memory|postgres COUNT SPAN`."""

from __future__ import annotations

import json
import logging
import sys
import time
from datetime import UTC, datetime

import common as c
import peer_apscheduler as me
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

got: dict[int, float] = {}


def fire(n: int) -> None:
    got[n] = time.time()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    store, count, span = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    stores = (
        {}
        if store == "memory"
        else {"default": SQLAlchemyJobStore(url=c.DSN.replace("postgresql:", "postgresql+psycopg:"))}
    )
    scheduler = BackgroundScheduler(jobstores=stores, timezone=UTC)
    scheduler.start()
    first = time.time() + 2
    dues = [first + (i + 0.37) * span / count for i in range(count)]
    for i, due in enumerate(dues):
        scheduler.add_job(me.fire, "date", run_date=datetime.fromtimestamp(due, UTC), args=[i], misfire_grace_time=30)
    time.sleep(max(0.0, dues[-1] - time.time()) + 2)
    scheduler.shutdown()
    print("RESULT " + json.dumps({"late": [me.got[i] - due for i, due in enumerate(dues) if i in me.got]}))
