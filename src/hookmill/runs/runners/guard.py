"""Stands guard over one command: starts it, collects its output, and ends it with all that it started.

It is a program of its own, and the worker holds the other end of its standard input. When that end closes, because the
worker wants the command stopped or because the worker was killed, the command is ended. It needs the standard library
alone, and it keeps the output of talkative commands out of the worker's process.
"""

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn

OUTPUT_FILE: Final = "output.log"
RUN_VARIABLE: Final = "HOOKMILL_RUN_ID"
"""What marks the processes of a run, on systems with `/proc`: its children inherit it, unless they drop it."""
TAIL_BYTES: Final = 4096
CHUNK_BYTES: Final = 65_536
GONE_SECONDS: Final = 5.0
"""At most, for what is killed to be gone: a process that waits for a dead disk is not."""
LOOK_AGAIN_SECONDS: Final = 0.01

_ASKS_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36
_ERRORS_OF_THE_PROGRAM: Final = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.E2BIG,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
    }
)
"""What can be wrong with a command. Any other error when it is started is the host's: no memory, no process left."""


def end_processes_of(*runs: str) -> None:
    """Kill whatever still runs for these runs, their guards too, and see it gone. The caller is spared.

    Processes are known by their environment, and guards by their arguments. Without `/proc` nothing is found.
    """
    if not runs:
        return
    names = {run.encode() for run in runs}
    _end(lambda: [pid for pid in _processes() if _run_of(pid) in names])


def end_descendants_of(ancestor: int) -> None:
    """Kill whatever the process started, directly or not, and see it gone."""
    _end(lambda: _descendants_of(ancestor))


