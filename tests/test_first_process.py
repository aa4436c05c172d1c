"""`hookmill` as the first process of a container: a PID namespace stands for the container."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.ports import free_port
from tests.support.processes import end_with_the_tests
from tests.support.waiting import LONG_SECONDS, until

HOOKMILL = Path(sys.executable).with_name("hookmill")
# The first process gets SIGKILL when `unshare` ends.
IN_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


@contextmanager
def first_process(*arguments: str, output: Path, **environment: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process `unshare`, whose child is `hookmill` with these arguments. Its status is that of the child."""
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*IN_NAMESPACE, *AS_USER, HOOKMILL, *arguments],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=end_with_the_tests,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def output(tmp_path):
    return tmp_path / "output"


def test_first_process_reaps_orphans_and_stops_on_sigterm(tmp_path, output):
    variables = {"HOOKMILL_DATA_DIR": str(tmp_path / "data"), "HOOKMILL_FREE_SPACE_MIN_MB": "1"}
    with first_process("serve", "--port", str(free_port()), output=output, **variables) as process:
        until(lambda: "is ready at" in output.read_text(), output.read_text, pause_seconds=0.1)
        [first] = psutil.Process(process.pid).children()
        names = {child.name(): child for child in first.children(recursive=True)}
        worker = names["hookmill:worker"]

        names["hookmill:forks"].kill()
        until(lambda: worker.ppid() == first.pid, "the worker is an orphan")
        worker.kill()

        until(lambda: not psutil.pid_exists(worker.pid), "the worker is no zombie")
        first.terminate()
        assert process.wait(LONG_SECONDS) == 0, output.read_text()


def test_first_process_ends_with_the_exit_status_of_the_command(output):
    with first_process("no-command", output=output) as process:
        assert process.wait(LONG_SECONDS) == 2
