"""What a hostile command tries. A run executes this file. The last line of the output has the attempts that succeeded.

It is a program of its own, which uses only the standard library.
"""

import contextlib
import ctypes
import errno
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any

CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
PR_GET_NO_NEW_PRIVS = 39
MIB = 1048576

target = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
output = pathlib.Path(target["output"])
"""The directory to which the command may write."""
succeeded = []


def attempt(name):
    """A decorator that calls the function immediately. The attempt succeeds if the function returns a true value."""

    def perform(function):
        try:
            if function():
                succeeded.append(name)
        except (OSError, ValueError, MemoryError, subprocess.SubprocessError):
            pass

    return perform


def read(path):
    with pathlib.Path(path).open("rb") as file:
        return file.read(1000)


def has_canary(path):
    return b"canary" in read(path)


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(5)
        connection.connect(address)
        return True


attempt("Read the master key")(lambda: has_canary(target["data"] + "/master.key"))
attempt("Read the database")(lambda: has_canary(target["data"] + "/hookmill.db"))
attempt("Read the package of another run")(lambda: has_canary(target["data"] + "/runs/run_other/event-payload.json"))
attempt("Read other files of the account, such as its SSH keys")(lambda: has_canary(target["home"] + "/id_ed25519"))


# Only the host can tell whether it has these files: in a sandbox, a write to /tmp succeeds, but in the sandbox's own
# /tmp.
for path in target["files"]:
    with contextlib.suppress(OSError):
        pathlib.Path(path).write_text("left")

attempt("Read the environment of the service's processes")(
    lambda: has_canary("/proc/{}/environ".format(target["service"]))
)


@attempt("Read the memory of the service's processes")
def _():
    with pathlib.Path("/proc/{}/mem".format(target["service"])).open("rb"):
        return True


@attempt("Trace the service's processes")
def _():
    if libc.ptrace(PTRACE_ATTACH, target["service"], None, None) != 0:
        return False
    # Only a process that has stopped can be detached.
    os.waitpid(target["service"], 0)
    libc.ptrace(PTRACE_DETACH, target["service"], None, None)
    return True


@attempt("See other processes")
def _():
    return b"--mark-of-the-service" in read("/proc/{}/cmdline".format(target["service"]))


# Only the host can tell whether this process gets the signal: a sandbox has its own process ids.
with contextlib.suppress(OSError):
    os.kill(target["service"], signal.SIGUSR1)


attempt("Connect to a port on the host's loopback")(lambda: connect(socket.AF_INET, ("127.0.0.1", target["port"])))
attempt("Connect to a Unix socket, such as PostgreSQL's")(lambda: connect(socket.AF_UNIX, target["socket"]))
attempt("Connect to an abstract Unix socket")(lambda: connect(socket.AF_UNIX, "\0" + target["mark"]))
attempt("See the host's network interfaces")(
    lambda: {name for _, name in socket.if_nameindex()} >= set(target["interfaces"])
)
attempt("Gain rights by programs such as `sudo`")(lambda: libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0)


@attempt("Create user namespaces")
def _():
    child = os.fork()
    if child == 0:
        os._exit(libc.unshare(CLONE_NEWUSER) & 1)
    return os.waitpid(child, 0)[1] == 0


@attempt("Use rare interfaces of the kernel, such as `keyctl` and `io_uring`")
def _():
    # add_key, keyctl, perf_event_open, userfaultfd, io_uring_setup and bpf. Without a filter, some of them succeed, or
    # fail only because of their arguments.
    numbers = {"x86_64": (248, 250, 298, 323, 425, 321), "aarch64": (217, 219, 241, 282, 425, 280)}[os.uname().machine]
    for number in numbers:
        ctypes.set_errno(0)
        if libc.syscall(number, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS):
            return True
    return False


@attempt("Open rare kinds of sockets, such as `AF_VSOCK`")
def _():
    for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_CAN, socket.AF_TIPC, socket.AF_BLUETOOTH):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
            with contextlib.suppress(OSError), socket.socket(family, kind):
                return True
    return False


@attempt("Start more processes than the limit")
def _():
    children = []
    try:
        for _ in range(target["processes"] + 1):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)
            # Not all of them end during one measurement of the sandbox's memory.
            time.sleep(0.02)
    return True


FILL = (
    "import mmap, sys; memory = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
    "for i in range(0, len(memory), 4096): memory[i] = 1\n"
    "print('full', flush=True); input(); print('alive', flush=True); input()"
)


def fill(*sizes_mb):
    """Use so much memory in processes of their own, at the same time. Their output shows whether they could."""
    command = [sys.executable, "-I", "-S", "-c", FILL]
    options: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
    children: Any = [subprocess.Popen([*command, str(size * MIB)], **options) for size in sizes_mb]
    try:
        lines = [child.stdout.readline() for child in children]
        # The kernel may have killed one that was full to give its memory to another.
        for child in children:
            child.stdin.write(b"\n")
            child.stdin.flush()
        lines += [child.stdout.readline() for child in children]
        if len(children) > 1 and target["is_memory_watched"]:
            signal.pause()
        return lines == [b"full\n"] * len(children) + [b"alive\n"] * len(children)
    finally:
        for child in children:
            child.kill()
            child.wait()


@attempt("Write a file larger than the limit")
def _():
    with output.joinpath("large").open("wb") as file:
        try:
            file.truncate(target["disk_mb"] * MIB + 1)
            return True
        finally:
            file.truncate(0)


@attempt("Fill `/tmp` or `/dev/shm` beyond the limit")
def _():
    for directory in ("/tmp", "/dev/shm"):
        path = pathlib.Path(directory, target["mark"] + ".large")
        try:
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, target["tmp_mb"] * MIB + 1)
            return True
        except OSError:
            pass
        finally:
            if path.exists():
                path.unlink()
    return False


output.joinpath("link-to-the-key").symlink_to(target["data"] + "/master.key")
output.joinpath("link-to-the-data").symlink_to(target["data"])
os.mkfifo(output / "pipe")


@attempt("Put a hard link to the master key into the package")
def _():
    os.link(target["data"] + "/master.key", output / "hard-link")
    return True


@attempt("Put a device into the package")
def _():
    os.mknod(output / "device", 0o060600, os.makedev(254, 0))
    return True


print(json.dumps(succeeded), flush=True)


# These attempts may end the sandbox, so they are the last ones.
attempt("Use more memory than the limit in one process")(lambda: fill(target["memory_mb"]))
print(json.dumps(succeeded), flush=True)
attempt("Use more memory than the limit in several processes")(lambda: fill(*[target["memory_mb"] * 6 // 10] * 2))

print(json.dumps(succeeded))
