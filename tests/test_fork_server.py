"""Processes that are forked on demand: what they are given, and what is seen of them when they end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hookmill import app
from hookmill.app.companion import READY, WORKER
from hookmill.app.fork_server import ForkServer
from hookmill.app.worker_process import work_beside_serve
from hookmill.settings import read_settings
from tests.faults.parts import still_running, until


def answer(line: socket.socket, told: str) -> None:
    """Says what it was told and who it is, and goes on doing so for as long as it is asked."""
    while line.recv(1):
        line.sendall(f"{told} {os.getpid()} {signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL}\n".encode())


def fail(_line: socket.socket, told: str) -> None:
    raise ValueError(told)


def leave(_line: socket.socket, _told: str) -> None:
    sys.exit(3)


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with contextlib.closing(ForkServer({"answer": answer, "fail": fail, "leave": leave})) as server:
        yield server


def ordered(forks: ForkServer, job: str, told: str = "") -> socket.socket:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with theirs:
        forks.start(job, theirs, told)
    return ours


def asked(line: socket.socket) -> list[str]:
    line.sendall(b"?")
    return line.recv(1000).decode().split()


def fork_server() -> psutil.Process:
    """Once it has said its name."""

    def named() -> psutil.Process | None:
        return next((each for each in psutil.Process().children() if each.name() == "hookmill:forks"), None)

    return until(named, "there is a fork server", seconds=20)


def test_each_order_is_a_process_with_a_line_and_a_name_of_its_own(forks: ForkServer):
    with ordered(forks, "answer", "first") as one, ordered(forks, "answer", "second") as other:
        told, number, reaps = asked(one)
        assert asked(one) == ["first", number, "True"]
        assert (told, reaps) == ("first", "True")
        assert psutil.Process(int(number)).name() == "hookmill:answer"
        assert asked(other)[0] == "second"
        assert asked(other)[1] != number


def test_a_process_ends_with_its_line_and_leaves_no_zombie(forks: ForkServer):
    with ordered(forks, "answer") as line:
        process = psutil.Process(int(asked(line)[-2]))
    process.wait(20)

    until(lambda: not fork_server().children(), "nothing of it is left", seconds=20)


@pytest.mark.parametrize("job", ["fail", "leave", "no such job"])
def test_whoever_ordered_a_process_that_fails_sees_its_line_closed(forks: ForkServer, job: str):
    with ordered(forks, job) as line:
        assert line.recv(1) == b""

    with ordered(forks, "answer", "still here") as line:
        assert asked(line)[:2] == ["still", "here"]


def test_the_log_says_that_a_process_failed_and_not_what_it_was_told():
    script = "from tests.test_fork_server import *; ordered(ForkServer({'fail': fail}), 'fail', 'a secret').recv(1)"

    said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)

    assert "a fault of type ValueError" in said.stderr + said.stdout
    assert "a secret" not in said.stderr + said.stdout


def test_a_fork_server_that_is_killed_is_replaced_and_what_it_started_goes_on(forks: ForkServer):
    with ordered(forks, "answer", "before") as before:
        assert asked(before)[0] == "before"
        killed = fork_server()
        killed.kill()
        until(lambda: not still_running([killed]), "it is gone", seconds=20)
        # Ordered while there is none: the next one takes it.
        with ordered(forks, "answer", "between") as between:
            assert asked(between)[0] == "between"
        assert asked(before)[0] == "before"


def test_signals_that_stop_everything_at_once_are_left_to_the_process_that_decides(forks: ForkServer):
    with ordered(forks, "answer", "here") as line:
        process = psutil.Process(int(asked(line)[1]))
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            fork_server().send_signal(number)
        time.sleep(0.1)

        assert asked(line)[0] == "here"
        with ordered(forks, "answer", "there") as another:
            assert asked(another)[0] == "there"


def test_standard_input_and_output_stay_with_the_command(forks: ForkServer):
    files = {number: str(Path(f"/proc/{fork_server().pid}/fd/{number}").readlink()) for number in range(3)}

    assert files[0] == os.devnull
    assert files[1] == files[2]


def test_a_worker_ends_with_its_line_even_where_nobody_read_what_it_said(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOOKMILL_DATA_DIR", str(tmp_path))
    app.open_store(read_settings(), create=True).close()
    with contextlib.closing(ForkServer({WORKER: work_beside_serve})) as forks:
        with ordered(forks, WORKER) as line:
            until(lambda: READY in line.recv(100, socket.MSG_PEEK), "the worker is ready", seconds=20)
            process = psutil.Process(int(line.recv(100, socket.MSG_PEEK).split()[0]))
            assert process.name() == "hookmill:worker"

        process.wait(20)


def test_nothing_is_left_of_a_fork_server_that_was_closed():
    server = ForkServer({"answer": answer})
    process = fork_server()
    with ordered(server, "answer", "here") as line:
        assert asked(line)[0] == "here"
        server.close()
        process.wait(20)

        assert asked(line)[0] == "here"
