"""Executes Git so that neither a repository nor a payload can make it do more than it is asked to.

Git reads no configuration of the system or of an account, runs no hook, filter or submodule, asks nothing, and uses one
protocol only. Each command has a deadline, and each of its processes has limits for memory, processor time and the size
of files. Little of its output is read.

Git's error output may contain any text of a server, so it is only shown to people. `FailureCause` is decided by the
trace of the processes on this host. For each error, it has the format string of Git's source code.
"""

import base64
import errno
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hookmill.domain.secret import SecretValue
from hookmill.domain.text import printable
from hookmill.outbound.answer_text import HIDDEN, has_part

GIT_MISSING: Final = "The program git is not installed on this host, or not in PATH. Install the package git."
TICK_SECONDS: Final = 0.1
"""The time between two calls of `tick`."""
OUTPUT_BYTES_MAX: Final = 65_536
MESSAGE_CHARACTERS_MAX: Final = 300
MEMORY_BYTES: Final = 1_073_741_824
"""The default limit for the memory of each process."""
FILE_BYTES: Final = 67_108_864
"""The default limit for the size of a file, for commands that write none."""
OPEN_FILES: Final = 1_024
STACK_BYTES: Final = 8_388_608
_TRACE_LINE_BYTES_MAX: Final = 262_144
_ERRORS_MAX: Final = 50
_CHUNK_BYTES: Final = 65_536
_KILL_SECONDS: Final = 5.0
_INHERITED_VARIABLES: Final = (
    "PATH",
    "SSH_AUTH_SOCK",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY"),
    *("https_proxy", "http_proxy", "no_proxy", "all_proxy"),
)
_ENVIRONMENT: Final = {
    "LC_ALL": "C",
    # Git finds no configuration and no attributes below it.
    "HOME": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20",
    "GIT_SSH_VARIANT": "ssh",
}
OVERWORKED_SHARE: Final = 0.5
"""If Git exceeds its time and used the processor for this part of it, no server or network is the reason."""
_HARMLESS_FAULTS: Final = (
    *("badDate", "badDateOverflow", "badEmail", "badName", "badTimezone", "missingEmail", "missingNameBeforeEmail"),
    *("missingSpaceBeforeDate", "missingSpaceBeforeEmail", "multipleAuthors", "nulInCommit", "zeroPaddedDate"),
    "zeroPaddedFilemode",
)
"""Faults of authors, dates and modes that many old histories have. They can't be corrected without new commit ids."""
_OPTIONS: Final = tuple(
    part
    for setting in (
        "advice.detachedHead=false",
        "core.attributesFile=/dev/null",
        # Larger files are never completely in memory, unless they are stored as changes of others.
        "core.bigFileThreshold=32m",
        "core.excludesFile=/dev/null",
        "core.fsmonitor=false",
        "core.hooksPath=/dev/null",
        "core.protectHFS=true",
        "core.protectNTFS=true",
        "credential.helper=",
        "fetch.fsckObjects=true",
        *(f"fetch.fsck.{fault}=ignore" for fault in _HARMLESS_FAULTS),
        "fetch.recurseSubmodules=false",
        # A pack for each fetch, instead of a file for each object.
        "fetch.unpackLimit=1",
        "fetch.writeCommitGraph=false",
        "gc.auto=0",
        "http.lowSpeedLimit=1000",
        "http.lowSpeedTime=60",
        "init.defaultBranch=main",
        "maintenance.auto=false",
        "pack.deltaCacheSize=64m",
        "pack.threads=1",
        "pack.windowMemory=128m",
        "submodule.recurse=false",
        "transfer.fsckObjects=true",
    )
    for part in ("-c", setting)
)
_START: Final = (
    # Shells set these limits before Git exists; Python could do so only in a fork of a process with threads.
    # Above the hard limit of processor time, the kernel would send SIGKILL, as it does if memory is exhausted.
    'ulimit -c 0 && ulimit -d "$1" && ulimit -f "$2" && ulimit -S -t "$3" && ulimit -n "$4" && ulimit -s "$5" || exit; '
    # If the host's memory is exhausted, the kernel ends Git first.
    "{ echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; "
    # The standard input is the pipe for the trace. Git accepts only a descriptor of one digit.
    'shift 5; exec "$@" 9>&0 0</dev/null'
)
_SHELL: Final = "/bin/sh"
_TRACE: Final = {"GIT_TRACE2_EVENT": "9", "GIT_TRACE2_EVENT_BRIEF": "1"}

