"""The network of a container whose command may reach permitted destinations only.

An engine can't wait between the creation of a network and the start of the command in it. So a first container holds
the network, which has only a loopback. When the proxy listens there, a second container joins this network, and
executes the command. No image has a program that only waits, so this module contains one.
"""

import os
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from hookmill.sandbox import NOT_STARTED
from hookmill.sandbox.launch import start_egress

HOLDER_FILE: Final = ".hookmill-holder"
"""The program in the package, while its container is started."""
HOLDER_PATH: Final = "/hookmill-holder"
"""The program in its container."""
ANSWER_BYTES_MAX: Final = 1_000
START_SECONDS_MAX: Final = 5.0
"""How long the process of a holder whose container was started may take until it executes the program."""

_INSTRUCTIONS: Final[Mapping[str, tuple[int, bytes]]] = {
    # mov eax, 34 (pause); syscall; jmp to the first instruction
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    # x0 to x3 are 0, x8 is 73 (ppoll); svc 0; b to the first instruction
    "aarch64": (183, struct.pack("<7I", *range(0xD2800000, 0xD2800004), 0xD2800928, 0xD4000001, 0x17FFFFFA)),
}
"""By architecture: its number in ELF files, and instructions that wait for a signal again and again."""
_ADDRESS: Final = 0x400000


def holder_program(machine: str) -> bytes | None:
    """A program for Linux that only waits. It needs no library. None for an unknown architecture."""
    if machine not in _INSTRUCTIONS:
        return None
    number, code = _INSTRUCTIONS[machine]
    header_bytes, segment_bytes = 64, 56
    start = header_bytes + segment_bytes
    size = start + len(code)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",
        *(2, number, 1),  # an executable program, version 1
        *(_ADDRESS + start, header_bytes, 0),
        *(0, header_bytes, segment_bytes, 1, 0, 0, 0),
    )
    # One segment, the whole file, which can be read and executed.
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x1000)
    return header + segment + code


def prepare_network(spec: Mapping[str, Any], has_begun: Callable[[], None]) -> None:
    """Start the holder and the proxy. If this fails, print the reason and end this process with `NOT_STARTED`.

    The spec: `holder` (the command line that starts the holder), `inspect` (the one that prints its process id) and
    `egress` (as for `create_sandbox`). The working directory is the package. `has_begun` is called when the engine's
    client has started. Raises `OSError` if it can't be started.
    """
    try:
        _write_program(HOLDER_FILE)
    except OSError as error:
        _refuse(f"{HOLDER_FILE} could not be written: {error.strerror}")
    try:
        with subprocess.Popen(spec["holder"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as client:
            has_begun()
        if client.returncode != 0:
            _refuse("the container that holds its network could not be started")
    finally:
        os.unlink(HOLDER_FILE)  # noqa: PTH108 - pathlib loads slowly
    try:
        start_egress(_holder_process(spec["inspect"]), spec["egress"])
    except OSError as error:
        _refuse(error.strerror or str(error))


def _write_program(path: str) -> None:
    program = holder_program(os.uname().machine)
    if program is None:
        raise OSError(0, f"there is no program for the architecture {os.uname().machine}")
    try:
        os.unlink(path)  # noqa: PTH108 - pathlib loads slowly
    except FileNotFoundError:
        pass
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
    try:
        os.write(descriptor, program)
    finally:
        os.close(descriptor)


def _holder_process(inspect: Sequence[str]) -> int:
    """The process of the holder on this machine. Raises `OSError`."""
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        answer = subprocess.run(inspect, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout[:ANSWER_BYTES_MAX]
        try:
            process = int(answer)
            with open(f"/proc/{process}/cmdline", "rb") as file:  # noqa: PTH123 - pathlib loads slowly
                # The engine may be on another machine, where the number means another process.
                if file.read(len(HOLDER_PATH)) == HOLDER_PATH.encode():
                    return process
        except (OSError, ValueError):
            pass
        # The client of the engine may end before the process executes the program.
        time.sleep(0.02)
    raise OSError(0, "the container that holds its network has no process on this machine")


def _refuse(reason: str) -> NoReturn:
    print(
        f"The container's network could not be limited to network_allow, so it was not started: {reason}.", flush=True
    )
    os._exit(NOT_STARTED)
