"""Processes that are forked on demand: what they are given, and what is seen of them when they end."""

import contextlib
import errno
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from hookmill import app
from hookmill.app import fork_server as fork_server_module
from hookmill.app import log
from hookmill.app.fork_server import ForkServer
from hookmill.app.worker_process import work_beside_serve
from hookmill.app.worker_supervisor import READY, WORKER
from hookmill.settings import Settings
from tests.faults.parts import still_running
from tests.support.loaded import Forked
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def answer(line: socket.socket) -> None:
    """Says who it is, and whether it may wait for children of its own, for as long as it is asked."""
    while line.recv(1):
        line.sendall(f"{os.getpid()} {signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL}\n".encode())


def fail(_line: socket.socket) -> None:
    raise ValueError("a secret")


def leave(_line: socket.socket) -> None:
    sys.exit(3)


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    with contextlib.closing(ForkServer({"answer": answer, "fail": fail, "leave": leave})) as server:
        yield server


def ordered(forks: ForkServer, job: str = "answer") -> socket.socket:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with theirs, contextlib.ExitStack() as unless_ordered:
        unless_ordered.callback(ours.close)
        forks.start(job, theirs)
        unless_ordered.pop_all()
    return ours


def asked(line: socket.socket) -> psutil.Process:
    """The process at the other end."""
    line.sendall(b"?")
    number, may_wait = line.recv(1000).decode().split()
    assert may_wait == "True"
    return psutil.Process(int(number))


def fork_server() -> psutil.Process:
    """Once it has said its name."""

    def named() -> psutil.Process | None:
        return next((each for each in psutil.Process().children() if each.name() == "hookmill:forks"), None)

    return until(named, "there is a fork server")


def kill_the_fork_server() -> None:
    killed = fork_server()
    killed.kill()
    until(lambda: not still_running([killed]), "it is gone")


def test_each_order_is_a_process_with_a_line_and_a_name_of_its_own(forks: ForkServer):
    with ordered(forks) as one, ordered(forks) as other:
        process = asked(one)

        assert process.name() == "hookmill:answer"
        assert asked(one) == process
        assert asked(other) != process


def test_a_process_ends_with_its_line_and_leaves_no_zombie(forks: ForkServer):
    with ordered(forks) as line:
        process = asked(line)
    process.wait(20)

    until(lambda: not fork_server().children(), "nothing of it is left")


@pytest.mark.parametrize("job", ["fail", "leave"])
def test_whoever_ordered_a_process_that_fails_sees_its_line_closed(forks: ForkServer, job: str):
    with ordered(forks, job) as line:
        assert line.recv(1) == b""

    with ordered(forks) as line:
        assert asked(line).is_running()


def fail_with_a_log() -> None:
    log.configure(Settings())
    ordered(ForkServer({"fail": fail}), "fail").recv(1)


def test_the_log_says_which_process_failed_and_not_what_it_knew(tmp_path: Path):
    output = tmp_path / "output"

    assert Forked(fail_with_a_log, (), os.environ, tmp_path, output).wait(60) == 0

    # The line is closed before the log is written.
    until(lambda: output.read_text().endswith("\n"), "the log has a line")
    said = output.read_text()
    told = json.loads(said)
    assert (told["event"], told["where"], told["why"]) == ("failed", "fail", "a fault of type ValueError")
    assert "a secret" not in said


def test_a_killed_fork_server_is_replaced_and_its_processes_go_on(forks: ForkServer, monkeypatch):
    monkeypatch.setattr(fork_server_module, "RESTART_SECONDS", 2.0)
    with ordered(forks) as before:
        process = asked(before)
        kill_the_fork_server()
        # Ordered while there is none: the next one takes it.
        with ordered(forks) as between:
            assert asked(between).is_running()
        assert asked(before) == process


def test_a_fork_server_that_cannot_be_forked_is_tried_again(forks: ForkServer, monkeypatch):
    fork, failed = os.fork, []

    def fork_at_last() -> int:
        if len(failed) < 2:
            failed.append(True)
            raise OSError(errno.EAGAIN, "no more processes")
        return fork()

    monkeypatch.setattr(os, "fork", fork_at_last)
    kill_the_fork_server()

    with ordered(forks) as line:
        assert asked(line).is_running()
    assert len(failed) == 2


def test_an_order_that_finds_no_room_is_refused_at_once(forks: ForkServer):
    # There is little room, as each order that finds some becomes a process later.
    forks._order_sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    stuck = fork_server()
    stuck.suspend()
    with contextlib.ExitStack() as lines:

        def order_again_and_again() -> None:
            for _ in range(10_000):
                lines.enter_context(ordered(forks))

        with pytest.raises(OSError, match=r"unavailable|references"):
            order_again_and_again()
    stuck.resume()

    def is_answered() -> bool:
        with contextlib.suppress(BlockingIOError), ordered(forks) as line:
            return asked(line).is_running()
        return False

    until(is_answered, "there is room again")


def test_processes_ignore_signals_that_the_supervisor_handles(forks: ForkServer):
    with ordered(forks) as line:
        process = asked(line)
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            fork_server().send_signal(number)

        assert asked(line) == process
        with ordered(forks) as another:
            assert asked(another).ppid() == process.ppid()


def test_standard_input_and_output_stay_with_the_command(forks: ForkServer):
    with ordered(forks) as line:
        number = asked(line).pid
        files = [Path(f"/proc/{number}/fd/{each}").readlink() for each in range(3)]

    assert files[0] == Path(os.devnull)
    assert files[1] == files[2]


def order_without_standard_streams() -> None:
    os.closerange(0, 3)
    forks = ForkServer({"answer": answer})
    # A process ends when the other end of its channel is closed.
    with ordered(forks) as channel:
        os._exit(7 if asked(channel).is_running() else 1)


def test_a_command_without_standard_streams_has_its_processes_too(tmp_path: Path):
    command = Forked(order_without_standard_streams, (), os.environ, tmp_path, tmp_path / "output")

    assert command.wait(60) == 7


def test_a_worker_ends_with_its_line_even_where_nobody_read_what_it_said(tmp_path: Path):
    settings = Settings(data_dir=tmp_path)
    app.open_store(settings, create=True).close()
    with contextlib.closing(ForkServer({WORKER: partial(work_beside_serve, settings=settings)})) as forks:
        with ordered(forks, WORKER) as line:
            until(lambda: READY in line.recv(100, socket.MSG_PEEK), "the worker is ready")
            process = psutil.Process(int(line.recv(100, socket.MSG_PEEK).split()[0]))
            assert process.name() == "hookmill:worker"

        process.wait(20)


def test_nothing_is_left_of_a_fork_server_that_was_closed():
    server = ForkServer({"answer": answer})
    process = fork_server()
    with ordered(server) as line:
        started = asked(line)
        server.close()
        process.wait(20)

        assert asked(line) == started
