"""EXPLAIN, and what to make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

Plan = dict[str, Any]
MOST_SECONDS = 3


def literal(value: object) -> str:
    """A parameter as SQL text of unknown type: the statement's own types decide, as they do for the driver."""
    return "NULL" if value is None else "'" + _text(value).replace("'", "''") + "'"


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case list():
            return (
                "{"
                + ",".join("NULL" if item is None else json.dumps(_text(item), ensure_ascii=False) for item in value)
                + "}"
            )
        case _:
            return str(value)


async def prepare(connection: Any, statements: Mapping[str, str]) -> None:
    """Prepare statements under their names, as the driver does."""
    for name, sql in statements.items():
        await connection.execute(f"PREPARE {name} AS {sql}")


async def explain(connection: Any, name: str, args: Sequence[object], *, analyze: bool) -> Plan:
    """The plan of a prepared statement; `analyze`: run it as well, and take it back. Raises QueryCanceledError after MOST_SECONDS."""
    options = "ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON" if analyze else "FORMAT JSON"
    call = f"{name}({', '.join(map(literal, args))})" if args else name
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SET LOCAL statement_timeout = '{MOST_SECONDS}s'")
        (found,) = json.loads(await connection.fetchval(f"EXPLAIN ({options}) EXECUTE {call}"))
    finally:
        await transaction.rollback()
    plan: Plan = found["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def scanned(plan: Plan, tables: Sequence[str]) -> list[str]:
    """The tables, of these, that a plan reads from one end to the other: sequentially, or by an index without a condition (unless a
    limit stops it)."""
    found = [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in tables
    ]
    return found + [
        f"{node['Relation Name']} (whole index)"
        for node in _unbounded(plan, bounded=False)
        if node["Relation Name"] in tables
    ]


def _unbounded(plan: Plan, *, bounded: bool) -> Iterator[Plan]:
    kind = plan["Node Type"]
    if kind in ("Index Scan", "Index Only Scan") and "Index Cond" not in plan and not bounded:
        yield plan
    # A limit stops what feeds it row by row, not what has to be sorted or hashed first.
    bounded = kind == "Limit" or (bounded and kind in ("LockRows", "Nested Loop", "Result", "Subquery Scan"))
    for child in plan.get("Plans", ()):
        yield from _unbounded(child, bounded=bounded)


def indexes(plan: Plan) -> set[str]:
    """The indexes that a plan uses."""
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}


def pages(plan: Plan) -> int:
    """Buffers touched: by each node itself, so that a CTE is not counted as its readers' as well."""
    return sum(
        max(0, _touched(node) - sum(map(_touched, node.get("Plans", ()))))
        for node in nodes(plan)
        if node["Node Type"] != "CTE Scan"
    )


def _touched(node: Plan) -> int:
    """By a node and what it asks."""
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])
