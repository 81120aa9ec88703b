"""The house rules as functions: source text in, offences out (line, what)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

Offence = tuple[int, str]

# What begins a statement that reads, writes or defines something. Control of transactions and sessions (BEGIN, COMMIT,
# SAVEPOINT, SET, SHOW, PRAGMA, LISTEN, NOTIFY) is the business of the adapters and may stand in code. HTTP's DELETE and
# prose ("Update the …", "select a queue") do not match.
THING = r"(table|index|view|schema|sequence|function|procedure|trigger|type|database|extension|role|policy|domain)"
STATEMENT = re.compile(
    rf"""\s* (--[^\n]*\n\s*)* (
        SELECT\s | select\s.*\bfrom\s
        | (?i: insert\s+(or\s+\w+\s+)?into\s | replace\s+into\s | merge\s+into\s | delete\s+from\s
             | update\s+(only\s+)?\S+\s+((as\s+)?\w+\s+)?set\s
             | with\s+(recursive\s+)?\w+(\s*\([^)]*\))?\s+as\s+((not\s+)?materialized\s*)?\(
             | (create|alter|drop)\s+(or\s+replace\s+|unique\s+|temp(orary)?\s+|unlogged\s+|virtual\s+
                                    |materialized\s+)*{THING}\s
             | truncate\s+(table\s+)?\w | explain\s+(\(|analyze|select|query) | copy\s+\S+.*\s(from|to)\s
             | vacuum(\s+(\(|full|analyze)|\s*$) | lock\s+table\s | grant\s+\w+.*\son\s | call\s+\w+\s*\(
             | values\s*\( )
    )""",
    re.VERBOSE | re.DOTALL,
)


def sql_in_code(source: str) -> Iterator[Offence]:
    """String literals that are SQL statements; docstrings are prose."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    within_f_strings = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in prose or id(node) in within_f_strings:
            continue
        text = literal_text(node)
        if isinstance(node, ast.expr) and text is not None and STATEMENT.match(text):
            yield node.lineno, f"SQL in code: {' '.join(text.split())[:60]!r}"


def literal_text(node: ast.AST, placeholder: str = "x") -> str | None:
    """What a string literal says, f-strings with a placeholder for each value; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(part, placeholder) or placeholder for part in node.values)
    return None


def local_imports(source: str) -> Iterator[Offence]:
    """Imports inside functions without a reason: `# lazy: why`."""
    lines = source.splitlines()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    seen = set()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, functions):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno not in seen:
                seen.add(node.lineno)
                statement = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                if not re.search(r"#.*\blazy: \S", statement):
                    yield node.lineno, f"import inside {function.name}() without `# lazy: why`"


def machine_paths(text: str) -> Iterator[Offence]:
    """Paths that exist on one machine only."""
    for number, line in enumerate(text.splitlines(), start=1):
        if found := re.search(r"(?<![\w.~$}])/(work|root|farm|home/[a-z]+)/", line):
            yield number, f"a path of one machine: {found[0]}"


def statements(sql: str) -> int:
    """How many statements a file holds; comments, quoted text and dollar-quoted bodies are not looked into."""
    bare = re.sub(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|(\$\w*\$).*?\1", " ' ", sql, flags=re.DOTALL)
    return sum(bool(part.strip(" '\n\t")) for part in bare.split(";"))


def has_header(sql: str) -> bool:
    """A comment on top that says something."""
    return re.match(r"-- *\S", sql) is not None


def names_used(source: str) -> Iterator[re.Pattern[str]]:
    """What a module could mean by a statement's name: strings, f-strings with anything in their gaps, attributes."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            yield re.compile(re.escape(node.attr))
        elif isinstance(node, ast.JoinedStr):
            text = literal_text(node, placeholder="\0") or ""
            if text.replace("\0", "").strip("_. "):
                yield re.compile(re.escape(text).replace(re.escape("\0"), r"\w+") + r"(\.sql)?")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.compile(re.escape(node.value.removesuffix(".sql")))
