"""Start a command in bubblewrap's sandbox, and wait for its end.

bubblewrap makes the sandbox, and then waits at a gate. Before the gate is opened, this process limits what is inside,
and opens a listener in the sandbox's network. Nothing in the sandbox leads back here except this listener.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, Final

from hookmill.sandbox import DISK_LIMIT, MEMORY_LIMIT, NOT_STARTED, PROXY_PORT
from hookmill.sandbox.cgroup import has_exceeded_memory
from hookmill.sandbox.disk import DiskUse, deleted_bytes, disk_use
from hookmill.sandbox.memory import memory_bytes, tmpfs_inode_bytes
from hookmill.sandbox.seccomp import open_filter

LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 64
STATUS_BYTES_MAX: Final = 65_536
DISK_WATCH_SECONDS: Final = 1.0
"""The shortest time between two measurements of the disk."""
MEMORY_WATCH_SECONDS: Final = 0.25
"""The shortest time between two measurements of the memory, which fills more quickly."""
WATCH_SHARE: Final = 0.05
"""The largest share of the time that the measurements of one kind take."""

_PR_SET_PDEATHSIG: Final = 1
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_NS_GET_USERNS: Final = 0xB701


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that exists, and whose command has not started."""

    bubblewrap: int
    """The process that waits for the end of the sandbox."""
    first_process: int
    """The first process inside, which starts the command."""
    gate: int
    """A descriptor. The command starts when it is closed."""
    status: BufferedReader
    """What bubblewrap reports."""
    egress: int | None
    """The process of the proxy."""
    spec: Mapping[str, Any]
    """What it was created from."""


def create_sandbox(spec: Mapping[str, Any], argv: Sequence[str]) -> Sandbox:
    """Create a sandbox for the command. Raises `OSError`.

    The spec: `arguments` (bubblewrap and its arguments), `rlimits` (numbers by their names in `resource`),
    `memory_bytes` (how much the processes may use together, or None), `directory` (the package), `shared_directories`
    and `disk_bytes` (how much the package, and what changes in shared directories, may have together), and `egress`
    (`destinations` and `private_networks`, or None), and `cgroup` (None, or with its `directory`; the guard creates
    it).
    """
    _end_with_parent()
    status_read_end, status_write_end = os.pipe()
    gate_read_end, gate_write_end = os.pipe()
    inherited = {"--json-status-fd": status_write_end, "--block-fd": gate_read_end}
    # Without a cgroup, nothing counts the memory that belongs to no process.
    if (system_calls := open_filter(with_system_v=spec["cgroup"] is not None)) is not None:
        inherited["--seccomp"] = system_calls
    for descriptor in inherited.values():
        os.set_inheritable(descriptor, True)
    options = [text for option, descriptor in inherited.items() for text in (option, str(descriptor))]
    command = [*spec["arguments"], *options, "--", *argv]
    # In its own group, it gets no signals that the guard sends to the group of this process.
    bubblewrap = os.posix_spawnp(command[0], command, os.environ, setpgroup=0)
    for descriptor in inherited.values():
        os.close(descriptor)
    status = os.fdopen(status_read_end, "rb")
    try:
        first_process = _first_process(status.readline(STATUS_BYTES_MAX))
        for name, value in spec["rlimits"].items():
            _limit(first_process, getattr(resource, name), value)
        egress = start_egress(first_process, spec["egress"]) if spec["egress"] is not None else None
    except BaseException:
        os.kill(bubblewrap, signal.SIGKILL)
        os.waitpid(bubblewrap, 0)
        raise
    return Sandbox(
        bubblewrap=bubblewrap,
        first_process=first_process,
        gate=gate_write_end,
        status=status,
        egress=egress,
        spec=spec,
    )


