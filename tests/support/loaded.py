"""All that a running service loads, loaded once for the tests of one process: each service that they start is forked
from here. What is started is the real command; only the loading of its modules is not done again for every test, not
even of those that it would load later. `tests/cli/test_service.py` starts it as users do."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import dbos  # noqa: F401

import hookmill.app.serve
import hookmill.cli.service
import hookmill.runs.engine
import hookmill.runs.runners
import hookmill.store.migrate
import hookmill.web.api
import hookmill.web.dashboard  # noqa: F401
from hookmill.cli import main

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload([__name__])


class Command:
    """`hookmill` with these arguments in a process and a session of its own. It is used as a `subprocess.Popen` is."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], directory: Path, output: Path) -> None:
        self._arguments = arguments
        self._process: ForkServerProcess = _forks.Process(
            target=_be, args=(["hookmill", *arguments], dict(environment), directory, output)
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
            raise subprocess.TimeoutExpired(self._arguments, seconds)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _be(command: list[str], environment: dict[str, str], directory: Path, output: Path) -> None:
    os.setsid()
    os.chdir(directory)
    with output.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = command
    for place in environment.get("PYTHONPATH", "").split(os.pathsep):
        if (planted := Path(place, "sitecustomize.py")).is_file():
            runpy.run_path(str(planted))
    main()
