"""The house rules hold in the whole project. Each is tried on a planted offence too: a blind check is noticed."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import fleetcron
from tests.lint import rules
from tests.lint.rules import Offence

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "fleetcron"
MOST_LINES = 500
OURS_WITH_A_DOT = {".ci", ".gitignore"}
BUILT = {"__pycache__", "build", "dist", "node_modules"}


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def project_files() -> list[Path]:
    """What is, or would be, in version control. Outside of a clone: all files."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    git = subprocess.run(listed, cwd=ROOT, capture_output=True, check=False)
    if git.returncode == 0 and git.stdout:
        return [path for name in git.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        and not any(
            part in BUILT or (part.startswith(".") and part not in OURS_WITH_A_DOT)
            for part in path.relative_to(ROOT).parts
        )
    ]


def offences(paths: Iterable[Path], rule: Callable[[str], Iterator[Offence]]) -> list[str]:
    found = []
    for path in paths:
        try:
            here = list(rule(path.read_text(encoding="utf-8", errors="replace")))
        except SyntaxError as error:
            here = [(error.lineno or 0, f"not Python: {error.msg}")]
        found += [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in here]
    return found


@pytest.mark.parametrize(
    "planted",
    [
        "run('SELECT 1')",
        "run('''\n  -- why\n  select a from b''')",
        "run(f'UPDATE {table} SET a = 1')",
        "run('INSERT OR REPLACE INTO t VALUES (1)')",
        "run('delete from t')",
        "run('WITH a AS MATERIALIZED (SELECT 1) SELECT * FROM a')",
        "run('CREATE UNIQUE INDEX i ON t (a)')",
        "run('DROP TABLE t')",
        "x = {'claim': 'TRUNCATE t'}",
    ],
)
def test_sql_in_code_is_seen(planted: str) -> None:
    assert len(list(rules.sql_in_code(planted))) == 1


@pytest.mark.parametrize(
    "fine",
    [
        "run('BEGIN IMMEDIATE')",
        "run('PRAGMA journal_mode = WAL')",
        "run(f'LISTEN {channel}')",
        "run('SET LOCAL statement_timeout = 100')",
        "route('DELETE', '/runs/{id}')",
        "say('Update the schema with fleetcron migrate')",
        "say('with a lease of 15 s')",
        "say('select a queue')",
        "def f():\n    '''SELECT is what the docs say.'''",
    ],
)
def test_what_only_looks_like_sql_is_not(fine: str) -> None:
    assert list(rules.sql_in_code(fine)) == []


def test_no_sql_outside_sql_files() -> None:
    assert offences(modules(), rules.sql_in_code) == []


def test_sql_files_live_in_sql_or_migrations_folders() -> None:
    assert [path for path in SRC.rglob("*.sql") if path.parent.name not in {"sql", "migrations"}] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("-- why; and how\nSELECT ';', \";\" /* ; */;\n", 1),
        ("DO $x$ BEGIN a; b; END $x$", 1),
        ("SELECT 1; SELECT 2", 2),
        ("-- nothing", 0),
    ],
)
def test_statements_are_counted(text: str, count: int) -> None:
    assert rules.statements(text) == count


def test_one_statement_a_file_with_a_header() -> None:
    files = sorted(SRC.glob("store/*/sql/*.sql"))
    assert [path.name for path in files if rules.statements(path.read_text()) != 1] == []
    assert [path.name for path in files if not rules.has_header(path.read_text())] == []


def test_every_statement_is_used() -> None:
    unused = []
    for store in {path.parent.parent for path in SRC.glob("store/*/sql/*.sql")}:
        code = [path.read_text() for path in [*store.rglob("*.py"), *store.parent.glob("*.py")]]
        used = [name for source in code for name in rules.names_used(source)]
        unused += [path for path in store.glob("sql/*.sql") if not any(name.fullmatch(path.stem) for name in used)]
    assert sorted(path.relative_to(SRC) for path in unused) == []


def test_uses_of_statements_are_seen() -> None:
    source = "run(sql['claim']); run(sql.renew); run(sql[f'gate_{what}']); load('prune.sql')"
    used = list(rules.names_used(source))
    seen = [name for name in ("claim", "renew", "gate_take", "prune") if any(use.fullmatch(name) for use in used)]
    assert seen == ["claim", "renew", "gate_take", "prune"]
    assert not any(use.fullmatch("submit") for use in used)


def test_no_file_is_too_long() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_local_imports_are_seen() -> None:
    source = (
        "import a\ndef f():\n    import b\n    from c import (\n        d,\n    )  # lazy: 90 ms\n    import e  # lazy:"
    )
    assert [line for line, _ in rules.local_imports(source)] == [3, 7]


def test_imports_inside_functions_say_why() -> None:
    assert offences(modules(), rules.local_imports) == []


def test_machine_paths_are_seen() -> None:
    here = f"/{'work'}/main"
    assert len(list(rules.machine_paths(f"see {here}/x\nhttps://example.org{here}/x\nworkers/root"))) == 1


def test_no_machine_paths() -> None:
    assert offences(project_files(), rules.machine_paths) == []


def test_public_names_are_sorted_and_exist() -> None:
    tree = ast.parse((SRC / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    names = list(getattr(fleetcron, "__all__", []))
    assert bool(names) == bool(imports), "what __init__ imports is public, and __all__ lists it"
    assert names == sorted(names)
    assert [name for name, times in Counter(names).items() if times > 1 or not hasattr(fleetcron, name)] == []
