"""Checks of the data directory: its owner and modes, the file system, free space, and the time of a sync."""

import os
import pwd
import re
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from hookmill.domain.finding import Finding, ok, problem, warning
from hookmill.runs.package import SERVICE_FILE_PREFIXES
from hookmill.sandbox.disk import disk_use
from hookmill.sandbox.reserve import FREE_INODES_MIN, NEAR_RESERVES, amount_text
from hookmill.settings import Settings

MOUNTS: Final = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "fuse.sshfs", "fuse.glusterfs"})
VOLATILE_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
OVERLAY: Final = "overlay"
SYNCS: Final = 7
"""How many syncs are measured."""
SLOW_SYNC_SECONDS: Final = 0.02
MEGABYTE: Final = 1024 * 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def check_owner_and_modes(settings: Settings) -> Iterator[Finding]:
    directory = settings.data_dir.absolute()
    if not directory.exists():
        parent = next(each for each in directory.parents if each.exists())
        if _may(parent, os.W_OK | os.X_OK):
            yield ok(f"{directory} does not exist yet; the first start creates it")
        else:
            yield problem(
                f"{directory} does not exist, and {_account(os.geteuid())} may not create it in {parent}",
                "Create it for the service's account, or set HOOKMILL_DATA_DIR.",
            )
        return
    status = directory.stat()
    if not stat.S_ISDIR(status.st_mode):
        yield problem(f"{directory} is not a directory", "Move it away, or set HOOKMILL_DATA_DIR.")
        return
    owner = _account(status.st_uid)
    if not _may(directory, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            f"{_account(os.geteuid())} may not write to {directory}, which belongs to {owner}",
            "Run this command as the service's account, such as with `sudo -u`. If this is the service's account, run "
            f"chown on {directory}.",
        )
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        yield warning(
            f"every account of this host can open {directory} (mode {mode:o})", f"Run: chmod o-rw {directory}"
        )
    else:
        yield ok(f"{directory} belongs to {owner}, with mode {mode:o}")
    yield from _findings_of_files(directory, status.st_uid)


def _findings_of_files(directory: Path, owner: int) -> Iterator[Finding]:
    """The service's own files that belong to another account than the directory, or that others can open."""
    foreign, exposed = [], []
    for entry in os.scandir(directory):
        is_file = entry.name.startswith(SERVICE_FILE_PREFIXES) and entry.is_file(follow_symlinks=False)
        if not is_file and entry.name != "runs":
            continue
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if status.st_uid != owner:
                foreign.append(f"{entry.name} ({_account(status.st_uid)})")
            if is_file and status.st_mode & _OTHERS:
                exposed.append(f"{entry.name} (mode {stat.S_IMODE(status.st_mode):o})")
    if foreign:
        yield problem(
            f"in {directory}, these belong to another account than the directory: {', '.join(sorted(foreign))}",
            f"Give them to the service's account: chown {_account(owner)} on each. This happens if a command was run "
            "as root.",
        )
    if exposed:
        yield problem(
            f"in {directory}, other accounts can open {', '.join(sorted(exposed))}",
            "Run chmod 600 on each. These files contain payloads and keys.",
        )


def _may(path: Path, access: int) -> bool:
    """Whether this process has the access. Without `effective_ids`, the account that started it would be checked."""
    return os.access(path, access, effective_ids=os.access in os.supports_effective_ids)


def _account(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return f"the account {uid}"


def check_file_system(settings: Settings) -> Iterator[Finding]:
    directory = _existing(settings)
    kind = file_system_of(directory, MOUNTS.read_text(errors="replace")) if MOUNTS.exists() else None
    if kind is None:
        return
    if kind in NETWORK_FILE_SYSTEMS and not settings.on_postgres:
        yield problem(
            f"{directory} is on {kind}, a network file system, on which SQLite's locks and shared memory don't work",
            "Move the data directory to a local disk, or use PostgreSQL.",
        )
    elif kind in NETWORK_FILE_SYSTEMS:
        yield warning(
            f"{directory} is on {kind}, a network file system: each host needs a data directory of its own",
            "Use a local disk. Packages of runs are written and synced there.",
        )
    elif kind in VOLATILE_FILE_SYSTEMS:
        yield warning(
            f"{directory} is on {kind}, in memory: a restart of the host loses everything in it",
            "Move the data directory to a disk.",
        )
    elif kind == OVERLAY:
        yield warning(
            f"{directory} is on {kind}, the writable layer of a container: it is lost with the container",
            "Mount a volume there.",
        )
    else:
        yield ok(f"{directory} is on {kind}")


def file_system_of(path: Path, mounts: str) -> str | None:
    """The type of the file system that contains the path. `mounts` is the text of Linux's `mountinfo`."""
    kind, depth = None, -1
    for line in mounts.splitlines():
        mount, separator, source = line.partition(" - ")
        fields = mount.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = Path(re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), fields[4]))
        # Of several mounts at one point, the last one is visible.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = source.split(" ")[0], len(point.parts)
    return kind


