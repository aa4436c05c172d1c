"""Executes Git so that neither a repository nor a payload can make it do more than it is asked to.

Git reads no configuration of the system or of an account, runs no hook, filter or submodule, asks nothing, and uses one
protocol only. Each command has a deadline, and little of its output is read.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hookmill.domain.secret import SecretValue
from hookmill.domain.text import printable

GIT_MISSING: Final = "The program git is not installed on this host, or not in PATH. Install the package git."
TICK_SECONDS: Final = 0.1
"""The time between two calls of `tick`."""
OUTPUT_BYTES_MAX: Final = 65_536
MESSAGE_CHARACTERS_MAX: Final = 300
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
        "pack.threads=1",
        "submodule.recurse=false",
        "transfer.fsckObjects=true",
    )
    for part in ("-c", setting)
)


class GitError(Exception):
    """Git did not do what it was asked to. The text is for people, and contains no secret."""


@dataclass(frozen=True, slots=True)
class GitResult:
    exit_status: int
    output: str
    message: str
    """The last line of its error output, on one line and shortened."""


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
) -> GitResult:
    """Run Git with these arguments, in this directory, with one protocol allowed.

    `tick` is called about ten times a second, and may raise to end Git. `open_descriptors` stay open in Git. Raises
    `GitError` if Git can't be started or exceeds its time, and `OSError` or `MemoryError` for a fault of the host.
    """
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment |= {**_ENVIRONMENT, "GIT_ALLOW_PROTOCOL": protocol or "none"}
    with _credential_pipe(credential) as (credential_options, descriptors):
        try:
            process = subprocess.Popen(
                ["git", *_OPTIONS, *credential_options, *arguments],  # noqa: S607 - the operator sets PATH
                cwd=directory or "/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(*descriptors, *open_descriptors),
                # The group is what `_kill` ends: Git starts further programs.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise GitError(GIT_MISSING) from None
    try:
        output, errors = _read(process, time.monotonic() + seconds, seconds, tick)
    except BaseException:
        _kill(process)
        raise
    finally:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return GitResult(process.wait(), output.decode("utf-8", "replace"), _message(errors, credential))


def _read(
    process: "subprocess.Popen[bytes]", deadline: float, seconds: float, tick: Callable[[], None]
) -> tuple[bytes, bytes]:
    """The beginning of the output, and the end of the error output, once the process has ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    output, errors = process.stdout.fileno(), process.stderr.fileno()
    texts = {output: b"", errors: b""}
    poll = select.poll()
    for descriptor in texts:
        poll.register(descriptor, select.POLLIN)
    unread = set(texts)
    next_tick = 0.0
    while unread or process.poll() is None:
        if time.monotonic() > deadline:
            raise GitError(f"Git took longer than {seconds:g} s.")
        if time.monotonic() >= next_tick:
            tick()
            next_tick = time.monotonic() + TICK_SECONDS
        # Without pipes to read, this waits for the process.
        for descriptor, _ in poll.poll(TICK_SECONDS * 1000 if unread else 5):
            chunk = os.read(descriptor, _CHUNK_BYTES)
            if not chunk:
                poll.unregister(descriptor)
                unread.discard(descriptor)
            elif descriptor == output:
                texts[output] = (texts[output] + chunk)[:OUTPUT_BYTES_MAX]
            else:
                texts[errors] = (texts[errors] + chunk)[-OUTPUT_BYTES_MAX:]
    tick()
    return texts[output], texts[errors]


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
    if credential is not None:
        text = text.replace(credential.password.reveal(), "[masked]")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The line with the cause precedes hints and other consequences.
    causes = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:", "remote:"))]
    return printable(" ".join((causes or lines)[:2]))[:MESSAGE_CHARACTERS_MAX]
