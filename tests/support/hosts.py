"""Hosts on this machine, made of Linux namespaces: each has processes, a name and a network of its own.

They end with the process that created them. They need only the kernel and Python, no program such as `ip`. If the tests
don't run as root, the system must allow user namespaces.
"""

import contextlib
import json
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.support import namespaces
from tests.support.loaded import fork_context
from tests.support.waiting import LONG_SECONDS, until

ANSWER_SECONDS: Final = 30.0
"""The longest time in which a host or the switch carries out an order."""
CONNECT_SECONDS: Final = 10.0
REACHABLE_SECONDS: Final = 0.5
UNUSED_PORT: Final = 1


class NamespacesUnavailable(Exception):
    """This system does not allow the namespaces. The text says why, and what to do."""


class Host:
    """One host. Its files are those of this machine. Its `address` is valid only inside its network."""

    def __init__(self, network: "Network", name: str, address: str, control: "_Control"):
        self.name = name
        self.address = address
        self._network = network
        self._control = control

    def start(
        self, command: list[str], environment: Mapping[str, str], directory: Path, output: Path
    ) -> "ProcessOnHost":
        """Start a command, such as `["hookmill", "serve"]`. What it prints is added to the file `output`."""
        reply = self._control.execute(
            do="start",
            command=command,
            environment=dict(environment),
            directory=str(directory),
            output=str(output),
        )
        return ProcessOnHost(self, reply["pid"])

    def connect(self, port: int) -> socket.socket:
        """A new connection from outside the host to one of its ports."""
        connection = self._network.open_socket()
        try:
            connection.settimeout(CONNECT_SECONDS)
            connection.connect((self.address, port))
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return connection

    def unplug(self):
        """Drop packets from and to the host from now on. No connection is reset."""
        self._network.execute(do="unplug", host=self.name)

    def plug_in(self):
        """Connect the host again. For a moment, its kernel still reports that its neighbors are unreachable."""
        self._network.execute(do="plug in", host=self.name)
        until(self._is_reachable, f"{self.name} is reachable")

    def _is_reachable(self) -> bool:
        with self._network.open_socket() as connection:
            connection.settimeout(REACHABLE_SECONDS)
            try:
                connection.connect((self.address, UNUSED_PORT))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            return True

    def freeze(self):
        """Send SIGSTOP to every process."""
        self.signal(-1, signal.SIGSTOP)

    def resume(self):
        self.signal(-1, signal.SIGCONT)

    def kill_all(self):
        """Send SIGKILL to every process. Returns when all have ended."""
        self._control.execute(do="kill all")

    def signal(self, pid: int, number: int):
        self._control.execute(do="signal", pid=pid, number=number)

    def exit_code_of(self, pid: int) -> int | None:
        code: int | None = self._control.execute(do="exit code of", pid=pid)["exit_code"]
        return code


class ProcessOnHost:
    """A process that was started on a host. `pid` is its number there."""

    def __init__(self, host: Host, pid: int):
        self._host = host
        self.pid = pid

    def poll(self) -> int | None:
        return self._host.exit_code_of(self.pid)

    def wait(self, seconds: float = LONG_SECONDS) -> int:
        """Wait for the end of the process, and return its exit code. Raises `AssertionError` if it takes too long."""
        until(lambda: self.poll() is not None, f"process {self.pid} of {self._host.name} has ended", seconds=seconds)
        code = self.poll()
        assert code is not None
        return code

    def terminate(self):
        self._host.signal(self.pid, signal.SIGTERM)


class Network:
    """Hosts that a switch connects. This process reaches them through sockets that the switch opens."""

    def __init__(self, *names: str):
        """Raises `NamespacesUnavailable`."""
        pairs = {name: _pair() for name in ("", *names)}
        ends_of_hosts = {name: pair[1] for name, pair in pairs.items()}
        self._controls = [_Control(pair[0]) for pair in pairs.values()]
        self._control, *controls = self._controls
        end_of_switch = ends_of_hosts.pop("")
        self._process = fork_context().Process(target=namespaces.serve_network, args=(end_of_switch, ends_of_hosts))
        self._process.start()
        self.address = namespaces.ADDRESSES.format(1)
        for each in (end_of_switch, *ends_of_hosts.values()):
            each.close()
        try:
            for each_control in self._controls:
                each_control.read()
        except BaseException:
            self.close()
            raise
        self.hosts = [
            Host(self, name, namespaces.ADDRESSES.format(number), each_control)
            for number, (name, each_control) in enumerate(zip(names, controls, strict=True), start=2)
        ]

    def open_socket(self) -> socket.socket:
        """A new TCP socket of the network, as of another machine next to the hosts."""
        return self._control.open_socket()

    def listen(self) -> socket.socket:
        """A new server socket of the network, at a free port of `Network.address`."""
        listener = self.open_socket()
        listener.bind((self.address, 0))
        listener.listen()
        return listener

    def execute(self, **order: Any) -> dict[str, Any]:
        return self._control.execute(**order)

    def close(self):
        """End all processes of all hosts, and remove the network."""
        for control in self._controls:
            control.close()
        self._process.join(ANSWER_SECONDS)
        if self._process.exitcode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired("the hosts", ANSWER_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        self.close()


class _Control:
    """Sends orders to the switch or to a host, and reads the replies. Threads may share it."""

    def __init__(self, end: socket.socket):
        self._end = end
        self._end.settimeout(ANSWER_SECONDS)
        self._lock = threading.Lock()

    def execute(self, **order: Any) -> dict[str, Any]:
        with self._lock:
            self._end.send(json.dumps(order).encode())
            return self.read()

    def open_socket(self) -> socket.socket:
        with self._lock:
            self._end.send(json.dumps({"do": "open socket"}).encode())
            _, descriptors, _, _ = socket.recv_fds(self._end, namespaces.MESSAGE_BYTES_MAX, 1)
        return socket.socket(fileno=descriptors[0])

    def read(self) -> dict[str, Any]:
        message = self._end.recv(namespaces.MESSAGE_BYTES_MAX)
        reply: dict[str, Any] = json.loads(message) if message else {"error": "its process has ended"}
        if "error" in reply:
            raise NamespacesUnavailable(
                f"Hosts can't be made of namespaces here: {reply['error']}. These tests need them: run the tests as "
                "root (in a container: --privileged), or allow user namespaces (sysctl user.max_user_namespaces, and "
                "on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0)."
            )
        return reply

    def close(self):
        with contextlib.suppress(OSError):
            self._end.close()


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
