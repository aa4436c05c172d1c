"""A real Docker, unpacked from Debian's packages, with the images of `tests/support/podman.py`."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.debian import program
from tests.support.podman import IMAGE, busybox_archive
from tests.support.processes import end_with_the_tests
from tests.support.waiting import until

PROGRAMS: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "runc": "runc",
}
"""The programs of which Docker consists, with their packages."""


@contextmanager
def docker(directory: Path) -> Iterator[Path]:
    """Run Docker's daemon, whose images and containers are in the directory, and which has no networks. Needs root.

    Yields the path of a program `docker` that uses this daemon. Raises `ProgramUnavailable`.
    """
    programs = {name: program(name, package=package) for name, package in PROGRAMS.items()}
    directories = {str(Path(path).parent) for path in programs.values()}
    path = ":".join((*sorted(directories), "/usr/sbin", "/usr/bin", "/sbin", "/bin"))
    socket, log = directory / "docker.sock", directory / "dockerd.log"
    options = [
        f"--host=unix://{socket}", f"--data-root={directory}/data", f"--exec-root={directory}/exec",
        f"--pidfile={directory}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false",
        "--exec-opt=native.cgroupdriver=cgroupfs",
    ]  # fmt: skip
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [programs["dockerd"], *options],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=end_with_the_tests,
        )
    try:
        wrapper = directory / "client" / "docker"
        wrapper.parent.mkdir()
        wrapper.write_text(
            f"#!/bin/sh\nexport DOCKER_HOST=unix://{socket} DOCKER_CONFIG={directory}/client\n"
            f"exec '{programs['docker']}' \"$@\"\n"
        )
        wrapper.chmod(0o755)
        until(
            lambda: subprocess.run([wrapper, "version"], capture_output=True, timeout=60).returncode == 0,
            lambda: f"Docker's daemon answers:\n{log.read_text()[-4000:]}",
            pause_seconds=0.2,
        )
        archive = busybox_archive(directory)
        subprocess.run([wrapper, "import", archive, IMAGE], check=True, capture_output=True, timeout=120)
        yield wrapper
        names = subprocess.run([wrapper, "ps", "--all", "--quiet"], capture_output=True, text=True, timeout=60).stdout
        if names:
            subprocess.run([wrapper, "rm", "--force", *names.split()], capture_output=True, timeout=60)
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(directory, ignore_errors=True)
