"""A web app that submits runs and shows how far they are. Any WSGI framework does it in the same way, with `fleet.blocking`.

fleetcron --app web_app:fleet run       # in one terminal
python web_app.py                       # in another

POST /reports?rows=10   ->  202, {"run": 1, "at": "/runs/1"}; again within the same minute: the same run
GET /runs/1             ->  200, {"state": "running", "done": 3, "of": 10, …}
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import make_server

from fleetcron import Context, Fleet, NotFound, PayloadError, StoreUnavailable

fleet = Fleet()


@fleet.job("report")
async def report(ctx: Context, rows: int) -> int:
    for row in range(rows):
        await asyncio.sleep(0.05)
        await ctx.progress(row + 1, rows)
    return rows


def order_report(rows: str) -> tuple[HTTPStatus, dict[str, Any]]:
    """A report a minute and size: whoever asks again in that minute gets the run that is there."""
    try:
        run = fleet.blocking.submit(
            "report", {"rows": int(rows)}, key=f"report-{rows}-{datetime.now(UTC):%H:%M}", key_scope="1m"
        )
    except (PayloadError, ValueError) as error:
        return HTTPStatus.BAD_REQUEST, {"error": str(error)}
    return HTTPStatus.ACCEPTED, {"run": run.id, "at": f"/runs/{run.id}", "new": run.created}


def show_run(number: str) -> tuple[HTTPStatus, dict[str, Any]]:
    try:
        run, progress = fleet.blocking.run(int(number)), fleet.blocking.progress(int(number))
    except (NotFound, ValueError):
        return HTTPStatus.NOT_FOUND, {"error": f"there is no run {number}"}
    told = {} if progress is None else {"done": progress.done, "of": progress.total}
    return HTTPStatus.OK, {"state": run.state, "result": run.result, "error": run.error} | told


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """The WSGI app."""
    query = parse_qs(environ["QUERY_STRING"])
    try:
        match environ["REQUEST_METHOD"], environ["PATH_INFO"].strip("/").split("/"):
            case "POST", ["reports"]:
                status, answer = order_report(query.get("rows", ["10"])[0])
            case "GET", ["runs", number]:
                status, answer = show_run(number)
            case _:
                status, answer = HTTPStatus.NOT_FOUND, {"error": "POST /reports?rows=N, GET /runs/ID"}
    except StoreUnavailable as error:
        status, answer = HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(error)}
    start_response(f"{status.value} {status.phrase}", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode() + b"\n"]


if __name__ == "__main__":
    with make_server("127.0.0.1", int(os.environ.get("PORT", "8000")), app) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