# Format strings of Git.
_HOST_ERRORS: Final = {
    os.strerror(code): code
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN)
}
_UNUSABLE_NAMES: Final = tuple(os.strerror(code) for code in (errno.ENAMETOOLONG, errno.EILSEQ))
_OUT_OF_MEMORY: Final = re.compile(
    r"Out of memory|out of memory|mmap failed|attempting to allocate|data too large|size_t overflow|"
    rf".*: {os.strerror(errno.ENOMEM)}\Z"
)
_MALFORMED: Final = re.compile(
    r"object %s: %s\Z|.*fsck error|invalid path|malformed mode|empty filename in tree|too-short tree|"
    r"truncated tree|corrupt tree|Error in object|exceeded maximum allowed tree depth|object %s is a %s, not a %s|"
    r"entry '%s' in tree %s has|unable to read 0+\Z"
)
_MISSING: Final = re.compile(
    r"couldn't find remote ref|no such remote ref|Server does not allow request for unadvertised|mismatched algorithms|"
    r"git upload-pack: not our ref"
)
_REMOTE_ERROR: Final = "remote error: %s"
_REMOTE_MISSING: Final = re.compile(r"not our ref|want [0-9a-f]+ not valid")
"""What servers say about an id that they don't have: Git's own, and those in Java."""
_REMOTE: Final = re.compile(
    r"remote error|unable to access|Could not read from remote|could not read (Username|Password)|Authentication|"
    r"(the )?remote end hung up|RPC failed|repository .* not found|unable to look up|unable to connect|"
    r"early EOF|protocol error|bad line length|invalid server response|unexpected disconnect|"
    r"could not fetch|helper .*unexpectedly|expected |'%s' does not appear to be a git|fetch-pack: invalid index",
    re.IGNORECASE,
)
_SIGNAL_ERROR: Final = "%s died of signal %d"
_SIGNALS_OF_CONTENT: Final = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGXCPU, signal.SIGXFSZ)
"""Git ends so if its stack, processor time or file exceeds a limit."""


class GitError(Exception):
    """Git did not do what it was asked to. The text is for people, and contains no secret."""


class GitOverworked(GitError):
    """Git exceeded its time, and has spent much of it with work on this host: the content needs so much."""


