"""Processes that are forked from one that has loaded all that a service loads, once for the tests of one process. What
is started is the real command; only the loading of its modules is not done again for every test, not even of those that
it would load later. `tests/cli/test_service.py` starts it as users do."""

import contextlib
import functools
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_forks = multiprocessing.get_context("forkserver")
# By its name: the process that runs the tests needs none of what it loads.
_forks.set_forkserver_preload(["tests.support.preloaded"])


@functools.cache
def loaded() -> ForkServerContext:
    """What forks such processes, and is running."""
    # It finds modules by where it was started, and goes on without those that it does not find.
    with contextlib.chdir(_ROOT):
        forkserver.ensure_running()
    return _forks


class Forked:
    """`function` with these arguments in a process and a session of its own. It is used as a `subprocess.Popen` is."""

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        environment: Mapping[str, str],
        directory: Path,
        output: Path,
        errors: Path | None = None,
    ) -> None:
        """What it prints is added to the file `output`; what it complains of too, where there is no file `errors`."""
        self._name = f"{function.__name__}{arguments}"
        self._process: ForkServerProcess = loaded().Process(
            target=_be, args=(function, arguments, dict(environment), directory, output, errors or output)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code. Raises `subprocess.TimeoutExpired`."""
        self._process.join(seconds)
        if self.returncode is None:
            assert seconds is not None
            raise subprocess.TimeoutExpired(self._name, seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Command(Forked):
    """`hookmill` with these arguments."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        directory: Path,
        output: Path,
        errors: Path | None = None,
    ) -> None:
        super().__init__(_hookmill, tuple(arguments), environment, directory, output, errors)


def _be(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    environment: dict[str, str],
    directory: Path,
    output: Path,
    errors: Path,
) -> None:
    os.setsid()
    os.chdir(directory)
    for number, path in ((1, output), (2, errors)):
        with path.open("ab") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    if files_max := environment.get("HOOKMILL_TEST_FILES_MAX"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(files_max), int(files_max)))
    function(*arguments)


def _hookmill(*arguments: str) -> None:
    from hookmill.cli import main

    sys.argv = ["hookmill", *arguments]
    for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if (planted := Path(place, "sitecustomize.py")).is_file():
            runpy.run_path(str(planted))
    main()