def check_space(settings: Settings) -> Iterator[Finding]:
    directory = _existing(settings)
    disk = os.statvfs(directory)
    free_mb = disk.f_bavail * disk.f_frsize // MEGABYTE
    needed_mb = settings.free_space_min_mb
    text = f"{free_mb:,} MB are free at {directory}"
    reserve = replace(settings.host_reserve(), directory=directory)
    if free_mb < needed_mb:
        yield problem(
            f"{text}, less than free_space_min_mb ({needed_mb:,} MB): deliveries get 503",
            "Free disk space, or lower free_space_min_mb.",
        )
    elif free_mb < 2 * needed_mb:
        yield warning(f"{text}. Below {needed_mb:,} MB, deliveries get 503", "Free disk space soon.")
    else:
        yield ok(text)
    # Some file systems have no inode table and report zero inodes.
    if disk.f_files and disk.f_favail < FREE_INODES_MIN:
        yield problem(
            f"{disk.f_favail:,} inodes are free at {directory}, less than {FREE_INODES_MIN:,}: deliveries get 503",
            "Remove files. Each run has about eight.",
        )
    if (shortage := reserve.disk_shortage()) is not None:
        yield problem(
            f"no run starts until the disk has its reserve of {shortage.resource}: it has {shortage}",
            "Remove files, or move the data directory to a larger disk.",
        )
        # This may take longer than the check may.
        entries = os.scandir(directory) if settings.data_dir.is_dir() else ()
        paths = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        sizes = [(disk_use([path]).bytes, path) for path in paths]
        if sizes:
            size, path = max(sizes)
            yield warning(
                f"the largest directory there is {path}, with {size // MEGABYTE:,} MB",
                "Look whether it can shrink.",
            )
    elif settings.repositories and (shortage := reserve.disk_shortage(reserves=NEAR_RESERVES)) is not None:
        yield warning(
            f"no workspace is made while less than {amount_text(shortage.resource, shortage.reserve)} of "
            f"{shortage.resource} are free at {directory}",
            "Remove files, or move the data directory to a larger disk.",
        )


def check_memory(settings: Settings) -> Iterator[Finding]:
    """Whether the host has the memory that runs must leave."""
    reserve = settings.host_reserve()
    if (text := reserve.problem()) is not None:
        yield problem(text.removesuffix("."), "The service refuses to start.")
    elif (shortage := reserve.memory_shortage()) is not None:
        yield problem(
            f"no run starts until the host has its reserve of memory: it has {shortage}",
            "End other programs, use a host with more memory, or lower free_memory_min_mb.",
        )
    else:
        yield ok("the host has the memory that runs must leave")


def check_sync(settings: Settings) -> Iterator[Finding]:
    directory = _existing(settings)
    seconds = []
    # The file never has a name, or loses it immediately.
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4_096))
            began = time.monotonic()
            os.fsync(file.fileno())
            seconds.append(time.monotonic() - began)
    text = f"a sync takes {statistics.median(seconds) * 1000:.1f} ms at {directory} (median of {SYNCS})"
    if statistics.median(seconds) > SLOW_SYNC_SECONDS:
        yield warning(
            text,
            "Each delivery waits for one sync, and deliveries that arrive meanwhile share the next one. Use a faster "
            "disk if senders give up before they get an answer.",
        )
    else:
        yield ok(text)


def _existing(settings: Settings) -> Path:
    """The data directory; before the first start, the directory in which it will be created. Links are resolved."""
    directory = settings.data_dir.absolute()
    return next(each for each in (directory, *directory.parents) if each.exists()).resolve()
