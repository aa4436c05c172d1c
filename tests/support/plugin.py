"""The pytest plugin of this suite. It chooses the order of the tests, the processes that run them, their repetitions,
and the place of their files, and starts a PostgreSQL for all of them."""

import contextlib
import fcntl
import gc
import itertools
import multiprocessing.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import psutil
import pytest
from hypothesis import settings

from tests.support import counts
from tests.support.browser import BrowserUnavailable, chromium
from tests.support.debian import ProgramUnavailable, program
from tests.support.postgres import Postgres, PostgresUnavailable, postgres_for_a_session
from tests.support.prometheus import prometheus
from tests.support.strace import StraceUnavailable, strace

WAITING_FOLDERS: Final = frozenset({"drill", "faults", "monitoring", "runs"})
"""Folders whose tests wait for most of their time."""
LONG_FOLDERS: Final = frozenset({"dashboard", "oracles"})
"""Folders with the files that take longest, which run first."""
SHORT_FOLDERS: Final = frozenset({"management"})
"""Folders with files that take little time, which run last."""
FREE_MEMORY_MIN_MB: Final = 4_000
"""The free memory at which the tests keep their files in memory. They use a quarter of it."""
BROWSERS: Final = 2
"""The number of processes that test the dashboard. Starting a browser takes more than two seconds of processor time."""
IN_MEMORY_PREFIX: Final = "hookmill-tests-of-"

_UNAVAILABLE: Final = (BrowserUnavailable, ProgramUnavailable, StraceUnavailable)
_SESSION = pytest.StashKey[contextlib.ExitStack]()
_SHARED_POSTGRES = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser):
    parser.addoption("--full-counts", action="store_true", help="run everything, as often as for a release")
    parser.addoption("--proofs", action="store_true", help="run everything, as often as for every change")


def pytest_configure(config: pytest.Config):
    config.addinivalue_line("markers", "proof: runs only with `make proof`, or if its file is named")
    # Python collects garbage after every 700 new objects, which took an eighth of the tests' processor time.
    gc.set_threshold(50_000, 20, 100)
    if config.getoption("--full-counts"):
        counts.make_full()
    # On a busy machine, an example that takes long is no failure. The printed blob reproduces one.
    settings.register_profile("hookmill", deadline=None, print_blob=True, max_examples=counts.count(200, usually=12))
    settings.load_profile("hookmill")
    config.stash[_SESSION] = contextlib.ExitStack()
    if "TMPDIR" not in os.environ:
        _keep_files_in_memory()


def pytest_unconfigure(config: pytest.Config):
    config.stash[_SESSION].close()


