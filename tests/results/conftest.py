"""The scene of a run with results, and a GitHub that gets them."""

import pytest

from tests.results.github import github_server
from tests.results.scene import Scene
from tests.runs.backlog import Backlog


@pytest.fixture
def scene(sqlite_store, tmp_path):
    backlog = Backlog(sqlite_store, tmp_path)
    yield Scene(backlog)
    backlog.database.close()


@pytest.fixture
def github():
    with github_server() as server:
        yield server
