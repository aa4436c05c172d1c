"""Stands guard over one command: starts it, collects its output, and ends it with all that it started.

It is a program of its own, and the worker holds the other end of its standard input. When that end closes, because the
worker wants the command stopped or because the worker was killed, the command is ended. It needs the standard library
alone, and it keeps the output of talkative commands out of the worker's process.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

OUTPUT_FILE: Final = "output.log"
RUN_VARIABLE: Final = "HOOKMILL_RUN_ID"
"""What marks every process of a run, on systems with `/proc`: its children inherit it wherever they go."""
TAIL_BYTES: Final = 4096
CHUNK_BYTES: Final = 65_536
GONE_SECONDS: Final = 5.0
"""At most, for what is killed to be gone: a process that waits for a dead disk is not."""
LOOK_AGAIN_SECONDS: Final = 0.01

_ASKS_TO_END: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end_processes_of(run: str) -> None:
    """Kill whatever still runs for this run, except the caller, and see it gone. Without `/proc` nothing is found."""
    mark = f"\0{RUN_VARIABLE}={run}\0".encode()
    deadline = time.monotonic() + GONE_SECONDS
    while found := [pid for pid in _processes() if mark in b"\0" + _environment_of(pid) + b"\0"]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return
        # What is killed goes when it is its turn, and may have started something between the look and the kill.
        time.sleep(LOOK_AGAIN_SECONDS)


def _processes() -> list[int]:
    places = Path("/proc").glob("[0-9]*")
    return [pid for place in places if (pid := int(place.name)) != os.getpid()]


def _environment_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # It is gone, or another user's.
        return b""


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


def guard(order: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out `order` (argv, time_limit_seconds, grace_seconds, output_bytes_max) and tell how the command ended."""
    for asked in _ASKS_TO_END:
        # Whoever stops the whole service asks everybody; the guard outlives its command to tell the end.
        signal.signal(asked, signal.SIG_IGN)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    child_ended = _notice_of_child()
    try:
        output = Output(order["output_bytes_max"])
        pid = _start(order["argv"], writing)
    except OSError as error:
        return {"trouble": error.strerror}
    os.close(writing)
    status, ending = _wait(pid, reading, child_ended, output, order)
    _signal_group(pid, signal.SIGKILL)
    end_processes_of(os.environ[RUN_VARIABLE])
    _drain(reading, output)
    return {
        "exit_status": status,
        "ending": ending,
        "dropped_bytes": output.dropped,
        "tail": output.tail.decode("latin-1"),
    }


def _start(argv: list[str], writing: int) -> int:
    return os.posix_spawnp(
        argv[0],
        argv,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGQUIT, *_ASKS_TO_END],
    )


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
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), ending
        if time.monotonic() < deadline:
            continue
        if ending is None:
            ending = "time"
            _signal_group(pid, signal.SIGTERM)
        else:
            _signal_group(pid, signal.SIGKILL)
        deadline = time.monotonic() + order["grace_seconds"]


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
    print(json.dumps(guard(json.loads(sys.argv[1]))), flush=True)
