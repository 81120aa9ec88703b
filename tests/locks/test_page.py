"""The programs of docs/how-to/use-a-lock.md do what the page says: an object store that takes conditional puts, and the SQL of fences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from fleetcron import Fleet
from tests.acceptance.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to" / "use-a-lock.md"


class ClientError(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


class ObjectStore:
    """One object with an ETag; `before_put` is what happens between somebody's look and its put."""

    class exceptions:  # noqa: N801  # as in boto3
        ClientError = ClientError

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.before_put: list[Callable[[], object]] = []

    def head_object(self, **_: str) -> dict[str, Any]:
        if self.object is None:
            raise ClientError("404")
        return self.object

    def put_object(self, **given: Any) -> None:
        if self.before_put:
            self.before_put.pop()()
        etag = None if self.object is None else self.object["ETag"]
        if ("IfNoneMatch" in given and etag is not None) or given.get("IfMatch", etag) != etag:
            raise ClientError("PreconditionFailed")
        self.object = {"ETag": f"{etag}'", "Metadata": given["Metadata"], "Body": given["Body"]}


@pytest.fixture
def publish() -> Callable[..., bool]:
    (source,) = (block.text for block in blocks(PAGE, "python") if block.file == "publish.py")
    names: dict[str, Any] = {}
    exec(source, names)
    found: Callable[..., bool] = names["publish"]
    return found


def test_an_object_is_put_by_rising_fences(publish: Callable[..., bool]) -> None:
    s3 = ObjectStore()
    assert publish(s3, "b", "k", b"1", 41)
    assert publish(s3, "b", "k", b"2", 41)
    assert publish(s3, "b", "k", b"3", 42)
    assert not publish(s3, "b", "k", b"4", 41)
    assert s3.object is not None and s3.object["Body"] == b"3"


@pytest.mark.parametrize("there_already", [False, True])
def test_who_is_frozen_between_looking_and_putting_is_refused(
    publish: Callable[..., bool], there_already: bool
) -> None:
    s3 = ObjectStore()
    if there_already:
        assert publish(s3, "b", "k", b"0", 40)
    s3.before_put = [lambda: publish(s3, "b", "k", b"newer", 42)]
    assert not publish(s3, "b", "k", b"late", 41)
    assert s3.object is not None and s3.object["Body"] == b"newer"


def test_other_refusals_are_not_swallowed(publish: Callable[..., bool]) -> None:
    class Closed(ObjectStore):
        def head_object(self, **_: str) -> dict[str, Any]:
            raise ClientError("403")

    with pytest.raises(ClientError):
        publish(Closed(), "b", "k", b"", 1)


async def test_the_sql_of_the_page(pg_url: str) -> None:
    guarded, highest = (block.text for block in blocks(PAGE, "sql"))
    connection = await asyncpg.connect(pg_url)
    async with Fleet(pg_url) as fleet, fleet.lock("reindex") as lock:
        await connection.execute("CREATE TABLE search_index (built_at timestamptz)")
        await connection.execute(guarded)
        asking = next(line for line in guarded.splitlines() if "fence_ok" in line).partition(";")[0]
        assert await connection.fetchval(asking.replace("42", str(lock.fence))) is True
        assert await connection.fetchval(asking.replace("42", str(lock.fence - 1))) is False
    await connection.execute("CREATE TABLE seen (lock text PRIMARY KEY, fence bigint NOT NULL)")
    accepted = [await connection.fetchval(highest.replace("42", str(fence))) for fence in (41, 42, 42, 41, 43)]
    assert accepted == [41, 42, 42, None, 43]
    await connection.close()
