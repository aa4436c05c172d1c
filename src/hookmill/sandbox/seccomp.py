"""The system calls that a sandbox lacks. Each widens the attack surface of the kernel, and programs do without it.

The filter is a program of seccomp, which the kernel executes at each system call. It lists what is denied. Calls that
are newer than this list are denied with ENOSYS, as by an older kernel, so programs use what they have used before.
Namespaces and the lack of capabilities prevent most of the listed calls, too. The filter prevents them before the
kernel's code for them runs.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

_X86_64, _AARCH64 = "x86_64", "aarch64"
_ARCHITECTURES: Final = {_X86_64: 0xC000003E, _AARCH64: 0xC00000B7}
"""The value of `arch` in `seccomp_data`, by the machine's name."""
_X32: Final = 0x40000000
"""On x86-64, numbers from here on are those of a second set of the same system calls."""
DENIED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    # Keys of the kernel belong to the account, not to a namespace.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Large interfaces that programs rarely need. Libraries with a use for io_uring have another way.
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # Memory that the kernel can't move to swap.
    "memfd_secret": (447, 447),
    # The whole machine.
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
}
"""The numbers of the denied system calls on x86-64 and ARM64."""
SYSTEM_V: Final[Mapping[str, tuple[int, int]]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
}
"""Memory that belongs to no process. Only a cgroup counts it, so without one, these calls are denied, too."""
NEWEST: Final = 469
"""The newest known system call, `file_setattr` of Linux 6.17, on both machines."""
FALLOCATE: Final = (285, 47)
FREES_SPACE: Final = 3
"""The mode of `fallocate` that frees space. The others reserve any amount immediately, so that a measurement of the
disk comes too late. Without them, libraries write the space instead."""
SOCKET: Final = (41, 198)
IOCTL: Final = (16, 29)
FAMILIES: Final = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""The kinds of sockets that programs need. Others, such as AF_VSOCK, belong to no network namespace, or are rare."""
TERMINAL_REQUESTS: Final = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C}
"""Requests that put text into the input of a terminal."""

_LOAD, _IF_EQUAL, _IF_GREATER_OR_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24
"""Where `seccomp_data` has the lower half of each value. Both machines are little-endian."""
_ALLOW: Final = 0x7FFF0000
_KILL_PROCESS: Final = 0x80000000
_ERROR: Final = 0x00050000
_EPERM, _ENOSYS, _EOPNOTSUPP, _EAFNOSUPPORT = 1, 38, 95, 97

_Instruction = tuple[int, int, int, int]
"""The operation, the instructions to skip if a condition is true or false, and the operand."""


def seccomp_filter(machine: str, *, with_system_v: bool = True) -> bytes | None:
    """The filter for a machine with this name. None if its system calls are not known here.

    `with_system_v`: whether the calls of `SYSTEM_V` are allowed.
    """
    if machine not in _ARCHITECTURES:
        return None
    column = 0 if machine == _X86_64 else 1
    denied: Mapping[str, tuple[int | None, int | None]] = DENIED if with_system_v else {**DENIED, **SYSTEM_V}
    instructions = (
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        # 32-bit programs have system calls with other numbers.
        (_IF_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_AT),
        *(_answer_if(_IF_GREATER_OR_EQUAL, _X32, _ERROR | _EPERM) if machine == _X86_64 else ()),
        *_answer_if(_IF_GREATER_OR_EQUAL, NEWEST + 1, _ERROR | _ENOSYS),
        *_answer_if_any((numbers[column] for numbers in denied.values()), _ERROR | _EPERM),
        *_for_call(
            SOCKET[column], _FIRST_ARGUMENT_AT, FAMILIES.values(), answer=_ALLOW, otherwise=_ERROR | _EAFNOSUPPORT
        ),
        *_for_call(
            FALLOCATE[column], _SECOND_ARGUMENT_AT, [FREES_SPACE], answer=_ALLOW, otherwise=_ERROR | _EOPNOTSUPP
        ),
        *_for_call(
            IOCTL[column], _SECOND_ARGUMENT_AT, TERMINAL_REQUESTS.values(), answer=_ERROR | _EPERM, otherwise=_ALLOW
        ),
        (_RETURN, 0, 0, _ALLOW),
    )
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)


def open_filter(*, with_system_v: bool) -> int | None:
    """A descriptor from which bubblewrap can read the filter for this machine. None if there is no filter for it."""
    content = seccomp_filter(os.uname().machine, with_system_v=with_system_v)
    if content is None:
        return None
    read_end, write_end = os.pipe()
    # A pipe has space for far more.
    os.write(write_end, content)
    os.close(write_end)
    return read_end


def _answer_if(condition: int, value: int, answer: int) -> Iterator[_Instruction]:
    yield (condition, 0, 1, value)
    yield (_RETURN, 0, 0, answer)


def _answer_if_any(values: Iterable[int | None], answer: int) -> Iterator[_Instruction]:
    for value in values:
        if value is not None:
            yield from _answer_if(_IF_EQUAL, value, answer)


def _for_call(
    number: int, argument_at: int, values: Iterable[int], *, answer: int, otherwise: int
) -> Iterator[_Instruction]:
    """If the system call has this number, answer according to the lower half of an argument."""
    decision = (
        (_LOAD, 0, 0, argument_at),
        *_answer_if_any(values, answer),
        (_RETURN, 0, 0, otherwise),
    )
    yield (_IF_EQUAL, 0, len(decision), number)
    yield from decision