class FailureCause(Enum):
    """Why Git failed, as its processes on this host report it."""

    OUT_OF_MEMORY = auto()
    """A process exceeded the limit for its memory, or another limit that only a repository's content can exceed."""
    KILLED = auto()
    """The kernel or a person ended a process that used little memory."""
    MALFORMED = auto()
    """An object is malformed, or a file has a name that the file system refuses."""
    MISSING = auto()
    """The repository does not have the ref or the commit."""
    REMOTE = auto()
    """The server, or the connection to it."""
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class GitResult:
    exit_status: int
    output: str
    message: str
    """The last line of its error output, on one line and shortened. A server may have written it."""
    cause: FailureCause | None
    """None if Git succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """The credential that Git sends to the server of one URL, if the server asks for one."""

    url: str
    username: str
    password: SecretValue


def protocol_of(url: str) -> str:
    """The protocol that Git uses for the URL: https, http, ssh or file."""
    if url.startswith("/"):
        return "file"
    return url.partition("://")[0] if "://" in url else "ssh"


def run_git(
    arguments: Sequence[str],
    *,
    seconds: float,
    directory: Path | None = None,
    protocol: str | None = None,
    credential: Credential | None = None,
    open_descriptors: Sequence[int] = (),
    tick: Callable[[], None] = lambda: None,
    read_output: Callable[[bytes], None] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    file_bytes: int = FILE_BYTES,
) -> GitResult:
    """Run Git with these arguments, in this directory, with one protocol allowed.

    `tick` is called about ten times a second, and may raise to end Git. `open_descriptors` stay open in Git.
    `read_output` gets the output in pieces, and may raise to end Git; without it, the result has the beginning of the
    output. `memory_bytes` and `file_bytes` are the limits for each process. Raises `GitError` if Git can't be started
    or exceeds its time (`GitOverworked` if its work on this host is the reason), and `OSError` or `MemoryError` for a
    fault of the host.
    """
    if (program := shutil.which("git")) is None:
        raise GitError(GIT_MISSING)
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment |= {**_ENVIRONMENT, **_TRACE, "GIT_ALLOW_PROTOCOL": protocol or "none"}
    trace, trace_end = os.pipe()
    try:
        with _credential_pipe(credential) as (credential_options, descriptors):
            process = subprocess.Popen(
                [
                    *(_SHELL, "-c", _START, "sh", *_limits(memory_bytes, file_bytes, seconds)),
                    *(program, *_OPTIONS, *credential_options, *arguments),
                ],
                cwd=directory or "/",
                env=environment,
                stdin=trace_end,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*descriptors, *open_descriptors),
                # The group is what `_kill` ends: Git starts further programs.
                start_new_session=True,
            )
    except BaseException:
        os.close(trace)
        raise
    finally:
        os.close(trace_end)
    reader = _Reader(process, trace, read_output)
    try:
        peak_bytes = reader.read(time.monotonic() + seconds, seconds, tick)
    except BaseException:
        _kill(process)
        raise
    finally:
        os.close(trace)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    status = process.returncode
    message = _message(reader.errors, credential) or ("Git ended without a message." if status else "")
    return GitResult(
        status,
        reader.output.decode("utf-8", "replace"),
        message,
        _cause_of(status, reader.trace.errors, peak_bytes, memory_bytes) if status else None,
    )


def _limits(memory_bytes: int, file_bytes: int, seconds: float) -> tuple[str, ...]:
    """The arguments of `_START`."""
    return tuple(
        str(_at_most_hard_limit(kind, limit) // unit)
        for kind, limit, unit in (
            # Memory that a process has written to. Mapped files don't count.
            (resource.RLIMIT_DATA, memory_bytes, 1_024),
            (resource.RLIMIT_FSIZE, file_bytes, 512),
            # If this process dies, nobody watches the deadline.
            (resource.RLIMIT_CPU, int(seconds) + 5, 1),
            (resource.RLIMIT_NOFILE, OPEN_FILES, 1),
            (resource.RLIMIT_STACK, STACK_BYTES, 1_024),
        )
    )


def _at_most_hard_limit(kind: int, limit: int) -> int:
    _, hard = resource.getrlimit(kind)
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard)


@dataclass(slots=True)
class _Trace:
    """Reads the errors in the trace of Git's processes."""

    errors: dict[str, str] = field(default_factory=dict)
    """The first text of each error, by its format string. A text may contain words of a server."""
    _rest: bytes = b""

    def read(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-_TRACE_LINE_BYTES_MAX:]
        for line in lines:
            # Long lines of several processes may be mixed. Their errors are then unknown.
            if b'"event":"error"' in line and len(self.errors) < _ERRORS_MAX:
                with suppress(ValueError, LookupError):
                    event = json.loads(line)
                    self.errors.setdefault(event["fmt"], event["msg"])


