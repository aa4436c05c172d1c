"""A real Podman with an image that has only BusyBox. It is unpacked from Debian's packages, and installs nothing.

The image also has a stand-in for an agent: the program `agent` executes the script in its variable `AGENT_SCRIPT`.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.debian import program, unpacked

IMAGE: Final = "localhost/busybox"
PYTHON_IMAGE: Final = "localhost/python"
LIBRARIES: Final = ("libgpgme11", "libassuan0", "libsubid4")
LIBRARIES_OF_IPTABLES: Final = ("libxtables12", "libmnl0", "libnftnl11")
COMMANDS: Final = ("sh", "cat", "sleep", "touch", "id", "env", "ls", "dd")


def podman(directory: Path, *, has_networks: bool = False) -> Path:
    """The path of a program `podman` whose images and containers are in the directory. Raises `ProgramUnavailable`.

    The directory must be empty. Its path must be short, because it is the beginning of the path of a socket.

    With `has_networks`, containers can have networks, and large images take less space. This needs more packages, root,
    and a file system on which the kernel allows overlays.
    """
    engine = Path(program("podman", package="podman"))
    helpers = [_helpers_directory("netavark"), _helpers_directory("aardvark-dns")] if has_networks else []
    libraries = (*LIBRARIES, *(LIBRARIES_OF_IPTABLES if has_networks else ()))
    paths = [_library_directory(package) for package in libraries]
    environment = {
        "LD_LIBRARY_PATH": ":".join(str(path) for path in paths if path is not None),
        **(_iptables(directory) if has_networks else {}),
        "CONTAINERS_CONF": str(directory / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(directory / "storage.conf"),
        "HOME": str(directory / "home"),
        "PATH": f"{directory}:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    # The processes of tests may lack the right to raise limits, which the defaults do. runc works with every version of
    # cgroups.
    (directory / "containers.conf").write_text(
        "[containers]\n"
        'default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
        "default_sysctls = []\n"
        "[engine]\n"
        'cgroup_manager = "cgroupfs"\n'
        'events_logger = "file"\n'
        'runtime = "runc"\n'
        f"helper_binaries_dir = {json.dumps(helpers)}\n"
        f"conmon_path = [{json.dumps(program('conmon', package='conmon'))}]\n"
        f"conmon_env_vars = {json.dumps([f'{name}={value}' for name, value in environment.items()])}\n"
        "[engine.runtimes]\n"
        f"runc = [{json.dumps(program('runc', package='runc'))}]\n"
        "[network]\n"
        f"network_config_dir = {json.dumps(str(directory / 'networks'))}\n"
        + ('network_backend = "netavark"\n' if has_networks else "")
    )
    driver = "overlay" if has_networks else "vfs"
    (directory / "storage.conf").write_text(
        f'[storage]\ndriver = "{driver}"\ngraphroot = "{directory}/storage"\nrunroot = "{directory}/run"\n'
    )
    policy = directory / "home" / ".config" / "containers" / "policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    wrapper = directory / "podman"
    variables = "\n".join(f"export {name}='{value}'" for name, value in environment.items())
    wrapper.write_text(f"#!/bin/sh\n{variables}\nexec '{engine}' \"$@\"\n")
    wrapper.chmod(0o755)
    subprocess.run([wrapper, "import", busybox_archive(directory), IMAGE], check=True, capture_output=True, timeout=120)
    return wrapper


def _library_directory(package: str) -> Path | None:
    """The directory of a library, which is unpacked now. None if the system has it."""
    name = package.rstrip("0123456789")
    system_files = list(Path("/usr/lib").glob(f"*/{name}.so*"))
    if system_files:
        return None
    return next(unpacked(package).glob("usr/lib/*/"))


def _helpers_directory(package: str) -> str:
    """The directory of a program that only Podman executes."""
    system = Path("/usr/lib/podman")
    return str(system if (system / package).exists() else unpacked(package) / "usr" / "lib" / "podman")


def _iptables(directory: Path) -> dict[str, str]:
    """Variables for iptables, which is linked into the directory if the system has none."""
    if shutil.which("iptables", path="/usr/sbin:/sbin"):
        return {}
    content = unpacked("iptables")
    for name in ("iptables", "ip6tables"):
        (directory / name).symlink_to(content / "usr" / "sbin" / "xtables-nft-multi")
    return {"XTABLES_LIBDIR": str(next(content.glob("usr/lib/*/xtables")))}


def busybox_archive(directory: Path) -> str:
    """Write the root file system of the image, and return the path of the archive."""
    root = directory / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(program("busybox", package="busybox-static"), root / "bin" / "busybox")
    for command in COMMANDS:
        (root / "bin" / command).symlink_to("busybox")
    (root / "bin" / "agent").write_text('#!/bin/sh\neval "$AGENT_SCRIPT"\n')
    (root / "bin" / "agent").chmod(0o755)
    for name in ("tmp", "proc", "dev", "sys", "etc"):
        (root / name).mkdir()
    return shutil.make_archive(str(directory / "image"), "tar", root)


def import_python(engine: Path, python: str, directory: Path):
    """Add the image `PYTHON_IMAGE`, which has this Python of the system with its libraries, and `sleep`."""
    root = directory / "python-root"
    program = Path(python).resolve()
    sleep = Path(shutil.which("sleep") or "").resolve()
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    stdlib = Path(
        subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    )
    unused = shutil.ignore_patterns("test", "__pycache__", "*-packages", "idlelib", "lib2to3", "config-*")
    shutil.copytree(stdlib, root / stdlib.relative_to("/"), ignore=unused, symlinks=False)
    files = {program, sleep}
    for binary in (program, sleep, *stdlib.glob("lib-dynload/_ctypes.*"), *stdlib.glob("lib-dynload/mmap.*")):
        listing = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        files |= {Path(word) for word in listing.split() if word.startswith("/")}
    for file in files:
        (root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.relative_to("/"))
    for name in ("tmp", "proc", "dev", "sys", "etc"):
        (root / name).mkdir()
    archive = shutil.make_archive(str(directory / "python"), "tar", root)
    subprocess.run([engine, "import", archive, PYTHON_IMAGE], check=True, capture_output=True, timeout=120)