def _end(find: Callable[[], Collection[int]]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while found := find():
        _kill(found)
        if time.monotonic() > deadline:
            return
        # What is killed goes when it is its turn, and may have started something between the look and the kill.
        time.sleep(LOOK_AGAIN_SECONDS)


def _kill(processes: Collection[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib loads slowly
    except OSError:
        return []
    return [pid for name in names if name.isdecimal() and (pid := int(name)) != os.getpid()]


def _run_of(pid: int) -> bytes | None:
    """The run that the process belongs to. A guard's environment can't be read by others, and its arguments can."""
    arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")
    if len(arguments) > 4 and arguments[3] == os.fsencode(__file__):
        return arguments[4]
    mark = f"{RUN_VARIABLE}=".encode()
    variables = _read(f"/proc/{pid}/environ").split(b"\0")
    return next((variable.removeprefix(mark) for variable in variables if variable.startswith(mark)), None)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            return file.read()
    except OSError:  # It is gone, or another account's.
        return b""


def _descendants_of(ancestor: int) -> list[int]:
    """Those that have not ended."""
    children: dict[int, list[int]] = {}
    for pid in _processes():
        # The name, which stands in parentheses, may hold any character.
        # From the state on, as proc(5) lists them: the parent is the next field, the number of threads the 18th.
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        # A process whose first thread has ended looks like a zombie, and its other threads run on. What a process
        # leaves when it ends goes to its ancestor, so nothing is below a real one.
        if fields and (fields[0] not in (b"Z", b"X") or int(fields[17]) > 1):
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    generation = children.get(ancestor, [])
    while generation:
        found += generation
        generation = [child for pid in generation for child in children.get(pid, [])]
    return found


class Output:
    """The command's output: the first part in a file, the last part in memory, the rest counted."""

    def __init__(self, bytes_max: int) -> None:
        self.file = os.open(OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self.room = bytes_max
        self.dropped = 0
        self.tail = b""

    def add(self, chunk: bytes) -> None:
        kept = 0
        with contextlib.suppress(OSError):  # A full disk must not stop the command.
            kept = os.write(self.file, chunk[: self.room])
        self.room = self.room - kept if kept == len(chunk) else 0
        self.dropped += len(chunk) - kept
        self.tail = (self.tail + chunk)[-TAIL_BYTES:]


def guard(run: str, order: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out `order`, and tell how the command ended: `exit_status`, or why it did not start.

    The order: argv, directory, user (uid, gid and name of another account, or None), time_limit_seconds,
    grace_seconds, output_bytes_max, open_files_max (the soft limit, or None).
    """
    _ask_the_kernel(_PR_SET_DUMPABLE, 0)
    # What loses its parent becomes this process's child, whatever it dropped of its environment.
    _ask_the_kernel(_PR_SET_CHILD_SUBREAPER, 1)
    for asked in _ASKS_TO_END:
        # Whoever stops the whole service asks everybody; the guard outlives its command to tell the end.
        signal.signal(asked, lambda *_: None)
    try:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        child_ended = _notice_of_child()
        output = Output(order["output_bytes_max"])
        if order["user"] is not None:
            _hand_over_files(order["user"])
        pid = _start(order, writing)
    except _NotStarted as trouble:
        return {"trouble": str(trouble)}
    except OSError as error:
        return {"host_fault": error.strerror}
    os.close(writing)
    status, ending = _wait(pid, reading, child_ended, output, order)
    _signal_group(pid, signal.SIGKILL)
    _end_children()
    # What was started by others for this run, as by a daemon that keeps the environment.
    end_processes_of(run)
    _drain(reading, output)
    return {
        "exit_status": status,
        "ending": ending,
        "dropped_bytes": output.dropped,
        "tail": output.tail.decode("latin-1"),
    }


def _ask_the_kernel(option: int, value: int) -> None:
    """prctl(2), where there is one."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


class _NotStarted(Exception):
    """The command itself can't be started. The text is the system's reason."""


def _hand_over_files(user: Mapping[str, Any]) -> None:
    """The package becomes the account's, but for the output, which this process writes."""
    for entry in os.scandir():
        if entry.name != OUTPUT_FILE:
            os.chown(entry, user["uid"], user["gid"], follow_symlinks=False)
    os.chown(".", user["uid"], user["gid"])


def _start(order: Mapping[str, Any], writing: int) -> int:
    """The command's process. Raises `_NotStarted` for its fault, and `OSError` for the host's."""
    reading, reporting = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_the_command(order, writing, reporting)
    os.close(reporting)
    with os.fdopen(reading, "rb") as report:
        told = report.read()
    if not told:
        return pid
    os.waitpid(pid, 0)
    step, number, text = json.loads(told)
    if step == "account":
        text += f" to become the account {order['user']['name']!r}"
    if step == "directory":
        text += f": the account {order['user']['name']!r} must be able to search each directory of {order['directory']}"
    if step == "program" and number in _ERRORS_OF_THE_PROGRAM:
        raise _NotStarted(text)
    raise OSError(number, text)


def _become_the_command(order: Mapping[str, Any], writing: int, reporting: int) -> NoReturn:
    """In the forked process: from here to the command itself, or to a report of what went wrong."""
    step = "start"
    try:
        os.setsid()
        for number in (*_ASKS_TO_END, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        if (files := order["open_files_max"]) is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        if (user := order["user"]) is not None:
            step = "account"
            # So that it may open /dev/stdout and /dev/stderr.
            os.fchown(writing, user["uid"], user["gid"])
            os.initgroups(user["name"], user["gid"])
            os.setgid(user["gid"])
            os.setuid(user["uid"])
            step = "directory"
            os.chdir(order["directory"])
        step = "program"
        os.execvp(order["argv"][0], order["argv"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(reporting, json.dumps([step, error.errno, error.strerror]).encode())
    except MemoryError:
        os.write(reporting, json.dumps([step, errno.ENOMEM, os.strerror(errno.ENOMEM)]).encode())
    except ValueError as error:
        # What no system takes as an argument.
        os.write(reporting, json.dumps([step, errno.EINVAL, str(error)]).encode())
    finally:
        os._exit(127)


def _wait(pid: int, reading: int, child_ended: int, output: Output, order: Mapping[str, Any]) -> tuple[int, str | None]:
    """The command's exit status, and what made it end: None (itself), `time` or `stop`."""
    waiting = select.poll()
    for source in (sys.stdin.fileno(), reading, child_ended):
        waiting.register(source, select.POLLIN)
    ending: str | None = None
    deadline = time.monotonic() + order["time_limit_seconds"]
    while True:
        left = deadline - time.monotonic()
        for source, _ in waiting.poll(max(0, left) * 1000):
            if source == reading:
                if not _read_some(reading, output):
                    waiting.unregister(reading)
            elif source == child_ended:
                os.read(child_ended, 512)
            elif not os.read(source, 1):
                waiting.unregister(source)
                if ending is None:
                    ending = "stop"
                    _signal_group(pid, signal.SIGTERM)
                    deadline = time.monotonic() + order["grace_seconds"]
        for found, status in _ended_children():
            if found == pid:
                return os.waitstatus_to_exitcode(status), ending
        if time.monotonic() < deadline:
            continue
        if ending is None:
            ending = "time"
            _signal_group(pid, signal.SIGTERM)
        else:
            _signal_group(pid, signal.SIGKILL)
        deadline = time.monotonic() + order["grace_seconds"]


def _ended_children() -> Iterator[tuple[int, int]]:
    """Their numbers and statuses. Raises `ChildProcessError` once there are no children at all."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        yield ended


def _end_children() -> None:
    """Kill whatever the command left, and see it gone. While nothing is this process's child, nothing is left."""
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline:
        try:
            for _ in _ended_children():
                pass
        except ChildProcessError:
            return
        _kill(_descendants_of(os.getpid()))
        time.sleep(LOOK_AGAIN_SECONDS)


def _notice_of_child() -> int:
    """A descriptor that can be read when a child has ended."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _read_some(reading: int, output: Output) -> bool:
    """False when nobody can write any more."""
    try:
        chunk = os.read(reading, CHUNK_BYTES)
    except BlockingIOError:
        return True
    output.add(chunk)
    return bool(chunk)


def _drain(reading: int, output: Output) -> None:
    # Not until it closes: a process that took itself out of the group may hold it open for ever.
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reading, CHUNK_BYTES):
            output.add(chunk)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    print(json.dumps(guard(sys.argv[1], json.loads(sys.argv[2]))), flush=True)
    # Every command waits for a guard to begin and to end: it tidies nothing up, and loads no pathlib.
    os._exit(0)
