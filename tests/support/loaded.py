"""Starts real commands without loading their modules each time: forks them from a fork server that has loaded these.

Each process that runs tests has one fork server. It has also loaded the modules that a service loads later.
`tests/cli/test_service.py` starts the service as users do.
"""

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
# This process only names the modules. It does not import them, because it does not need them.
_forks.set_forkserver_preload(["tests.support.preloaded"])


@functools.cache
def fork_context() -> ForkServerContext:
    """The context that forks processes from the fork server. The first call starts the fork server."""
    # The fork server imports modules relative to its working directory, and ignores those that it does not find.
    with contextlib.chdir(_ROOT):
        forkserver.ensure_running()
    return _forks


class Forked:
    """A process, in a session of its own, that calls `function`. Its methods are like those of `subprocess.Popen`."""

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        environment: Mapping[str, str],
        directory: Path,
        output: Path,
        errors: Path | None = None,
    ):
        """Its standard output is appended to the file `output`, its standard error to `errors` or else to `output`."""
        self._name = f"{function.__name__}{arguments}"
        self._process: ForkServerProcess = fork_context().Process(
            target=call, args=(function, arguments, dict(environment), directory, output, errors or output)
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
        """Wait for its end, and return its exit code. Raises `subprocess.TimeoutExpired`."""
        self._process.join(seconds)
        if self.returncode is None:
            assert seconds is not None
            raise subprocess.TimeoutExpired(self._name, seconds)
        return self.returncode

    def send_signal(self, number: int):
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Command(Forked):
    """A process that runs the command `hookmill` with these arguments."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        directory: Path,
        output: Path,
        errors: Path | None = None,
    ):
        super().__init__(hookmill, tuple(arguments), environment, directory, output, errors)


def call(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    environment: dict[str, str],
    directory: Path,
    output: Path,
    errors: Path,
):
    """Give this process its own session and this environment, and call `function`."""
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


def hookmill(*arguments: str):
    """Run `hookmill` with these arguments in this process."""
    from hookmill.cli import main

    sys.argv = ["hookmill", *arguments]
    # A new interpreter would run the `sitecustomize` of a test when it starts.
    for directory in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if (sitecustomize := Path(directory, "sitecustomize.py")).is_file():
            runpy.run_path(str(sitecustomize))
    main()
