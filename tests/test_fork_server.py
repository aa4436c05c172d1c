"""The fork server: the processes that it starts, their channels and their end, and its restart."""

import contextlib
import errno
import json
import os
import signal
import socket
import sys
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
from tests.support.waiting import LONG_SECONDS, until

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def answer(channel: socket.socket) -> None:
    """Answer each byte with the id of this process, and whether it can wait for its own children."""
    while channel.recv(1):
        channel.sendall(f"{os.getpid()} {signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL}\n".encode())


def fail(_channel: socket.socket) -> None:
    raise ValueError("a secret")


def exit_with_code(_channel: socket.socket) -> None:
    sys.exit(3)


@pytest.fixture
def fork_server():
    with contextlib.closing(ForkServer({"answer": answer, "fail": fail, "exit": exit_with_code})) as server:
        yield server


def order_process(fork_server: ForkServer, job: str = "answer") -> socket.socket:
    """Order a process. Returns the channel to it."""
    channel, channel_of_process = socket.socketpair()
    channel.settimeout(LONG_SECONDS)
    with channel_of_process, contextlib.ExitStack() as on_failure:
        on_failure.callback(channel.close)
        fork_server.start(job, channel_of_process)
        on_failure.pop_all()
    return channel


def process_at(channel: socket.socket) -> psutil.Process:
    """The process at the other end of the channel."""
    channel.sendall(b"?")
    pid, can_wait = channel.recv(1000).decode().split()
    assert can_wait == "True"
    return psutil.Process(int(pid))


def running_fork_server() -> psutil.Process:
    """The fork server, once it has set its name."""

    def find() -> psutil.Process | None:
        return next((each for each in psutil.Process().children() if each.name() == "hookmill:forks"), None)

    return until(find, "there is a fork server")


def kill_fork_server() -> None:
    process = running_fork_server()
    process.kill()
    until(lambda: not still_running([process]), "the fork server has ended")


def test_each_order_starts_a_process_with_its_own_channel_and_name(fork_server):
    with order_process(fork_server) as one, order_process(fork_server) as other:
        process = process_at(one)

        assert process.name() == "hookmill:answer"
        assert process_at(one) == process
        assert process_at(other) != process


def test_process_ends_with_its_channel_and_leaves_no_zombie(fork_server):
    with order_process(fork_server) as channel:
        process = process_at(channel)
    process.wait(LONG_SECONDS)

    until(lambda: not running_fork_server().children(), "no zombie is left")


@pytest.mark.parametrize("job", ["fail", "exit"])
def test_channel_of_a_failed_process_is_closed(fork_server, job):
    with order_process(fork_server, job) as channel:
        assert channel.recv(1) == b""

    with order_process(fork_server) as channel:
        assert process_at(channel).is_running()


def fail_with_a_log() -> None:
    log.configure(Settings())
    order_process(ForkServer({"fail": fail}), "fail").recv(1)


def test_log_names_the_failed_process_without_the_error_message(tmp_path):
    output = tmp_path / "output"

    assert Forked(fail_with_a_log, (), os.environ, tmp_path, output).wait(60) == 0

    # The channel is closed before the log is written.
    until(lambda: output.read_text().endswith("\n"), "the log has a line")
    text = output.read_text()
    entry = json.loads(text)
    assert (entry["event"], entry["where"]) == ("failed", "fail")
    assert entry["why"].startswith("a fault of type ValueError in hookmill.app.fork_server, line ")
    assert "a secret" not in text


def test_killed_fork_server_is_replaced_and_its_processes_continue(fork_server, monkeypatch):
    monkeypatch.setattr(fork_server_module, "RESTART_SECONDS", 2.0)
    with order_process(fork_server) as before:
        process = process_at(before)
        kill_fork_server()
        # There is no fork server now. The next one reads the order.
        with order_process(fork_server) as between:
            assert process_at(between).is_running()
        assert process_at(before) == process


def test_failed_start_of_the_fork_server_is_retried(fork_server, monkeypatch):
    fork, failures = os.fork, []

    def fail_twice() -> int:
        if len(failures) < 2:
            failures.append(OSError(errno.EAGAIN, "no more processes"))
            raise failures[-1]
        return fork()

    monkeypatch.setattr(os, "fork", fail_twice)
    kill_fork_server()

    with order_process(fork_server) as channel:
        assert process_at(channel).is_running()
    assert len(failures) == 2


def test_order_fails_immediately_if_the_socket_is_full(fork_server):
    # The buffer is small, because each order in it starts a process later.
    fork_server._order_sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    suspended = running_fork_server()
    suspended.suspend()
    with contextlib.ExitStack() as channels:

        def fill_socket() -> None:
            for _ in range(10_000):
                channels.enter_context(order_process(fork_server))

        with pytest.raises(OSError, match=r"unavailable|references"):
            fill_socket()
    suspended.resume()

    def is_answered() -> bool:
        with contextlib.suppress(BlockingIOError), order_process(fork_server) as channel:
            return process_at(channel).is_running()
        return False

    until(is_answered, "the socket has space again")


def test_processes_ignore_signals_that_the_supervisor_handles(fork_server):
    with order_process(fork_server) as channel:
        process = process_at(channel)
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            running_fork_server().send_signal(number)

        assert process_at(channel) == process
        with order_process(fork_server) as other:
            assert process_at(other).ppid() == process.ppid()


def test_process_has_no_standard_input_and_prints_to_standard_error(fork_server):
    with order_process(fork_server) as channel:
        pid = process_at(channel).pid
        files = [Path(f"/proc/{pid}/fd/{descriptor}").readlink() for descriptor in range(3)]

    assert files[0] == Path(os.devnull)
    assert files[1] == files[2]


def test_worker_ends_with_its_channel_although_it_has_unread_messages(tmp_path):
    settings = Settings(data_dir=tmp_path)
    app.open_store(settings, create=True).close()
    jobs = {WORKER: partial(work_beside_serve, settings=settings, build="0123456789ab")}
    with contextlib.closing(ForkServer(jobs)) as fork_server:
        with order_process(fork_server, WORKER) as channel:
            until(lambda: READY in channel.recv(100, socket.MSG_PEEK), "the worker is ready")
            process = psutil.Process(int(channel.recv(100, socket.MSG_PEEK).split()[0]))
            assert process.name() == "hookmill:worker"

        process.wait(LONG_SECONDS)


def test_closed_fork_server_ends_and_its_processes_continue():
    server = ForkServer({"answer": answer})
    process = running_fork_server()
    with order_process(server) as channel:
        started = process_at(channel)
        server.close()
        process.wait(LONG_SECONDS)

        assert process_at(channel) == started
