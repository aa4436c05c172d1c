"""The sandbox of bubblewrap for commands and agents: its settings, and what a command sees in it."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from hookmill.domain.errors import Invalid
from hookmill.runs.runners.account import UnixAccount
from hookmill.runs.runners.allowed_destinations import (
    check_destinations,
    destinations_text,
    egress_spec,
    proxy_variables,
)
from hookmill.sandbox import DISK_LIMIT, MEMORY_LIMIT
from hookmill.sandbox.cgroup import cgroup_limits, limits_processors, usable_cgroup
from hookmill.sandbox.disk import FILES_MAX
from hookmill.sandbox.seccomp import open_filter

PROGRAM: Final = "bwrap"
HOME: Final = "/tmp"  # noqa: S108 - a path in the sandbox
TRIAL_SECONDS: Final = 20.0
OPEN_FILES_MAX: Final = 1_024
"""How many files and sockets a process may have open without a cgroup, which would count the memory of sockets."""
OPEN_FILES_MAX_IN_CGROUP: Final = 4_096
"""The same with a cgroup. An account can have as many descriptors in flight in sockets, in all sandboxes together. A
process with a higher limit, such as the one that makes a sandbox, can then still send a descriptor."""
_MIB: Final = 1_048_576
_SYSTEM_DIRECTORIES: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""With /usr, the directories of programs and libraries. On most systems, they are links into /usr."""
_SYSTEM_FILES: Final = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
"""What programs read in /etc. Other files there may contain secrets."""


