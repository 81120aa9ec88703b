"""The rules by which a crowd is judged see what breaks them: each is tried on planted books."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg
import pytest

from fleetcron import Fleet
from tests.locks import resource

Books = tuple[Callable[[str], Awaitable[Sequence[Any]]], Callable[[int], str], dict[str, str]]

ON_SQLITE = (
    resource.SQLITE + "CREATE TABLE history (id INTEGER PRIMARY KEY, fence, owner, acquired_at, expires_at, at);"
)


@pytest.fixture(params=["sqlite", "postgres"])
async def books(request: pytest.FixtureRequest) -> AsyncIterator[Books]:
    """(run a statement, the SQL of so many seconds after the beginning, the rules)."""
    if request.param == "sqlite":
        file = sqlite3.connect(":memory:")
        file.executescript(ON_SQLITE)

        async def on_sqlite(statement: str) -> Sequence[Any]:
            return file.execute(statement).fetchall()

        yield on_sqlite, lambda seconds: str(1_000_000 * (1000 + seconds)), resource.RULES
        file.close()
        return
    url = request.getfixturevalue("pg_url")
    async with Fleet(url):
        await resource.prepare(url)
    connection = await asyncpg.connect(url)
    yield connection.fetch, lambda seconds: f"to_timestamp({1000 + seconds})", resource.RULES | resource.ON_POSTGRES
    await connection.close()


async def held(books: Books, fence: int, since: int, until: int, released: int | None = None, owner: str = "") -> None:
    """A holder in the lock's history."""
    run, at, _ = books
    owner = owner or f"owner of {fence}"
    await run(
        "INSERT INTO history (fence, owner, acquired_at, expires_at, at) "
        f"VALUES ({fence}, '{owner}', {at(since)}, {at(until)}, {at(since)})"
    )
    if released is not None:
        await run(
            "INSERT INTO history (fence, owner, acquired_at, at) "
            f"VALUES ({fence}, '{owner}', {at(since)}, {at(released)})"
        )


async def at_it(books: Books, fence: int, since: int, until: int | None = None) -> None:
    """What a holder says of itself."""
    run, at, _ = books
    ended = "NULL" if until is None else at(until)
    await run(f"INSERT INTO hold (fence, pid, began, ended) VALUES ({fence}, 1, {at(since)}, {ended})")


async def wrote(books: Books, table: str, *fences: int) -> None:
    run, at, _ = books
    for second, fence in enumerate(fences):
        columns, values = (
            ("fence, written_at", f"{fence}, {at(second)}") if table == "guarded" else ("fence", f"{fence}")
        )
        await run(f"INSERT INTO {table} ({columns}) VALUES ({values})")


async def broken(books: Books) -> set[str]:
    run, _, rules = books
    return {rule for rule, statement in rules.items() if await run(statement)}


async def test_books_in_order(books: Books) -> None:
    await held(books, 1, 0, 10, released=3)
    await held(books, 2, 3, 13)  # dies
    await held(books, 4, 13, 23, released=25)  # given back when it was over
    await held(books, 5, 23, 33)
    await at_it(books, 1, 0, 2)
    await at_it(books, 2, 3)
    await at_it(books, 4, 13, 24)  # frozen between its last look and its note: its time was over
    await at_it(books, 5, 23)
    await wrote(books, "kept", 1, 1, 2, 4, 5, 5)
    if len(books[2]) > len(resource.RULES):
        await wrote(books, "guarded", 1, 1, 1)
    assert await broken(books) == set()


async def test_two_holders(books: Books) -> None:
    await held(books, 1, 0, 10, released=6)
    await held(books, 2, 5, 15)
    await at_it(books, 1, 0, 6)
    await at_it(books, 2, 5, 7)
    assert await broken(books) == {"two holders inside their ttl", "two holders at it at once"}


async def test_two_at_it_by_their_own_account(books: Books) -> None:
    await held(books, 1, 0, 10, released=5)
    await held(books, 2, 5, 15)
    await at_it(books, 1, 0, 4)
    await at_it(books, 2, 3)
    assert await broken(books) == {"two holders at it at once"}


async def test_fences(books: Books) -> None:
    await held(books, 2, 0, 10, released=1)
    await held(books, 1, 2, 12, released=3)
    assert "a fence that does not rise" in await broken(books)
    await books[0]("DELETE FROM history")
    await held(books, 3, 0, 10, released=1)
    await held(books, 3, 2, 12, owner="another")
    await at_it(books, 4, 2)
    assert {"a fence for two owners", "a holder without a fence of the lock"} <= await broken(books)


async def test_late_writes(books: Books) -> None:
    await wrote(books, "kept", 1, 2, 1)
    found = {"a stale write past the highest fence"}
    if len(books[2]) > len(resource.RULES):
        await wrote(books, "guarded", 1, 2, 1)
        await held(books, 1, 0, 1, released=1)
        await held(books, 2, 1, 9)
        found |= {"a stale write past fence_ok", "a guarded write after the takeover"}
    assert await broken(books) == found
