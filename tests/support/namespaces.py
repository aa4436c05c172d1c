"""Processes inside the namespaces of `tests/support/hosts.py`: the switch, and the first process of each host.

A *host* has its own namespaces for processes, mounts, its name, and a network with one interface. The *switch* has a
network namespace with a bridge, to which the hosts are connected. It is also the first process of a PID namespace that
contains all hosts. When it ends, the kernel ends all processes of the hosts, and removes all interfaces.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.support.loaded import call, hookmill

ADDRESSES: Final = "10.77.0.{}"
"""The switch has number 1, and the hosts have the next numbers. These addresses are valid only in the namespaces."""
PREFIX_BITS: Final = 24
SECONDS_MAX: Final = 900
"""The switch ends after this time, even if its owner is still there."""
MESSAGE_BYTES_MAX: Final = 100_000
CHECK_SECONDS: Final = 0.1
"""The longest time until a process that has ended is noticed."""
INTERFACE: Final = "eth0"

# linux/sched.h, sys/mount.h
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
# linux/rtnetlink.h, linux/if_link.h, linux/veth.h
_NEW_LINK, _NEW_ADDRESS = 16, 20
_REQUEST_AND_ACKNOWLEDGE, _CREATE = 0x5, 0x600
_IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_NET_NS_PID = 3, 10, 18, 19
_IFLA_INFO_KIND, _IFLA_INFO_DATA, _VETH_INFO_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFF_UP = 1


def serve_network(control: socket.socket, hosts: Mapping[str, socket.socket]):
    """Run a network with these hosts until the other end of `control` is closed. The sockets are of type SEQPACKET.

    The first message on each socket is `{}`, or contains the `error` because of which there is no network.
    """
    os.setsid()
    try:
        _unshare(_CLONE_NEWPID | _CLONE_NEWNET, in_user_namespace=os.geteuid() != 0)
    except OSError as error:
        _send(control, {"error": str(error)})
        return
    switch = _fork(lambda: _Switch(control).serve(hosts))
    # The other ends must notice when the switch has ended, so only the switch may keep these sockets.
    for each in (control, *hosts.values()):
        each.close()
    os.waitpid(switch, 0)


class _Switch:
    def __init__(self, control: socket.socket):
        self._control = control

    def serve(self, hosts: Mapping[str, socket.socket]):
        deadline = time.monotonic() + SECONDS_MAX
        try:
            self._connect(hosts)
        except OSError as error:
            _send(self._control, {"error": str(error)})
            return
        for each in hosts.values():
            each.close()
        _send(self._control, {})
        while time.monotonic() < deadline:
            _reap({})
            if (order := _next_order(self._control)) is None:
                continue
            if order == {}:
                return
            self._carry_out(order)

    def _connect(self, hosts: Mapping[str, socket.socket]):
        _set_up("lo")
        _request(_NEW_LINK, _CREATE, _link(0, 0, _name("switch"), _kind("bridge")))
        _add_address("switch", 1)
        for number, (name, control) in enumerate(hosts.items(), start=2):
            self._add_host(number, name, control)

    def _add_host(self, number: int, name: str, control: socket.socket):
        own_end, end_of_parent = socket.socketpair()
        with own_end, end_of_parent:
            parent = _fork(lambda: _run_parent_of_host(end_of_parent, control, name, number))
            end_of_parent.close()
            reply = own_end.recv(MESSAGE_BYTES_MAX)
            if reply != b"ready":
                raise OSError(reply.decode() or f"{name} ended early")
            peer = _link(0, 0, _name(INTERFACE), _attribute(_IFLA_NET_NS_PID, struct.pack("=I", parent)))
            cable = _kind("veth", _attribute(_VETH_INFO_PEER, peer))
            _request(_NEW_LINK, _CREATE, _link(0, 0, _name(name), cable))
            master = _attribute(_IFLA_MASTER, struct.pack("=I", socket.if_nametoindex("switch")))
            _request(_NEW_LINK, 0, _link(socket.if_nametoindex(name), 0, master))
            _set_up(name)
            own_end.send(b"connected")

    def _carry_out(self, order: Mapping[str, Any]):
        match order["do"]:
            case "open socket":
                with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as new_socket:
                    socket.send_fds(self._control, [b"{}"], [new_socket.fileno()])
            case "plug in":
                _set_up(order["host"])
                _send(self._control, {})
            case "unplug":
                _set_up(order["host"], is_up=False)
                _send(self._control, {})


def _run_parent_of_host(switch: socket.socket, control: socket.socket, name: str, number: int):
    try:
        _unshare(_CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWNS)
    except OSError as error:
        switch.send(str(error).encode())
        return
    switch.send(b"ready")
    if switch.recv(MESSAGE_BYTES_MAX) == b"connected":
        host = _fork(lambda: _serve_host(control, name, number))
        control.close()
        os.waitpid(host, 0)


def _serve_host(control: socket.socket, name: str, number: int):
    """Run as the first process of a host: carry out orders until the other end of `control` is closed."""
    try:
        socket.sethostname(name)
        _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        _set_up("lo")
        _add_address(INTERFACE, number)
    except OSError as error:
        _send(control, {"error": str(error)})
        return
    _send(control, {})
    exit_codes: dict[int, int] = {}
    while True:
        _reap(exit_codes)
        if (order := _next_order(control)) is None:
            continue
        if order == {}:
            return
        match order["do"]:
            case "start":
                pid = _fork(lambda: _start(control, order))
                _send(control, {"pid": pid})
            case "exit code of":
                _reap(exit_codes)
                _send(control, {"exit_code": exit_codes.get(order["pid"])})
            case "signal":
                # -1: every process of the host but this one.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(order["pid"], order["number"])
                _send(control, {})
            case "kill all":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    while True:
                        pid, status = os.waitpid(-1, 0)
                        exit_codes[pid] = os.waitstatus_to_exitcode(status)
                _send(control, {})


def _start(control: socket.socket, order: Mapping[str, Any]):
    control.close()
    output = Path(order["output"])
    program, *arguments = order["command"]
    # This process has already loaded the modules of `hookmill`.
    function = partial(hookmill, *arguments) if program == "hookmill" else partial(os.execvp, program, order["command"])
    call(function, (), order["environment"], Path(order["directory"]), output, output)


def _next_order(control: socket.socket) -> dict[str, Any] | None:
    """The next order; None if none arrives within `CHECK_SECONDS`, and empty if the other end is closed."""
    if not select.select([control], [], [], CHECK_SECONDS)[0]:
        return None
    message = b""
    # The other end may be closed before all replies are read.
    with contextlib.suppress(ConnectionResetError):
        message = control.recv(MESSAGE_BYTES_MAX)
    order: dict[str, Any] = json.loads(message) if message else {}
    return order


def _send(control: socket.socket, reply: Mapping[str, Any]):
    control.send(json.dumps(reply).encode())


def _reap(exit_codes: dict[int, int]):
    """Store the exit codes of children that have ended. Orphans become children of a namespace's first process."""
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            exit_codes[child[0]] = os.waitstatus_to_exitcode(child[1])