def _keep_files_in_memory():
    """Keep temporary files in memory if it has enough space, so that tests don't wait for a disk. The files are
    removed after the last test."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < FREE_MEMORY_MIN_MB * 1024 * 1024:
        return
    for abandoned in memory.glob(f"{IN_MEMORY_PREFIX}*-*"):
        # If the tests were killed, their files are still there.
        if not psutil.pid_exists(int(abandoned.name.removeprefix(IN_MEMORY_PREFIX).partition("-")[0])):
            shutil.rmtree(abandoned, ignore_errors=True)
    directory = tempfile.mkdtemp(prefix=f"{IN_MEMORY_PREFIX}{os.getpid()}-", dir=memory)
    # If root runs the tests, PostgreSQL runs as another account.
    Path(directory).chmod(0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    # After the removal of `multiprocessing`'s own directory, whose priority is -100.
    multiprocessing.util.Finalize(None, shutil.rmtree, (directory, True), exitpriority=-200)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Exempt everything that collection creates from garbage collection: it stays until the end."""
    gc.disable()
    try:
        with _compiled_once() if hasattr(session.config, "workerinput") else contextlib.nullcontext():
            return (yield)
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def _compiled_once() -> Iterator[None]:
    """Let one process of pytest-xdist collect before the others, which then load what it has compiled.

    After a checkout, compiling the tests takes two seconds of processor time, and four processes would all do it.
    """
    with Path(__file__).open() as this_file:
        try:
            fcntl.flock(this_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(this_file, fcntl.LOCK_SH)
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    _deselect_proofs(config, items)
    _order(items)
    _make_ids_unique(items)


def _deselect_proofs(config: pytest.Config, items: list[pytest.Item]):
    """Leave out the tests that are marked `proof`, unless an option asks for them or the command line names their file.

    For each of them, another test executes the same code in another case, or at less cost.
    """
    if counts.are_full() or config.getoption("--proofs"):
        return
    named = {(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args}
    proofs = [item for item in items if item.get_closest_marker("proof") and item.path not in named]
    if proofs:
        config.hook.pytest_deselected(items=proofs)
        left_out = set(proofs)
        items[:] = [item for item in items if item not in left_out]


def _order(items: list[pytest.Item]):
    """Run the longest files first and the shortest last, so that no process waits long for the last file. Files that
    wait are spread among those that keep a processor busy."""
    items.sort(
        key=lambda item: (LONG_FOLDERS.isdisjoint(item.path.parts), not SHORT_FOLDERS.isdisjoint(item.path.parts))
    )
    files = [list(tests) for _, tests in itertools.groupby(items, key=lambda item: item.path)]
    waiting = [tests for tests in files if WAITING_FOLDERS.intersection(tests[0].path.parts)]
    ordered = [tests for tests in files if not WAITING_FOLDERS.intersection(tests[0].path.parts)]
    for number, tests in enumerate(waiting):
        ordered.insert(min(3 * number, len(ordered)), tests)
    items[:] = itertools.chain.from_iterable(ordered)


def _make_ids_unique(items: list[pytest.Item]):
    """Let pytest-xdist run all tests: it runs only one test of each id, and a plugin may give all its tests one id."""
    seen: set[str] = set()
    for number, item in enumerate(items):
        if item.nodeid in seen:
            item._id = replace(item.id, params=f"{item.id.params or ''}{number}")
        assert item.nodeid not in seen, item.nodeid
        seen.add(item.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are processors: some tests wait for much of their time. Each process takes half a minute
    of processor time to load all tests and a fork server."""
    return len(os.sched_getaffinity(0)) * 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, so that what its tests share is set up once. All files that use the providers'
    SDKs go to one process too: the SDKs take longer to load than their tests take. The files of the dashboard go to two
    processes, because each of them starts a browser. With full counts, these files and each part of the unusual values
    take minutes, so they go to different processes."""
    from xdist.scheduler import LoadFileScheduling

    class SharedSetUpScheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/oracles/"):
                return "oracles"
            if counts.are_full() and nodeid.startswith("tests/inputs/"):
                return nodeid
            path = nodeid.partition("::")[0]
            if not counts.are_full() and path.startswith("tests/dashboard/"):
                return f"dashboard {crc32(path.encode()) % BROWSERS}"
            return path

    return SharedSetUpScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any):
    """Start PostgreSQL in the controller of pytest-xdist, which outlives its processes, and send them the URL."""
    stash = node.config.stash
    if _SHARED_POSTGRES not in stash:
        # Installed here, so that no test's time includes it. If that fails, the tests that need it fail.
        installations: list[tuple[str, Callable[[], object]]] = [
            ("dashboard", chromium),
            ("doctor", lambda: program("caddy", package="caddy")),
            ("faults", strace),
            ("http", lambda: program("nginx", package="nginx")),
            ("monitoring", prometheus),
        ]
        for folder, install in installations:
            if _is_selected(node.config, folder):
                with contextlib.suppress(*_UNAVAILABLE, subprocess.SubprocessError):
                    install()
        try:
            server = stash[_SESSION].enter_context(postgres_for_a_session())
            stash[_SHARED_POSTGRES] = {"postgres_url": server.admin_url}
        except PostgresUnavailable as error:
            # Only the tests that need the server fail.
            stash[_SHARED_POSTGRES] = {"postgres_error": str(error)}
    node.workerinput.update(stash[_SHARED_POSTGRES])


def _is_selected(config: pytest.Config, folder: str) -> bool:
    """Whether the command line may select tests in this folder."""
    directory = config.rootpath / "tests" / folder
    paths = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    return any(directory.is_relative_to(path) or path.is_relative_to(directory) for path in paths)


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[Postgres]:
    """The session's PostgreSQL. To stop or restart one, start your own: `PostgresServer.start()`."""
    workerinput: dict[str, str] | None = getattr(pytestconfig, "workerinput", None)
    if workerinput is None:
        with postgres_for_a_session() as server:
            yield server
    elif "postgres_url" in workerinput:
        yield Postgres(workerinput["postgres_url"])
    else:
        raise PostgresUnavailable(workerinput["postgres_error"])
