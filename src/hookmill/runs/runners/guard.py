"""The guard of one command: starts it, collects its output, and ends it with every process that it started.

The guard is a separate process whose standard input is a channel from the worker. When it is closed, the guard ends the
command. The worker closes it to stop the command, and the system closes it when the worker dies. The guard, and the
modules of Hookmill that it loads, use only the standard library. The guard keeps the command's output out of the
worker's memory.

As a program, this module forks a guard for each order of `guard_server`.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NoReturn

if __name__ == "__main__":
    # The directory with Hookmill goes last on the path, so that no module in it can shadow a standard one.
    sys.path.append(os.path.dirname(os.path.abspath(__file__)).rsplit(os.sep, 3)[0])  # noqa: PTH100, PTH120 - pathlib loads slowly

from hookmill.domain.masking import Masker

OUTPUT_FILE: Final = "output.log"
RUN_VARIABLE: Final = "HOOKMILL_RUN_ID"
ATTEMPT_VARIABLE: Final = "HOOKMILL_ATTEMPT"
"""Both variables identify the processes of an attempt, on systems with `/proc`. Child processes inherit them."""
TAIL_BYTES: Final = 4096
"""How much of the end of the output the report contains, unless the spec says otherwise."""
CHUNK_BYTES: Final = 65_536
KILL_SECONDS: Final = 5.0
"""The maximum wait for killed processes to end. A process that waits for a broken disk doesn't end."""
POLL_SECONDS: Final = 0.01
LIMIT_BYTES_MAX: Final = 100
"""More than the size of the longest name of a limit."""
ENDED_BY_TIME_LIMIT: Final = "time limit"
ENDED_BY_WORKER: Final = "worker"
"""The worker closed the pipe, or died."""

ORDER_LENGTH_BYTES: Final = 8
"""An order to a guard begins with its length in bytes."""
END_MARK: Final = b"\0"
"""What the starter of guards sends begins with it. So it ends what the guard sent, which may be half of a line."""
EXITED: Final = b"exited"
NOT_FORKED: Final = b"error"
UNUSED_ARGUMENT: Final = "-" * 60
"""The last argument of the program, in whose place each guard writes its run and attempt."""

_TERMINATION_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
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
"""Start errors for which the command is to blame. All others are faults of the host, such as a lack of memory or
processes."""


def kill_processes_of_runs(*runs: str, attempt_max: int | None = None, ignored: Collection[int] = ()) -> None:
    """Kill the processes of each of these runs, and their guards, but not the caller. Wait for their end.

    The wait takes at most `KILL_SECONDS`.

    With `attempt_max`, processes of later attempts continue: another worker of this host may perform one. The
    environment identifies processes, and the arguments identify guards. Without `/proc`, nothing is killed.

    `ignored`: processes that are older than the runs.
    """
    if not runs:
        return
    run_ids = {run.encode() for run in runs}

    def find_processes() -> list[int]:
        return [
            pid
            for pid in _other_processes().difference(ignored)
            if (run_and_attempt := _run_and_attempt_of(pid)) is not None
            and run_and_attempt[0] in run_ids
            and (attempt_max is None or run_and_attempt[1] <= attempt_max)
        ]

    _kill_all(find_processes)


def kill_descendants(ancestor: int) -> None:
    """Kill the processes that `ancestor` started, directly or not. Wait up to `KILL_SECONDS` until they end."""
    _kill_all(lambda: descendants_of(ancestor))


def _kill_all(find_processes: Callable[[], Collection[int]]) -> None:
    """Kill the processes that `find_processes` returns, until it returns none or `KILL_SECONDS` are over."""
    deadline = time.monotonic() + KILL_SECONDS
    while pids := find_processes():
        _kill(pids)
        if time.monotonic() > deadline:
            return
        # A killed process takes time to end, and may have started another one before it was killed.
        time.sleep(POLL_SECONDS)