def _fork(act: Callable[[], object]) -> int:
    """Fork a process that calls `act` and ends. Returns its id."""
    pid = os.fork()
    return pid or _call_and_exit(act)


def _call_and_exit(act: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        act()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


# System calls


def _unshare(namespaces: int, *, in_user_namespace: bool = False):
    """Move this process into new namespaces. Without root, this needs a user namespace, which gives capabilities."""
    user, group = os.geteuid(), os.getegid()
    _system_call("unshare", namespaces | (_CLONE_NEWUSER if in_user_namespace else 0))
    if in_user_namespace:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _mount(source: str, target: str, kind: str | None, flags: int):
    encoded_kind = kind.encode() if kind is not None else None
    _system_call("mount", source.encode(), target.encode(), encoded_kind, ctypes.c_ulong(flags), None)


def _system_call(name: str, *arguments: object):
    """Raises `OSError`."""
    function = ctypes.CDLL(None, use_errno=True)[name]
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _set_up(interface: str, *, is_up: bool = True):
    """Bring the interface up or down. While it is down, the kernel drops what its peer sends."""
    flags = _IFF_UP if is_up else 0
    _request(_NEW_LINK, 0, _link(socket.if_nametoindex(interface), flags, changes=_IFF_UP))


def _add_address(interface: str, number: int):
    """Add the address with this number to the interface, and bring the interface up."""
    index = socket.if_nametoindex(interface)
    address = socket.inet_aton(ADDRESSES.format(number))
    head = struct.pack("=BBBBI", socket.AF_INET, PREFIX_BITS, 0, 0, index)
    both = _attribute(_IFA_LOCAL, address) + _attribute(_IFA_ADDRESS, address)
    _request(_NEW_ADDRESS, _CREATE, head + both)
    _set_up(interface)


def _link(index: int, flags: int, *attributes: bytes, changes: int = 0) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, changes) + b"".join(attributes)


def _name(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")


def _kind(kind: str, *data: bytes) -> bytes:
    details: Sequence[bytes] = [_attribute(_IFLA_INFO_DATA, b"".join(data))] if data else []
    return _attribute(_IFLA_LINKINFO, b"".join([_attribute(_IFLA_INFO_KIND, kind.encode()), *details]))


def _attribute(kind: int, value: bytes) -> bytes:
    size = 4 + len(value)
    return struct.pack("=HH", size, kind) + value + bytes(-size % 4)


def _request(kind: int, flags: int, body: bytes):
    """Change interfaces of this network namespace by a netlink message. Raises `OSError`."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST_AND_ACKNOWLEDGE | flags, 1, 0)
        netlink.send(head + body)
        reply = netlink.recv(MESSAGE_BYTES_MAX)
    number = -struct.unpack_from("=i", reply, 16)[0]
    if number:
        reason = "a bridge or a veth pair can't be made here" if number == errno.EOPNOTSUPP else os.strerror(number)
        raise OSError(number, f"netlink: {reason}")
