"""An order and the run that books it are written in one transaction; the booking and the end of that run are written in another.

    export FLEETCRON_URL=postgresql://localhost/fleet
    fleetcron --app orders:fleet run        # in one terminal
    python orders.py 5                      # in another: places 5 orders and rolls back a sixth

However often nodes are killed in between, each order that exists is booked once.
"""

from __future__ import annotations

import asyncio
import os
import sys

import asyncpg

from fleetcron import Context, Fleet

fleet = Fleet()

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, amount int NOT NULL);
CREATE TABLE IF NOT EXISTS ledger (id int GENERATED ALWAYS AS IDENTITY, order_id int NOT NULL, amount int NOT NULL);
"""


@fleet.job("orders.book")
async def book(ctx: Context, order: int) -> None:
    """No unique index protects the ledger: the transaction does. A second attempt finds that its lease, or the first one, is gone."""
    async with ctx.transaction() as conn:
        amount = await conn.fetchval("SELECT amount FROM orders WHERE id = $1", order)
        await conn.execute("INSERT INTO ledger (order_id, amount) VALUES ($1, $2)", order, amount)
        ctx.result = {"booked": amount}


class RefusedError(Exception):
    """The card was."""


async def place(connection: asyncpg.Connection, amount: int, *, refused: bool = False) -> None:
    """The order and its run, or neither."""
    async with connection.transaction():
        order = await connection.fetchval("INSERT INTO orders (amount) VALUES ($1) RETURNING id", amount)
        await fleet.submit(book, {"order": order}, conn=connection)
        if refused:
            raise RefusedError


async def main(count: int) -> None:
    connection = await asyncpg.connect(os.environ["FLEETCRON_URL"])
    try:
        await connection.execute(SCHEMA)
        async with fleet:
            for n in range(count):
                await place(connection, amount=100 + n)
            try:
                await place(connection, amount=1_000_000, refused=True)
            except RefusedError:
                print("one order was refused")
            runs = [run.id async for run in fleet.iter_runs(job="orders.book")]
        print(await connection.fetchval("SELECT count(*) FROM orders"), "orders,", len(runs), "runs")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
