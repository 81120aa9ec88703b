"""The program on either store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.cli.program import Program


@pytest.fixture
def program(store_url: str, tmp_path: Path) -> Program:
    """On a fresh, empty database; the test runs once on each kind."""
    return Program(store_url, tmp_path)


@pytest.fixture
def offline(tmp_path: Path) -> Program:
    """With a database that nobody can reach."""
    return Program("postgresql://postgres:secret@127.0.0.1:1/nowhere", tmp_path)
