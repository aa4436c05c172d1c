"""What every test may ask for."""

import contextlib
import gc
import itertools
import multiprocessing.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import settings

from tests.support import counts
from tests.support.browser import BrowserUnavailable, chromium
from tests.support.postgres import Postgres, PostgresUnavailable, postgres_for_a_session
from tests.support.stores import Stores, migrated_sqlite_file
from tests.support.strace import StraceUnavailable, strace

if TYPE_CHECKING:
    from tests.support.world import World

WAITING = frozenset({"faults", "runs"})
LONG = frozenset({"dashboard", "oracles"})
SHORT = frozenset({"management"})
IN_MEMORY_MB = 4_000
"""Free in memory, at least, for a run to keep its files there. It takes a quarter."""

IN_MEMORY_PREFIX = "hookmill-tests-of-"

_SESSION = pytest.StashKey[contextlib.ExitStack]()
_SHARED_POSTGRES = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full-counts", action="store_true", help="repeat as often as for a release")


def pytest_configure(config: pytest.Config) -> None:
    # Python looks for garbage after every 700 new things, which took an eighth of the tests' processor time.
    gc.set_threshold(50_000, 20, 100)
    if config.getoption("--full-counts"):
        counts.make_full()
    # A machine that is busy proves nothing about a property; a failure can be repeated from what is printed.
    settings.register_profile("hookmill", deadline=None, print_blob=True, max_examples=counts.count(200, usually=25))
    settings.load_profile("hookmill")
    config.stash[_SESSION] = contextlib.ExitStack()
    if "TMPDIR" not in os.environ:
        _keep_files_in_memory()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What all tests are made from is never garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_SESSION].close()


def _keep_files_in_memory() -> None:
    """Nobody waits for a disk, where the system has room to keep files in memory: no test cuts the power. The files go
    when the tests have ended."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < IN_MEMORY_MB * 1024 * 1024:
        return
    for left in memory.glob(f"{IN_MEMORY_PREFIX}*-*"):
        # By tests that were killed.
        if not psutil.pid_exists(int(left.name.removeprefix(IN_MEMORY_PREFIX).partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    directory = tempfile.mkdtemp(prefix=f"{IN_MEMORY_PREFIX}{os.getpid()}-", dir=memory)
    # PostgreSQL runs as somebody else where root runs the tests.
    Path(directory).chmod(0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    # Later than what `multiprocessing` itself takes away, which has -100.
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory, True), exitpriority=-200)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long goes first, and short files last: a file is one process's work, and nobody should wait for the
    last one. What waits for most of its time is begun beside what keeps a processor busy."""
    items.sort(key=lambda item: (LONG.isdisjoint(item.path.parts), not SHORT.isdisjoint(item.path.parts)))
    files = [list(its) for _, its in itertools.groupby(items, key=lambda item: item.path)]
    waiting = [its for its in files if WAITING.intersection(its[0].path.parts)]
    busy = [its for its in files if not WAITING.intersection(its[0].path.parts)]
    for number, its in enumerate(waiting):
        busy.insert(min(3 * number, len(busy)), its)
    items[:] = itertools.chain.from_iterable(busy)
    _tell_apart(items)


def _tell_apart(items: list[pytest.Item]) -> None:
    """A plugin may give all of its tests one id, and of those with one id pytest-xdist runs one alone."""
    known: set[str] = set()
    for number, item in enumerate(items):
        if item.nodeid in known:
            item._id = replace(item.id, params=f"{item.id.params or ''}{number}")
        assert item.nodeid not in known, item.nodeid
        known.add(item.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are processors: much of the time of the longest tests is waiting."""
    return len(os.sched_getaffinity(0)) * 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is one process's work: what its tests share is set up once. So are all that ask the providers' SDKs, which
    take longer to load than to ask."""
    from xdist.scheduler import LoadFileScheduling

    class ByWhatIsShared(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "oracles" if nodeid.startswith("tests/oracles/") else nodeid.partition("::")[0]

    return ByWhatIsShared(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """With pytest-xdist, what is there for all belongs to the process that outlives its workers, as the server does.
    The workers are told its URL."""
    stash = node.config.stash
    if _SHARED_POSTGRES not in stash:
        # What must be installed first is not a part of any test's time. The tests that need it fail for want of it.
        for folder, needed in (("dashboard", chromium), ("faults", strace)):
            if _is_asked_for(node.config, folder):
                with contextlib.suppress(BrowserUnavailable, StraceUnavailable, subprocess.SubprocessError):
                    needed()
        try:
            server = stash[_SESSION].enter_context(postgres_for_a_session())
            stash[_SHARED_POSTGRES] = {"postgres_url": server.admin_url}
        except PostgresUnavailable as trouble:
            # Only the tests that need the server fail for want of it.
            stash[_SHARED_POSTGRES] = {"postgres_trouble": str(trouble)}
    node.workerinput.update(stash[_SHARED_POSTGRES])


def _is_asked_for(config: pytest.Config, folder: str) -> bool:
    """Whether tests in this folder may be among those that the command names."""
    place = config.rootpath / "tests" / folder
    named = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    return any(place.is_relative_to(each) or each.is_relative_to(place) for each in named)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[Postgres]:
    """The session's PostgreSQL. To stop or restart one, start your own: `PostgresServer.start()`."""
    told = getattr(request.config, "workerinput", None)
    if told is None:
        with postgres_for_a_session() as server:
            yield server
    elif "postgres_url" in told:
        yield Postgres(told["postgres_url"])
    else:
        raise PostgresUnavailable(told["postgres_trouble"])


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a new, empty database, which is gone after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory of one's own for tests that want a disk's delays, wherever other tests keep their files."""
    with tempfile.TemporaryDirectory(prefix="hookmill-tests-", dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def migrated_sqlite() -> Path:
    """A SQLite file at this version's schema, to be copied."""
    return migrated_sqlite_file()


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a PostgreSQL database at this version's schema, to be copied."""
    from hookmill.store.database import open_database
    from hookmill.store.migrate import migrate

    url = postgres_server.create_database()
    with open_database(url) as database:
        migrate(database)
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def sqlite_store(migrated_sqlite: Path) -> Iterator[str]:
    """The URL of a store of one's own on SQLite, at this version's schema and empty."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"sqlite:///{shutil.copy(migrated_sqlite, directory)}"


@pytest.fixture(scope="session")
def postgres_stores(postgres_server: Postgres, migrated_postgres: str) -> Iterator[Stores]:
    stores = Stores(postgres_server, migrated_postgres)
    yield stores
    stores.close()


@pytest.fixture
def postgres_store(postgres_stores: Stores) -> Iterator[str]:
    """The URL of a store of one's own on PostgreSQL, at this version's schema and empty."""
    url = postgres_stores.take()
    yield url
    postgres_stores.give_back(url)


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The test runs on both: the URL of a store of its own, at this version's schema and empty."""
    url: str = request.getfixturevalue(f"{request.param}_store")
    return url


@pytest.fixture
def world(store_url: str) -> "Iterator[World]":
    """The service in this process, on each kind of store."""
    from tests.support.world import living

    yield from living(store_url)
