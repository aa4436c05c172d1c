"""Backlogs to perform: on SQLite, on PostgreSQL, on both in turn."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.backlog import Backlog


@pytest.fixture
def on_sqlite(sqlite_store: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(sqlite_store, tmp_path / "data") as backlog:
        yield backlog


@pytest.fixture
def on_postgres(postgres_store: str, tmp_path: Path) -> Iterator[Backlog]:
    with Backlog(postgres_store, tmp_path / "data") as backlog:
        yield backlog


@pytest.fixture
def backlog(store_url: str, tmp_path: Path) -> Iterator[Backlog]:
    """The test runs on both databases."""
    with Backlog(store_url, tmp_path / "data") as backlog:
        yield backlog
