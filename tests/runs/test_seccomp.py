"""The filter of system calls, executed as the kernel does. `test_isolation.py` tries it in a sandbox."""

import errno
import struct
from typing import Final

import pytest

from hookmill.sandbox.seccomp import (
    DENIED,
    FALLOCATE,
    FAMILIES,
    FREES_SPACE,
    IOCTL,
    NEWEST,
    SOCKET,
    SYSTEM_V,
    TERMINAL_REQUESTS,
    seccomp_filter,
)

X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
MACHINES: Final = {"x86_64": (X86_64, 0), "aarch64": (AARCH64, 1)}
ALLOW, KILL = 0x7FFF0000, 0x80000000
AF_VSOCK, TIOCGWINSZ = 40, 0x5413


def answer(content: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the filter returns for a system call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number, architecture, 0x7F0000001000, *padded)
    instructions = list(struct.iter_unpack("<HBBI", content))
    accumulator = position = 0
    while True:
        operation, if_true, if_false, operand = instructions[position]
        position += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                position += if_true if accumulator == operand else if_false
            case 0x35:
                position += if_true if accumulator >= operand else if_false
            case 0x06:
                return int(operand)
            case _:
                raise AssertionError(f"unknown operation {operation}")


def refused(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_refuses_the_listed_system_calls_and_no_others(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine)
    assert content is not None
    denied = {numbers[column] for numbers in DENIED.values()}

    answers = {number: answer(content, architecture, number, 0, 0) for number in range(NEWEST + 1)}

    special = {SOCKET[column], IOCTL[column], FALLOCATE[column]}
    assert {number for number, result in answers.items() if result == refused(errno.EPERM)} == denied - {None}
    assert {number for number, result in answers.items() if result == ALLOW} == set(answers) - denied - special | {
        IOCTL[column]
    }


RECENT: Final = {
    "name_to_handle_at": (303, 264),
    "memfd_secret": (447, 447),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "open_tree_attr": (467, 467),
}
"""Calls that the list once lacked, with their numbers in the kernel's tables."""


@pytest.mark.parametrize("machine", MACHINES)
def test_recent_ways_to_mounts_files_and_memory_are_refused(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine) or b""

    answers = {name: answer(content, architecture, numbers[column]) for name, numbers in RECENT.items()}

    assert answers == dict.fromkeys(RECENT, refused(errno.EPERM))


@pytest.mark.parametrize("machine", MACHINES)
def test_newer_system_calls_seem_to_be_missing(machine):
    architecture, _ = MACHINES[machine]
    content = seccomp_filter(machine) or b""

    answers = {answer(content, architecture, number) for number in (*range(NEWEST + 1, 600), 0x3FFFFFFF)}

    assert answers == {refused(errno.ENOSYS)}


@pytest.mark.parametrize("machine", MACHINES)
def test_without_a_cgroup_the_filter_refuses_system_v_memory(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine, with_system_v=False) or b""

    answers = {answer(content, architecture, numbers[column]) for numbers in SYSTEM_V.values()}

    assert answers == {refused(errno.EPERM)}


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_allows_four_kinds_of_sockets(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine) or b""

    # The kernel ignores the upper half of an argument that is an int.
    for high in (0, 1 << 32):
        results = {kind: answer(content, architecture, SOCKET[column], high | kind, 1) for kind in range(50)}
        assert {kind for kind, result in results.items() if result == ALLOW} == set(FAMILIES.values())
        assert results[AF_VSOCK] == refused(errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_lets_fallocate_free_space_but_not_reserve_it(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine) or b""

    results = {mode: answer(content, architecture, FALLOCATE[column], 3, mode) for mode in range(128)}

    assert {mode for mode, result in results.items() if result == ALLOW} == {FREES_SPACE}
    assert results[0] == refused(errno.EOPNOTSUPP)


@pytest.mark.parametrize("machine", MACHINES)
def test_filter_refuses_text_for_the_input_of_a_terminal(machine):
    architecture, column = MACHINES[machine]
    content = seccomp_filter(machine) or b""

    for high in (0, 1 << 32):
        for request in TERMINAL_REQUESTS.values():
            assert answer(content, architecture, IOCTL[column], 0, high | request) == refused(errno.EPERM)
        assert answer(content, architecture, IOCTL[column], 0, high | TIOCGWINSZ) == ALLOW


def test_filter_refuses_the_system_calls_of_other_architectures():
    content = seccomp_filter("x86_64") or b""

    assert answer(content, I386, 20) == KILL
    assert answer(content, AARCH64, 20) == KILL
    # The second set of system calls of x86-64
    assert answer(content, X86_64, 0x40000000 | 39) == refused(errno.EPERM)


def test_machine_whose_system_calls_are_unknown_has_no_filter():
    assert seccomp_filter("riscv64") is None
