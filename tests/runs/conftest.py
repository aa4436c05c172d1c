"""Backlogs of runs on SQLite, on PostgreSQL, and on each of them in turn."""

from collections.abc import Iterator

import pytest

from hookmill.runs.runners import command
from hookmill.runs.runners.guard_server import GuardServer
from tests.runs.backlog import Backlog


@pytest.fixture
def sqlite_backlog(sqlite_store, tmp_path):
    with Backlog(sqlite_store, tmp_path / "data") as backlog:
        yield backlog


@pytest.fixture
def postgres_backlog(postgres_store, tmp_path):
    with Backlog(postgres_store, tmp_path / "data") as backlog:
        yield backlog


@pytest.fixture
def backlog(store_url, tmp_path):
    """The test runs on both databases."""
    with Backlog(store_url, tmp_path / "data") as backlog:
        yield backlog


@pytest.fixture
def own_guards(monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardServer]:
    """The test starts its guards by a process of its own."""
    guards = GuardServer()
    monkeypatch.setattr(command, "guards", guards)
    yield guards
    guards.kill()