def _kill(pids: Collection[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _other_processes() -> set[int]:
    """The ids of all processes except this one."""
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - pathlib loads slowly
    except OSError:
        return set()
    return {pid for name in names if name.isdecimal() and (pid := int(name)) != os.getpid()}


def _run_and_attempt_of(pid: int) -> tuple[bytes, int] | None:
    """The id of the process's run, and the number of its attempt; 0 if `ATTEMPT_VARIABLE` is missing.

    A guard's environment is protected, so its arguments identify the run.
    """
    # python -I -S guard.py RUN ATTEMPT
    arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")
    if len(arguments) > 5 and arguments[3] == os.fsencode(__file__):
        return arguments[4], _attempt_number(arguments[5])
    environment = _read(f"/proc/{pid}/environ")
    if RUN_VARIABLE.encode() not in environment:
        return None
    variables = dict(variable.split(b"=", 1) for variable in environment.split(b"\0") if b"=" in variable)
    run = variables.get(RUN_VARIABLE.encode())
    return None if run is None else (run, _attempt_number(variables.get(ATTEMPT_VARIABLE.encode(), b"")))


def _attempt_number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) < 10 else 0


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            return file.read()
    except OSError:  # The process has ended, or belongs to another account.
        return b""


def descendants_of(ancestor: int) -> list[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = {}
    for pid in _other_processes():
        # The process's name is in parentheses and may contain any character. After the name, proc(5) has the state
        # (field 0), the parent (field 1) and, as field 17, the number of threads.
        fields = _read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        # A process whose first thread has ended looks like a zombie while its other threads run. The children of a
        # real zombie go to an ancestor, so it has no descendants.
        if fields and (fields[0] not in (b"Z", b"X") or int(fields[17]) > 1):
            children.setdefault(int(fields[1]), []).append(pid)
    descendants: list[int] = []
    generation = children.get(ancestor, [])
    while generation:
        descendants += generation
        generation = [child for pid in generation for child in children.get(pid, [])]
    return descendants


class CapturedOutput:
    """The command's output. It writes the first part to a file, keeps the end in memory, and counts dropped bytes.

    The values of `secrets` are masked. If the file could not hold the whole output, `finish` replaces the last bytes of
    the file by the end of the output: an error is usually there.
    """

    def __init__(self, bytes_max: int, *, tail_bytes: int = TAIL_BYTES, secrets: Collection[bytes] = ()) -> None:
        # The file may have half of a very low limit as the end of the output.
        self._end_bytes = min(tail_bytes, TAIL_BYTES, bytes_max // 2)
        self.file = os.open(OUTPUT_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self.first_bytes = 0
        """The bytes of the output at the beginning of the file."""
        self.remaining_bytes = bytes_max
        self.dropped_bytes = 0
        """The bytes of the output after these."""
        self.missing_bytes = 0
        """The bytes that the file lacks."""
        self.tail = b""
        self._tail_bytes = tail_bytes
        self._masker = Masker(secrets)

    def add(self, chunk: bytes) -> None:
        self._add(self._masker.add(chunk) if self._masker.is_needed else chunk)

    def finish(self) -> None:
        """Add the bytes that the masker held back, because a secret might have begun there. Complete the file."""
        self._add(self._masker.finish())
        if self.dropped_bytes and self._end_bytes:
            self._write_end()

    def _add(self, chunk: bytes) -> None:
        written = 0
        with contextlib.suppress(OSError):  # A full disk must not stop the command.
            written = os.write(self.file, chunk[: self.remaining_bytes])
        self.first_bytes += written
        # After the first chunk that doesn't fit, write no more: the file must have no gap.
        self.remaining_bytes = self.remaining_bytes - written if written == len(chunk) else 0
        self.dropped_bytes += len(chunk) - written
        self.missing_bytes = self.dropped_bytes
        self.tail = (self.tail + chunk)[-self._tail_bytes :] if self._tail_bytes else b""

    def _write_end(self) -> None:
        """Replace the last bytes of the file by a note and the end of the output. The file does not grow, because the
        disk may be full."""
        end = self.tail[-self._end_bytes :]
        total_bytes = self.first_bytes + self.dropped_bytes
        # The number in the note has at most as many digits as the total.
        note_bytes = len(_missing_note(total_bytes))
        if (first_bytes := self.first_bytes - note_bytes - len(end)) <= 0:
            return
        missing_bytes = total_bytes - first_bytes - len(end)
        with contextlib.suppress(OSError):
            os.pwrite(self.file, _missing_note(missing_bytes).rjust(note_bytes, b"\n") + end, first_bytes)
            self.first_bytes, self.dropped_bytes = first_bytes, total_bytes - first_bytes
            self.missing_bytes = missing_bytes


def _missing_note(count: int) -> bytes:
    return f"\n[{count} bytes of the output are missing here]\n".encode("ascii")


def _values_of(variables: Collection[str]) -> list[bytes]:
    return [os.environb.get(os.fsencode(name), b"") for name in variables]


def guard(run: str, attempt: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run the command that `spec` describes, and report how it ended.

    The spec: argv, directory, user (uid, gid and name of another account, or None), time_limit_seconds,
    grace_seconds, output_bytes_max, open_files_max (the soft limit, or None), working_directory (where the command
    starts, or None for `directory`), standard_input (the name of a file in `directory`, or None), masked_variables
    (whose values the output must not contain), tail_bytes, sandbox (as `create_sandbox` needs it, or None), and
    network (as `prepare_network` needs it, or None). The sandbox also has the key cgroup: its directory and limits (as
    `create_cgroup` needs them), or None.

    The report: `start_error` or `host_fault`, the reason why the command did not start. Otherwise `exit_status` (if
    a signal ended the command, minus its number), `ended_by` (`ENDED_BY_TIME_LIMIT`, `ENDED_BY_WORKER`, a limit of the
    sandbox, or None if the command ended by itself), `first_bytes`, `dropped_bytes` and `missing_bytes` of
    `CapturedOutput`, and `tail`, the end of the output as Latin-1, because JSON has no bytes.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    # An orphaned descendant becomes this process's child, so it is found even if it removed `RUN_VARIABLE`.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in _TERMINATION_SIGNALS:
        # A signal to all processes of the service must not end the guard before it has reported.
        signal.signal(number, lambda *_: None)
    try:
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        child_signals = _child_signals_descriptor()
        output = CapturedOutput(
            spec["output_bytes_max"], tail_bytes=spec["tail_bytes"], secrets=_values_of(spec["masked_variables"])
        )
        if spec["user"] is not None:
            _hand_over_files(spec["user"])
        if spec["sandbox"] is not None:
            _load_sandbox(spec["sandbox"])
            _create_cgroup(spec["sandbox"]["cgroup"])
        if spec["network"] is not None:
            _load_network()
        limit_read_end, limit_write_end = os.pipe()
        os.set_blocking(limit_read_end, False)
        older_processes = _other_processes()
        pid = _start_command(spec, write_end, limit_write_end)
    except _NotStarted as error:
        return {"start_error": str(error)}
    except OSError as error:
        return {"host_fault": error.strerror}
    os.close(write_end)
    os.close(limit_write_end)
    status, ended_by = _wait_for_command(pid, read_end, child_signals, output, spec)
    _signal_group(pid, signal.SIGKILL)
    _kill_children()
    # A process that is no descendant, such as one that a daemon started, may have this run's environment.
    kill_processes_of_runs(run, attempt_max=attempt, ignored=older_processes)
    exceeded_limit = _exceeded_limit(limit_read_end)
    if spec["sandbox"] is not None:
        exceeded_limit = limit_that_ended(spec["sandbox"]["cgroup"], exceeded_limit)
        if exceeded_limit is not None and status < 0:
            # The kernel has also killed the process that waited for the sandbox.
            status = 128 - status
    _drain(read_end, output)
    output.finish()
    return {
        "exit_status": status,
        "ended_by": ended_by or exceeded_limit,
        "first_bytes": output.first_bytes,
        "dropped_bytes": output.dropped_bytes,
        "missing_bytes": output.missing_bytes,
        "tail": output.tail.decode("latin-1"),
    }


def _prctl(option: int, value: int) -> None:
    """Call prctl(2) on systems that have it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0)))


class _NotStarted(Exception):
    """The command can't be started, and the host is not at fault. The text is the operating system's reason."""


def _hand_over_files(user: Mapping[str, Any]) -> None:
    """Make the account the owner of the package, except for the output file, which this process writes."""
    for entry in os.scandir():
        if entry.name != OUTPUT_FILE:
            os.chown(entry, user["uid"], user["gid"], follow_symlinks=False)
    os.chown(".", user["uid"], user["gid"])


def _start_command(spec: Mapping[str, Any], output_end: int, limit_end: int) -> int:
    """Start the command, which writes its output to `output_end`, and return its process id.

    If a limit of the sandbox ends it, its name is written to `limit_end`.

    Raises `_NotStarted`, and `OSError` for a fault of the host.
    """
    error_read_end, error_write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        _execute(spec, output_end, error_write_end, limit_end)
    os.close(error_write_end)
    with os.fdopen(error_read_end, "rb") as pipe:
        # Empty if the command has started, because its start closes the pipe.
        error = pipe.read()
    if not error:
        return pid
    os.waitpid(pid, 0)
    step, error_number, text = json.loads(error)
    if step == "account":
        text = f"can't become the account {spec['user']['name']!r}: {text}"
    if step == "directory":
        text += f": the account {spec['user']['name']!r} must be able to search each directory of {spec['directory']}"
    if step in ("sandbox", "cgroup"):
        text = f"no {step}: {text}"
    if step == "program" and error_number in _ERRORS_OF_THE_PROGRAM:
        raise _NotStarted(text)
    raise OSError(error_number, text)


def _execute(spec: Mapping[str, Any], output_end: int, error_write_end: int, limit_end: int) -> NoReturn:
    """In the forked process: execute the command, or write the step that failed and its error to `error_write_end`."""
    step = "start"
    try:
        os.setsid()
        for number in (*_TERMINATION_SIGNALS, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(output_end, 1)
        os.dup2(output_end, 2)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib loads slowly
            # If the host has no memory left, the kernel ends commands before the service.
            file.write("1000")
        if (files := spec["open_files_max"]) is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        if spec["sandbox"] is not None and spec["sandbox"]["cgroup"] is not None:
            from hookmill.sandbox.cgroup import enter_cgroup

            step = "cgroup"
            enter_cgroup(spec["sandbox"]["cgroup"]["directory"])
        if (user := spec["user"]) is not None:
            step = "account"
            # The account must be able to open /dev/stdout and /dev/stderr.
            os.fchown(output_end, user["uid"], user["gid"])
            os.initgroups(user["name"], user["gid"])
            os.setgid(user["gid"])
            os.setuid(user["uid"])
            step = "directory"
            os.chdir(spec["directory"])
        step = "input"
        # The account opens the file itself: it may have replaced the file by a link.
        os.dup2(os.open(spec["standard_input"] or os.devnull, os.O_RDONLY | os.O_NOFOLLOW), 0)
        if spec["sandbox"] is not None:
            step = "sandbox"
            _execute_in_sandbox(spec, error_write_end, limit_end)
        if (working_directory := spec["working_directory"]) is not None:
            step = "workspace"
            os.chdir(working_directory)
        step = "program"
        if (network := spec["network"]) is not None:
            from hookmill.sandbox.pause_container import prepare_network

            prepare_network(network, lambda: os.close(error_write_end))
        os.execvp(spec["argv"][0], spec["argv"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        os.write(error_write_end, json.dumps([step, error.errno, error.strerror]).encode())
    except MemoryError:
        os.write(error_write_end, json.dumps([step, errno.ENOMEM, os.strerror(errno.ENOMEM)]).encode())
    except ValueError as error:
        # The path or an argument contains a NUL byte, or `setrlimit` got more than the hard limit.
        os.write(error_write_end, json.dumps([step, errno.EINVAL, str(error)]).encode())
    except BaseException as error:
        # Without a message, the command would count as started. EIO blames the host, not the program.
        os.write(error_write_end, json.dumps([step, errno.EIO, repr(error)]).encode())
    finally:
        os._exit(127)


def _load_sandbox(sandbox: Mapping[str, Any]) -> None:
    """Load the modules of the sandbox. The account of the command may be unable to read them."""
    import hookmill.sandbox.cgroup
    import hookmill.sandbox.launch

    if sandbox["egress"] is not None:
        import hookmill.sandbox.egress  # noqa: F401


def _load_network() -> None:
    """Likewise for the network of a container."""
    import hookmill.sandbox.egress
    import hookmill.sandbox.pause_container  # noqa: F401


def _create_cgroup(cgroup: Mapping[str, Any] | None) -> None:
    if cgroup is not None:
        from hookmill.sandbox.cgroup import create_cgroup

        try:
            create_cgroup(cgroup["directory"], cgroup["limits"])
        except OSError as error:
            raise OSError(error.errno, f"no cgroup: {error.strerror}") from None


def limit_that_ended(cgroup: Mapping[str, Any] | None, measured_limit: str | None) -> str | None:
    """The limit for which a sandbox was ended; None if it ended by itself. Removes its cgroup with its processes.

    `measured_limit`: the limit that was exceeded according to the measurements of the sandbox.
    """
    if cgroup is None:
        return measured_limit
    from hookmill.sandbox import MEMORY_LIMIT
    from hookmill.sandbox.cgroup import has_exceeded_memory, remove_cgroup

    limit_of_cgroup = MEMORY_LIMIT if has_exceeded_memory(cgroup["directory"]) else None
    with contextlib.suppress(OSError):
        remove_cgroup(cgroup["directory"])
    return measured_limit or limit_of_cgroup


def _execute_in_sandbox(spec: Mapping[str, Any], error_write_end: int, limit_end: int) -> NoReturn:
    """Run the command in a sandbox, and exit with its status. Raises `OSError` if there is no sandbox."""
    from hookmill.sandbox import NOT_STARTED
    from hookmill.sandbox.launch import create_sandbox, run_command

    sandbox = create_sandbox(spec["sandbox"], spec["argv"])
    os.close(error_write_end)
    status = NOT_STARTED
    try:
        status, exceeded_limit = run_command(sandbox, descendants_of)
        if exceeded_limit is not None:
            os.write(limit_end, exceeded_limit.encode())
    finally:
        os._exit(status)


def _wait_for_command(
    pid: int, read_end: int, child_signals: int, output: CapturedOutput, spec: Mapping[str, Any]
) -> tuple[int, str | None]:
    """Wait for the command's end. Returns its exit status, and `ended_by` of the report."""
    poll = select.poll()
    for descriptor in (sys.stdin.fileno(), read_end, child_signals):
        poll.register(descriptor, select.POLLIN)
    ended_by: str | None = None
    deadline = time.monotonic() + spec["time_limit_seconds"]
    while True:
        remaining = deadline - time.monotonic()
        for descriptor, _ in poll.poll(max(0, remaining) * 1000):
            if descriptor == read_end:
                if not _read_some(read_end, output):
                    poll.unregister(read_end)
            elif descriptor == child_signals:
                os.read(child_signals, 512)
            elif not os.read(descriptor, 1):
                # The worker has closed the pipe, or has died.
                poll.unregister(descriptor)
                if ended_by is None:
                    ended_by = ENDED_BY_WORKER
                    _signal_group(pid, signal.SIGTERM)
                    deadline = time.monotonic() + spec["grace_seconds"]
        for child, status in _ended_children():
            if child == pid:
                return os.waitstatus_to_exitcode(status), ended_by
        if time.monotonic() < deadline:
            continue
        if ended_by is None:
            ended_by = ENDED_BY_TIME_LIMIT
            _signal_group(pid, signal.SIGTERM)
        else:
            _signal_group(pid, signal.SIGKILL)
        deadline = time.monotonic() + spec["grace_seconds"]


def _ended_children() -> Iterator[tuple[int, int]]:
    """The process id and status of each child that has ended. Raises `ChildProcessError` if there are no children."""
    while (ended := os.waitpid(-1, os.WNOHANG))[0]:
        yield ended


def _kill_children() -> None:
    """Kill every descendant of this process. Wait up to `KILL_SECONDS` until none is left."""
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        try:
            for _ in _ended_children():
                pass
        except ChildProcessError:
            return
        _kill(descendants_of(os.getpid()))
        time.sleep(POLL_SECONDS)


def _child_signals_descriptor() -> int:
    """A descriptor that becomes readable when a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_end


def _read_some(read_end: int, output: CapturedOutput) -> bool:
    """Read once. Returns False at the end of the output, that is, if no process has the pipe open for writing."""
    try:
        chunk = os.read(read_end, CHUNK_BYTES)
    except BlockingIOError:
        return True
    output.add(chunk)
    return bool(chunk)


def _drain(read_end: int, output: CapturedOutput) -> None:
    # This doesn't wait for the end of the output, because a process that is no descendant may keep the pipe open.
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(read_end, CHUNK_BYTES):
            output.add(chunk)


def _exceeded_limit(limit_read_end: int) -> str | None:
    """The limit for which the sandbox was ended. Call it when the command has ended."""
    with contextlib.suppress(BlockingIOError):
        return os.read(limit_read_end, LIMIT_BYTES_MAX).decode() or None
    return None


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


# The program


def _serve() -> NoReturn:
    """Start a guard for each order from standard input, until the worker has ended.

    An order is one byte and a descriptor: the guard's end of the channel. The guard reads the rest from there.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    for number in _TERMINATION_SIGNALS:
        # As for guards: it must report their ends.
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as orders:
        channel_by_guard: dict[int, int] = {}
        child_signals = _child_signals_descriptor()
        poll = select.poll()
        poll.register(orders, select.POLLIN)
        poll.register(child_signals, select.POLLIN)
        # A garbage collection would write to pages that the processes share, and so copy them.
        gc.freeze()
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == child_signals:
                    os.read(child_signals, 512)
                    continue
                order, channels, _, _ = socket.recv_fds(orders, 1, 1)
                if not order:
                    os._exit(0)
                _start_guard(channels[0], channel_by_guard)
            with contextlib.suppress(ChildProcessError):
                for guard_pid, status in _ended_children():
                    _report_end(channel_by_guard.pop(guard_pid), EXITED, os.waitstatus_to_exitcode(status))


def _start_guard(channel: int, channel_by_guard: dict[int, int]) -> None:
    try:
        pid = os.fork()
    except OSError as error:
        _report_end(channel, NOT_FORKED, error.errno or errno.EAGAIN)
        return
    if pid == 0:
        _become_guard(channel)
    channel_by_guard[pid] = channel


def _report_end(channel: int, kind: bytes, number: int) -> None:
    """Send the exit status, or the error of the fork. If the channel is full, nobody reads it."""
    os.set_blocking(channel, False)
    with contextlib.suppress(OSError):
        os.write(channel, b"%s%s %d\n" % (END_MARK, kind, number))
    os.close(channel)


def _become_guard(channel: int) -> NoReturn:
    """In the forked process: perform the order from the channel, and write the process id and the report to it."""
    report: dict[str, Any] | None = None
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        os.dup2(channel, 0)
        os.dup2(channel, 1)
        for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib loads slowly
            if int(name) > 2:
                # The list includes the descriptor of the directory, which is already closed.
                with contextlib.suppress(OSError):
                    os.close(int(name))
        _write(b"%d\n" % os.getpid())
        length = int.from_bytes(_read_exactly(ORDER_LENGTH_BYTES), "big")
        run, attempt, spec, directory, environment = json.loads(_read_exactly(length))
        _name_process(run, attempt)
        try:
            os.chdir(directory)
            os.environ.clear()
            os.environ.update(environment)
        except OSError as error:
            report = {"host_fault": f"{error.filename}: {error.strerror}"}
        else:
            report = guard(run, attempt, spec)
        _write(json.dumps(report).encode() + b"\n")
    finally:
        os._exit(1 if report is None else 0)


def _read_exactly(length: int) -> bytes:
    content = b""
    while len(content) < length:
        if not (chunk := os.read(0, length - len(content))):
            raise EOFError
        content += chunk
    return content


def _write(content: bytes) -> None:
    while content:
        content = content[os.write(1, content) :]


def _name_process(run: str, attempt: int) -> None:
    """Show the run and the attempt as arguments of this process, in the place of `UNUSED_ARGUMENT`.

    Without `/proc`, there is nothing to show.
    """
    # Fields 48 and 49 of proc(5): where the arguments begin and end. Field 3 is the first one after the name.
    fields = _read("/proc/self/stat").rpartition(b") ")[2].split()
    if len(fields) > 46:
        place = int(fields[46]) - len(UNUSED_ARGUMENT) - 1
        shown = f"{run}\0{attempt}".encode()[: len(UNUSED_ARGUMENT)]
        ctypes.memmove(place, shown.ljust(len(UNUSED_ARGUMENT), b"\0"), len(UNUSED_ARGUMENT))


if __name__ == "__main__":
    _serve()