class BubblewrapSettings(BaseModel):
    """The settings of a sandbox of bubblewrap."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    read_only: tuple[str, ...] = Field(
        default=(), max_length=64, description="Further paths that the command can read, such as the agent's directory."
    )
    writable: tuple[str, ...] = Field(
        default=(), max_length=64, description="Paths that the command can change. All runs of the runner share them."
    )
    network: Literal["none", "full"] = Field(
        default="none",
        description="`none`: no network, except the destinations in `network_allow`. `full`: the host's network.",
    )
    network_allow: tuple[str, ...] = Field(
        default=(),
        description="Destinations to reach through a proxy, such as `api.example.com:443` or `*.example.com:443`.",
    )
    network_private: tuple[str, ...] = Field(
        default=(),
        description="Private networks, such as `10.0.0.0/8`. Names in `network_allow` may resolve to addresses in "
        "them.",
    )
    memory_mb: int = Field(
        default=4_096, ge=16, le=16_777_216, description="How much memory all processes may use together."
    )
    limits: Literal["exact", "approximate"] = Field(
        default="exact",
        description="`exact`: if `memory_mb` is set, the service needs a cgroup to start. `approximate`: without a "
        "cgroup, the service measures the memory.",
    )
    cpus: float | None = Field(
        default=None,
        gt=0,
        le=1_024,
        description="How many processors all processes may use together. Needs a cgroup. Unset: all.",
    )
    processes_max: int = Field(
        default=256, ge=2, le=1_000_000, description="How many processes and threads there may be."
    )
    disk_mb: int = Field(
        default=2_048,
        ge=1,
        le=16_777_216,
        description="How much disk space the package and the workspace may have together; also the largest size of one "
        "file.",
    )
    tmp_mb: int = Field(
        default=512, ge=1, le=16_777_216, description="The size of `/tmp`, which is in memory; also of `/dev/shm`."
    )

    @field_validator("read_only", "writable")
    @classmethod
    def _check_paths(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if (
                "\0" in path
                or not path.startswith("/")
                or ".." in PurePath(path).parts
                or PurePath(path) == PurePath("/")
            ):
                raise ValueError("must have absolute paths without .., and not /")
        return paths

    @model_validator(mode="after")
    def _check_nesting(self) -> "BubblewrapSettings":
        for top in self.writable:
            for path in (*self.read_only, *self.writable):
                if path != top and PurePath(path).is_relative_to(top):
                    raise ValueError("must have no path inside a writable one, because commands could make it a link")
        return self

    @model_validator(mode="after")
    def _check_network(self) -> "BubblewrapSettings":
        if self.network == "full" and self.network_allow:
            raise ValueError("must have network none with network_allow, because full reaches every destination")
        check_destinations(self.network_allow, self.network_private)
        return self

    @property
    def network_text(self) -> str:
        """What the command reaches, for people."""
        if self.network == "full":
            return "the host's network"
        return destinations_text(self.network_allow)

    def environment(self, configured: Mapping[str, str]) -> dict[str, str]:
        """The variables that a command has because of the sandbox. `configured`: those of the operator."""
        variables = {"HOME": HOME}
        if self.network_allow:
            variables |= proxy_variables()
        return {name: value for name, value in variables.items() if name not in configured}

    def spec(self, package: PurePath, *, name: str, start: str | None = None) -> dict[str, Any]:
        """What the guard needs to create a sandbox. It contains no value of a variable.

        `name`: the name of the sandbox, which is unique on this host. `start`: the directory in which the command
        starts, such as the workspace in the package; None: the package.
        """
        memory_bytes = self.memory_mb * _MIB
        above = usable_cgroup()
        return {
            "arguments": bubblewrap_arguments(self, package, start=start),
            "rlimits": {
                "RLIMIT_CORE": 0,
                # A cgroup counts memory when it is used, and reports that this limit was reached.
                **({"RLIMIT_DATA": memory_bytes} if above is None else {}),
                "RLIMIT_NOFILE": _open_files_max(has_cgroup=above is not None),
                "RLIMIT_FSIZE": self.disk_mb * _MIB,
                "RLIMIT_NPROC": self.processes_max,
            },
            "cgroup": None
            if above is None
            else {"directory": f"{above}/{name}", "limits": cgroup_limits(above, memory_bytes, self.cpus)},
            "memory_bytes": memory_bytes if above is None else None,
            "directory": str(package),
            "shared_directories": self.writable,
            "disk_bytes": self.disk_bytes_max,
            "egress": egress_spec(self.network_allow, self.network_private),
        }

    def cgroup(self, name: str) -> str | None:
        """The directory of the cgroup of the sandbox with this name; None: it has none."""
        above = usable_cgroup()
        return f"{above}/{name}" if above is not None else None

    @property
    def disk_bytes_max(self) -> int:
        return self.disk_mb * _MIB

    def reason_of_end(self, ended_by: str | None) -> str | None:
        """The reason of a run whose sandbox was ended by one of its limits. None if it was not."""
        if ended_by == MEMORY_LIMIT:
            return f"The sandbox was ended: its processes used more than {self.memory_mb:,} MiB of memory."
        if ended_by == DISK_LIMIT:
            return (
                f"The sandbox was ended: the run's files needed more than {self.disk_mb:,} MiB, or were more "
                f"than {FILES_MAX:,}."
            )
        return None

    def refuse_unusable(self, account: UnixAccount | None) -> None:
        """Raises `Invalid` if this process can't create sandboxes."""
        if sys.platform != "linux":
            raise Invalid("The sandbox bubblewrap needs Linux. Set the runner's sandbox to none.")
        if (os.geteuid() if account is None else account.uid) == 0:
            raise Invalid(
                "The sandbox bubblewrap needs an account other than root, because the kernel limits no processes of "
                "root. Set the runner's user."
            )
        if (missing := self.missing_program(None)) is not None:
            raise Invalid(missing)

    def missing_program(self, search_path: str | None) -> str | None:
        """That bubblewrap is missing, and what to do; None if it exists. `search_path`: None: that of this process."""
        if shutil.which(PROGRAM, path=search_path) is not None:
            return None
        return (
            "The program bwrap is missing. Install the package bubblewrap, version 0.8 or later, or set the runner's "
            "sandbox to none."
        )

    def refuse_unlimited(self) -> None:
        """Raises `Invalid` if this process can't set a limit that the settings have."""
        above = usable_cgroup()
        if self.cpus is not None and not limits_processors(above):
            raise Invalid(
                "The limit cpus needs a cgroup of version 2, and this process can create none. Remove cpus from the "
                "runner's bubblewrap, or delegate a cgroup to the service (docs/isolation.md)."
            )
        if above is None and self.limits == "exact" and "memory_mb" in self.model_fields_set:
            raise Invalid(
                "The limit memory_mb needs a cgroup, and this process can create none. Delegate a cgroup to the "
                'service (docs/isolation.md), or add limits = "approximate" to the runner\'s bubblewrap: the service '
                "then measures the memory, and a command may use more for a moment."
            )

    @property
    def warning(self) -> str | None:
        """That the memory is only measured, if the operator has not written that this is enough."""
        if self.limits == "approximate" or usable_cgroup() is not None:
            return None
        return (
            "the memory of its commands is only measured, because this process can create no cgroup: delegate one, or "
            'accept this with limits = "approximate" (docs/isolation.md)'
        )

    @property
    def limits_text(self) -> str:
        """How this process limits the memory of a sandbox, for people."""
        return "without a cgroup: its memory is only measured" if usable_cgroup() is None else "with a cgroup"

    def check_paths(self, data: Path) -> None:
        """Raises `Invalid` if a command would see the whole data directory, through a directory that contains it."""
        real_data = data.resolve()
        for path in ("/usr", *self.read_only, *self.writable):
            if real_data.is_relative_to(Path(path).resolve()):
                raise Invalid(
                    f"The data directory {data} is in {path}, so commands in the sandbox would see it. Set "
                    "HOOKMILL_DATA_DIR to another place, or name a smaller directory in the runner's bubblewrap."
                )

    def try_out(self, account: UnixAccount | None) -> None:
        """Create a sandbox like that of a run, without its package. Raises `Invalid` if this fails."""
        system_calls = open_filter(with_system_v=usable_cgroup() is not None)
        inherited = [] if system_calls is None else [system_calls]
        filter_options = [text for descriptor in inherited for text in ("--seccomp", str(descriptor))]
        try:
            process = subprocess.run(
                [*bubblewrap_arguments(self, None), *filter_options, "--", "true"],
                pass_fds=inherited,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TRIAL_SECONDS,
                cwd="/",
                **(account.process_options if account is not None else {}),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            reason = error.strerror if isinstance(error, OSError) else f"no answer within {TRIAL_SECONDS:g} s"
            raise Invalid(f"bubblewrap can't be started: {reason}. Repair its installation.") from None
        finally:
            for descriptor in inherited:
                os.close(descriptor)
        if process.returncode != 0:
            lines = process.stderr.strip().splitlines()
            raise Invalid(
                f"bubblewrap can't create a sandbox here: {lines[-1] if lines else 'it gives no reason'}. Correct the "
                "runner's bubblewrap, install bubblewrap 0.8 or later, or allow user namespaces (docs/isolation.md)."
            )

    def problem_of(self, program: str) -> str | None:
        """Why commands don't see this program, whose path is absolute, and what to do; None if they see it."""
        link, target = Path(program), Path(program).resolve()
        hidden = list(dict.fromkeys(str(path.parent) for path in (link, target) if not self._shows(path)))
        if not hidden:
            return None
        place = program if link == target else f"{program}, which is a symbolic link to {target}"
        return (
            f"Its sandbox does not contain {place}. Add {' and '.join(hidden)} to read_only in the runner's bubblewrap."
        )

    def _shows(self, path: Path) -> bool:
        mounted = (
            "/usr",
            *(f"/{name}" for name in _SYSTEM_DIRECTORIES),
            *self.read_only,
            *self.writable,
        )
        return any(path.is_relative_to(top) for top in mounted)


def bubblewrap_arguments(
    settings: BubblewrapSettings, package: PurePath | None, *, start: str | None = None, root: Path = Path("/")
) -> tuple[str, ...]:
    """bubblewrap and its arguments, without the command, which starts in the directory `start`, or else in the package.

    `package`: what this run can change, besides `writable`; None: nothing. All paths are the same as outside.
    """
    return (
        PROGRAM,
        "--unshare-all",
        *(("--share-net",) if settings.network == "full" else ()),
        # Nested user namespaces would give the command rights that no program of an ordinary account has.
        "--unshare-user",
        "--disable-userns",
        "--cap-drop",
        "ALL",
        "--die-with-parent",
        *_system_mounts(root),
        *("--proc", "/proc", "--dev", "/dev"),
        *_tmpfs("/dev/shm", settings.tmp_mb),  # noqa: S108 - a path in the sandbox
        *("--remount-ro", "/dev"),
        *_tmpfs("/tmp", settings.tmp_mb),  # noqa: S108 - a path in the sandbox
        *("--dir", "/var", "--symlink", "../tmp", "/var/tmp", "--dir", "/run"),  # noqa: S108 - a path in the sandbox
        *_mounts("--ro-bind", settings.read_only),
        *_mounts("--bind", settings.writable),
        *_mounts("--bind", [str(package)] if package is not None else []),
        *("--remount-ro", "/"),
        *("--chdir", start or str(package or "/")),
    )


def _system_mounts(root: Path) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_DIRECTORIES:
        directory = root / name
        if directory.is_symlink():
            yield from ("--symlink", str(directory.readlink()), f"/{name}")
        elif directory.is_dir():
            yield from ("--ro-bind", f"/{name}", f"/{name}")
    for name in _SYSTEM_FILES:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _tmpfs(path: str, size_mb: int) -> tuple[str, ...]:
    return ("--size", str(size_mb * _MIB), "--tmpfs", path)


def _mounts(option: str, paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        yield from (option, path, path)


def _open_files_max(*, has_cgroup: bool) -> int:
    limit = OPEN_FILES_MAX_IN_CGROUP if has_cgroup else OPEN_FILES_MAX
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if hard == resource.RLIM_INFINITY else min(limit, hard // 2)