class _Reader:
    """Reads the output, the error output and the trace of a process."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", trace: int, read_output: Callable[[bytes], None] | None
    ) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.output, self.errors, self.trace = b"", b"", _Trace()
        self._process = process
        self._readers = {
            process.stdout.fileno(): read_output or self._keep_output,
            process.stderr.fileno(): self._keep_errors,
            trace: self.trace.read,
        }

    def read(self, deadline: float, seconds: float, tick: Callable[[], None]) -> int:
        """Read everything until the process has ended. Returns the most memory that one of its processes has used."""
        poll = select.poll()
        for descriptor in self._readers:
            poll.register(descriptor, select.POLLIN)
        unread = set(self._readers)
        next_tick = 0.0
        peak_bytes: int | None = None
        while unread or peak_bytes is None:
            if time.monotonic() > deadline:
                is_overworked = _processor_seconds(self._process.pid) >= OVERWORKED_SHARE * seconds
                raise (GitOverworked if is_overworked else GitError)(f"Git took longer than {seconds:g} s.")
            if time.monotonic() >= next_tick:
                tick()
                next_tick = time.monotonic() + TICK_SECONDS
            # Without pipes to read, this waits for the process.
            for descriptor, _ in poll.poll(TICK_SECONDS * 1000 if unread else 5):
                chunk = os.read(descriptor, _CHUNK_BYTES)
                if not chunk:
                    poll.unregister(descriptor)
                    unread.discard(descriptor)
                else:
                    self._readers[descriptor](chunk)
            if peak_bytes is None:
                peak_bytes = self._peak_bytes_at_end()
        tick()
        return peak_bytes

    def _peak_bytes_at_end(self) -> int | None:
        process, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if process == 0:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        # Until it executes Git, the process has the memory of this one, and Linux counts that, too.
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return usage.ru_maxrss * 1_024 if usage.ru_maxrss > own else 0

    def _keep_output(self, chunk: bytes) -> None:
        self.output = (self.output + chunk)[:OUTPUT_BYTES_MAX]

    def _keep_errors(self, chunk: bytes) -> None:
        self.errors = (self.errors + chunk)[-OUTPUT_BYTES_MAX:]


def _cause_of(status: int, errors: dict[str, str], peak_bytes: int, memory_bytes: int) -> FailureCause:
    """Why Git failed. Raises `OSError` if a system call failed because of this host.

    The first of several causes is the one that has the others as consequences.
    """
    for form in errors:
        if (code := _HOST_ERRORS.get(form.rpartition(": ")[2])) is not None:
            raise OSError(code, os.strerror(code))
    signals = {-status, _signal_in(errors.get(_SIGNAL_ERROR, ""))}
    if any(map(_OUT_OF_MEMORY.match, errors)) or signals.intersection(_SIGNALS_OF_CONTENT):
        return FailureCause.OUT_OF_MEMORY
    if signal.SIGKILL in signals:
        return FailureCause.OUT_OF_MEMORY if peak_bytes > memory_bytes // 2 else FailureCause.KILLED
    # Some errors about trees have no format string of their own, and a missing object has only the id 0.
    texts = (errors.get("%s", ""), errors.get("unable to read %s", ""))
    if any(map(_MALFORMED.match, (*errors, *texts))) or any(form.endswith(_UNUSABLE_NAMES) for form in errors):
        return FailureCause.MALFORMED
    if any(map(_MISSING.match, errors)) or _REMOTE_MISSING.search(errors.get(_REMOTE_ERROR, "")):
        return FailureCause.MISSING
    # After other errors, errors of the connection are a consequence.
    return FailureCause.REMOTE if errors and all(map(_REMOTE.match, errors)) else FailureCause.UNKNOWN


def _signal_in(text: str) -> int:
    number = text.rpartition(" ")[2]
    return int(number) if number.isdigit() else 0


def _processor_seconds(group: int) -> float:
    """The processor time of the processes in the group, and of their children that have ended. 0 without /proc."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of the program may contain anything.
            fields = path.read_bytes().rpartition(b") ")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _kill(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    # A killed process that waits for a broken disk doesn't end.
    try:
        process.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return


@contextmanager
def _credential_pipe(credential: Credential | None) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Options and descriptors with which Git gets the credential.

    The password is in a pipe only: not in the arguments, the environment or a file. Git asks the helper only for the
    server of the credential's URL, so no redirect can send it to another one.
    """
    if credential is None:
        yield (), ()
        return
    read_end, write_end = os.pipe()
    try:
        # Less than a pipe holds.
        os.write(write_end, f"username={credential.username}\npassword={credential.password.reveal()}\n".encode())
        os.close(write_end)
        parts = urlsplit(credential.url)
        helper = f'!f() {{ test "$1" = get && cat /dev/fd/{read_end}; }}; f'
        yield ("-c", f"credential.{parts.scheme}://{parts.netloc}.helper={helper}"), (read_end,)
    finally:
        os.close(read_end)


def _message(errors: bytes, credential: Credential | None) -> str:
    text = errors.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The line with the cause precedes hints and other consequences.
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:", "remote:"))]
    message = " ".join((causes or lines)[:2])
    if has_part(message, _secret_parts(credential) if credential is not None else ()):
        return f"Git failed, and {HIDDEN}."
    return printable(message)[:MESSAGE_CHARACTERS_MAX]


def _secret_parts(credential: Credential) -> tuple[str, str]:
    password = credential.password.reveal()
    return password, base64.b64encode(f"{credential.username}:{password}".encode()).decode()
