"""The scene of a run with results, and a GitHub that gets them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.results.github import GitHub, github_server
from tests.results.scene import Scene
from tests.runs.backlog import Backlog


@pytest.fixture
def scene(sqlite_store: str, tmp_path: Path) -> Iterator[Scene]:
    backlog = Backlog(sqlite_store, tmp_path)
    yield Scene(backlog)
    backlog.database.close()


@pytest.fixture
def github() -> Iterator[GitHub]:
    with github_server() as server:
        yield server