def run_command(sandbox: Sandbox, descendants_of: Callable[[int], Collection[int]]) -> tuple[int, str | None]:
    """Start the command, and wait for its end.

    Returns its exit status, which is 128 plus the number of a signal that ended it, and the limit for which the sandbox
    was ended. SIGTERM is passed on to the processes in the sandbox only: bubblewrap would end them immediately.
    """
    watches = _watches(sandbox, descendants_of)
    exceeded_limit: str | None = None
    with _wakeups() as (wakeups, is_terminated):
        os.close(sandbox.gate)
        while (ended := os.waitpid(sandbox.bubblewrap, os.WNOHANG))[0] == 0:
            if is_terminated():
                _terminate(descendants_of(sandbox.first_process))
            for watch in watches:
                if exceeded_limit is None and watch.finds_too_much():
                    exceeded_limit = watch.limit
                    os.kill(sandbox.bubblewrap, signal.SIGKILL)
            if select.select([wakeups], [], [], min(watch.seconds_to_wait for watch in watches))[0]:
                os.read(wakeups, 512)
    if sandbox.egress is not None:
        os.kill(sandbox.egress, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        return 128 - code, exceeded_limit
    # bubblewrap reports the command's exit status only if the command has started.
    return code if b'"exit-code"' in sandbox.status.read(STATUS_BYTES_MAX) else NOT_STARTED, None


def _terminate(processes: Collection[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)


def _limit(process: int, kind: int, value: int) -> None:
    _, hard = resource.prlimit(process, kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.prlimit(process, kind, (limit, limit))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def _first_process(status: bytes) -> int:
    """The first process in the sandbox, from bubblewrap's first status line. Raises `OSError`."""
    try:
        return int(json.loads(status)["child-pid"])
    except (ValueError, LookupError, TypeError):
        raise OSError(0, "bubblewrap could not create the namespaces of the sandbox") from None


@contextlib.contextmanager
def _wakeups() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A descriptor that becomes readable at a SIGTERM and at the end of a child, and whether SIGTERM is new."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    terminations: list[int] = []
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, _: terminations.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)

    def is_terminated() -> bool:
        is_new = bool(terminations)
        terminations.clear()
        return is_new

    yield read_end, is_terminated


class _Watch:
    """Checks a limit now and then."""

    def __init__(self, limit: str, is_exceeded: Callable[[], bool], seconds: float) -> None:
        self.limit = limit
        self._is_exceeded = is_exceeded
        self._seconds = seconds
        self._next_at = time.monotonic() + seconds

    @property
    def seconds_to_wait(self) -> float:
        return max(0.0, self._next_at - time.monotonic())

    def finds_too_much(self) -> bool:
        """Whether the limit is exceeded, if it is time to check it. False otherwise."""
        begun_at = time.monotonic()
        if begun_at < self._next_at:
            return False
        is_exceeded = self._is_exceeded()
        ended_at = time.monotonic()
        self._next_at = ended_at + max(self._seconds, (ended_at - begun_at) / WATCH_SHARE)
        return is_exceeded


def _watches(sandbox: Sandbox, descendants_of: Callable[[int], Collection[int]]) -> Sequence[_Watch]:
    spec, started_at_ns = sandbox.spec, time.time_ns()
    directory, bytes_max = spec["directory"], spec["disk_bytes"]

    def has_too_large_files() -> bool:
        use = disk_use([directory], bytes_max=bytes_max)
        shared = disk_use(spec["shared_directories"], bytes_max=bytes_max, changed_since_ns=started_at_ns)
        deleted = deleted_bytes(descendants_of(sandbox.first_process), directory)
        return not DiskUse(use.bytes + shared.bytes + deleted, use.files + shared.files).is_within(bytes_max)

    watches = [_Watch(DISK_LIMIT, has_too_large_files, DISK_WATCH_SECONDS)]
    if (memory_bytes_max := spec["memory_bytes"]) is not None:

        def uses_too_much_memory() -> bool:
            # The first process belongs to bubblewrap, and has the sandbox's directories.
            remaining: int = memory_bytes_max - tmpfs_inode_bytes(sandbox.first_process)
            return memory_bytes(descendants_of(sandbox.first_process), remaining) > remaining

        watches.append(_Watch(MEMORY_LIMIT, uses_too_much_memory, MEMORY_WATCH_SECONDS))
    if (cgroup := spec["cgroup"]) is not None:
        # With version 1, the kernel kills single processes, and the command would go on without them.
        watches.append(_Watch(MEMORY_LIMIT, lambda: has_exceeded_memory(cgroup["directory"]), MEMORY_WATCH_SECONDS))
    return watches


def start_egress(process: int, egress: Mapping[str, Any]) -> int:
    """Start the proxy to the permitted destinations, which listens in the network of the process. Returns its id.

    It ends with this process. Raises `OSError`.
    """
    # Imported before the process forks, and only here: it takes longer than everything else together.
    from hookmill.domain.egress import EgressRules
    from hookmill.sandbox.egress import serve

    rules = EgressRules.of(egress["destinations"], egress["private_networks"])
    listener = _listener_in_network_of(process, PROXY_PORT)
    pid = os.fork()
    if pid == 0:
        try:
            _end_with_parent()
            # A signal to the group of the launching process must not cut the connections.
            os.setpgid(0, 0)
            # bubblewrap's `--block-fd` waits until no process has the gate's pipe open for writing. The guard waits
            # until none has the guard's error pipe open for writing. So this process closes both.
            os.closerange(3, listener.fileno())
            os.closerange(listener.fileno() + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            serve(listener, rules, lambda text: print(text, flush=True))
        finally:
            os._exit(1)
    listener.close()
    return pid


def _listener_in_network_of(process: int, port: int) -> socket.socket:
    """A listener on the loopback of another process's network namespace. Raises `OSError`."""
    own_end, other_end = socket.socketpair()
    # A thread can't leave a namespace to which it has no rights, so a process enters it, opens the socket and ends.
    pid = os.fork()
    if pid == 0:
        try:
            # Above this limit, an account can't send descriptors. Sandboxes may have used up to their own, lower limit.
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            _enter_network_of(process)
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
                listener.bind((LOOPBACK, port))
                listener.listen(BACKLOG)
                socket.send_fds(other_end, [b"{}"], [listener.fileno()])
        except OSError as error:
            other_end.send((error.strerror or str(error)).encode())
        finally:
            os._exit(0)
    other_end.close()
    with own_end:
        message, descriptors, _, _ = socket.recv_fds(own_end, 1_024, 1)
    os.waitpid(pid, 0)
    if not descriptors:
        raise OSError(0, f"its network can't be entered: {message.decode()}")
    return socket.socket(fileno=descriptors[0])


def _enter_network_of(process: int) -> None:
    network = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    # The owner of a user namespace has all rights in it, and so in the network that belongs to it.
    user = fcntl.ioctl(network, _NS_GET_USERNS)
    namespaces = [(network, _CLONE_NEWNET)]
    # A container of root has no user namespace of its own, and a process can't enter the one in which it is.
    if not os.path.samestat(os.fstat(user), os.stat("/proc/self/ns/user")):  # noqa: PTH116 - pathlib loads slowly
        namespaces.insert(0, (user, _CLONE_NEWUSER))
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor, kind in namespaces:
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
